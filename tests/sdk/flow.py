"""One pass through the Daytona SDK for Python: flow.py <sync|async> <old|new>

Prints "ok NAME" or "not ok NAME: reason" a check. Both clients go through the same lines: W() awaits what can be awaited.
"""
import asyncio, hashlib, inspect, os, re, shutil, sys, tempfile, time, traceback, urllib.error, urllib.request, uuid

here = os.path.dirname(os.path.abspath(__file__))
mode, generation = sys.argv[1:3]
old = generation == "old"
empty = tempfile.mkdtemp(prefix="sdk-")
os.chdir(empty)  # the SDK reads .env of its directory

import daytona
from daytona import (AsyncDaytona, CodeRunParams, CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig, FileDownloadRequest,
                     FileUpload, PtySize, SessionExecuteRequest)

KEY, URL = os.environ["TEST_KEY"], os.environ["TEST_URL"]
tag = "sdk-" + uuid.uuid4().hex[:12]


async def W(x):
    return await x if inspect.isawaitable(x) else x


async def check(name, f):
    try:
        await f()
        print("ok " + name, flush=True)
    except BaseException as e:
        where = traceback.extract_tb(e.__traceback__)
        mine = [t.lineno for t in where if t.filename == __file__]
        print("not ok %s: %s" % (name, ("%s: %s (line %s)" % (type(e).__name__, e, mine)).replace("\n", " | ")[:600]), flush=True)
        if isinstance(e, (KeyboardInterrupt, SystemExit)):
            raise


async def fails(f, pattern=None):
    try:
        await W(f())
    except Exception as e:
        if pattern:
            assert re.search(pattern, "%s %s" % (type(e).__name__, e)), "%s: %s" % (type(e).__name__, e)
        return e
    raise AssertionError("no error")


async def until(f, what):
    for _ in range(300):
        v = await W(f())
        if v:
            return v
        await asyncio.sleep(0.05)
    raise AssertionError("timed out: " + what)


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def said(s):
    """The old client parses output by lines and drops the last newline."""
    return s[:-1] if old and s.endswith("\n") else s


def request(cmd, asynchronous=False):
    return SessionExecuteRequest(command=cmd, run_async=asynchronous)


async def processes(sb):
    p = sb.process

    async def execute():
        r = await W(p.exec("echo out; echo err >&2; exit 3"))
        equal((r.exit_code, r.result), (3, said("out\nerr\n")))

    async def surroundings():
        value = "b" if old else "b 'c"  # the old client quotes it in a way that breaks it
        r = await W(p.exec('pwd; echo "$A|$GREETING"', cwd="/tmp", env={"A": value}))
        equal((r.exit_code, r.result), (0, said("/tmp\n%s|hi\n" % value)))

    async def limit():
        t = time.time()
        await fails(lambda: p.exec("sleep 60", timeout=1), "(?i)time")
        assert time.time() - t < 10

    async def code():
        r = await W(p.code_run('import sys, os\nprint(6*7, sys.argv[1:], os.environ["X"])\nsys.exit(4)', params=CodeRunParams(argv=["a", "b"], env={"X": "y"})))
        equal((r.exit_code, r.result), (4, said("42 ['a', 'b'] y\n")))

    async def failing_code():
        r = await W(p.code_run("raise ValueError('bad')"))
        equal(r.exit_code, 1)
        assert "ValueError: bad" in r.result

    await check("execute", execute)
    await check("execute with cwd and env", surroundings)
    await check("a time limit", limit)
    await check("code_run python", code)
    await check("code_run traceback", failing_code)


async def sessions(sb):
    p = sb.process

    async def state():
        await W(p.create_session("s1"))
        equal((await W(p.execute_session_command("s1", request("cd /tmp && export V=7")))).exit_code, 0)
        r = await W(p.execute_session_command("s1", request("pwd; echo $V; echo bad >&2; (exit 9)")))
        equal((r.exit_code, r.stdout, r.stderr), (9, "/tmp\n7\n", "bad\n"))
        await fails(lambda: p.create_session("s1"), "(?i)conflict|exist")

    async def logs():
        c = await W(p.execute_session_command("s1", request("for i in 1 2 3; do echo $i; sleep 0.2; done; echo e >&2; (exit 5)", True)))
        out, err = [], []
        await p.get_session_command_logs_async("s1", c.cmd_id, out.append, err.append)
        equal(("".join(out), "".join(err)), ("1\n2\n3\n", "e\n"))
        equal((await W(p.get_session_command("s1", c.cmd_id))).exit_code, 5)
        l = await W(p.get_session_command_logs("s1", c.cmd_id))
        equal((l.stdout, l.stderr), ("1\n2\n3\n", "e\n"))

    async def given():
        c = await W(p.execute_session_command("s1", request('read a; read b; echo "got $a $b"', True)))
        equal((await W(p.get_session_command("s1", c.cmd_id))).exit_code, None)
        await W(p.send_session_command_input("s1", c.cmd_id, "x y\n"))
        await W(p.send_session_command_input("s1", c.cmd_id, "z"))
        async def ended():
            return (await W(p.get_session_command("s1", c.cmd_id))).exit_code == 0
        await until(ended, "end of read")
        l = await W(p.get_session_command_logs("s1", c.cmd_id))
        assert l.stdout.endswith("got x y z\n"), l.stdout

    async def listed():
        equal((await W(p.get_session("s1"))).session_id, "s1")
        equal([s.session_id for s in await W(p.list_sessions())], ["s1"])
        await W(p.delete_session("s1"))
        await fails(lambda: p.get_session("s1"), "(?i)not found")

    await check("session keeps its state", state)
    await check("session asynchronous, logs by WebSocket", logs)
    await check("session input", given)
    await check("sessions listed and deleted", listed)


async def files(sb):
    f, data = sb.fs, os.urandom(3 << 20)

    async def both_ways():
        await W(f.upload_file(data, "/tmp/a/b/big é.bin"))
        equal(hashlib.sha256(await W(f.download_file("/tmp/a/b/big é.bin"))).hexdigest(), hashlib.sha256(data).hexdigest())

    async def several():
        await W(f.upload_files([FileUpload(source=b"one", destination="/tmp/many/1"), FileUpload(source=b"second", destination="/tmp/many/2")]))
        got = await W(f.download_files([FileDownloadRequest(source="/tmp/many/1"), FileDownloadRequest(source="/tmp/many/none"), FileDownloadRequest(source="/tmp/many/2")]))
        equal([(g.source, g.result, bool(g.error)) for g in got], [("/tmp/many/1", b"one", False), ("/tmp/many/none", None, True), ("/tmp/many/2", b"second", False)])

    async def missing():
        e = await fails(lambda: f.download_file("/tmp/no-such-file"))
        assert not re.search("(?i)sandbox.*not found", str(e)), e
        await fails(lambda: f.get_file_info("/tmp/no-such-file"), "(?i)no such|not found|NotFound")

    async def information():
        await W(f.set_file_permissions("/tmp/many/1", mode="640"))
        i = await W(f.get_file_info("/tmp/many/1"))
        equal((i.name, i.size, i.is_dir, i.mode), ("1", 3, False, "-rw-r-----"))

    async def folders():
        await W(f.create_folder("/tmp/dir/deep", "755"))
        await W(f.upload_file(b"x = needle\n", "/tmp/dir/deep/a.py"))
        await W(f.upload_file(b"nothing\nneedle twice needle\n", "/tmp/dir/b.txt"))
        equal(sorted((i.name, i.is_dir) for i in await W(f.list_files("/tmp/dir"))), [("b.txt", False), ("deep", True)])
        found = sorted((m.file, m.line, m.content.strip()) for m in await W(f.find_files("/tmp/dir", "needle")))
        equal(found, [("/tmp/dir/b.txt", 2, "needle twice needle"), ("/tmp/dir/deep/a.py", 1, "x = needle")])
        equal((await W(f.search_files("/tmp/dir", "*.py"))).files, ["/tmp/dir/deep/a.py"])
        r = await W(f.replace_in_files(["/tmp/dir/b.txt"], "needle", "pin"))
        equal([(x.file, x.success) for x in r], [("/tmp/dir/b.txt", True)])
        equal(await W(f.download_file("/tmp/dir/b.txt")), b"nothing\npin twice pin\n")

    async def moved():
        await W(f.move_files("/tmp/dir/b.txt", "/tmp/dir/c.txt"))
        await fails(lambda: f.delete_file("/tmp/dir"))
        await W(f.delete_file("/tmp/dir", recursive=True))
        await fails(lambda: f.list_files("/tmp/dir"))

    async def homes():
        home, work = await W(sb.get_user_home_dir()), await W(sb.get_work_dir())
        equal((await W(sb.process.exec("echo $HOME; pwd"))).result, said("%s\n%s\n" % (home, work)))

    for name, check_it in (("upload and download", both_ways), ("upload several, download several", several), ("a missing file", missing),
                           ("file information", information), ("folders, find, search, replace", folders), ("move and delete", moved),
                           ("home and work directory", homes)):
        await check(name, check_it)


async def git(sb):
    g = sb.git
    first = []

    async def run(command):
        return (await W(sb.process.exec(command))).result.strip()

    async def status(path):
        s = await W(g.status(path))
        word = lambda w: str(getattr(w, "value", w))
        return s.current_branch, sorted((f.name, word(f.staging), word(f.worktree), f.extra) for f in s.file_status)

    async def changes():
        if old:
            await run("git init -q -b main /tmp/g/a")
        else:
            await W(g.init("/tmp/g/a", initial_branch="main"))
        await W(sb.fs.upload_file(b"one\n", "/tmp/g/a/é 1.txt"))
        await W(sb.fs.upload_file(b"two\n", "/tmp/g/a/sub/-two"))
        equal(await status("/tmp/g/a"), ("main", [("sub/-two", "Untracked", "Untracked", ""), ("é 1.txt", "Untracked", "Untracked", "")]))
        await W(g.add("/tmp/g/a", ["é 1.txt", "sub/-two"]))
        equal(await status("/tmp/g/a"), ("main", [("sub/-two", "Added", "Unmodified", ""), ("é 1.txt", "Added", "Unmodified", "")]))
        first.append((await W(g.commit("/tmp/g/a", "-first é\n\nbody", "Ann Ö", "ann@example.org"))).sha)
        equal(await run("git -C /tmp/g/a log -1 --format=%H_%an_%ae_%s_%b | tr ' ' +"), first[0] + "_Ann+Ö_ann@example.org_-first+é_body")
        equal(await status("/tmp/g/a"), ("main", []))

    async def branches():
        await W(g.create_branch("/tmp/g/a", "feature/x"))
        await fails(lambda: g.create_branch("/tmp/g/a", "feature/x"), "already exists")
        await W(g.checkout_branch("/tmp/g/a", "feature/x"))
        equal((await W(g.branches("/tmp/g/a"))).branches, ["feature/x", "main"])
        equal(await status("/tmp/g/a"), ("feature/x", []))
        await W(g.checkout_branch("/tmp/g/a", "main"))
        await W(g.delete_branch("/tmp/g/a", "feature/x"))
        equal((await W(g.branches("/tmp/g/a"))).branches, ["main"])
        await fails(lambda: g.checkout_branch("/tmp/g/a", "none"), "invalid reference: none")

    async def others():
        await run("git clone -q --bare /tmp/g/a /tmp/g/hub.git")
        await W(g.clone(url="/tmp/g/hub.git", path="/tmp/g/c", branch="main", username="user", password="pass"))
        await W(g.clone(url="/tmp/g/hub.git", path="/tmp/g/d"))
        await W(sb.fs.upload_file(b"3", "/tmp/g/c/three"))
        await W(g.add("/tmp/g/c", ["."]))
        sha = (await W(g.commit("/tmp/g/c", "third", "Bob", "bob@example.org"))).sha
        s = await W(g.status("/tmp/g/c"))
        equal((s.ahead, s.behind, s.branch_published), (1, 0, True))
        await W(g.push("/tmp/g/c", username="user", password="pass"))
        await W(g.pull("/tmp/g/d"))
        equal(await run("git -C /tmp/g/hub.git rev-parse main; git -C /tmp/g/d rev-parse main"), sha + "\n" + sha)
        await fails(lambda: g.clone(url="/tmp/g/none", path="/tmp/g/e"), "does not exist")
        await fails(lambda: g.status("/tmp/g"), "not a git repository")

    async def newer():
        await W(sb.fs.upload_file(b"changed", "/tmp/g/c/three"))
        await W(g.restore("/tmp/g/c", ["three"]))
        equal(await run("cat /tmp/g/c/three"), "3")
        await W(g.reset("/tmp/g/c", mode="hard", target="HEAD~1"))
        equal(await run("git -C /tmp/g/c rev-parse HEAD"), first[0])
        await W(g.remote_add("/tmp/g/c", "other", "/tmp/g/a"))
        await W(g.remote_add("/tmp/g/c", "other", "/tmp/g/d", overwrite=True))
        equal([(r.name, r.url) for r in (await W(g.remotes("/tmp/g/c"))).remotes], [("origin", "/tmp/g/hub.git"), ("other", "/tmp/g/d")])
        await W(g.configure_user("Cleo", "cleo@example.org", scope="local", path="/tmp/g/c"))
        equal(await W(g.get_config("user.name", scope="local", path="/tmp/g/c")), "Cleo")
        assert not await W(g.get_config("user.name"))
        await W(g.set_config("alias.x", "-y z"))
        equal(await W(g.get_config("alias.x")), "-y z")

    await check("git add, status, commit", changes)
    await check("git branches", branches)
    await check("git clone, push, pull", others)
    if not old:
        await check("git reset, restore, remotes, settings", newer)


def fetch(url, headers={}):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as r:
            return r.status, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.read()


async def websocket_says(url, token, text):
    """By whichever WebSocket library came with the SDK."""
    try:
        import websockets
        async with websockets.connect(url, additional_headers={"X-Daytona-Preview-Token": token}) as ws:
            await ws.send(text)
            return await ws.recv()
    except ImportError:
        pass
    def plain():
        import websocket
        ws = websocket.create_connection(url, header={"X-Daytona-Preview-Token": token}, timeout=20)
        ws.send(text)
        answer = ws.recv()
        ws.close()
        return answer
    return await asyncio.to_thread(plain)


async def previews(sb):
    p = sb.process

    async def http():
        await W(sb.fs.upload_file(b"hello from inside\n", "/tmp/www/hello.txt"))
        await W(p.create_session("web"))
        await W(p.execute_session_command("web", request("cd /tmp/www && python3 -m http.server 8123 --bind 127.0.0.1", True)))
        link = await W(sb.get_preview_link(8123))
        auth = {"X-Daytona-Preview-Token": link.token}
        async def there():
            return (await asyncio.to_thread(fetch, link.url + "/hello.txt", auth))[0] == 200
        await until(there, "http.server")
        equal(await asyncio.to_thread(fetch, link.url + "/hello.txt", auth), (200, b"hello from inside\n"))
        equal((await asyncio.to_thread(fetch, link.url + "/hello.txt"))[0], 401)
        equal((await asyncio.to_thread(fetch, link.url + "/none", auth))[0], 404)

    async def ws():
        with open(os.path.join(here, "inside", "ws_echo.py"), "rb") as program:
            await W(sb.fs.upload_file(program.read(), "/tmp/ws_echo.py"))
        await W(p.create_session("ws"))
        await W(p.execute_session_command("ws", request("python3 /tmp/ws_echo.py 8124", True)))
        link = await W(sb.get_preview_link(8124))
        async def said():
            try:
                return await websocket_says(link.url.replace("http", "ws", 1) + "/x", link.token, "hi there")
            except Exception as e:
                said.last = e
        equal(await until(said, "the echo server"), "HI THERE")

    await check("preview by HTTP", http)
    await check("preview by WebSocket", ws)


async def terminal(sb):
    async def talk():
        text = []
        if mode == "sync":
            pty = sb.process.create_pty_session("p1", pty_size=PtySize(rows=30, cols=100), envs={"FOO": "bär"})
            pty.wait_for_connection()
            pty.send_input('stty size; echo "v=$((6*7)) $FOO $TERM"; exit 3\n')
            r = await asyncio.to_thread(pty.wait, lambda d: text.append(d))
        else:
            pty = await sb.process.create_pty_session("p1", on_data=lambda d: text.append(d), pty_size=PtySize(rows=30, cols=100), envs={"FOO": "bär"})
            await pty.wait_for_connection()
            await pty.send_input('stty size; echo "v=$((6*7)) $FOO $TERM"; exit 3\n')
            r = await pty.wait()
        equal(r.exit_code, 3)
        seen = b"".join(text).decode()
        assert "30 100" in seen and "v=42 bär xterm-256color" in seen, seen
    await check("terminal", talk)


async def control(d, sb):
    async def lists():
        equal((await W(d.get(sb.id))).id, sb.id)
        equal((await W(d.get(tag))).id, sb.id)
        if old:
            page = await W(d.list({"tag": tag}))
            equal((page.total, [s.id for s in page.items]), (1, [sb.id]))
        else:
            found = d.list(daytona.ListSandboxesQuery(labels={"tag": tag}))
            ids = [s.id async for s in found] if hasattr(found, "__aiter__") else [s.id for s in found]
            equal(ids, [sb.id])

    async def settings():
        await W(sb.set_labels({"tag": tag, "more": "é", "code-toolbox-language": "python"}))
        await W(sb.set_autostop_interval(30))
        await W(sb.set_auto_delete_interval(60))
        again = await W(d.get(sb.id))
        equal((again.labels["more"], int(again.auto_stop_interval), int(again.auto_delete_interval)), ("é", 30, 60))

    async def halt():
        await W(sb.fs.upload_file(b"kept", "kept.txt"))
        await W(sb.stop())
        equal(str(getattr(sb.state, "value", sb.state)), "stopped")
        await fails(lambda: sb.process.exec("true"), "sandbox is not running")
        await W(sb.start())
        equal(await W(sb.fs.download_file("kept.txt")), b"kept")

    async def errors():
        await fails(lambda: d.get("no-such-sandbox"), "sandbox no-such-sandbox not found")
        await fails(lambda: d.create(CreateSandboxFromImageParams(image="no-such-image:1.2")), "no-such-image")

    async def image():
        js = await W(d.create(CreateSandboxFromImageParams(image="default", language="javascript")))
        r = await W(js.process.code_run("console.log([1, 2].map(x => x * 21)[1]); process.exit(2)"))
        equal((r.exit_code, r.result), (0 if old else 2, said("42\n")))  # the old one ends with a grep, whose code it is
        await W(js.delete())

    await check("get and list", lists)
    await check("labels and intervals", settings)
    await check("stop and start keep the disk", halt)
    await check("errors", errors)
    await check("an image, another language", image)


async def flow(d):
    made = []

    async def create():
        sb = await W(d.create(CreateSandboxFromSnapshotParams(name=tag, language="python", env_vars={"GREETING": "hi"}, labels={"tag": tag})))
        made.append(sb)
        language = "python" if old else sb.labels["code-toolbox-language"]  # the old one sends it for other languages only
        equal((sb.name, sb.labels["tag"], language, str(getattr(sb.state, "value", sb.state))), (tag, tag, "python", "started"))

    async def delete():
        await W(made[0].delete())
        await fails(lambda: d.get(made[0].id), "not found")

    await check("create", create)
    if made:
        for part in (processes, sessions, files, git, previews, terminal):
            await part(made[0])
        await control(d, made[0])
        await check("delete", delete)


async def main():
    config = DaytonaConfig(api_key=KEY, api_url=URL)
    if mode == "async":
        async with AsyncDaytona(config) as d:
            await flow(d)
    else:
        await flow(Daytona(config))


asyncio.run(main())
os.chdir("/")
shutil.rmtree(empty)
