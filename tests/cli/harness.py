"""Running the program, with a bound on everything; and the runner: every function test_* of the modules, in order."""
import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.path.realpath(os.environ.get("CAISSON_BUILD") or os.path.join(TOP, "build"))
CAISSON = os.path.join(BUILD, "src/bin/caisson")
IMAGES = os.environ.get("CAISSON_IMAGES") or "/var/lib/caisson/images"
BOUNDARY = os.environ.get("CAISSON_TEST_BOUNDARY") or "process"
PATIENCE = 1 if BOUNDARY == "process" else 10  # machines may be emulated
LIMIT = 120 * PATIENCE  # seconds, for any one command

folder = None  # of this run: everything that is written goes there
environment = None  # of the program, without a server
server = None


class Server:
    """`caisson serve` on a data folder, until stop()."""

    def __init__(self, data, *options):
        self.data = data
        self.process = subprocess.Popen(
            [CAISSON, "serve", "--data", data, "--images", IMAGES, "--listen", "127.0.0.1:0", *options],
            stdout=subprocess.PIPE, stderr=open(os.path.join(folder, "server.log"), "ab"), stdin=subprocess.DEVNULL,
            env=environment, start_new_session=True)
        line = read_line(self.process.stdout, 30)
        match = re.search(r"http://[0-9.:]+", line)
        assert line.startswith("ready") and match, f"no ready line: {line!r}"
        self.url = match[0]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def read_line(f, seconds):
    text, until = b"", time.monotonic() + seconds * PATIENCE
    while not text.endswith(b"\n"):
        ready, _, _ = select.select([f], [], [], max(0, until - time.monotonic()))
        assert ready, f"nothing came in {seconds} s after {text!r}"
        got = os.read(f.fileno(), 1)
        if not got:
            break
        text += got
    return text.decode(errors="replace").strip()


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.text = out.decode(errors="replace")
        self.errors = err.decode(errors="replace")

    def __repr__(self):
        return f"exit {self.code}, stdout {self.out[:300]!r}, stderr {self.err[:600]!r}"


def env(**more):
    return {**environment, "CAISSON_DATA": server.data, **more}


def caisson(*args, stdin=b"", with_env=None, cwd=None):
    """Runs the program against the test's server; stdin None: /dev/null."""
    p = subprocess.run([CAISSON, *args], input=stdin or None, stdin=None if stdin else subprocess.DEVNULL,
                       capture_output=True, timeout=LIMIT, env=with_env or env(), cwd=cwd or folder)
    return Result(p.returncode, p.stdout, p.stderr)


def start(*args, with_env=None, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([CAISSON, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=with_env or env(), cwd=folder, **options)


def equal(got, want, what=""):
    assert got == want, f"{what}: got {repr(got)[:400]}, want {repr(want)[:400]}"


def contains(text, part, what=""):
    assert part in text, f"{what}: {part!r} is not in {text!r}"


def sha(data):
    return hashlib.sha256(data).hexdigest()


def path(*parts):
    return os.path.join(folder, *parts)


def eventually(check, seconds, what):
    until = time.monotonic() + seconds * PATIENCE
    while not check():
        assert time.monotonic() < until, f"{what}: not within {seconds * PATIENCE} s"
        time.sleep(0.05)


class box:
    """A sandbox for the length of a `with`."""

    def __init__(self, *options):
        self.options = options

    def __enter__(self):
        r = caisson("create", *self.options)
        equal(r.code, 0, f"create: {r}")
        self.id = r.text.strip()
        return self.id

    def __exit__(self, *_):
        caisson("rm", "-f", self.id)


def leftovers():
    """Processes of this run's folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                line = f.read()
        except OSError:
            continue
        if folder.encode() in line and int(pid) != os.getpid():
            found.append((pid, line))
    return found


class Skip(Exception):
    """Not for this boundary, or not on this host: counts neither way."""


def run_one(function):
    """Whether it passed; None: it was skipped."""
    try:
        function()
        print(f"ok {function.__module__[5:]}.{function.__name__[5:]}", flush=True)
        return True
    except Skip as why:
        print(f"skip {function.__module__[5:]}.{function.__name__[5:]}: {why}", flush=True)
        return None
    except (Exception, KeyboardInterrupt) as e:
        print(f"FAILED {function.__module__[5:]}.{function.__name__[5:]}: {e}", flush=True)
        if not isinstance(e, AssertionError) or not str(e):
            traceback.print_exc(file=sys.stdout)
        if isinstance(e, KeyboardInterrupt):
            raise SystemExit(130)
        return False


def main(modules):
    global folder, environment, server
    if not os.access(CAISSON, os.X_OK):
        print(f"{CAISSON} is not there: build first, or set CAISSON_BUILD")
        return 1
    if os.geteuid() != 0:
        print("these tests make real sandboxes: run them as root")
        return 1
    os.environ.pop("DEBUGINFOD_URLS", None)
    folder = tempfile.mkdtemp(prefix="caisson-cli-test-")
    os.chmod(folder, 0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CAISSON_")}
    accelerator = os.environ.get("CAISSON_ACCELERATOR") or "emulated"  # which every host can, and no server has to try out
    environment.update(CAISSON_BOUNDARY=BOUNDARY, CAISSON_ACCELERATOR=accelerator, CAISSON_IMAGES=IMAGES, TMPDIR=folder, HOME=folder)
    wanted = [f for m in modules for n, f in vars(m).items()
              if n.startswith("test_") and callable(f) and (len(sys.argv) < 2 or any(a in f"{m.__name__}.{n}" for a in sys.argv[1:]))]
    passed = failed = 0
    try:
        server = Server(path("data"))
        for function in wanted:
            ok = run_one(function)
            passed += ok is True
            failed += ok is False
        left = caisson("ls", "-q").text.split()
        caisson("rm", "-f", *left)
        server.stop()
        eventually(lambda: not leftovers(), 10, f"processes are left: {leftovers()}")
        passed += 1
    except (AssertionError, OSError) as e:
        failed += 1
        print(f"FAILED {e}")
        if server:
            server.stop()
    with open(path("server.log"), errors="replace") as f:
        log = f.read()
    if failed and log:
        print("--- the server said:\n" + log[-4000:])
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
