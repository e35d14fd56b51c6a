"""A machine's jail: what somebody finds who has taken QEMU over, and that nothing of one stays. The probe runs in QEMU's place."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

from harness import IMAGES, TOOLS, Drive, Refused, default_image, refused

QEMU = "/usr/bin/qemu-system-x86_64"
GIB = 1 << 30


class Machines(Drive):
    """with Machines() as d: clean at the end, or the test fails."""

    def __init__(self, program=None, kernel="/dev/null", initrd="/dev/null"):
        self.image = default_image()
        self.data = tempfile.mkdtemp(prefix="caisson-containment-")
        os.chmod(self.data, 0o755)
        self.plain = os.path.join(self.data, "plain")
        with open(self.plain, "w") as f:
            f.write("not a kernel")
        self.program = program or os.path.join(TOOLS, "probe-vmm")
        self.files = [f if f != "/dev/null" else self.plain for f in (kernel, initrd)]
        self.events = []
        self.ids = set()
        self.open()

    def open(self):
        self.process = subprocess.Popen([os.path.join(TOOLS, "drive-machine"), IMAGES, self.data, self.program, *self.files],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def start(self, memory=128, cpu=1000, kvm=0, disk=64, wrong="", id=None, image=None):
        id = id or str(uuid.uuid4())
        self.ids.add(id)
        pid = int(self.ask(f"start {id} {image or self.image} {memory} {cpu} {kvm} {disk} {wrong}"))
        return id, pid

    def tell(self, id, text):
        self.say(f"say {id} {text}")
        lines = []
        while (line := self.line()) != "done":
            if line.startswith("error "):
                raise Refused(line)
            lines.append(line)
        return lines

    def end(self, id):
        """Whether it had died of memory. Nothing of it is left when this returns."""
        said = self.ask(f"end {id}")
        assert not [g for g in self.groups() if g.endswith(id)]
        return said == "oom"

    def ended(self, id, within=10):
        until = time.time() + within
        while ["event", id, "ended"] not in self.events and time.time() < until:
            self.ask("wait 50")
        assert ["event", id, "ended"] in self.events, self.events

    def close(self):
        self.process.stdin.close()
        self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind:  # whatever state it is in
            self.process.kill()
            self.process.wait()
            self.open()
            for id in self.ids:
                self.say(f"end {id}")
        if self.process.poll() is None:
            self.close()
        if not kind:
            self.nothing_left()
        shutil.rmtree(self.data, ignore_errors=True)


def facts(lines):
    """{name: [rest of the line, ...]}"""
    found = {}
    for line in lines:
        name, _, rest = line.partition(" ")
        found.setdefault(name, []).append(rest)
    return found


def host_uses(path):
    with open(path) as f:
        return f.read()


def test_machine_taken_vmm_finds_nothing():
    with Machines() as d:
        id, pid = d.start()
        neighbour, _ = d.start()
        found = facts(d.tell(id, "report"))
        # who it is: no capability, no way to get one, filtered
        status = dict(re.split(r":\s*", line, maxsplit=1) for line in found["status"])
        for caps in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[caps], 16) == 0, (caps, status)
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
        assert status["Uid"].split() == status["Gid"].split() == ["1000"] * 4 and not status["Groups"].strip()
        assert status["Pid"] == "1" and status["PPid"] == "0"
        assert found["uid_map"][0].split()[0::2] == ["0", "65536"]
        assert int(found["uid_map"][0].split()[1]) >= 1 << 30
        assert found["name"] == ["machine"]
        assert all(line.endswith(":/") for line in found["cgroup"]), found["cgroup"]
        # processes: only itself
        assert {p.split()[0] for p in found["proc"]} == {"self", "thread-self", "1"}, found["proc"]
        assert "sees" not in found, found.get("sees")
        # network: a loopback that nobody else has, and no socket to use it by
        assert [line.split(":")[0].strip() for line in found["net"][2:]] == ["lo"]
        # files: its program, the firmware, two devices; nothing to write, nothing made
        files = [f for f in found["file"] if not f.split()[1].startswith("4")]
        names = {f.split()[0] for f in files}
        assert d.program in names
        assert all(n == d.program or n in ("/dev/null", "/dev/urandom") or re.fullmatch(r"/usr/(share|lib|lib64)/.*(\.bin|accel-tcg.*\.so)", n)
                   for n in names), names
        assert {f.split()[0] for f in found["file"] if f.endswith("writable")} == {"/dev/urandom", "/dev/null"}
        assert "made" not in found
        # descriptors: what it was given, and what reads this list
        fds = {int(f.split()[0]): f.split()[1] for f in found["fd"]}
        assert set(fds) == {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, fds
        assert fds[0] == fds[1] == "/dev/null" and fds[2].startswith("/memfd:log") and fds[3].endswith("/root.erofs")
        assert fds[4] == f"{d.data}/{id}.disk" and all(fds[k].startswith("socket:") for k in (5, 6, 7)) and fds[8] == fds[9] == d.plain
        # namespaces: none but the clock's is the host's
        for line in found["ns"]:
            name, target = line.split()
            if not name.startswith("time"):
                assert os.readlink(f"/proc/self/ns/{name}") != target, line
        # calls: every one refused
        assert len(found["call"]) > 30
        done = [c for c in found["call"] if c.endswith("DONE")]
        assert not done, done
        assert found["kvm"] == ["No such file or directory"]
        assert found["core"] == ["0"]
        with open(os.path.join(IMAGES, "sha256-" + d.image[7:], "root.erofs"), "rb") as f:
            assert f.read(1) != b"x"
        # seen from outside: a uid of its own, not the neighbour's
        other = facts(d.tell(neighbour, "report"))["uid_map"][0].split()[1]
        assert other != found["uid_map"][0].split()[1]
        assert os.stat(f"/proc/{pid}").st_uid == int(found["uid_map"][0].split()[1]) + 1000
        d.end(id)
        d.end(neighbour)


def test_machine_args_are_the_wardens():
    with Machines() as d:
        id, _ = d.start(memory=192, cpu=1500)
        said = facts(d.tell(id, "args"))
        args = said["arg"]
        assert args[0] == d.program and args[args.index("-m") + 1] == "192M" and args[args.index("-smp") + 1] == "2"
        assert "spawn=deny" in args[args.index("-sandbox") + 1]
        assert len(said["env"]) == 1 and said["env"][0].startswith("LD_LIBRARY_PATH=")
        d.end(id)


def test_machine_kvm_only_when_asked():
    if not os.path.exists("/dev/kvm"):
        return
    with Machines() as d:
        id, _ = d.start(kvm=1)
        found = facts(d.tell(id, "report"))
        assert found["kvm"] == ["opens"], found["kvm"]
        assert {f.split()[0] for f in found["file"] if f.endswith("writable")} == {"/dev/urandom", "/dev/null", "/dev/kvm"}
        d.end(id)


def test_machine_limits_hold():
    with Machines() as d:
        id, _ = d.start(disk=512)
        other, _ = d.start()
        assert d.tell(id, "grow") == ["call write-behind File too large", "call extend File too large", "call write-within DONE"]
        assert os.stat(f"{d.data}/{id}.disk").st_size == 512 << 20
        assert d.tell(id, "log") == ["written 16384"]
        assert int(d.tell(id, "threads")[0].split()[1]) < 256
        d.end(id)
        id, _ = d.start()
        assert d.tell(id, "hog") == ["begun"]
        d.ended(id)
        assert d.end(id) is True
        assert d.tell(other, "args")
        assert d.end(other) is False


def test_machine_wrong_things_are_refused():
    with Machines() as d:
        assert "disk" in refused("invalid", d.start, wrong="folder")
        assert "disk" in refused("invalid", d.start, wrong="device")
        refused("invalid", d.start, id="../../etc/passwd-------------------")
        refused("invalid", d.start, image="sha256:" + "g" * 64)
        refused("not_found", d.start, image="sha256:" + "0" * 64)
        refused("invalid", d.start, memory=64)
        refused("invalid", d.start, memory=1 << 20)
        refused("invalid", d.start, cpu=1024000)
        id, _ = d.start()
        refused("conflict", d.start, id=id)
        assert d.tell(id, "args")
        d.end(id)
        d.end(str(uuid.uuid4()))


def test_machine_door_takes_anything():
    with Machines() as d:
        given = os.readlink(f"/proc/{d.process.pid}/fd/0")
        for seed in range(4):
            d.ask(f"raw {seed}")
            id, _ = d.start()
            d.end(id)
            # no descriptor of a refused message is kept
            warden = f"/proc/{warden_of(d)}/fd"
            kept = [fd for fd in os.listdir(warden) if os.readlink(f"{warden}/{fd}") == given]
            assert not kept, kept
        assert not [g for g in d.groups() if g.endswith("00000000-0000-4000-8000-000000000000")]


def warden_of(d):
    until = time.time() + 10  # the driver has only just been started
    while len(children := host_uses(f"/proc/{d.process.pid}/task/{d.process.pid}/children").split()) != 1 and time.time() < until:
        time.sleep(0.01)
    assert len(children) == 1, children
    return int(children[0])


def test_machine_killed_leaves_nothing():
    with Machines() as d:
        id, pid = d.start()
        os.kill(pid, signal.SIGKILL)
        d.ended(id)
        id, pid = d.start()
        os.kill(pid, signal.SIGSTOP)
        d.end(id)
        id, pid = d.start()
        d.tell(id, "end")
        d.ended(id)
        # the same id again, at once
        for _ in range(5):
            d.start(id=id)
            d.end(id)


def test_machine_outlives_warden_and_daemon():
    with Machines() as d:
        id, pid = d.start()
        for how in ("restart", "kill", "kill"):
            d.ask(how)
            assert d.tell(id, "args")
            refused("conflict", d.start, id=id)
        d.end(id)
        id, pid = d.start()
        d.process.kill()
        d.process.wait()
        time.sleep(0.3)
        os.kill(pid, 0)
        d.open()
        assert d.tell(id, "args")
        d.end(id)


def test_machine_dies_while_nobody_looks():
    with Machines() as d:
        id, pid = d.start()
        d.process.kill()
        d.process.wait()
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        d.open()
        d.start(id=id)
        d.end(id)


def test_machine_qemu_itself():
    if not os.path.exists(QEMU):
        return
    current = os.path.join(IMAGES, "vm/current")
    with Machines(QEMU, os.path.join(current, "vmlinux"), os.path.join(current, "modules.cpio")) as d:
        id, pid = d.start()
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{d.data}/{id}.qmp")
            s.settimeout(30)
            greeting = json.loads(s.makefile().readline())
            assert "QMP" in greeting
        status = dict(line.split(":\t", 1) for line in host_uses(f"/proc/{pid}/status").splitlines())
        assert status["Seccomp"] == "2" and status["Seccomp_filters"] == "2"  # ours, and its own on top
        assert status["NoNewPrivs"] == "1" and int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0
        assert len(set(status["Uid"].split())) == 1 and int(status["Uid"].split()[0]) >= GIB
        listed = set(os.listdir(f"/proc/{pid}/root"))
        assert listed <= {"dev", "lib", "lib64", "proc", "usr"}, listed
        assert set(os.listdir(f"/proc/{pid}/root/dev")) == {"null", "urandom"}
        # by its descriptors, a taken QEMU reaches its own disk and what is public, and nothing that is a folder
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
            except FileNotFoundError:
                continue  # closed meanwhile
            assert not os.path.isdir(target), target
        os.kill(pid, signal.SIGKILL)
        d.ended(id)


def test_machine_leaves_sandboxes_as_they_were():
    """What is switched for QEMU, which shares the warden's memory up to its exec, must not stay switched for whoever comes next."""
    with Machines() as d:
        warden = warden_of(d)
        before = thp(warden)
        id, pid = d.start()
        assert thp(pid) == "0" and thp(warden) == before
        d.end(id)


def thp(pid):
    return re.search(r"THP_enabled:\s*(\d)", host_uses(f"/proc/{pid}/status")).group(1)
