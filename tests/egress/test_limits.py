"""What a sandbox may move, and what is told of it."""
import json
import subprocess

import world
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


def audit(w, box):
    found, after = [], 0
    while after is not None:
        status, page = w.request("GET", f"/v1/audit?limit=1000&after={after}&sandbox={box.id}")
        assert status == 200, page
        found += page["items"]
        after = page["next"]
    return found


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


def test_datagrams_that_would_not_be_carried_are_refused_at_the_create(w):
    status, body = w.request("POST", "/v1/sandboxes", {"network": {"mode": "allow", "allow": ["1.2.3.4:123/udp"]}})
    assert status == 422 and "datagrams" in body["error"]["message"], (status, body)
    with w.create("public", deny=["1.2.3.4:123/udp"]) as b:
        status, body = b.network(mode="allow", allow=["api.test:443/udp"])
        assert status == 422, (status, body)


def test_audit_of_what_was_reached_and_refused(w):
    w.names.table["audit.test"] = [PUBLIC4]
    with w.create("allow", allow=["audit.test:80"]) as b:
        assert b.run(argv=["curl", "-sS", "-m", "20", "http://audit.test/"])["exit_code"] == 0
        b.run(argv=["curl", "-sS", "-m", "20", "http://denied-name.test/"])
        b.python(CONNECT + f"connect('{METADATA4}', 80)")
        assert until(lambda: any(l["type"] == "network.closed" for l in audit(w, b)))
        found = audit(w, b)
        allowed = [l for l in found if l["type"] == "network.allowed"]
        assert [(l["name"], l["address"], l["port"]) for l in allowed] == [("audit.test", PUBLIC4, 80)], allowed
        closed = next(l for l in found if l["type"] == "network.closed")
        assert closed["down_bytes"] > 0 and closed["up_bytes"] > 0
        denied = [l for l in found if l["type"] == "network.denied"]
        assert any(l.get("name") == "denied-name.test" and l["protocol"] == "dns" for l in denied), denied
        assert any(l.get("address") == METADATA4 and l["reason"] for l in denied), denied


def test_audit_is_not_flooded(w):
    box = w.create("allow", allow=["audit.test:80"])
    n = 1500
    box.python(f"""
import socket
for i in range({n}):
    s = socket.socket()
    s.settimeout(5)
    try:
        s.connect(("{PUBLIC4}", 1 + i % 60000))
        s.recv(1)
    except OSError:
        pass
    s.close()
""")
    box.delete()
    assert until(lambda: any(l["type"] == "sandbox.deleted" for l in audit(w, box)))
    found = audit(w, box)
    one_by_one = [l for l in found if l["type"] == "network.denied"]
    more = [l for l in found if l["type"] == "network.more"]
    assert len(one_by_one) < n / 2 and more, (len(one_by_one), len(more))
    told = len(one_by_one) + sum(l["denied"] + l["untold"] for l in more)
    assert n / 2 < told <= n, told
    assert found[-1]["type"] == "sandbox.deleted"


def test_audit_verifies_after_the_edge_was_killed(w):
    with w.create("public") as b:
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open"
        for pid in w.edges():
            os.kill(pid, 9)
        assert until(lambda: b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open", 60)
    done = subprocess.run([CAISSON, "audit", "verify", "--json", "--data", w.data], capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["ok"] and report["last"] > 10, done
