"""Limits of what a sandbox may move."""
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
    for limits in ({"bytes": -1}, {"bytes_per_second": 1}, {"connections": 5000}, {"what": 1}, 7, {"bytes": 0}):
        status, body = w.request("POST", "/v1/sandboxes", {"network": {"mode": "public", "limits": limits}})
        assert status == 400, (limits, status, body)
