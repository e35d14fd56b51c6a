"""Commands, their output, and what they say when used wrongly."""
import json
import os
import signal
import subprocess
import time

from harness import CAISSON, IMAGES, PATIENCE, box, caisson, contains, env, equal, eventually, folder, path, start
import harness

UUID = 36


def test_run_prints_42():
    r = caisson("run", "--", "python3", "-c", "print(6*7)")
    equal((r.code, r.out, r.err), (0, b"42\n", b""), "run")


def test_exit_codes():
    for code in (0, 1, 7, 125, 126, 127, 255):
        equal(caisson("run", "sh", "-c", f"exit {code}").code, code, f"exit {code}")
    equal(caisson("run", "sh", "-c", "kill -9 $$").code, 137, "killed by 9")
    equal(caisson("run", "sh", "-c", "kill -TERM $$").code, 143, "killed by 15")
    r = caisson("run", "no-such-program")
    equal(r.code, 127, "missing program")
    contains(r.errors, "no-such-program", "missing program")
    equal(caisson("run", "/etc/passwd").code, 126, "not executable")


def test_run_leaves_no_sandbox():
    before = caisson("ls", "-q").text
    caisson("run", "true")
    caisson("run", "false")
    equal(caisson("ls", "-q").text, before, "ls after run")


def test_environment_directory_user():
    r = caisson("run", "-e", "A=b c", "-e", "FROM_HERE", "-e", "NOT_SET_ANYWHERE", "-w", "/usr", "sh", "-c", "echo $A $FROM_HERE ${NOT_SET_ANYWHERE-no}; pwd",
                with_env=env(FROM_HERE="x"))
    equal(r.out, b"b c x no\n/usr\n", "run -e -w")
    r = caisson("run", "-u", "nobody", "id", "-un")
    equal(r.out, b"nobody\n", f"run -u: {r}")
    r = caisson("run", "-w", "/no/such/dir", "true")
    equal(r.code, 125, "a directory that is not there")
    contains(r.errors, "/no/such/dir")


def test_limits_are_asked_for():
    with box("-m", "256m", "--cpus", "0.5", "--pids", "50", "--disk", "64m", "-l", "a=b", "-n", "limited", "--idle", "1h") as id:
        o = json.loads(caisson("ls", "--json", "-l", "a=b").out)["items"]
        equal([x["id"] for x in o], [id], "ls -l")
        equal(o[0]["resources"], {"cpus": 0.5, "memory_mib": 256, "disk_mib": 64, "pids": 50}, "resources")
        equal((o[0]["name"], o[0]["labels"], o[0]["lifetime"]["idle_s"]), ("limited", {"a": "b"}, 3600))
        contains(caisson("ls").text, "limited", "ls")
        equal(caisson("ls", "-q", "-l", "a=other").out, b"", "another label")


def test_json_of_run():
    r = caisson("--json", "run", "--", "sh", "-c", "echo a; echo b >&2; printf '\\377'; exit 3")
    o = json.loads(r.out)
    equal(r.code, 3)
    equal((o["stdout_base64"], o["stderr"], o["exit_code"], o["state"]), ("YQr/", "b\n", 3, "exited"))
    equal(r.out.count(b"\n"), 1, "one line")


def test_life_of_a_sandbox():
    r = caisson("create", "-n", "life", "-u", "root")
    equal((r.code, len(r.text.strip())), (0, UUID), f"create: {r}")
    try:
        equal(caisson("create", "-n", "life").code, 125, "the name again")
        equal(caisson("exec", "life", "sh", "-c", "echo kept > /root/f; exit 4").code, 4)
        r = caisson("rm", "life")
        equal(r.code, 125, "rm of a running one")
        contains(r.errors, "rm -f")
        equal(caisson("stop", "life").code, 0)
        equal(json.loads(caisson("ls", "--json").out)["items"][0]["state"], "stopped")
        r = caisson("exec", "life", "true")
        equal(r.code, 125, "exec in a stopped one")
        equal(caisson("start", "life").code, 0)
        equal(caisson("exec", "life", "--", "cat", "/root/f").out, b"kept\n", "the disk after stop and start")
        equal(json.loads(caisson("stop", "--json", "life").out)["items"][0]["state"], "stopped")
        equal(caisson("rm", "life").out, b"life\n")
        r = caisson("rm", "life")
        equal(r.code, 125, "rm of nothing")
        contains(r.errors, "life")
        equal(caisson("rm", "-f", "life").code, 0, "rm -f of nothing")
    finally:
        caisson("rm", "-f", "life")


def test_logs():
    with box() as id:
        equal(caisson("logs", id).code, 125, "nothing run yet")
        caisson("exec", id, "sh", "-c", "echo out; echo err >&2; exit 5")
        r = caisson("logs", id)
        equal((r.code, r.out, r.err), (0, b"out\n", b"err\n"), "logs")
        r = caisson("exec", "-d", id, "sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep .2; done")
        equal(r.code, 0)
        run = r.text.strip()
        equal(caisson("logs", "-f", id, run).out, b"1\n2\n3\n4\n5\n", "logs -f waits for the end")
        equal(json.loads(caisson("logs", "--json", id, run).out)["stdout"], "1\n2\n3\n4\n5\n")
        items = json.loads(caisson("logs", "--runs", "--json", id).out)["items"]
        equal([(i["state"], i["exit_code"]) for i in items], [("exited", 5), ("exited", 0)])
        contains(caisson("logs", "--runs", id).text, run)
        equal(caisson("logs", id, "run_nosuch").code, 125, "an unknown run")


def test_idle_output_is_seen_at_once():
    p = start("run", "sh", "-c", "echo first; sleep 20")
    try:
        equal(harness.read_line(p.stdout, 10), "first", "output while the command runs")
    finally:
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=15 * PATIENCE)


def test_time_limit():
    began = time.monotonic()
    r = caisson("run", "--timeout", "1s", "sh", "-c", "echo a; echo b >&2; sleep 60")
    took = time.monotonic() - began
    equal((r.code, r.out), (124, b"a\n"), f"time limit: {r}")
    contains(r.errors, "b\n")
    contains(r.errors, "time limit")
    assert took < 10 * PATIENCE, f"took {took} s"


def test_usage():
    for args, part in ((["run"], "missing"), (["run", "--nosuch", "x"], "--nosuch"), (["nosuch"], "nosuch"), (["run", "-m", "lots", "x"], "lots"),
                       (["run", "--timeout", "soon", "x"], "soon"), (["run", "--cpus", "-1", "x"], "-1"), (["cp", "a", "b"], "SANDBOX:PATH"),
                       (["cp", "a:x", "b:y"], "both"), (["exec", "x"], "missing"), (["exec", "x", "--"], "missing"), (["key"], "what"), (["image", "nosuch"], "nosuch"),
                       (["serve", "--log", "loud"], "loud"), (["ls", "extra"], "extra"), (["create", "-l", "novalue"], "novalue"), ([], "")):
        r = caisson(*args)
        equal(r.code, 2, f"{args}: {r}")
        contains(r.errors, part, f"{args}")
        equal(r.errors.count("\n"), 1 if args else 0, f"{args}: one line")
    for args in (["--json", "nosuch"], ["nosuch", "--json"], ["key", "nosuch", "--json"], ["create", "--nosuch", "--json"], ["run", "--nosuch", "--json", "x"]):
        equal(json.loads(caisson(*args).err)["error"]["kind"], "usage", f"{args}: said as JSON")
    contains(caisson("run", "--nosuch", "x", "--json").errors, "help run", "what follows the command is its own")


def test_a_stand_in_is_said():
    r = caisson("run", "--image", "python:3.99", "true")
    equal(r.code, 0, f"{r}")
    contains(r.errors, "python:3.99 is not on the server: default stands in")
    equal(caisson("run", "--image", "default", "true").err, b"", "the name itself")


def test_refusals_say_why():
    r = caisson("run", "--image", "nosuch:1", "true")
    equal(r.code, 125)
    contains(r.errors, "nosuch:1")
    contains(r.errors, "image map")
    r = caisson("run", "-m", "1m", "true")
    equal(r.code, 125)
    contains(r.errors, "memory_mib")
    r = caisson("--json", "rm", "no-such-box")
    equal(json.loads(r.err)["error"]["kind"], "not_found", "an error as JSON")
    r = caisson("run", "echo", b"\xff")
    equal(r.code, 125, "an argument that JSON can't carry")
    contains(r.errors, "UTF-8")


def test_no_server():
    r = caisson("ls", with_env={**harness.environment, "CAISSON_DATA": path("nothing-here")})
    equal(r.code, 125)
    contains(r.errors, "caisson serve")
    contains(r.errors, path("nothing-here"))
    r = caisson("ls", with_env={**harness.environment, "CAISSON_URL": "http://127.0.0.1:1", "CAISSON_API_KEY": "x"})
    equal(r.code, 125)
    contains(r.errors, "http://127.0.0.1:1")
    # A server that was named is meant: none is made in its place.
    equal(caisson("run", "true", with_env={**harness.environment, "CAISSON_URL": "http://127.0.0.1:1"}).code, 125)


def test_finding_server_and_key():
    with open(os.path.join(harness.server.data, "api-key")) as f:
        key = f.read().strip()
    equal(os.stat(os.path.join(harness.server.data, "api-key")).st_mode & 0o777, 0o600, "mode of api-key")
    bare = harness.environment
    equal(caisson("info", with_env={**bare, "CAISSON_URL": harness.server.url, "CAISSON_API_KEY": key}).code, 0, "by URL and key")
    r = caisson("info", "--json", "--data", harness.server.data, with_env={**bare, "CAISSON_URL": "http://127.0.0.1:1", "CAISSON_API_KEY": "wrong"})
    equal(r.code, 0, f"--data beats the environment: {r}")
    equal(json.loads(r.out)["url"], f"unix:{harness.server.data}/api.sock")
    r = caisson("info", "--url", harness.server.url, with_env={**bare, "CAISSON_API_KEY": "e2b_" + "0" * 40})
    equal(r.code, 125, "a wrong key")
    contains(r.errors, "CAISSON_API_KEY")


def test_keys():
    r = caisson("key", "new", "tester")
    equal(r.code, 0, f"key new: {r}")
    key = r.text.strip()
    equal((key[:4], len(key)), ("e2b_", 44))
    items = json.loads(caisson("key", "ls", "--json").out)["items"]
    id = [k["id"] for k in items if k["name"] == "tester"][0]
    assert key not in caisson("key", "ls", "--json").text, "a key is shown again"
    with_key = {**harness.environment, "CAISSON_URL": harness.server.url, "CAISSON_API_KEY": key}
    equal(caisson("ls", with_env=with_key).code, 0, "the new key works")
    equal(caisson("key", "ls", with_env=with_key).code, 125, "it is no operator's")
    equal(caisson("key", "rm", id).code, 0)
    equal(caisson("ls", with_env=with_key).code, 125, "revoked")


def test_images():
    items = json.loads(caisson("image", "ls", "--json").out)["items"]
    assert any("default" in i["names"] for i in items), f"no default image: {items}"
    contains(caisson("image", "ls").text, "default")
    equal(caisson("image", "map").code, 0)


def test_info_doctor_version_help():
    contains(caisson("info").text, "process", "info")
    equal(json.loads(caisson("version", "--json").out)["version"], caisson("version").text.split()[1])
    r = caisson("doctor", "--json")
    assert json.loads(r.out), f"doctor: {r}"
    for name in caisson("help").text.split("Commands:")[1].split("\n\n")[0].split("\n"):
        if name.strip():
            r = caisson("help", name.split()[0])
            equal(r.code, 0, name)
            contains(r.text, f"Usage: caisson {name.split()[0]}")
            equal(caisson(name.split()[0], "--help").out, r.out, name)


def test_the_doctor_looks_where_the_images_are():
    other = os.path.join(harness.folder, "ramfs")
    os.mkdir(other)
    subprocess.run(["mount", "-t", "ramfs", "none", other], check=True)
    try:
        for images, ok in ((other + "/not/there/yet", False), (harness.folder + "/not/there/yet", True)):
            r = caisson("doctor", "--json", with_env=dict(env(), CAISSON_IMAGES=images))
            line = next(l for l in json.loads(r.out)["items"] if l["name"] == "idmapped mounts")
            equal((line["ok"], r.code), (ok, 0 if ok else 125), f"{images}: {line}")
    finally:
        subprocess.run(["umount", other], check=True)
        os.rmdir(other)


def test_a_full_disk_is_told():
    with open("/dev/full", "wb") as full:
        p = subprocess.run([CAISSON, "ls"], stdout=full, stderr=subprocess.PIPE, env=env(), timeout=60 * PATIENCE)
    equal(p.returncode, 125)
    contains(p.stderr.decode(), "No space left")
    with open("/dev/full", "wb") as full:
        p = subprocess.run([CAISSON, "run", "echo", "x"], stdout=full, stderr=subprocess.PIPE, env=env(), timeout=60 * PATIENCE)
    equal(p.returncode, 125)


def without_state(data):
    """A file lies where the first folder of the server's own state should: it cannot begin."""
    os.makedirs(data + "/state")
    with open(data + "/state/audit", "wb"):
        pass
    return {}


def without_a_file_of_its_kernel(data):
    """Of which it hears only when it is root no more. The images are those that are there, seen through a folder that is nobody's else."""
    store = data + "-images"
    os.mkdir(store, 0o700)
    for name in os.listdir(IMAGES):
        os.symlink(os.path.join(IMAGES, name), os.path.join(store, name))
    return {"CAISSON_BOUNDARY": "vm", "CAISSON_IMAGES": store}


def test_a_server_that_cannot_begin_ends_at_once():
    for number, (prepare, told) in enumerate(((without_state, "audit"), (without_a_file_of_its_kernel, "modules.cpio"))):
        data = path(f"no-server-{number}")
        began = time.monotonic()
        r = caisson("serve", "--data", data, "--listen", "none", with_env=dict(harness.environment, **prepare(data)))
        took = time.monotonic() - began
        equal(r.code, 1, f"{r}")
        contains(r.errors, told)
        assert took < 6, f"took {took} s"  # 10 s are its patience with a warden that does not hear of it
