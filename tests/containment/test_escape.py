"""Ways out: the probe inside, and the host's half of each outside."""
import ctypes
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile

import harness
from harness import PROBE, TOOLS, refused, sandboxes

KNOBS = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/panic", "/proc/sys/vm/overcommit_memory",
         "/proc/sys/kernel/hostname", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv4/ip_unprivileged_port_start",
         "/proc/sys/user/max_user_namespaces", "/proc/irq/default_smp_affinity"]
libc = ctypes.CDLL(None, use_errno=True)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def digest(path):
    return hashlib.sha256(read(path)).hexdigest()


def image_state(root):
    """Names, sizes, owners, times of the image, and the bytes of its small files."""
    h = hashlib.sha256()
    for top, folders, files in os.walk(root + "/etc"):
        for name in sorted(files):
            path = os.path.join(top, name)
            st = os.lstat(path)
            h.update(f"{path} {st.st_size} {st.st_uid} {st.st_mode} {st.st_mtime_ns}".encode())
    return h.hexdigest()


class host:
    """Things on the host that must be neither seen nor changed: IPC objects, sockets, a process, knobs."""

    def __enter__(self):
        self.tcp = socket.create_server(("0.0.0.0", 0))
        self.port = self.tcp.getsockname()[1]
        self.abstract = f"caisson-host-{os.getpid()}"
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind("\0" + self.abstract)
        self.unix.listen()
        self.shm = libc.shmget(0x43414953, 4096, 0o1666)
        self.sem = libc.semget(0x43414953, 1, 0o1666)
        self.msg = libc.msgget(0x43414953, 0o1666)
        with open("/dev/shm/caisson-host-shm", "w") as f:
            f.write("canary")
        os.chmod("/dev/shm/caisson-host-shm", 0o666)
        self.queue = libc.syscall(240, b"caisson-host-queue", os.O_CREAT | os.O_RDONLY, 0o666, None)
        self.process = subprocess.Popen(["sleep", "1000"])
        self.knobs = {k: read(k) for k in KNOBS if os.path.exists(k)}
        return self

    def __exit__(self, *_):
        alive = self.process.poll() is None
        self.process.kill()
        self.process.wait()
        libc.shmctl(self.shm, 0, None)
        libc.semctl(self.sem, 0, 0)
        libc.msgctl(self.msg, 0, None)
        os.unlink("/dev/shm/caisson-host-shm")
        libc.syscall(241, b"caisson-host-queue")
        os.close(self.queue)
        self.tcp.close()
        self.unix.close()
        changed = [k for k, v in self.knobs.items() if read(k) != v]
        assert alive, "a process of the host died"
        assert not changed, f"changed on the host: {changed}"


def probed(output):
    bad = [line for line in output.splitlines() if not line.startswith("ok ")]
    good = [line for line in output.splitlines() if line.startswith("ok ")]
    assert not bad, bad
    assert len(good) > 150, f"only {len(good)} lines: did it run to its end?"


def probe_as(uid, **spec):
    with host() as h, sandboxes() as d:
        before = digest(os.path.join(TOOLS, "tiny-guest")), image_state(f"{d.images}/{d.image.replace(':', '-')}/rootfs")
        id = d.create(**spec)
        neighbour = d.create()
        d.run(neighbour, "echo canary > /tmp/canary; (sleep 1000 > /dev/null 2>&1 < /dev/null &); ipcmk -M 4096 > /dev/null")
        d.put(id, PROBE, "/tmp/probe")
        output, _ = d.run(id, f"/tmp/probe {h.port} {h.abstract} 2>&1", uid=uid, check=False)
        probed(output)
        assert d.run(neighbour, "cat /tmp/canary; pgrep -c sleep")[0].split() == ["canary", "1"]
        after = digest(os.path.join(TOOLS, "tiny-guest")), image_state(f"{d.images}/{d.image.replace(':', '-')}/rootfs")
        assert before == after


def test_probe_as_root():
    probe_as(0)


def test_probe_as_user():
    probe_as(1000)


def test_probe_on_a_disk():
    probe_as(0, ephemeral=False)


def test_host_files_are_not_there():
    with tempfile.NamedTemporaryFile(dir="/etc", prefix="caisson-canary-") as f, sandboxes() as d:
        id = d.create()
        _, code = d.run(id, f"cat {f.name}", check=False)
        assert code == 1
        _, code = d.run(id, f"cat /proc/1/root{f.name} /proc/self/root{f.name} /proc/self/cwd/../../..{f.name}", check=False)
        assert code == 1


def test_uids_do_not_collide():
    with sandboxes() as d:
        maps = {d.run(d.create(), "cat /proc/self/uid_map")[0] for _ in range(20)}
        assert len(maps) == 20, maps
        for m in maps:
            inside, base, count = (int(x) for x in m.split())
            assert inside == 0 and count == 65536 and 0x40000000 <= base <= 0x7FFF0000 and base % 65536 == 0


def planted(link, target):
    """An image whose `link` is a symlink to `target`: refused, or harmless; never a mount somewhere else."""
    images = tempfile.mkdtemp(prefix="caisson-images-")
    name = "sha256-" + "0" * 63 + "2"
    try:
        root = f"{images}/{name}/rootfs"
        shutil.copytree(f"{harness.IMAGES}/{harness.default_image().replace(':', '-')}/rootfs/etc", root + "/etc", symlinks=True)
        for folder in ("proc", "dev", "tmp", "run", "sys", "bin"):
            os.mkdir(f"{root}/{folder}")
        os.rmdir(f"{root}/{link}")
        os.symlink(target, f"{root}/{link}")
        with sandboxes(images=images, image=name.replace("-", ":")) as d:
            message = refused("unavailable", d.create)
            assert "mount /" in message, message
    finally:
        shutil.rmtree(images)


def test_planted_symlinks():
    planted("dev", "/etc")
    planted("dev", "../../../../../../dev")
    planted("proc", "/tmp")
    planted("proc", "tmp")


def test_ids_and_digests_are_checked():
    with sandboxes() as d:
        bad = ["../../../../../../../tmp/x", "0" * 35, "A" * 36, "-" + "0" * 35, "0" * 36 + "0", "0" * 33 + "/.."]
        for id in bad:
            refused("invalid", d.ask, f"create {id} {d.image} 64 32 10 1000 1")
            refused("invalid", d.ask, f"destroy {id}")
        id = "0" * 36
        for image in ("sha256:../../../etc", "sha256:" + "0" * 63, "sha256:" + "g" * 64, "/etc", "sha256-" + "0" * 64):
            refused("invalid", d.ask, f"create {id} {image} 64 32 10 1000 1")
        refused("not_found", d.ask, f"create {id} sha256:{'0' * 64} 64 32 10 1000 1")
        for numbers in ("8 32 10 1000 1", "64 0 10 1000 1", "64 32 3 1000 1", "64 32 10 9 1", "999999999 32 10 1000 1", "64 32 9999999 1000 1"):
            refused("invalid", d.ask, f"create {id} {d.image} {numbers}")
        message = refused("invalid", d.ask, f"create {id} {d.image} 1000000 32 10 1000 1")
        assert "this host has" in message
        message = refused("invalid", d.ask, f"create {id} {d.image} 64 16000000 10 1000 0")
        assert "does not fit" in message
        assert d.listed() == {}
