"""What somebody does in a machine who wants out of it, eats all of it, or lies about it: by way of the API, with a neighbour that must not notice."""
import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import harness
from harness import BUILD, IMAGES, TOP
from test_escape import host, image_state

sys.path.insert(0, os.path.join(TOP, "tests/api"))
from client import PATIENCE, Client, Sandbox

CAISSON = os.path.join(BUILD, "src/bin/caisson")
SMALL = {"resources": {"memory_mib": 256, "disk_mib": 64, "pids": 64}, "ephemeral": True}
server = None


class Server:
    def __init__(self, images=IMAGES):
        self.data = tempfile.mkdtemp(prefix="caisson-containment-")
        os.chmod(self.data, 0o711)  # the daemon is another user
        self.log = open(self.data + "/log", "w+")
        self.process = subprocess.Popen([CAISSON, "serve", "--boundary", "vm", "--ephemeral", "--pool", "0", "--images", images, "--data", self.data + "/d",
                                         "--socket", self.data + "/socket", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=self.log)
        ready = self.process.stdout.readline().decode()
        assert ready.startswith("ready http://"), f"the server did not start: {self.said()}"
        name, port = ready.split("//")[1].split()[0].split(":")
        with open(self.data + "/d/api-key") as f:
            self.client = Client(name, int(port), f.read().strip())

    def said(self):
        self.log.seek(0)
        return self.log.read()[-4000:]

    def stop(self):
        self.process.terminate()
        assert self.process.wait(30 * PATIENCE) == 0, self.said()
        self.process.stdout.close()
        self.log.close()
        shutil.rmtree(self.data)


def close():
    """At the end of the suite."""
    global server
    if server:
        server.stop()
        server = None


def client():
    global server
    server = server or Server()
    return server.client


@contextlib.contextmanager
def boxes(n=1, **fields):
    made = []
    try:
        for _ in range(n):
            r = client().post("/v1/sandboxes", {**SMALL, **fields})
            assert r.status == 201, r
            made.append(Sandbox(client(), r.json))
        yield made
    finally:
        for b in made:
            assert client().delete(b.path).status == 204
            assert client().get(b.path).status == 404


def python(box, text, **more):
    return box.run({"code": text, "language": "python", "user": "root", **more})


def says(result, text):
    assert (result["exit_code"], result["stdout"].strip()) == (0, text), result


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


# --- the kernel's surface ---

OVERWRITE = """
import glob, os
for exe in ["/proc/1/exe", "/proc/self/exe", *glob.glob("/proc/[0-9]*/exe")]:
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
        try:
            os.close(os.open(exe, flags))
            print("opened", exe)
        except OSError:
            pass
with open("/usr/bin/true", "r+b") as f:
    f.write(b"#!/bin/false\\n")
"""


def test_inside_programs_of_the_host_and_of_others_stay():
    """Root may spoil its own copies of programs, but none that runs, nothing of the host, and nothing that the next one gets."""
    kernel = os.path.join(IMAGES, "vm/current/vmlinux")
    ours = [CAISSON, "/usr/bin/qemu-system-x86_64", kernel]
    before = [digest(f) for f in ours]
    with boxes() as (box,):
        whole = box.sh("sha256sum /usr/bin/true /usr/bin/python3 | cut -c 1-64", user="root")["stdout"]
        says(python(box, OVERWRITE), "")
        assert box.sh("sha256sum /usr/bin/true | cut -c 1-64")["stdout"] != whole.splitlines()[0] + "\n", "its own it may"
        with boxes() as (other,):
            assert other.sh("sha256sum /usr/bin/true /usr/bin/python3 | cut -c 1-64", user="root")["stdout"] == whole
    assert [digest(f) for f in ours] == before


def test_inside_descriptors():
    with boxes() as (box,):
        for user in ("root", "daytona"):
            says(box.run({"argv": ["ls", "/proc/self/fd"], "user": user}), "0\n1\n2\n3")
            for n in range(3, 20):
                r = box.run({"argv": ["true"], "cwd": f"/proc/self/fd/{n}", "user": user})
                assert r["state"] == "failed" and r["message"], (n, r)


def test_inside_no_set_id_without_sudo():
    with boxes(sudo=False) as (box,):
        assert box.sh("cp /usr/bin/id /tmp/id && chown root:root /tmp/id && chmod 6755 /tmp/id", user="root")["exit_code"] == 0
        says(box.sh("/tmp/id -u; /tmp/id -g; grep NoNewPrivs /proc/self/status | cut -f 2"), "1000\n1000\n1")
        says(box.sh("sudo -n id -u 2>/dev/null || echo no"), "no")


def test_inside_keys_of_the_host_are_not_there():
    """A keyring of the host's root user, whom root inside is not."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = libc.syscall(248, b"user", b"caisson-canary", b"of the host", 11, -4)  # add_key, to the user's keyring
    ask = """
import ctypes
print(ctypes.CDLL(None).syscall(249, b"user", b"caisson-canary", None, 0) < 0, "caisson-canary" in open("/proc/keys").read())
"""
    try:
        with boxes() as (box,):
            says(python(box, ask), "True False")
    finally:
        if key >= 0:
            libc.syscall(250, 21, key)  # invalidate


def test_inside_an_end_of_everything_stays_inside():
    with host(), boxes(2) as (box, neighbour):
        run = neighbour.start({"shell": "exec sleep 100000"})
        for script in ("kill -9 -1", "kill -9 -1; kill -9 1", "reboot -f", "echo 1 > /proc/sys/kernel/sysrq; echo o > /proc/sysrq-trigger"):
            box.start({"shell": f"setsid sh -c '{script}' >/dev/null 2>&1", "user": "root"})
            says(neighbour.sh("echo fine"), "fine")
        assert client().get(neighbour.runpath(run)).json["state"] == "running"


# --- an image that plants links ---

def test_inside_planted_links():
    """Mount points of an image that lead elsewhere: harmless, or refused; nothing of the host is mounted over or written to."""
    images = tempfile.mkdtemp(prefix="caisson-images-")
    name = "sha256-" + "0" * 63 + "3"
    try:
        os.chmod(images, 0o755)
        root = f"{images}/{name}/rootfs"
        shutil.copytree(f"{IMAGES}/{harness.default_image().replace(':', '-')}/rootfs/etc", root + "/etc", symlinks=True)
        shutil.copy(f"{IMAGES}/{harness.default_image().replace(':', '-')}/image.json", f"{images}/{name}/image.json")
        for link, target in (("dev", "/etc"), ("proc", "../../../../tmp"), ("sys", "sys"), ("disk", "/dev"), ("image", "/"), ("init", "/proc/1/exe")):
            os.symlink(target, f"{root}/{link}")
        if os.path.lexists(f"{root}/etc/hostname"):
            os.unlink(f"{root}/etc/hostname")
        os.symlink("/proc/1/environ", f"{root}/etc/hostname")
        with open(f"{images}/refs.json", "w") as f:
            json.dump({"refs": {"default": name.replace("-", ":")}}, f)
        os.symlink(f"{IMAGES}/vm", f"{images}/vm")
        before = mounts(), image_state(root)
        made = Server(images)
        try:
            r = made.client.post("/v1/sandboxes", SMALL)
            assert r.status == 201 or r.error["message"], r
            if r.status == 201:
                assert made.client.delete("/v1/sandboxes/" + r.json["id"]).status == 204
        finally:
            made.stop()
        assert (mounts(), image_state(root)) == before
    finally:
        shutil.rmtree(images)


def mounts():
    with open("/proc/self/mounts") as f:
        return sorted(line for line in f if "caisson" not in line)


# --- files ---

FLIP = """
import os
os.makedirs("/tmp/race/real", exist_ok=True)
open("/tmp/race/real/file", "w").write("inside")
os.makedirs("/tmp/race/etc", exist_ok=True)
print("ready", flush=True)
while True:
    for target in ("/tmp/race/real", "%s", "/proc/1/root%s", "real", "../../../../../..%s"):
        os.symlink(target, "/tmp/race/.next")
        os.rename("/tmp/race/.next", "/tmp/race/at")
"""


def test_inside_races_on_copies():
    """Links are exchanged while files go in and out by them: what is read is of inside, and what is written stays there."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="caisson-canary-") as folder, boxes() as (box,):
        canary = folder + "/file"
        with open(canary, "w") as f:
            f.write("of the host")
        os.chmod(folder, 0o777)
        os.chmod(canary, 0o666)
        c = client()
        run = box.start({"code": FLIP % ((folder,) * 3), "language": "python", "user": "root"})
        while "ready" not in c.get(box.runpath(run), {"output": True}).json.get("stdout", ""):
            time.sleep(0.1)
        got = set()
        end = threading.Event()

        def each(call):
            while not end.is_set():
                call()

        def read():
            r = c.get(box.path + "/files", {"path": "/tmp/race/at/file", "user": "root"})
            got.add(r.body if r.status == 200 else r.status)

        calls = [read, lambda: c.put(box.path + "/files", b"inside", {"path": "/tmp/race/at/file", "user": "root"}),
                 lambda: c.get(box.path + "/files/list", {"path": "/tmp/race/at", "user": "root"}),
                 lambda: c.delete(box.path + "/files", {"path": "/tmp/race/at/other", "user": "root"})]
        threads = [threading.Thread(target=each, args=(call,)) for call in calls]
        for t in threads:
            t.start()
        time.sleep(20)
        end.set()
        for t in threads:
            t.join()
        assert b"inside" in got and got <= {b"inside", b"", 403, 404, 400, 409}, got
        assert os.listdir(folder) == ["file"]
        with open(canary) as f:
            assert f.read() == "of the host"


# --- limits ---

def flood(script, check=None, **more):
    """One eats all that it can get, as root; its neighbour works on meanwhile, and it can be deleted."""
    with boxes(2) as (box, neighbour):
        run = box.start({"user": "root", **script, **more})
        for _ in range(5):
            says(neighbour.sh("echo fine"), "fine")
        result = client().get(box.runpath(run), {"wait": True, "output": True}, timeout=120).json
        if check:
            check(box, result)


def test_inside_flood_of_processes():
    def check(box, result):
        assert result["timed_out"], result
        says(box.sh("echo fine"), "fine")

    flood({"shell": "b() { b | b & b; }; b"}, check, timeout_ms=5000)


def test_inside_flood_of_memory():
    def check(box, result):
        assert result["oom"] and result["signal"] == 9, result
        says(box.sh("echo fine"), "fine")

    flood({"argv": ["python3", "-c", "x = []\nwhile True: x.append(b'x' * (1 << 22))"]}, check)


def test_inside_flood_of_files():
    def check(box, result):
        says(result, "28 28")
        says(box.sh("rm -r /var/tmp/d /var/tmp/big; echo fine > /var/tmp/f; cat /var/tmp/f", user="root"), "fine")

    flood({"code": """
import os
def until_full(make):
    i = 0
    try:
        while True:
            make(i)
            i += 1
    except OSError as e:
        return e.errno
os.mkdir("/var/tmp/d")
f = open("/var/tmp/big", "wb", buffering=0)
inodes = until_full(lambda i: os.mkdir("/var/tmp/d/%d" % i))
print(inodes, until_full(lambda i: f.write(bytes(1 << 20))))
""", "language": "python"}, check)


def test_inside_flood_of_descriptors():
    flood({"code": """
import os
n = 0
try:
    while True: n = os.open("/dev/null", 0)
except OSError as e: print(e.errno, n)
""", "language": "python"}, lambda box, result: says(result, "24 65535"))


def test_inside_flood_of_the_page_cache():
    flood({"shell": "for i in 1 2 3; do cat /usr/bin/* /usr/lib/x86_64-linux-gnu/*.so* > /dev/null 2>&1; done; echo done"}, lambda box, result: says(result, "done"))


def test_inside_flood_of_output():
    """More than anybody keeps, on both streams and in the kernel's log."""
    daemon = [p for p in os.listdir("/proc") if p.isdigit() and server and server.data.encode() in command_of(p)]

    def check(box, result):
        assert result["exit_code"] == 0 and result["truncated"] and result["stdout_bytes"] == result["stderr_bytes"] == 30000000, {**result, "stdout": "", "stderr": ""}
        assert sum(memory_of(p) for p in daemon) < 512 << 20, "what a sandbox says fills the daemon"

    flood({"shell": "head -c 30000000 /dev/zero | tee /dev/stderr; for i in $(seq 3000); do echo flood > /dev/kmsg; done"}, check, output_max=1000)


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read()
    except OSError:
        return b""


def memory_of(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_inside_arguments_and_paths_without_end():
    with boxes() as (box,):
        for argv in (["echo", "x" * 300000], ["true"] + ["x" * 1000] * 30000):
            assert client().post(box.path + "/runs", {"argv": argv}).status == 413
        says(python(box, "import os\nfor i in range(1000):\n os.mkdir('d' * 100)\n os.chdir('d' * 100)\nprint('deep')", cwd="/tmp"), "deep")
        assert client().get(box.path + "/files/list", {"path": "/tmp", "depth": 3}).status == 200
        says(box.sh("echo fine"), "fine")
