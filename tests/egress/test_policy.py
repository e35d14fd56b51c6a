"""Policies: asked for, refused, changed."""
from test_names import DNS
from test_reach import CONNECT, REFUSED
import world
from world import *

HOLD = """
import socket, sys, time
s = socket.create_connection(("%s", %d), 10)
s.sendall(b"x")
assert s.recv(1) == b"x"
open("/tmp/held", "w").close()
s.settimeout(%d)
try:
    print("closed" if not s.recv(1) else "data")
except TimeoutError:
    print("still open")
except OSError:
    print("cut")
"""


def held(w, box, address=None, port=7):
    """A run in the background that holds a connection; returns a function that gives its last word."""
    status, r = w.request("POST", f"/v1/sandboxes/{box.id}/runs", {"code": HOLD % (address or PUBLIC4, port, 20 * world.patience), "language": "python", "detach": True})
    assert status in (200, 201, 202), r
    assert until(lambda: box.run(argv=["test", "-e", "/tmp/held"])["exit_code"] == 0)
    box.run(argv=["rm", "/tmp/held"])

    def end():
        assert until(lambda: w.request("GET", f"/v1/sandboxes/{box.id}/runs/{r['id']}")[1]["state"] == "exited", 60)
        return w.output(box, r["id"])

    return end


def test_what_makes_no_sense_is_refused(w):
    for network in ({"mode": "allow", "allow": ["127.0.0.1"]}, {"mode": "allow", "allow": ["::ffff:10.0.0.1"]}, {"mode": "allow", "allow": ["a b"]},
                    {"mode": "none", "allow": ["api.test"]}, {"mode": "public", "deny": ["api.test:0"]}, {"mode": "allow", "allow": [""]},
                    {"mode": "allow", "allow": ["*evil"]}, {"mode": "allow", "allow": ["api.test"] * 300}, {"mode": "open"}, {"allow": ["api.test"]}):
        status, body = w.request("POST", "/v1/sandboxes", {"network": network})
        assert status in (400, 413), (network, status, body)
    with w.create("allow", allow=["API.Test.:443", "10.0.0.0/8:5432", "FD12::/16"]) as b:
        got = w.request("GET", f"/v1/sandboxes/{b.id}")[1]["network"]
        assert got == {"mode": "allow", "allow": ["api.test:443", "10.0.0.0/8:5432", "[fd12::]/16"], "deny": [], "limits": {}}, got


def test_a_change_cuts_what_is_no_longer_allowed(w):
    with w.create("public") as b:
        end = held(w, b)
        status, body = b.network(mode="allow", allow=[f"{PUBLIC4}:7"])
        assert status == 200 and body["network"]["mode"] == "allow", body
        start = time.time()
        status, body = b.network(mode="allow", allow=[f"{OTHER4}:7"])
        assert status == 200, body
        assert end() == "cut" and time.time() - start < 15
        out = b.python(CONNECT + f"print(connect('{PUBLIC4}', 7), connect('{OTHER4}', 7))")
        assert out.split()[0] in REFUSED and out.split()[1] == "open", out


def test_a_change_keeps_what_is_still_allowed(w):
    with w.create("public") as b:
        held(w, b)
        assert b.network(mode="public", deny=[OTHER4])[0] == 200
        assert b.network(mode="allow", allow=[f"{PUBLIC4}:7"])[0] == 200
        n = w.echo.connections
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open" and w.echo.connections == n + 1
        assert b.run(shell="grep -c 01 /proc/net/tcp || true")["exit_code"] == 0


def test_from_none_to_some_and_back(w):
    with w.create("none") as b:
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "ENETUNREACH"
        assert b.network(mode="public")[0] == 200
        assert b.python(CONNECT + DNS + f"print(connect('{PUBLIC4}', 7), connect('{PUBLIC6}', 7), *ask('api.test'))") == "open open 0 1"
        end = held(w, b)
        assert b.network(mode="none")[0] == 200
        assert end() in ("cut", "still open")  # without an interface nobody tells it; nothing passes
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "ENETUNREACH"
        assert b.network(mode="public")[0] == 200
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open"


def test_what_the_operator_sets(w):
    w.stop()
    w.serve("--network-max", "allow", "--network-lan", f"192.168.77.0/24,{PRIVATE4}")
    status, body = w.request("POST", "/v1/sandboxes", {"network": {"mode": "public"}})
    assert status == 403, (status, body)
    before = w.lan.connections
    with w.create("allow", allow=["192.168.77.0/24:80", "private.test:80", f"{METADATA4.rsplit('.', 1)[0]}.253:80" if False else "api.test:80"]) as b:
        out = b.python(CONNECT + f"print(connect('{LAN4}', 80), connect('{LAN4}', 81), connect('{LAN_PUBLIC4}', 80), connect('192.168.77.1', 8081))")
        assert out.split()[0] == "open" and set(out.split()[1:]) <= REFUSED, out
        assert b.run(argv=["curl", "-s", "-m", "5", "http://private.test/"])["stdout"].startswith("hello")
        assert b.run(argv=["curl", "-s", "-m", "5", "http://lan.test/"])["exit_code"] == 6
        assert b.network(mode="public")[0] == 403
    assert w.lan.connections == before + 1
    with w.create("allow", allow=["api.test"]) as b:  # opened by the operator is not given to everybody
        assert b.python(CONNECT + f"print(connect('{LAN4}', 80))") in REFUSED
    w.stop()
    w.serve("--network-max", "none")
    assert w.request("POST", "/v1/sandboxes", {"network": {"mode": "allow"}})[0] == 403
    status, s = w.request("POST", "/daytona/sandbox", {})
    assert status == 200 and s["networkBlockAll"] is True, s
    Box(w, s["id"]).delete()
    w.stop()
    w.serve("--network", "public")
    status, s = w.request("POST", "/v1/sandboxes", {"ephemeral": True})
    assert status == 201 and s["network"]["mode"] == "public", s
    Box(w, s["id"]).delete()


def test_a_ceiling_of_rules_and_limits(w):
    w.stop()
    w.serve("--network-max", "allow", "--network-allow", "*.test:80,443", "--network-allow", f"{PUBLIC4}:7", "--network-deny", "other.test",
            "--network-limit", "bytes_per_second=500000", "--network-limit", "connections=10")

    def refused(word, **network):
        status, body = w.request("POST", "/v1/sandboxes", {"network": network})
        assert status == 403 and "operator" in body["error"]["message"] and word in body["error"]["message"], (network, status, body)

    refused("public", mode="public")
    refused("api.test:22", mode="allow", allow=["other.test:80", "api.test:22"])
    refused("*.test:80", mode="allow", allow=["api.org:80"])
    refused("1.2.3.4", mode="allow", allow=["1.2.3.4:7"])
    refused("(500000)", mode="allow", allow=["api.test:80"], limits={"bytes_per_second": 500001})
    refused("(10)", mode="allow", allow=["api.test:80"], limits={"connections": 11})
    with w.create("allow", allow=["api.test:80", "other.test:80", f"{PUBLIC4}:7"]) as b:
        got = w.request("GET", f"/v1/sandboxes/{b.id}")[1]["network"]
        assert got["limits"] == {"bytes_per_second": 500000, "connections": 10} and got["deny"] == [], got
        assert b.run(argv=["curl", "-s", "-m", "5", "http://api.test/"])["stdout"].startswith("hello")
        assert b.run(argv=["curl", "-s", "-m", "5", "http://other.test/"])["exit_code"] == 6
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open"
        status, body = b.network(mode="allow", allow=["api.test"])
        assert status == 403 and "api.test " in body["error"]["message"], (status, body)
        assert b.network(mode="allow", limits={"connections": 11})[0] == 403
        w.stop()
        w.serve("--network-max", "allow", "--network-allow", "other.test")  # it has more now than it may: nothing
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") in REFUSED
        assert b.run(argv=["curl", "-s", "-m", "5", "http://api.test/"])["exit_code"] == 6
        assert b.network(mode="allow", allow=["other.test:80"])[0] == 200
        assert b.run(argv=["curl", "-s", "-m", "5", "http://other.test/"])["stdout"].startswith("hello")


def test_defaults_by_api(w):
    w.stop()
    w.serve("--network", "public", "--network", "daytona=none")
    status, s = w.request("POST", "/v1/sandboxes", {"ephemeral": True})
    assert status == 201 and s["network"]["mode"] == "public", s
    Box(w, s["id"]).delete()
    status, s = w.request("POST", "/daytona/sandbox", {})
    assert status == 200 and s["networkBlockAll"] is True, s
    Box(w, s["id"]).delete()
    for option in ("daytona", "daytona=allow", "e2b=none", "=none", "daytona="):
        done = subprocess.run([CAISSON, "serve", "--network", option], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2 and "--network" in done.stderr, (option, done)


def test_in_the_words_of_daytona(w):
    status, s = w.request("POST", "/daytona/sandbox", {})
    assert status == 200 and s["networkBlockAll"] is False, s
    b = Box(w, s["id"])
    assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open"
    status, s = w.request("POST", f"/daytona/sandbox/{b.id}/network-settings", {"networkAllowList": f"{OTHER4}/32, 8.8.8.0/24", "domainAllowList": "api.test"})
    assert status == 200 and s["networkAllowList"] == f"{OTHER4}/32,8.8.8.0/24" and s["domainAllowList"] == "api.test", s
    said = s["networkAllowList"]
    status, s = w.request("POST", f"/daytona/sandbox/{b.id}/network-settings", {"networkAllowList": said})
    assert status == 200 and s["networkAllowList"] == said, "its own answer can be given back"
    out = b.python(CONNECT + f"print(connect('{PUBLIC4}', 7), connect('{OTHER4}', 7), connect('8.8.8.8', 7))")
    assert out.split()[0] in REFUSED and out.split()[1:] == ["open", "open"], out
    assert b.run(argv=["curl", "-s", "-m", "5", "http://api.test/"])["stdout"].startswith("hello")
    status, s = w.request("POST", f"/daytona/sandbox/{b.id}/network-settings", {"networkBlockAll": True})
    assert status == 200 and s["networkBlockAll"] is True and "networkAllowList" not in s, s
    assert b.python(CONNECT + f"print(connect('{OTHER4}', 7))") in REFUSED
    b.delete()


def test_on_the_command_line(w):
    env = dict(os.environ, CAISSON_URL=f"unix:{w.socket}", CAISSON_API_KEY=w.key)

    def run(*options):
        done = subprocess.run([CAISSON, "run", *options, "--", "curl", "-s", "-m", "5", "http://api.test/"], env=env, capture_output=True, text=True, timeout=60)
        return done.stdout

    assert run() == "" and run("--network", "none") == ""
    assert run("--network", "public").startswith("hello")
    assert run("--allow", "api.test:80").startswith("hello")
    assert run("--allow", "other.test:80") == ""
    assert run("--network", "public", "--deny", "api.test") == ""
