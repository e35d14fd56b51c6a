"""Drives the boundary by the lines of drive.c and sees to it that nothing of a test is left on the host."""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("CAISSON_BUILD", os.path.join(TOP, "build"))
TOOLS = os.path.join(BUILD, "tests/containment")
IMAGES = os.environ.get("CAISSON_IMAGES", "/var/lib/caisson/images")
PROBE = os.path.join(TOOLS, "probe")
BOUNDARY = os.environ.get("CAISSON_TEST_BOUNDARY") or "process"  # of the tests that go through the server; the others know theirs


def default_image():
    with open(os.path.join(IMAGES, "refs.json")) as f:
        return json.load(f)["refs"]["default"]


class Refused(Exception):
    def __init__(self, line):
        super().__init__(line)
        self.kind = line.split()[1]


class Drive:
    """One data folder, and one warden at a time over it."""

    def __init__(self, images=IMAGES, image=None, env=None):
        self.images, self.image = images, image or default_image()
        self.data = tempfile.mkdtemp(prefix="caisson-containment-")
        self.env = dict(os.environ, **(env or {}))
        self.events = []
        self.ids = []
        self.open()

    def open(self):
        self.process = subprocess.Popen([os.path.join(TOOLS, "drive"), self.images, self.data, os.path.join(TOOLS, "tiny-guest")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.env)

    def line(self):
        while True:
            text = self.process.stdout.readline().decode(errors="replace")
            if not text:
                raise AssertionError("the driver has ended")
            if text.startswith(("event ", "lost ")):
                self.events.append(text.split())
                continue
            return text.rstrip("\n")

    def say(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, text):
        self.say(text)
        answer = self.line()
        if not answer.startswith("ok"):
            raise Refused(answer)
        return answer[3:]

    def spec(self, op, id, memory, disk, pids, cpu, ephemeral, image):
        self.ask(f"{op} {id} {image or self.image} {memory} {disk} {pids} {cpu} {int(ephemeral)}")

    def create(self, memory=256, disk=100, pids=100, cpu=1000, ephemeral=True, image=None, id=None):
        id = id or str(uuid.uuid4())
        self.ids.append(id)
        self.spec("create", id, memory, disk, pids, cpu, ephemeral, image)
        return id

    def start(self, id, memory=256, disk=100, pids=100, cpu=1000):
        self.spec("start", id, memory, disk, pids, cpu, False, None)

    def destroy(self, id):
        self.ask(f"destroy {id}")

    def run(self, id, command, uid=0, stdin="-", check=True):
        """(output, exit code); None as code when the sandbox ended under it."""
        assert "\n" not in command
        self.say(f"run {id} {uid} {stdin} {command}")
        lines = []
        while (line := self.line()) != "done":
            if line.startswith("error "):
                raise Refused(line)
            lines.append(line)
        code = None
        if lines and lines[-1].startswith("exit "):
            code = int(lines.pop().split()[1])
            if lines and not lines[-1]:
                lines.pop()
        output = "\n".join(lines)
        if check and code != 0:
            raise AssertionError(f"{command!r} ended with {code}: {output[-2000:]}")
        return output, code

    def put(self, id, local, path):
        self.run(id, f"cat > {path} && chmod 755 {path}", stdin=local)

    def usage(self, id):
        pairs = [p.split("=") for p in self.ask(f"usage {id}").split()]
        return {k: [float(x) for x in v.split("/")] for k, v in pairs}

    def listed(self):
        return {p.split("=")[0]: p.split("=")[1] == "1" for p in self.ask("list").split()}

    def name(self):
        h = 0xCBF29CE484222325
        for c in os.path.realpath(self.data).encode():
            h = (h ^ c) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        return f"{h:016x}"

    def run_folder(self):
        return f"/run/caisson/{self.name()}"

    def groups(self):
        return [g for g in glob.glob(f"/sys/fs/cgroup/**/caisson/{self.name()}/*", recursive=True) if os.path.isdir(g)]

    def close(self, keep=False):
        if not keep:
            for id in self.ids:
                self.destroy(id)
        self.process.stdin.close()
        self.process.wait(30)

    def leftovers(self):
        """What there still is of this data folder on the host, in plain words."""
        left = [f"group {g}" for g in self.groups()]
        left += [f"file {f}" for f in glob.glob(self.data + "/disks/*") if "/template-" not in f]
        left += [f"folder {f}" for f in glob.glob(self.run_folder())]
        with open("/proc/self/mountinfo") as f:
            left += [f"mount {line}" for line in f if self.data in line or self.name() in line]
        for f in glob.glob("/sys/block/loop*/loop/backing_file"):
            try:
                with open(f) as g:
                    if self.data in g.read():
                        left.append(f"loop {f}")
            except OSError:
                pass
        for status in glob.glob("/proc/[0-9]*/root"):
            try:
                with open(os.path.dirname(status) + "/cgroup") as g:
                    if self.name() in g.read():
                        left.append(f"process {status}")
            except OSError:
                pass
        return left

    def nothing_left(self, within=30):
        until = time.time() + within
        while (left := self.leftovers()) and time.time() < until:
            time.sleep(0.05)
        assert not left, left

    def finish(self):
        self.close()
        self.nothing_left()
        shutil.rmtree(self.data)

    def abandon(self):
        """After a failure: take everything away whatever state it is in."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.open()
        for id in self.listed():
            self.destroy(id)
        self.close()
        shutil.rmtree(self.data, ignore_errors=True)


class sandboxes:
    """with sandboxes() as d: a drive that is clean at the end, or the test fails."""

    def __init__(self, **options):
        self.options = options

    def __enter__(self):
        self.drive = Drive(**self.options)
        return self.drive

    def __exit__(self, kind, value, trace):
        if kind:
            try:
                self.drive.abandon()
            except Exception as e:
                print(f"# cleaning up failed as well: {e}")
        else:
            self.drive.finish()


def refused(kind, call, *args, **named):
    try:
        call(*args, **named)
    except Refused as e:
        assert e.kind == kind, e
        return str(e)
    raise AssertionError("was not refused")


def main(modules):
    wanted, passed, failed = sys.argv[1:], 0, 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the tests tidy up then, too
    for module in modules:
        for name, test in sorted(vars(module).items()):
            if not name.startswith("test_") or (wanted and not any(w in name for w in wanted)):
                continue
            try:
                test()
            except Exception:
                failed += 1
                print(f"FAIL {name}")
                traceback.print_exc(file=sys.stdout)
            else:
                passed += 1
                print(f"ok {name}", flush=True)
    for close in (getattr(module, "close", None) for module in modules):
        if close:
            close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
