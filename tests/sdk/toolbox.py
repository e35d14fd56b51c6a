"""What lives inside a sandbox, by the newest Python SDK: interpreter, terminals, git over HTTP, language servers.

toolbox.py [part ...]    Prints "ok NAME", "skip NAME: reason" or "not ok NAME: reason" a check.
"""
import hashlib, os, re, shutil, sys, tempfile, threading, time, traceback, uuid

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "inside"))
empty = tempfile.mkdtemp(prefix="sdk-")
os.chdir(empty)  # the SDK reads .env of its directory

from daytona import CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig, LspCompletionPosition, PtySize

d = Daytona(DaytonaConfig(api_key=os.environ["TEST_KEY"], api_url=os.environ["TEST_URL"]))


class Skip(Exception):
    pass


def check(name, f):
    try:
        f()
        print("ok " + name, flush=True)
    except Skip as e:
        print("skip %s: %s" % (name, e), flush=True)
    except BaseException as e:
        mine = [t.lineno for t in traceback.extract_tb(e.__traceback__) if t.filename == __file__]
        print("not ok %s: %s" % (name, ("%s: %s (line %s)" % (type(e).__name__, e, mine)).replace("\n", " | ")[:600]), flush=True)
        if isinstance(e, (KeyboardInterrupt, SystemExit)):
            raise


def fails(f, kind, pattern=""):
    try:
        f()
    except Exception as e:
        assert type(e).__name__ == kind and re.search(pattern, str(e)), "%s: %s" % (type(e).__name__, e)
        return e
    raise AssertionError("no error")


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


# --- the interpreter ---

PLOTLIB = '''
class rc: pass
def use(name): rc.backend = name
'''
PYPLOT = '''
import importlib, matplotlib
backend = importlib.import_module(matplotlib.rc.backend.replace("module://", ""))
figures = {}
class Figure:
    def __init__(self, n): self.n = n
    def savefig(self, to, format, bbox_inches): to.write(b"\\x89PNG figure %d" % self.n)
    def __repr__(self): return "<Figure %d>" % self.n
def figure(n=None):
    n = n or len(figures) + 1
    return figures.setdefault(n, Figure(n))
def get_fignums(): return sorted(figures)
def close(f): figures.pop(f.n)
def show(): backend.show()
'''


def interpreter(sb):
    ci = sb.code_interpreter

    def state():
        r = ci.run_code("x = 1")
        equal((r.stdout, r.stderr, r.error), ("", "", None))
        r = ci.run_code("print(x)\nimport sys\nprint('é\\0\\n', file=sys.stderr)")
        equal((r.stdout, r.stderr, r.error), ("1\n", "é\0\n\n", None))

    def contexts():
        a, b = ci.create_context(cwd="/tmp"), ci.create_context()
        equal((a.cwd, b.cwd, a.language, a.active), ("/tmp", "/home/daytona", "python", True))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", a.created_at), a.created_at
        equal(sorted(c.id for c in ci.list_contexts()), sorted([a.id, b.id]))
        ci.run_code("x = 'of a'; import os", context=a)
        equal(ci.run_code("print(x, os.getcwd())", context=a).stdout, "of a /tmp\n")
        equal(ci.run_code("print(x)", context=b).error.name, "NameError")
        equal(ci.run_code("print(x)").stdout, "1\n")
        ci.delete_context(a)
        ci.delete_context(b)
        equal(ci.list_contexts(), [])
        fails(lambda: ci.delete_context(a), "DaytonaNotFoundError", "no interpreter")
        fails(lambda: ci.run_code("1", context=a), "DaytonaConnectionError", "no interpreter .* \\(close code 1008\\)")
        fails(lambda: ci.create_context(cwd="/nowhere"), "DaytonaBadRequestError", "/nowhere")

    def errors():
        r = ci.run_code("def f(n):\n    return 1 // n\nprint('before')\nf(0)")
        equal((r.stdout, r.error.name, r.error.value), ("before\n", "ZeroDivisionError", "integer division or modulo by zero"))
        lines = r.error.traceback.splitlines()
        equal((lines[0], lines[-1]), ("Traceback (most recent call last):", "ZeroDivisionError: integer division or modulo by zero"))
        equal([l for l in lines if l.startswith("  File")], [lines[1], '  File "%s", line 2, in f' % re.search(r'"(<cell \d+>)", line 4', lines[1]).group(1)])
        r = ci.run_code("a b")
        equal((r.stdout, r.error.name), ("", "SyntaxError"))
        equal(ci.run_code("raise SystemExit(3)").error.value, "3")

    def callbacks():
        got = []
        r = ci.run_code("import sys, os\nprint('one')\nsys.stderr.write('two')\nos.system('echo three')\nprint('four', end='')\n1/0",
                        on_stdout=lambda m: got.append(("out", m.output)), on_stderr=lambda m: got.append(("err", m.output)),
                        on_error=lambda e: got.append(("error", e.name)))
        equal("".join(t for k, t in got if k == "out"), "one\nthree\nfour")
        equal([g for g in got if g[0] != "out"], [("err", "two"), ("error", "ZeroDivisionError")])
        equal(r.stdout, "one\nthree\nfour")

    def environment():
        equal(ci.run_code("import os; print(os.environ.get('ONLY'), os.environ['GREETING'])", envs={"ONLY": "now 'é"}).stdout, "now 'é hi\n")
        equal(ci.run_code("print(os.environ.get('ONLY'))").stdout, "None\n")

    def limits():
        c = ci.create_context()
        ci.run_code("kept = 42", context=c)
        fails(lambda: ci.run_code("while True: pass", context=c, timeout=2), "DaytonaTimeoutError", "timed out")
        equal(ci.run_code("print(kept)", context=c).stdout, "42\n")
        fails(lambda: ci.run_code("import subprocess; subprocess.run(['sleep', '1000'])", context=c, timeout=1), "DaytonaTimeoutError")
        fails(lambda: ci.run_code("import os\nif os.system('sleep 1000'): print('not told')", context=c, timeout=1), "DaytonaTimeoutError")
        equal(ci.run_code("print(kept)", context=c).stdout, "42\n")
        # (One that ended and that the kernel has not collected yet is no process any more.)
        equal(sb.process.exec("for i in 1 2 3 4 5 6 7 8 9; do pgrep sleep >/dev/null || break; sleep 0.2 & wait; done; ps -C sleep -o stat=,args= | grep -v ^Z").result, "")
        fails(lambda: ci.run_code("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", context=c, timeout=1), "DaytonaTimeoutError")
        equal([x.active for x in ci.list_contexts()], [False])
        fails(lambda: ci.run_code("1", context=c), "DaytonaConnectionError", "has ended")
        ci.delete_context(c)

    def death():
        fails(lambda: ci.run_code("import os; os._exit(3)"), "DaytonaConnectionError", "the kernel has exited with 3 \\(close code 1011\\)")
        equal(ci.run_code("print('x' in globals())").stdout, "False\n")  # the default one is begun anew
        fails(lambda: ci.run_code("import os; os.kill(os.getpid(), 9)"), "DaytonaConnectionError", "signal 9")
        fails(lambda: ci.run_code("b = bytearray(8 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1"), "DaytonaConnectionError", "out of memory|signal 9") \
            if sb.memory < 8 else None
        equal(ci.run_code("print('again')").stdout, "again\n")

    def together():
        out, threads = [], []
        for i in range(10):
            threads.append(threading.Thread(target=lambda i=i: out.append(ci.run_code("n = globals().get('n', 0) + 1; print(%d)" % i).stdout)))
            threads[-1].start()
        for t in threads:
            t.join()
        equal(sorted(out), ["%d\n" % i for i in range(10)])
        equal(ci.run_code("print(n)").stdout, "10\n")

    def much():
        r = ci.run_code("for i in range(30000): print(i)\nimport subprocess; subprocess.run(['seq', '30000', '59999'])")
        assert r.stdout == "".join("%d\n" % i for i in range(60000)), len(r.stdout)

    def results():
        import ws_client  # SDKs pass over results
        sb.fs.upload_file(PLOTLIB.encode(), "/tmp/plot/matplotlib/__init__.py")
        sb.fs.upload_file(PYPLOT.encode(), "/tmp/plot/matplotlib/pyplot.py")
        sb.fs.upload_file(b"class FigureCanvasAgg: pass\n", "/tmp/plot/matplotlib/backends/backend_agg.py")
        code = ("import sys; sys.path.insert(0, '/tmp/plot')\nimport matplotlib.pyplot as plt\nplt.figure(); plt.show()\nplt.figure()\n"
                "class P:\n def _repr_png_(self): return b'\\x89PNG'\n def __repr__(self): return 'P'\ndisplay(P())\n6 * 7")
        said = ws_client.interpret(os.environ["TEST_URL"], os.environ["TEST_KEY"], sb.id, {"code": code})
        equal([m for m in said if m["type"] == "error"], [])
        equal([(m["main"], m["data"]) for m in said if m["type"] == "result"], [
            (False, {"text/plain": "<Figure 1>", "image/png": "iVBORyBmaWd1cmUgMQ=="}), (False, {"image/png": "iVBORw==", "text/plain": "P"}),
            (True, {"text/plain": "42"}), (False, {"text/plain": "<Figure 1>", "image/png": "iVBORyBmaWd1cmUgMQ=="})])
        equal((said[-2]["text"], said[-1]), ("completed", {"type": "close", "code": 1000}))

    def plots():
        """matplotlib itself, installed inside."""
        import base64, struct, ws_client
        wheels = os.environ.get("TEST_PLOTTING")
        if not wheels:
            raise Skip("the package matplotlib could not be had")
        for name in (n for n in os.listdir(wheels) if n.endswith(".whl")):
            sb.fs.upload_file(os.path.join(wheels, name), "/tmp/plotting/" + name)
        r = sb.process.exec("pip install --quiet --no-index --find-links /tmp/plotting --target /tmp/site matplotlib && rm -r /tmp/plotting")
        equal((r.exit_code, r.result), (0, ""))
        own = ci.create_context()  # that of the other checks has a stand-in for the library
        code = ("import sys; sys.path.insert(0, '/tmp/site')\nimport matplotlib.pyplot as plt\nplt.figure(figsize=(3, 2), dpi=100)\n"
                "plt.plot([1, 2, 3], [1, 4, 9]); plt.title('squares')\nplt.show()\nprint(matplotlib.__version__ if 'matplotlib' in globals() else 'shown')")
        said = ws_client.interpret(os.environ["TEST_URL"], os.environ["TEST_KEY"], sb.id, {"code": code, "contextId": own.id, "timeout": 120})
        ci.delete_context(own)
        equal([m for m in said if m["type"] == "error"], [])
        png = [base64.b64decode(m["data"]["image/png"]) for m in said if m["type"] == "result" and "image/png" in m["data"]]
        equal(len(png), 1)
        width, height = struct.unpack(">II", png[0][16:24])
        assert png[0].startswith(b"\x89PNG\r\n\x1a\n") and png[0].endswith(b"IEND\xaeB`\x82") and width > 200 and height > 100, (len(png[0]), width, height)

    def left():
        import ws_client
        ws_client.interpret(os.environ["TEST_URL"], os.environ["TEST_KEY"], sb.id, {"code": "import time; time.sleep(1000)", "timeout": 0}, leave=0.5)
        equal(ci.run_code("print('free')", timeout=20).stdout, "free\n")

    for f in (state, contexts, errors, callbacks, environment, limits, death, together, much, results, plots, left):
        check("interpreter: " + f.__name__, f)


# --- terminals ---

class Screen:
    """Reads a terminal in a thread; what has come is in data."""
    def __init__(self, handle, pause=0):
        self.handle, self.data, self.pause = handle, bytearray(), pause
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        self.result = self.handle.wait(self.take)

    def take(self, b):
        self.data += b
        if self.pause:
            time.sleep(self.pause)

    def until(self, what, start=0):
        for _ in range(400):
            if what in self.data[start:]:
                return
            time.sleep(0.05)
        raise AssertionError("%r does not come: ...%r" % (what, bytes(self.data[-300:])))

    def type(self, text):
        at = len(self.data)
        self.handle.send_input(text)
        return at

    def end(self):
        self.thread.join(120)
        assert not self.thread.is_alive(), "the terminal does not end"
        return self.result.exit_code


def terminals(sb):
    p = sb.process

    def open_one(id, **more):
        h = p.create_pty_session(id, **more)
        h.wait_for_connection()
        return Screen(h)

    def life():
        s = open_one("t1", cwd="/tmp", envs={"FOO": "b 'ä"}, pty_size=PtySize(rows=30, cols=100))
        s.until(b"$ ")
        s.type("echo \"[$FOO|$TERM|$PWD]\"; stty size\n")
        s.until("[b 'ä|xterm-256color|/tmp]\r\n30 100\r\n".encode())
        info = p.get_pty_session_info("t1")
        equal((info.id, info.cwd, info.envs, info.cols, info.rows, info.active, info.lazy_start), ("t1", "/tmp", {"FOO": "b 'ä"}, 100, 30, True, False))
        info = p.resize_pty_session("t1", PtySize(rows=41, cols=132))
        equal((info.cols, info.rows), (132, 41))
        info = p.get_pty_session_info("t1")  # the size it has, not the one it was made with
        equal((info.cols, info.rows), (132, 41))
        equal([(i.id, i.cols, i.rows) for i in p.list_pty_sessions()], [("t1", 132, 41)])
        s.type("stty size\n")
        s.until(b"41 132\r\n")
        s.type("exit 7\n")
        equal(s.end(), 7)
        fails(lambda: p.get_pty_session_info("t1"), "DaytonaProcessNotFoundError")
        fails(lambda: p.kill_pty_session("t1"), "DaytonaProcessNotFoundError")

    def killing():
        s = open_one("t2")
        s.until(b"$ ")
        s.type("sleep 1000\n")
        p.kill_pty_session("t2")
        equal(s.end(), 137)
        equal(p.list_pty_sessions(), [])

    def nowhere():
        """One that cannot begin says why, to who waits for it or for its end."""
        try:
            said = p.create_pty_session("t8", cwd="/nowhere").wait(lambda _: None).error
        except Exception as e:
            said = str(e)
        assert "/nowhere" in (said or ""), said
        equal(p.list_pty_sessions(), [])

    def reconnecting():
        s = open_one("t3")
        s.until(b"$ ")
        s.type("A=kept; echo first-$((1+1))\n")
        s.until(b"first-2\r\n")
        s.handle.disconnect()
        again = Screen(p.connect_pty_session("t3"))
        again.until(b"first-2\r\n")  # what was on the screen
        third = Screen(p.connect_pty_session("t3"))
        again.type("echo $A-$((2+2))\n")
        again.until(b"kept-4\r\n")
        third.until(b"kept-4\r\n")  # several may look on
        again.type("exit\n")
        equal((again.end(), third.end()), (0, 0))

    def python():
        s = open_one("t4")
        s.type("exec python3 -q\n")
        s.until(b">>> ")
        s.type("6*7\n")
        s.until(b"42\r\n>>> ")
        s.type("while True: pass\n\n")
        time.sleep(0.5)
        s.type("\x03")
        s.until(b"KeyboardInterrupt\r\n>>> ")
        s.type("exit(5)\n")
        equal(s.end(), 5)

    def top():
        s = open_one("t5", pty_size=PtySize(rows=20, cols=90))
        s.until(b"$ ")
        at = s.type("top -d 1\n")
        s.until(b"PID", at)
        s.until(b"bash", at)
        s.until(b"\x1b[?1h", at)  # it has taken the screen
        at = len(s.data)
        s.until(b"\x1b[H", at)    # and draws again
        at = s.type("q")
        s.until(b"$ ", at)
        at = s.type("echo back-$((3+3))\n")
        s.until(b"back-6\r\n", at)
        s.type("exit\n")
        equal(s.end(), 0)

    def vi():
        busybox = os.environ.get("TEST_BUSYBOX")
        if not busybox:
            raise Skip("the image has none, and the package busybox-static could not be had")
        sb.fs.upload_file(busybox, "/tmp/busybox")
        sb.process.exec("chmod +x /tmp/busybox")
        s = open_one("t6", cwd="/tmp")
        s.until(b"$ ")
        at = s.type("./busybox vi note.txt\n")
        s.until(b"- note.txt", at + 25)
        s.type("ione line\rtwo é\x1b")
        time.sleep(1)  # or it is the beginning of a key's sequence
        s.type("kyyp:%s/one/ONE/\r")
        s.type(":wq\r")
        at = s.type("echo left-$((4+4))\n")
        s.until(b"left-8\r\n", at)
        equal(sb.fs.download_file("/tmp/note.txt").decode(), "ONE line\nONE line\ntwo é\n")
        s.type("exit\n")
        equal(s.end(), 0)

    def much(pause=0):
        """10 MB through a terminal that changes no byte: none is lost, also when the reader is slow."""
        program = ("import sys, random; r = random.Random(7); b = bytes(r.randrange(256) for _ in range(65521)); n = 10_000_000\n"
                   "while n: k = min(n, len(b)); sys.stdout.buffer.write(b[:k]); n -= k\n")
        sb.fs.upload_file(program.encode(), "/tmp/much.py")
        import random
        r = random.Random(7)
        b = bytes(r.randrange(256) for _ in range(65521))
        whole = (b * (10_000_000 // len(b) + 1))[:10_000_000]
        s = Screen(p.create_pty_session("t7"), pause)
        s.until(b"$ ")
        at = s.type("stty raw -echo; echo go; python3 -u /tmp/much.py; sleep 0.2; exec true\n")
        s.until(b"go\n", at + 20)
        equal(s.end(), 0)
        got = bytes(s.data[s.data.rindex(b"go\n", 0, 3000) + 3:])
        equal((len(got), hashlib.sha256(got).hexdigest()), (len(whole), hashlib.sha256(whole).hexdigest()))

    def slow_reader():
        much(0.004)

    for f in (life, killing, nowhere, reconnecting, python, top, vi, much, slow_reader):
        check("terminal: " + f.__name__, f)


# --- git over HTTP ---

def git(sb):
    g, home = sb.git, "http://127.0.0.1:8418"
    run = lambda c: sb.process.exec(c).result.strip()
    with open(os.path.join(here, "inside", "git_server.py"), "rb") as f:
        sb.fs.upload_file(f.read(), "/tmp/git_server.py")
    sb.process.exec("mkdir /tmp/hub; cd /tmp/hub; git init -q --bare -b main r.git; git -C r.git config http.receivepack true; cp -r r.git s.git; >heard; "
                    "(setsid python3 /tmp/git_server.py /tmp/hub 8418 8419 >log 2>&1 &); for i in $(seq 100); do [ -e up ] && break; sleep 0.1; done")
    bob = dict(username="bob", password="S3cret")

    def heard():
        text = run("sort -u /tmp/hub/heard; >/tmp/hub/heard")
        return text.split("\n") if text else []

    def clone():
        fails(lambda: g.clone(home + "/r.git", "/tmp/w/none"), "DaytonaGitAuthFailedError", "could not read Username")
        fails(lambda: g.clone(home + "/r.git", "/tmp/w/none", username="bob", password="wrong"), "DaytonaGitAuthFailedError", "Authentication failed")
        equal(heard(), ["8418 bob:wrong"])
        g.clone(home + "/r.git", "/tmp/w/a", **bob)
        equal(run("cd /tmp/w/a; git config --get-all remote.origin.url; cat .git/config | grep -c S3cret; cat ~/.git-credentials 2>&1 | grep -c S3cret"),
              home + "/r.git\n0\n0")
        equal(heard(), ["8418 bob:S3cret"])

    def push_and_pull():
        sb.fs.upload_file(b"one\n", "/tmp/w/a/f")
        g.add("/tmp/w/a", ["f"])
        sha = g.commit("/tmp/w/a", "one", "Bob", "bob@example.org").sha
        fails(lambda: g.push("/tmp/w/a"), "DaytonaGitAuthFailedError")
        equal(heard(), [])
        g.push("/tmp/w/a", **bob)
        equal(run("git -C /tmp/hub/r.git rev-parse main"), sha)
        g.clone(home + "/r.git", "/tmp/w/b", **bob)
        sb.fs.upload_file(b"two\n", "/tmp/w/b/f")
        g.add("/tmp/w/b", ["f"])
        second = g.commit("/tmp/w/b", "two", "Bob", "bob@example.org").sha
        g.push("/tmp/w/b", **bob)
        g.pull("/tmp/w/a", **bob)
        equal(run("git -C /tmp/w/a rev-parse HEAD; cat /tmp/w/a/f"), second + "\ntwo")
        g.create_branch("/tmp/w/a", "topic")
        g.checkout_branch("/tmp/w/a", "topic")
        g.push("/tmp/w/a", **bob)  # never pushed before
        equal(run("git -C /tmp/hub/r.git rev-parse topic"), second)
        sb.fs.upload_file(b"three\n", "/tmp/w/b/f")
        g.add("/tmp/w/b", ["f"])
        g.commit("/tmp/w/b", "three", "Bob", "bob@example.org")
        run("cd /tmp/w/b; git commit -q --amend --allow-empty -m other; git push -q http://bob:S3cret@127.0.0.1:8418/r.git HEAD~1:refs/heads/x; git reset -q --hard HEAD~1; "
            "git -c user.name=a -c user.email=b commit -q --allow-empty -m ahead; git push -q http://bob:S3cret@127.0.0.1:8418/r.git HEAD:main; git reset -q --hard HEAD~1; "
            "git -c user.name=a -c user.email=b commit -q --allow-empty -m behind")
        fails(lambda: g.push("/tmp/w/b", **bob), "DaytonaGitPushRejectedError", "rejected")
        equal(set(heard()), {"8418 bob:S3cret"})

    def another_host():
        """The secret is for the host of the call: not for one that it redirects to, not for a pushurl elsewhere than asked."""
        fails(lambda: g.clone(home + "/away/r.git", "/tmp/w/c", **bob), "DaytonaGitAuthFailedError")
        equal([h for h in heard() if h.startswith("8419")], [])
        run("cd /tmp/w/a; git checkout -q main; git remote set-url origin %s/away/r.git" % home)
        fails(lambda: g.pull("/tmp/w/a", **bob), "DaytonaGitAuthFailedError")
        equal([h for h in heard() if h.startswith("8419")], [])
        g.remote_add("/tmp/w/a", "mirror", "http://127.0.0.1:8419/s.git")
        g.push("/tmp/w/a", remote="mirror", **bob)  # asked for by name
        equal(heard(), ["8419 bob:S3cret"])
        equal(run("git -C /tmp/hub/s.git rev-parse main"), run("git -C /tmp/w/a rev-parse main"))
        g.clone("http://127.0.0.1:8419/s.git", "/tmp/w/d", **bob)
        equal(heard(), ["8419 bob:S3cret"])

    def stored():
        g.dangerously_authenticate("bob", "S3cret", host="127.0.0.1:8418", protocol="http")
        g.clone(home + "/r.git", "/tmp/w/e")
        equal(heard(), ["8418 bob:S3cret"])
        fails(lambda: g.clone("http://127.0.0.1:8419/s.git", "/tmp/w/f"), "DaytonaGitAuthFailedError")
        equal(heard(), [])

    for f in (clone, push_and_pull, another_host, stored):
        check("git: " + f.__name__, f)


# --- language servers ---

TS = """export interface Point { x: number; y: number }
export class Shape {
  name = 'shape'
  move(by: Point): Shape { return this }
}
export function area(s: Shape): number { return s.name.length }
const s = new Shape()
s.
"""
PY = """import os

class Shape:
    def move(self, by):
        return self

def area(s):
    return 1

os.path.jo
"""


def languages(sb):
    def typescript():
        sb.fs.create_folder("web/src", "755")
        sb.fs.upload_file(TS.encode(), "web/src/a é.ts")
        lsp = sb.create_lsp_server("typescript", "web")
        fails(lambda: lsp.document_symbols("web/src/a é.ts"), "DaytonaLspServerNotInitializedError", "start it first")
        lsp.start()
        lsp.start()  # again: nothing
        lsp.did_open("web/src/a é.ts")
        names = [(x.name, x.kind, x.location.range.start.line) for x in lsp.document_symbols("web/src/a é.ts")]
        for one in (("Shape", 5, 1), ("move", 6, 3), ("area", 12, 5), ("Point", 11, 0), ("s", 14, 6)):
            assert one in names, (one, names)
        equal({x.location.uri for x in lsp.document_symbols("web/src/a é.ts")}, {"file:///home/daytona/web/src/a%20%C3%A9.ts"})
        done = lsp.completions("web/src/a é.ts", LspCompletionPosition(line=7, character=2))
        equal(sorted(i.label for i in done.items), ["move", "name"])
        equal([i.kind for i in done.items if i.label == "move"], [2])
        equal([(x.name, x.kind, x.location.uri) for x in lsp.sandbox_symbols("area")], [("area", 12, "file:///home/daytona/web/src/a%20%C3%A9.ts")])
        sb.fs.upload_file((TS + "area(").replace("area", "size").encode(), "web/src/a é.ts")
        lsp.did_open("web/src/a é.ts")  # as it is now
        assert "size" in [x.name for x in lsp.document_symbols("web/src/a é.ts")]
        lsp.did_close("web/src/a é.ts")
        lsp.stop()
        fails(lambda: lsp.completions("web/src/a é.ts", LspCompletionPosition(line=7, character=2)), "DaytonaLspServerNotInitializedError")
        equal(sb.process.exec("for i in 1 2 3 4 5 6 7 8 9; do pgrep -f tsserver >/dev/null || break; sleep 0.2; done; pgrep -fc [t]sserver").result, "0\n")

    def missing():
        lsp = sb.create_lsp_server("python", "/tmp")
        if "pylsp" in sb.process.exec("command -v pylsp").result:
            raise Skip("the image has one")
        fails(lambda: lsp.start(), "DaytonaUnprocessableEntityError", "install one of python-lsp-server \\(pylsp\\), jedi-language-server, pyright")
        fails(lambda: sb.create_lsp_server("typescript", "/nowhere").start(), "DaytonaNotFoundError", "/nowhere")

    def python():
        wheels = os.environ.get("TEST_WHEELS")
        if not wheels:
            raise Skip("the image has no server for it, and the package jedi-language-server could not be had")
        for name in (n for n in os.listdir(wheels) if n.endswith(".whl")):
            sb.fs.upload_file(os.path.join(wheels, name), "/tmp/wheels/" + name)
        r = sb.process.exec("pip install --quiet --user --no-index --find-links /tmp/wheels jedi-language-server")
        equal(r.exit_code, 0)
        sb.fs.create_folder("py", "755")
        sb.fs.upload_file(PY.encode(), "py/a.py")
        lsp = sb.create_lsp_server("python", "/home/daytona/py")
        lsp.start()
        lsp.did_open("/home/daytona/py/a.py")
        names = [(x.name, x.kind, x.location.range.start.line) for x in lsp.document_symbols("/home/daytona/py/a.py")]
        for one in (("Shape", 5, 2), ("move", 6, 3), ("area", 12, 6)):
            assert one in names, (one, names)
        done = lsp.completions("/home/daytona/py/a.py", LspCompletionPosition(line=9, character=10))
        equal([i.label for i in done.items], ["join"])
        assert "area" in [x.name for x in lsp.sandbox_symbols("area")]
        sb.process.exec("pkill -f jedi-language-server")
        fails(lambda: [lsp.did_open("/home/daytona/py/a.py") or time.sleep(0.2) for _ in range(50)], "DaytonaLspServerNotInitializedError")
        lsp.start()  # and can be had again
        lsp.did_open("/home/daytona/py/a.py")
        assert lsp.document_symbols("/home/daytona/py/a.py")
        fails(lambda: lsp.did_open("/home/daytona/py/none.py"), "DaytonaFileNotFoundError")

    for f in (typescript, missing, python):
        check("languages: " + f.__name__, f)


# --- signed URLs, figures, what is not there ---

def the_rest(sb):
    import urllib.error, urllib.parse, urllib.request

    def signed_urls():
        sb.fs.upload_file(b"signed \xff", "/tmp/a b+%.txt")
        url = sb.download_url("/tmp/a b+%.txt", 60)
        with urllib.request.urlopen(url) as r:
            equal(r.read(), b"signed \xff")
        for bad in (url.replace("v1_", "v1_x"), url.replace("a+b", "a+c"), re.sub("expires=.", "expires=3", url), url.split("&signature")[0],
                    url.replace("files/download", "files/info"), url.replace("signature=v1_", "signature=")):
            try:
                urllib.request.urlopen(bad)
                raise AssertionError(bad)
            except urllib.error.HTTPError as e:
                equal(e.code, 401)
        url = sb.upload_url("/tmp/deep/er/up.bin")
        urllib.request.urlopen(urllib.request.Request(url, data=b"up", method="POST", headers={"Content-Type": "application/octet-stream"})).read()
        equal(sb.fs.download_file("/tmp/deep/er/up.bin"), b"up")
        try:
            urllib.request.urlopen(url)  # a GET with the signature of a POST
            raise AssertionError("taken")
        except urllib.error.HTTPError as e:
            assert e.code in (401, 404, 405), e.code

    def figures():
        m = sb.get_metrics()
        equal(len(m), 1)
        equal((m[0].mem_total, m[0].cpu_count), (1 << 30, 1))
        assert 0 < m[0].mem_used < m[0].mem_total, m
        equal(sb.get_metrics_latest().mem_total, 1 << 30)

    def computer_use():
        fails(lambda: sb.computer_use.start(), "DaytonaUnprocessableEntityError", "xvfb")

    for f in (signed_urls, figures, computer_use):
        check("rest: " + f.__name__, f)


parts = {"languages": languages, "rest": the_rest, "git": git, "interpreter": interpreter, "terminals": terminals}
sb = d.create(CreateSandboxFromSnapshotParams(env_vars={"GREETING": "hi"}))
try:
    for name in sys.argv[1:] or parts:
        parts[name](sb)
finally:
    d.delete(sb)
    os.chdir("/")
    shutil.rmtree(empty)
