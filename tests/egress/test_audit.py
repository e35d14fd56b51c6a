"""What the audit log has of sandboxes' connections; and rules that could not be enforced."""
import json
import subprocess

from test_reach import CONNECT
from world import *


def audit(w, box):
    found, after = [], 0
    while after is not None:
        status, page = w.request("GET", f"/v1/audit?limit=1000&after={after}&sandbox={box.id}")
        assert status == 200, page
        found += page["items"]
        after = page["next"]
    return found


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
