"""Limits hold, are told as what they are, and do not harm the neighbour."""
import glob
import os
import time

from harness import refused, sandboxes


def test_memory():
    with sandboxes() as d:
        id, neighbour = d.create(memory=64, disk=16), d.create()
        out, code = d.run(id, "python3 -c 'b = bytearray(200 << 20)' 2>&1", check=False)
        assert code in (137, 1, None), (out, code)
        assert d.run(neighbour, "echo fine")[0] == "fine"
        if code is not None:
            assert d.usage(id)["oom"][0] >= 1


def test_memory_end_is_told():
    with sandboxes() as d:
        id = d.create(memory=16, disk=4)
        # everybody is as big as everybody: sooner or later PID 1 is chosen, or all commands are
        for _ in range(20):
            try:
                d.run(id, "for i in 1 2 3 4 5 6 7 8; do python3 -c 'b = bytearray(64 << 20)' & done; wait", check=False)
            except Exception:
                break
            if any(e[:2] == ["event", id] for e in d.events):
                break
        d.ask("wait 200")
        ends = [e[2] for e in d.events if e[:2] == ["event", id]]
        if ends:
            assert ends == ["oom"], ends
        else:
            assert d.usage(id)["oom"][0] >= 1


def test_templates_of_disks():
    """Sizes are chosen by whoever creates: what is kept of each must not pile up."""
    with sandboxes() as d:
        for disk in range(100, 120):
            d.destroy(d.create(disk=disk, ephemeral=False))
        assert len(glob.glob(d.data + "/disks/template-*")) <= 17


def test_processes():
    with sandboxes() as d:
        id, neighbour = d.create(pids=40), d.create()
        out, _ = d.run(id, "i=0; while [ $i -lt 200 ]; do sleep 3 & i=$((i+1)); done 2>&1; true", check=False)
        assert "fork" in out.lower() or "Resource" in out or "cannot" in out.lower(), out[-300:]
        assert d.run(neighbour, "echo fine")[0] == "fine"
        start = time.time()
        d.destroy(id)
        assert time.time() - start < 5


def test_fork_bomb_dies_with_the_sandbox():
    with sandboxes() as d:
        id = d.create(pids=200)
        d.run(id, "(sh -c 'b() { b | b & b; }; b' > /dev/null 2>&1 < /dev/null &); sleep 0.5; true", check=False)
        start = time.time()
        d.destroy(id)
        assert time.time() - start < 5


def disk_fill(ephemeral, disk, memory):
    with sandboxes() as d:
        id = d.create(disk=disk, memory=memory, ephemeral=ephemeral)
        out, code = d.run(id, "dd if=/dev/zero of=/tmp/big bs=1M count=100000 2>&1", check=False)
        assert code == 1 and "No space left" in out, (code, out)
        used, limit = d.usage(id)["disk"]
        assert limit <= disk << 20 and used >= 0.9 * limit, (used, limit)
        d.run(id, "rm /tmp/big; echo again > /tmp/small")
        out, code = d.run(id, "cd /tmp; python3 -c 'exec(\"for i in range(10**7): open(str(i), \\\"w\\\").close()\")' 2>&1 | tail -1", check=False)
        assert "No space left" in out, out


def test_disk_in_memory():
    disk_fill(True, 32, 128)


def test_disk_on_file():
    disk_fill(False, 64, 128)


def test_ephemeral_disk_on_file():
    disk_fill(True, 100, 64)


def test_shared_memory_is_limited():
    with sandboxes() as d:
        id = d.create(memory=64, disk=16)
        out, code = d.run(id, "dd if=/dev/zero of=/dev/shm/x bs=1M count=1000 2>&1; rm -f /dev/shm/x", check=False)
        assert "No space left" in out or code in (137, None), out


def test_cpu():
    with sandboxes() as d:
        id = d.create(cpu=200)
        before = d.usage(id)["cpu_usec"][0]
        start = time.time()
        d.run(id, "timeout 2 sh -c 'while :; do :; done'", check=False)
        share = (d.usage(id)["cpu_usec"][0] - before) / 1e6 / (time.time() - start)
        assert 0.02 < share < 0.3, share


def test_descriptors():
    with sandboxes() as d:
        id = d.create()
        out, _ = d.run(id, "python3 -c 'exec(\"import os\\nl=[]\\ntry:\\n while 1: l.append(os.open(\\\"/dev/null\\\", 0))\\nexcept OSError as e: print(e.errno, len(l))\")'")
        assert out.startswith("24 "), out
        assert d.run(d.create(), "echo fine")[0] == "fine"


def test_groups_below_are_limited():
    with sandboxes() as d:
        id = d.create()
        out, _ = d.run(id, "cd /proc/1/fd/4 2>/dev/null || exit 0; i=0; while mkdir g$i 2>/dev/null; do i=$((i+1)); done; echo $i", check=False)
        if out.strip():
            assert int(out) < 2100, out
        d.destroy(id)


def test_a_million_folders_go():
    with sandboxes() as d:
        id = d.create(disk=600, ephemeral=False, memory=512)
        d.run(id, "python3 -c 'exec(\"import os\\ntry:\\n for i in range(30000): os.makedirs(f\\\"/tmp/d{i % 100}/{i}\\\")\\nexcept OSError: pass\")'", check=False)
        start = time.time()
        d.destroy(id)
        assert time.time() - start < 10


def test_deep_path():
    with sandboxes() as d:
        id = d.create()
        d.run(id, "python3 -c 'exec(\"import os\\nfor i in range(3000):\\n os.mkdir(\\\"d\\\" * 100)\\n os.chdir(\\\"d\\\" * 100)\")'", check=False)
        d.destroy(id)


def test_impossible_disk_is_refused_with_the_cause():
    with sandboxes() as d:
        free = os.statvfs(d.data)
        mib = free.f_bavail * free.f_frsize // (1 << 20)
        message = refused("unavailable", d.create, disk=mib + 1, ephemeral=False)
        assert "MiB free" in message


FILL = """
import socket
held, data = [], b"x" * (1 << 20)
l = socket.create_server(("127.0.0.1", 0), backlog=1000)
try:
    for _ in range(400):
        s = socket.create_connection(l.getsockname(), 2)
        held += [s, l.accept()[0]]
        for at in held[-2:]:
            at.setblocking(False)
            try:
                for _ in range(64):
                    at.send(data)
            except BlockingIOError:
                pass
except OSError:
    pass
def waits(s):
    m = s.getsockopt(socket.SOL_SOCKET, 55, 36)
    u = [int.from_bytes(m[i:i + 4], "little") for i in range(0, 36, 4)]
    return u[0] + u[4] + u[5] + u[7]
print(sum(map(waits, held)) >> 20)
"""


def test_sockets():
    """What waits in a sandbox's own sockets is no more than its limit, whichever cgroups count it."""
    with sandboxes() as d:
        id, neighbour = d.create(memory=128, disk=16), d.create()
        out, code = d.run(id, "ulimit -n 1000; python3 -c 'exec(bytes.fromhex(\"%s\"))' 2>&1" % FILL.encode().hex(), check=False)
        assert code in (137, None) or (code == 0 and int(out) <= 128), (out, code)
        assert d.run(neighbour, "echo fine")[0] == "fine"
