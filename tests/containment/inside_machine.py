"""Runs inside a machine as root, or as its user: "ok NAME" or "FAIL NAME why" for each way out. Root of a machine may do to the machine what
it likes, and tries to reach the host by that; what must not have changed on the host is looked at there (test_through_server.py).

arguments: the host's TCP port, abstract socket and file, then its addresses"""
import ctypes
import glob
import os
import socket
import sys

port, abstract, canary, addresses = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
libc = ctypes.CDLL(None, use_errno=True)
root = os.geteuid() == 0


def verdict(good, name, why=""):
    print(f"ok {name}" if good else f"FAIL {name} {why}")


def fails(name, call, *args):
    try:
        got = call(*args)
    except OSError:
        got = None
    verdict(got is None, name, f"gave {str(got)[:80]!r}")


def text_of(path):
    with open(path, errors="replace") as f:
        return f.read()


def write_to(path):
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, b"x" * 512)
    finally:
        os.close(fd)


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as s:
        s.settimeout(3)
        s.connect(address)
        return "a connection"


def try_write(path, text):
    try:
        with open(path, "w") as f:
            f.write(text)
    except OSError:
        pass


# Root's knobs are the machine's own: whatever is written, the host must not see it.
for knob, value in (("/proc/sys/kernel/core_pattern", "|/bin/sh"), ("/proc/sys/kernel/modprobe", "/tmp/modprobe"), ("/proc/sys/kernel/panic", "77"),
                    ("/proc/sys/vm/overcommit_memory", "1"), ("/proc/sys/net/ipv4/ip_forward", "1"), ("/proc/irq/default_smp_affinity", "1"),
                    ("/proc/sys/net/ipv4/ip_unprivileged_port_start", "7")):
    before = text_of(knob) if os.path.exists(knob) else None
    try_write(knob, value)
    if not root:
        verdict(before is None or text_of(knob) == before, f"user-may-not-write{knob}")
# Files: nothing of the host, by no way to walk; what the kernel shows of disks is this machine's.
for path in (canary, "/proc/1/root" + canary, "/proc/self/cwd/../../../.." + canary, "/dev/shm/caisson-host-shm", "/var/lib/caisson", "/run/caisson",
             "/var/run/docker.sock", "/run/systemd/private", "/dev/kvm", "/dev/fuse", "/dev/vhost-net"):
    verdict(not os.path.lexists(path), f"absent{path}", "is there")
disks = {os.path.basename(p) for p in glob.glob("/sys/block/*")}
verdict(all(d.startswith(("vd", "loop", "ram", "zram")) for d in disks) and len([d for d in disks if d.startswith("vd")]) == 2, "disks-of-its-own", sorted(disks))
mounted = {line.split()[2] for line in text_of("/proc/mounts").splitlines()}
verdict(not mounted & {"9p", "virtiofs", "nfs", "cifs", "fuse"}, "no-shared-file-system", sorted(mounted))
if root:
    image = next((d for d in sorted(disks) if d.startswith("vd") and text_of(f"/sys/block/{d}/ro").strip() == "1"), None)
    verdict(image, "the-image-is-a-read-only-device", sorted(disks))
    number = text_of(f"/sys/block/{image}/dev").split(":")
    os.mknod("/tmp/image", 0o600 | 0o060000, os.makedev(int(number[0]), int(number[1])))
    fails("write-to-the-image", write_to, "/tmp/image")
    try_write(f"/sys/block/{image}/force_ro", "0")
    fails("write-to-the-image-again", write_to, "/tmp/image")
    for major, minor, name in ((8, 0, "sda"), (259, 0, "nvme0n1"), (10, 232, "kvm"), (10, 238, "vhost-net"), (10, 241, "vhost-vsock")):
        os.mknod(f"/tmp/{name}", 0o600 | 0o020000 if major == 10 else 0o600 | 0o060000, os.makedev(major, minor))
        fails(f"no-device-behind-{name}", os.open, f"/tmp/{name}", os.O_RDWR)
else:
    fails("user-makes-no-device", os.mknod, "/tmp/null", 0o666 | 0o020000, os.makedev(1, 3))
    fails("user-does-not-become-root", os.setuid, 0)
    verdict(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) < 0, "user-mounts-nothing")
# IPC, processes
for name, got in (("shm", libc.shmget(0x43414953, 0, 0)), ("sem", libc.semget(0x43414953, 0, 0)), ("msg", libc.msgget(0x43414953, 0)),
                  ("queue", libc.syscall(240, b"caisson-host-queue", os.O_RDONLY, 0, None))):
    verdict(got < 0, f"no-ipc-of-the-host-{name}", str(got))
lines = [open(p, "rb").read() for p in glob.glob("/proc/[0-9]*/cmdline") if os.path.exists(p)]
verdict(not any(b"sleep\0" + b"1000" in line or b"caissond" in line or b"qemu" in line for line in lines), "no-process-of-the-host")
# Network: this sandbox was promised none, and has none.
fails("abstract-socket", connect, socket.AF_UNIX, "\0" + abstract)
for address in [*addresses, "127.0.0.1", "10.0.2.2", "169.254.169.254", "192.168.76.1"]:
    fails(f"tcp-{address}", connect, socket.AF_INET, (address, port))
fails("tcp6-loopback", connect, socket.AF_INET6, ("::1", port))
fails("vsock-host", connect, getattr(socket, "AF_VSOCK", 40), (2, port))
fails("udp-anywhere", connect, socket.AF_INET, ("192.0.2.1", 53), socket.SOCK_DGRAM)
links = {os.path.basename(p) for p in glob.glob("/sys/class/net/*")}
verdict(links <= {"lo", "eth0", "net0", "tunl0", "sit0"}, "links", sorted(links))
# The line to the daemon and whatever else is a port
for p in glob.glob("/dev/vport*") + glob.glob("/dev/hvc*") + glob.glob("/dev/ttyS*"):
    if root:
        try:
            fd = os.open(p, os.O_RDWR | os.O_NONBLOCK)
            os.close(fd)
            verdict("vport" not in p, f"the-guests-line-is-taken{p}", "could be opened")
        except OSError:
            verdict(True, f"the-guests-line-is-taken{p}")
verdict(len({int(f) for f in os.listdir("/proc/self/fd")} - {0, 1, 2}) <= 1, "descriptors", os.listdir("/proc/self/fd"))
