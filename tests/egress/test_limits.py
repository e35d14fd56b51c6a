"""Limits of what a sandbox may move."""
import struct

from test_audit import audit
from test_reach import CONNECT, REFUSED
from world import *

FETCH = """
import socket, time
def move(port, n):
    "sends n bytes to an echo, and counts what comes back until the end"
    s, got, sent = socket.create_connection(("%s", port), 20), 0, 0
    s.settimeout(60)
    try:
        while got < n:
            if sent < n:
                sent += s.send(b"x" * min(4096, n - sent))
            k = len(s.recv(65536))
            if not k:
                break
            got += k
    except OSError:
        pass
    return got
""" % PUBLIC4


def limited(w, **limits):
    status, s = w.request("POST", "/v1/sandboxes", {"network": {"mode": "public", "limits": limits}, "ephemeral": True})
    assert status == 201, (status, s)
    assert s["network"]["limits"] == limits
    return Box(w, s["id"])


def test_limits_a_rate_of_bytes(w):
    with limited(w, bytes_per_second=50000) as b:
        out = b.python(FETCH + "t = time.monotonic(); print(move(7, 150000), time.monotonic() - t)")
        got, took = out.split()
        assert int(got) == 150000 and float(took) > 2, out  # what the first moment gives, and the other way, which goes on beside it
        status, s = b.network(mode="public", limits={})
        assert status == 200 and s["network"]["limits"] == {}, s
        assert b.python(FETCH + "print(move(7, 3000000))") == "3000000"


def test_limits_a_number_of_bytes(w):
    with limited(w, bytes=100000) as b:
        assert int(b.python(FETCH + "print(move(7, 400000))")) <= 100000
        out = b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))")
        assert out in REFUSED, out
        assert any("used up" in l.get("reason", "") for l in audit(w, b))
        assert b.network(mode="public", limits={"bytes": 99999})[0] == 200  # another limit does not give it once more
        assert b.network(mode="public", limits={"bytes": 100000})[0] == 200
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") in REFUSED
        status, s = b.network(mode="public", limits={"bytes": 10000000})
        assert status == 200, s
        assert b.python(FETCH + "print(move(7, 400000))") == "400000"


def test_limits_connections(w):
    with limited(w, connections=2) as b:
        out = b.python(CONNECT + f"""
held = [socket.create_connection(("{PUBLIC4}", 7), 10) for _ in range(2)]
for s in held:
    s.sendall(b"x")
    assert s.recv(1) == b"x"
print(connect("{PUBLIC4}", 7))
held.pop().close()
for _ in range(100):
    last = connect("{PUBLIC4}", 7)
    if last == "open":
        break
    time.sleep(0.1)
print(last)""")
        assert out.split()[0] in REFUSED and out.split()[1] == "open", out


def test_limits_that_are_none(w):
    for limits in ({"bytes": -1}, {"bytes_per_second": 1}, {"connections": 8193}, {"what": 1}, 7, {"bytes": 0}):
        status, body = w.request("POST", "/v1/sandboxes", {"network": {"mode": "public", "limits": limits}})
        assert status == 400, (limits, status, body)


def test_limits_a_few_cannot_have_all_descriptors(w):
    w.stop()
    w.serve(under=("setpriv", "--bounding-set", "-sys_resource", "prlimit", "--nofile=4800:4800"))
    hold = """
import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = []
try:
    while len(held) < %d:
        s = socket.create_connection(("%s", 7), 20)
        held.append(s)
        s.sendall(b"x")
        assert s.recv(1) == b"x"
except OSError:
    held.pop()
print(len(held), "held", flush=True)
time.sleep(600)
"""
    boxes, got = [w.create(mode="public") for _ in range(3)], []
    try:
        for b, n in zip(boxes, (3000, 200, 200)):
            status, r = w.request("POST", f"/v1/sandboxes/{b.id}/runs", {"language": "python", "detach": True, "code": hold % (n, PUBLIC4)})
            assert status == 201, r
            assert until(lambda: "held" in w.output(b, r["id"]), 60), w.output(b, r["id"])
            got.append(int(w.output(b, r["id"]).split()[0]))
    finally:
        for b in boxes:
            b.delete()
    assert 1024 <= got[0] <= 1300 and got[1:] == [200, 200], got


POUR = 9000
TAKE = """
import socket, sys, time
held = []
for i in range(%d):
    s = socket.create_connection(("%s", %d), 20)
    held.append(s)
    got = 0
    while got < %d:  # as long as it reads it is trusted with more and more
        got += len(s.recv(1 << 20)) or sys.exit("ended")
print(len(held), "held", flush=True)
time.sleep(600)
"""
GIVE = """
import socket, time
held, some = [], bytes(1 << 20)
for i in range(%d):
    s = socket.create_connection(("%s", %d), 20)
    held.append(s)
    s.settimeout(0.2)
    try:
        while True:
            s.send(some)
    except TimeoutError:
        pass
print(len(held), "held", flush=True)
time.sleep(600)
"""


def pour(server, c):
    try:
        while True:
            c.sendall(bytes(1 << 20))
    except OSError:
        pass


def take_some(server, c):
    """As much as lets what is under way grow; then it is read no more."""
    got = 0
    while got < 12 << 20:
        got += len(c.recv(1 << 20)) or 1 << 30
    time.sleep(600)


def kernel_holds(pid):
    """Bytes of the kernel's in the connections of that process."""
    process, total = os.pidfd_open(pid), 0
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            copy = libc.syscall(438, process, int(fd), 0)  # pidfd_getfd
            if copy < 0:
                continue
            try:
                with socket.socket(fileno=copy) as s:
                    if s.family in (socket.AF_INET, socket.AF_INET6) and s.type == socket.SOCK_STREAM:
                        m = struct.unpack("9I", s.getsockopt(socket.SOL_SOCKET, 55, 36))  # SO_MEMINFO
                        total += m[0] + m[5]  # received and not read; written and not taken
            except OSError:
                os.close(copy)
    finally:
        os.close(process)
    return total


def holds_no_more(w, n, port, talk, code):
    """Nor does a neighbour suffer."""
    server = Server(w, "net", port, talk)
    share = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 32 // 4
    try:
        with w.create(mode="public", resources={"memory_mib": 1024}) as b, w.create(mode="public") as neighbour:
            status, r = w.request("POST", f"/v1/sandboxes/{b.id}/runs", {"language": "python", "detach": True, "code": code})
            assert status == 201, r
            assert until(lambda: "held" in w.output(b, r["id"]), 120), w.output(b, r["id"])
            time.sleep(1)
            held = sum(kernel_holds(p) for p in w.edges())
            print(f"# {held >> 20} MiB of {share >> 20}, in {n} connections")
            assert 0 < held <= share + n * (128 << 10), held
            assert neighbour.python(FETCH + "print(move(7, 3000000))") == "3000000"
    finally:
        server.close()


def test_limits_what_the_kernel_holds_for_one_that_does_not_read(w):
    holds_no_more(w, 150, POUR, pour, TAKE % (150, PUBLIC4, POUR, 12 << 20))


def test_limits_what_the_kernel_holds_for_hosts_that_do_not_read(w):
    holds_no_more(w, 80, POUR, take_some, GIVE % (80, PUBLIC4, POUR))


def test_limits_connections_that_are_not_taken_to_their_end(w):
    """What both sides have ended, but for bytes that the sandbox does not read, is one still."""
    def once(server, c):
        c.sendall(bytes(600000))
        c.shutdown(socket.SHUT_WR)
        c.recv(1)

    server = Server(w, "net", POUR, once)
    try:
        with limited(w, connections=4) as b:
            out = b.python(CONNECT + f"""
held = []
for i in range(4):
    s = socket.create_connection(("{PUBLIC4}", {POUR}), 10)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.shutdown(socket.SHUT_WR)
    held.append(s)
time.sleep(1)
print(connect("{PUBLIC4}", 7))
for s in held:
    n = 0
    while k := len(s.recv(65536)):
        n += k
    assert n == 600000, n
for _ in range(100):
    last = connect("{PUBLIC4}", 7)
    if last == "open":
        break
    time.sleep(0.1)
print(last)""")
            assert out.split()[0] in REFUSED and out.split()[1] == "open", out
    finally:
        server.close()
