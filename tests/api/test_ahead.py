"""A Python that waits in a ready sandbox does exactly what one that is started for the code does."""
import time

import pytest

from client import PATIENCE

KIND = {"resources": {"memory_mib": 330}, "ephemeral": True}
LOOK = """
import os, resource, signal, sys
print(sys.argv, sys.orig_argv, sys.path, sys.flags, __name__, '__file__' in globals(), sorted(globals()))
print(os.getcwd(), sorted(os.environ.items()), os.getuid(), os.geteuid(), os.getgroups())
print(open('/proc/self/cmdline').read(), os.readlink('/proc/self/exe'), os.umask(0))
print([resource.getrlimit(i) for i in range(16)], os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid(), os.getppid())
print([str(signal.getsignal(i)) for i in range(1, 65)], open('/proc/self/status').read().split('SigQ')[1].split('CapInh')[0].split()[2:])
print(sorted((int(f), os.readlink('/proc/self/fd/' + f).split(':')[0]) for f in os.listdir('/proc/self/fd') if int(f) < 3))
print(repr(sys.stdin.read()), sys.stdin.encoding, sys.stdout.encoding, sys.stdout.line_buffering, os.isatty(0), os.isatty(1))
print(sorted(sys.modules))
"""
CODES = [
    "print(1)",
    LOOK,
    "import sys; sys.stderr.write('e'); sys.stdout.write('o'); sys.exit(7)",
    "def f():\n    raise ValueError('x')\n\nf()",
    "print(1)\nthis is no python",
    "raise SystemExit('said')",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "import os; os.write(1, bytes(range(256))); os._exit(3)",
    "print('x' * 3000000)",
    "#" + "c" * 60000 + "\nprint('long')",
    "#" + "c" * 70000 + "\nprint('longer than the pipe')",
    "input()",
    "# -*- coding: latin-1 -*-\nprint('\u00e9')",
    "if True:\n  print(1)\n  print(2)",
    "\ufeffprint(1)",
    "import subprocess; print(subprocess.run(['sh', '-c', 'cat; echo $PPID >/dev/null; exit 4']).returncode)",
    "import threading; threading.Thread(target=lambda: print('t')).start()",
    "x = 1;",
]

# What can be seen of an interpreter's end, and of how it begins: all as `python3 -` has it.
LIKE_PYTHON = [
    "print(__name__, __file__, __doc__, __spec__, __cached__, sorted(globals()))",
    "import sys; print(sys.argv, sys.path[0], sys.flags)",
    "class A:\n  def __del__(self): print('gone')\na = A()",
    "import builtins\nclass A:\n  __slots__ = ()\n  def __del__(self): print('gone')\nbuiltins.kept = A()",
    "f = open('/tmp/left', 'w'); f.write('left')",
    "print(open('/tmp/left').read())",
    "def g():\n  try: yield 1\n  finally: print('closed')\nx = g(); next(x)",
    "import atexit; atexit.register(print, 'at exit')",
    "import weakref\nclass A: pass\na = A(); r = weakref.ref(a, lambda _: print('dead'))",
    "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('t'))).start()",
    "import ctypes; ctypes.CDLL(None).printf(b'by c')",
    "import sys; sys.stdout = open('/tmp/left', 'w'); print('there')",
    "print(open('/tmp/left').read())",
    "import os; os.close(1); print(1)",
    "async def m(): pass\nm()",
    "import os\npid = os.fork()\nprint('child' if pid == 0 else 'parent' if os.waitpid(pid, 0) else 0)",
    "import concurrent.futures as c\np = c.ThreadPoolExecutor(); p.submit(print, 'in it')",
    "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__, a[2].tb_lineno, a[2].tb_next)\n1/0",
    "try:\n  1/0\nexcept Exception as e:\n  raise RuntimeError('y') from e",
    "raise KeyboardInterrupt",
    "import sys; sys.exit(True)",
    "import sys; sys.exit(-1)",
    "import sys; sys.exit(2**40)",
    "import json, re, datetime, random, hashlib; print(json.dumps({'a': 1}))",
    "",
]


def make(client, **more):
    r = client.post("/v1/sandboxes", {**KIND, **more})
    assert r.status == 201, r
    return r.json


def code(client, box, text, **more):
    r = client.post(f"/v1/sandboxes/{box['id']}/runs", {"code": text, "language": "python", **more})
    assert r.status == 200, r
    return {k: v for k, v in r.json.items() if k not in ("id", "started_at", "ended_at", "duration_ms", "display")}


def processes(client, box):
    return client.get(f"/v1/sandboxes/{box['id']}/usage").json["pids"]


def settle(client, box, n):
    """Waits until n processes live in the sandbox: what was ended, and the child that did a file call, go a moment after the reply."""
    end = time.time() + 30
    while (now := processes(client, box)) != n:
        assert time.time() < end, f"{now} processes stay in the sandbox, not {n}"
        time.sleep(0.02)


def alone(client, box):
    settle(client, box, 1)


@pytest.fixture(scope="module")
def ready(client):
    """Makes a sandbox in which a Python waits."""
    info = client.get("/v1/info").json
    if client.put("/v1/pools", {**KIND, "size": 2}).status != 200:
        pytest.skip("no pool here")
    def one():
        end = time.time() + 60
        while True:
            pool = [p for p in client.get("/v1/pools").json["items"] if p["resources"]["memory_mib"] == 330]
            if pool and pool[0]["ready"] == pool[0]["size"]:
                time.sleep(0.2)
                box = make(client)
                if processes(client, box) == 2:
                    return box
                code(client, box, "print('the next ones have one')")
                client.delete(f"/v1/sandboxes/{box['id']}")
            if time.time() > end:
                pytest.fail(f"no Python waits: {pool} {info}")
            time.sleep(0.1)

    yield one
    client.put("/v1/pools", {**KIND, "size": 0})


def cold(client):
    box = make(client)
    assert client.post(f"/v1/sandboxes/{box['id']}/runs", {"argv": ["true"]}).status == 200
    return box


@pytest.mark.parametrize("i", range(len(CODES)))
def test_the_same(client, ready, i):
    here, there = ready(), cold(client)
    with_one, without = code(client, here, CODES[i]), code(client, there, CODES[i])
    for v in (with_one, without):  # the hash of the machine's name is not the same
        for k in ("stdout", "stderr"):
            if v.get(k):
                v[k] = v[k].replace(here["id"], "ID").replace(there["id"], "ID")
    assert with_one == without
    alone(client, here)
    alone(client, there)


def test_like_python(client):
    box = cold(client)
    for text in LIKE_PYTHON:
        ours = code(client, box, text)
        there = client.post(f"/v1/sandboxes/{box['id']}/runs", {"argv": ["python3", "-u", "-"], "stdin": text}).json
        assert {**ours, 'command': there['command']} == {k: there.get(k) for k in ours}, text


def test_time_limit_and_whole_tree(client, ready):
    box = ready()
    got = code(client, box, "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '1000'])\nprint('up')\nwhile True: time.sleep(1)", timeout_ms=2000 * PATIENCE)
    assert got["timed_out"] and got["signal"] == "SIGKILL" or got["signal"] == 9, got
    assert got["stdout"] == "up\n"
    alone(client, box)


def test_the_limit_counts_from_the_run(client, ready):
    box = ready()
    time.sleep(3)
    r = client.post(f"/v1/sandboxes/{box['id']}/runs", {"code": "import time; time.sleep(0.2); print(1)", "language": "python", "timeout_ms": 2900}).json
    assert r["stdout"] == "1\n" and not r["timed_out"] and r["duration_ms"] < 2900


@pytest.mark.parametrize("more", [{"env": {"A": "1"}}, {"cwd": "/tmp"}, {"user": "root"}, {"code_argv": ["a", "b"]}, {"stdin": "in"}])
def test_other_settings_are_heeded(client, ready, more):
    box = ready()
    text = "import os, sys; print(os.environ.get('A'), os.getcwd(), os.getuid(), sys.argv[1:], sys.stdin.read())"
    got = code(client, box, text, **more)
    assert got["stdout"] == code(client, cold(client), text, **more)["stdout"]
    alone(client, box)  # the one that waited has gone


def test_stderr_in_stdout(client, ready):
    """The next one that waits is of the kind that was used last."""
    text = ("import os, sys, time\nsince = time.clock_gettime(time.CLOCK_BOOTTIME) - int(open('/proc/self/stat').read().split()[21]) / os.sysconf('SC_CLK_TCK')\n"
            "print('waited' if since > 0.15 else 'new')\nsys.stderr.write('e')\nprint('o')\nos.system('echo e >&2')")
    for _ in range(100):
        box = ready()
        got = code(client, box, text, merge_stderr=True)
        if got["stdout"].startswith("waited"):
            break
        time.sleep(0.3)
    assert (got["stdout"], got["stderr"]) == ("waited\neo\ne\n", "")
    got = code(client, cold(client), text, merge_stderr=True)
    assert (got["stdout"], got["stderr"]) == ("new\neo\ne\n", "")
    box = ready()
    got = code(client, box, text)
    assert (got["stdout"].split()[1:], got["stderr"]) == (["o"], "ee\n")


def test_what_changes_the_sandbox_ends_it(client, ready):
    box = ready()
    url = f"/v1/sandboxes/{box['id']}"
    assert client.get(url + "/files/stat", {"path": "/etc"}).status == 200
    settle(client, box, 2)
    assert client.post(url + "/files/mkdir", {"path": "/home/daytona/.local/lib", "parents": True}).status in (200, 201, 204)
    alone(client, box)
    assert code(client, box, "print(1)")["stdout"] == "1\n"


def test_an_environment_of_the_sandbox(client, ready):
    ready()
    box = make(client, env={"A": "of the sandbox"})
    assert code(client, box, "import os; print(os.environ['A'])")["stdout"] == "of the sandbox\n"


def test_runs_after_it_have_numbers_of_their_own(client, ready):
    box = ready()
    runs = [client.post(f"/v1/sandboxes/{box['id']}/runs", {"code": f"print({i})", "language": "python"}).json for i in range(3)]
    assert len({r["id"] for r in runs}) == 3 and [r["stdout"] for r in runs] == ["0\n", "1\n", "2\n"]
    listed = client.get(f"/v1/sandboxes/{box['id']}/runs").json["items"]
    assert {r["id"] for r in listed} == {r["id"] for r in runs}
