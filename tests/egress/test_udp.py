"""Datagrams: by rule and by port, and answers only from who was asked."""
from test_audit import audit
from test_names import DNS
from test_reach import CONNECT, NEVER4, NEVER6
from test_secrets import secret
from world import *

PORT = 5300
ASK = """
import errno, os, socket, sys, time
def opened(a, port, timeout=10):
    s = socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(timeout)
    s.connect((a, port))
    return s
def ask(a, port=5300, data=b"x", timeout=5):
    "how many bytes came back, if they were ours, or what became of it"
    for again in range(3): # datagrams may get lost
        try:
            s = opened(a, port, timeout)
            s.send(data)
            back = s.recv(70000)
            return len(back) if back == data else "other bytes"
        except TimeoutError:
            pass
        except OSError as e:
            return errno.errorcode[e.errno]
    return "silence"
def ask_all(addresses):
    "how many of them have answered within a while"
    asked = []
    for a in addresses:
        try:
            asked.append(opened(a, 5300))
            asked[-1].send(b"x")
        except OSError:
            pass
    time.sleep(0.5)
    n = 0
    for s in asked:
        try:
            s.setblocking(False)
            n += len(s.recv(9))
        except OSError:
            pass
    return n
"""
# Holds a flow until it is told, or hears, that it is over; says so.
HOLD = ASK + """
s = opened(%r, 5300, 0.2)
end = time.time() + %d
answered = 0
while time.time() < end:
    try:
        s.send(b"x")
        if s.recv(9) == b"x" and not answered:
            answered = 1
            open("/tmp/held", "w").close()
    except TimeoutError:
        pass
    except OSError:
        print("cut" if answered else "refused")
        break
    time.sleep(0.02)
else:
    print("still open")
"""


class Datagrams:
    """A server at some addresses of a namespace: gives back what it gets, and keeps it with the address that it came from."""

    def __init__(self, world, where="net", port=PORT, addresses=(PUBLIC4, OTHER4, PUBLIC6)):
        self.seen, self.sockets = [], {}

        def make():
            Inside(world.path(where)).__enter__()
            for a in addresses:
                s = socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_DGRAM)
                s.bind((a, port))
                self.sockets[a] = s

        t = threading.Thread(target=make)
        t.start()
        t.join()
        self.threads = [threading.Thread(target=self.serve, args=(s,), daemon=True) for s in self.sockets.values()]
        for t in self.threads:
            t.start()

    def serve(self, s):
        while True:
            data, peer = s.recvfrom(70000)
            if data == b"end":
                return
            self.seen.append((data, peer))
            s.sendto(data, peer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.sockets.values():
            s.sendto(b"end", s.getsockname())  # a close does not wake up whoever reads
        for t in self.threads:
            t.join()
        for s in self.sockets.values():
            s.close()


def started(w, box, code):
    status, r = w.request("POST", f"/v1/sandboxes/{box.id}/runs", {"code": code, "language": "python", "detach": True})
    assert status in (200, 201, 202), r

    def said():
        assert until(lambda: w.request("GET", f"/v1/sandboxes/{box.id}/runs/{r['id']}")[1]["state"] == "exited", 30)
        return w.output(box, r["id"])

    return said


def held(w, box, address=PUBLIC4):
    said = started(w, box, HOLD % (address, 30 * patience))
    assert until(lambda: box.run(argv=["test", "-e", "/tmp/held"])["exit_code"] == 0)
    box.run(argv=["rm", "/tmp/held"])
    return said


def test_udp_goes_where_a_rule_says_and_nowhere_else(w):
    with Datagrams(w) as d, Datagrams(w, "lan", addresses=(LAN4, LAN_PUBLIC4, LAN6)) as lan, Datagrams(w, port=PORT + 1) as other, \
            Datagrams(w, addresses=(PRIVATE4, METADATA4, METADATA6)) as private:
        for mode in ("allow", "public"):
            with w.create(mode, allow=[f"{PUBLIC4}:5300/udp", f"[{PUBLIC6}]:5300/udp", "10.0.0.0/8/udp", "192.168.0.0/16/udp", f"{PUBLIC4}:80"]) as b:
                out = b.python(ASK + f"for a in ('{PUBLIC4}', '{PUBLIC6}'): print(ask(a))")
                assert out == "1\n1", out
                before = len(d.seen)
                out = b.python(ASK + f"print(ask('{OTHER4}'), ask('{PUBLIC4}', 5301), ask('{PUBLIC6}', 5301), ask('{PUBLIC4}', 80))\n"
                               f"print({{ask(a) for a in {[PRIVATE4, METADATA4, LAN4, LAN_PUBLIC4, HOST4, METADATA6, LAN6, HOST6]}}})\n"
                               f"print(ask_all({NEVER4 + NEVER6}))")
                assert out.split("\n") == ["ECONNREFUSED ECONNREFUSED ECONNREFUSED ECONNREFUSED", "{'ECONNREFUSED'}", "0"], out
                assert len(d.seen) == before and not lan.seen and not other.seen and not private.seen
                out = b.python(CONNECT + f"print(connect('{PUBLIC4}', 5300))")  # not a word of connections
                assert out in ("ECONNREFUSED", "ECONNRESET"), out


def test_udp_of_any_size(w):
    with Datagrams(w), w.create("allow", allow=[f"{PUBLIC4}:5300/udp", f"[{PUBLIC6}]:5300/udp"]) as b:
        for a, longest in ((PUBLIC4, 65507), (PUBLIC6, 65527)):
            sizes = [0, 1, 1452, 1453, 1472, 1473, 2953, 9000, longest]
            out = b.python(ASK + f"for n in {sizes}: print(ask({a!r}, 5300, os.urandom(n)))")
            assert out.split() == [str(n) for n in sizes], out


def test_udp_by_name(w):
    w.names.table["udp.test"] = [PUBLIC4, PUBLIC6]
    with Datagrams(w) as d:
        for mode in ("allow", "public"):
            with w.create(mode, allow=["udp.test:5300/udp"]) as b:
                code = ASK + f"""
print(ask('{PUBLIC4}'))
for a in (socket.AF_INET, socket.AF_INET6):
    found = socket.getaddrinfo("udp.test", 5300, a)[0][4][0]
    print(found, ask(found), ask(found, 5301))
"""
                assert b.python(code) == f"ECONNREFUSED\n{PUBLIC4} 1 ECONNREFUSED\n{PUBLIC6} 1 ECONNREFUSED", mode
                said = held(w, b)
                assert b.network(mode=mode, allow=["udp.test:5300,5301/udp"])[0] == 200  # one that goes by a name goes on by it
                assert b.python(ASK + f"print(ask('{PUBLIC4}'))") == "1"
                assert b.network(mode=mode, allow=["other.test:5300/udp"])[0] == 200
                assert said() == "cut"
                assert b.python(ASK + f"print(ask('{PUBLIC4}'))") == "ECONNREFUSED"
                assert {l.get("name") for l in audit(w, b) if l["type"] == "network.allowed"} == {"udp.test"}
    del w.names.table["udp.test"]
    assert d.seen


def test_udp_answers_only_from_who_was_asked(w):
    with Datagrams(w) as d, Datagrams(w, port=PORT + 1) as other, w.create("allow", allow=[f"{PUBLIC4}:5300/udp", f"{OTHER4}/udp"]) as b:
        said = started(w, b, ASK + f"""
s = opened("{PUBLIC4}", 5300)
s.send(b"first")
assert s.recv(99) == b"first"
s.settimeout(0.2)
open("/tmp/ready", "w").close()
got, end = [], time.time() + {30 * patience}
while time.time() < end and b"last" not in got:
    try:
        got.append(s.recv(99))
    except TimeoutError:
        pass
print(got)
""")
        assert until(lambda: b.run(argv=["test", "-e", "/tmp/ready"])["exit_code"] == 0)
        peer = next(p for data, p in d.seen if data == b"first")
        other.sockets[PUBLIC4].sendto(b"of another port", peer)
        d.sockets[OTHER4].sendto(b"of another host", peer)
        d.sockets[PUBLIC4].sendto(b"last", peer)
        assert said() == "[b'last']"
        # Two who ask from different ports have different ones outside; what is told to one is not told to the other.
        assert b.python(ASK + f"a, c = opened('{PUBLIC4}', 5300), opened('{PUBLIC4}', 5300)\na.send(b'a'); c.send(b'c'); print(a.recv(9), c.recv(9))") == "b'a' b'c'"
        assert len({p for data, p in d.seen if data in (b"a", b"c")}) == 2


def test_udp_from_an_address_that_is_not_its_own(w):
    """Any program may bind to one that is not there (IP_FREEBIND), and of IPv6 send from it; that ends in the gate."""
    with Datagrams(w) as d, w.create("allow", allow=[f"{PUBLIC4}:5300/udp", f"[{PUBLIC6}]:5300/udp"]) as b:
        out = b.python(ASK + f"""
sent = 0
for family, level, option, to, sources in ((socket.AF_INET, 0, 15, "{PUBLIC4}", ("10.97.83.1", "10.97.84.2", "8.8.8.8", "{PUBLIC4}")),
                                           (socket.AF_INET6, 41, 78, "{PUBLIC6}", ("fdca:1550:9753::1", "2001:db8::1", "{PUBLIC6}"))):
    for source in sources:
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.setsockopt(level, option, 1)
        try:
            s.bind((source, 4000))
            s.sendto(source.encode(), (to, 5300))
            sent += 1
        except OSError:
            pass
print(sent, ask("{PUBLIC4}"), ask("{PUBLIC6}"))
""")
        sent, *asked = out.split()
        assert int(sent) >= 3 and asked == ["1", "1"], out
        assert all(data == b"x" for data, _ in d.seen), d.seen


def test_udp_that_nobody_takes(w):
    with w.create("allow", allow=[f"{PUBLIC4}:5399/udp", f"[{PUBLIC6}]:5399/udp"]) as b:
        assert b.python(ASK + f"print(ask('{PUBLIC4}', 5399), ask('{PUBLIC6}', 5399))") == "ECONNREFUSED ECONNREFUSED"


def test_udp_port_53_is_ours(w):
    for network in ({"mode": "allow", "allow": ["8.8.8.8:53/udp"]}, {"mode": "public", "allow": ["dns.test:53/udp"]}):
        status, body = w.request("POST", "/v1/sandboxes", {"network": network})
        assert status == 400 and "name service" in body["error"]["message"], (status, body)
    with w.create("allow", allow=["0.0.0.0/0/udp", "[::]/0/udp", "api.test:1"]) as b:
        asked = len(w.names.asked)
        out = b.python(DNS + f"print(ask('denied.test', server='8.8.8.8'), ask('denied.test', server='{PUBLIC6}'), ask('api.test', server='9.9.9.9'))")
        assert out == "(3, 0) (3, 0) (0, 1)", out
        assert all(n != "denied.test" for n, _ in w.names.asked[asked:])


def test_udp_is_told_in_the_audit_log(w):
    with Datagrams(w), w.create("allow", allow=[f"{PUBLIC4}:5300/udp"]) as b:
        b.python(ASK + f"""
s = opened("{PUBLIC4}", 5300)
for i in range(20):
    s.send(b"12345")
    s.recv(9)
for i in range(20):
    ask("{PUBLIC4}", 5301)
""")
        assert b.network(mode="allow", allow=["api.test"])[0] == 200  # ends it
        assert until(lambda: any(l["type"] == "network.closed" for l in audit(w, b)))
        lines = [(l["type"], l["address"], l["port"], l["protocol"]) for l in audit(w, b) if l["type"].startswith("network.")]
        assert set(lines) == {("network.allowed", PUBLIC4, 5300, "udp"), ("network.denied", PUBLIC4, 5301, "udp"), ("network.closed", PUBLIC4, 5300, "udp"),
                              ("network.denied", PUBLIC4, 5300, "udp")}, lines
        assert len(lines) < 10, lines  # one for a flow, and one for a while of what is refused
        closed = next(l for l in audit(w, b) if l["type"] == "network.closed")
        assert (closed["up_bytes"], closed["down_bytes"]) == (100, 100), closed


def limited(w, **limits):
    b = w.create("none")
    status, body = b.network(mode="public", allow=[f"{PUBLIC4}:5300/udp"], limits=limits)
    assert status == 200, body
    return b


def test_udp_shares_the_limits(w):
    with Datagrams(w), limited(w, bytes=50000) as b:
        out = b.python(ASK + CONNECT + f"print([ask('{PUBLIC4}', data=bytes(n)) for n in (20000, 20000, 1)], connect('{PUBLIC4}', 7))")
        assert out.startswith("[20000, 'ECONNREFUSED', 'ECONNREFUSED'] ") and not out.endswith("open"), out
        assert any("used up" in l.get("reason", "") and l["protocol"] == "udp" for l in audit(w, b))
    with Datagrams(w), limited(w, connections=3) as b:
        out = b.python(ASK + CONNECT + f"""
start, held = time.monotonic(), [opened("{PUBLIC4}", 5300) for i in range(3)]
for s in held:
    s.send(b"x")
    s.recv(1)
print(ask("{PUBLIC4}"), connect("{PUBLIC4}", 7), time.monotonic() - start)
""")
        asked, connected, took = out.split()
        assert asked == "ECONNREFUSED" and connected != "open" or float(took) > 4, out  # as above
    with Datagrams(w), limited(w, bytes_per_second=20000) as b:
        out = b.python(ASK + f"""
s = opened("{PUBLIC4}", 5300, 0)
start, got = time.monotonic(), 0
while time.monotonic() < start + 2:
    try:
        s.send(bytes(1000))
        while True: got += len(s.recv(9000))
    except OSError:
        time.sleep(0.001)
took = time.monotonic() - start
print(got > 1000, got < 20000 * (took + 1) + 2000)
""")
        assert out == "True True", out


def test_udp_has_so_many_flows_and_connections_go_on(w):
    with Datagrams(w) as d, w.create("public", allow=[f"{PUBLIC4}:5300/udp"]) as b, w.create("public", allow=[f"{PUBLIC4}:5300/udp"]) as neighbour:
        out = b.python(ASK + CONNECT + f"""
held, refused, start = [], 0, time.monotonic()
for i in range(300):
    s = opened("{PUBLIC4}", 5300)
    try:
        s.send(b"x")
        s.recv(9)
        held.append(s)
    except ConnectionRefusedError:
        refused += 1
print(len(held), refused, time.monotonic() - start, connect("{PUBLIC4}", 7))
""")
        n, refused, took, tcp = out.split()
        assert tcp == "open" and int(n) + int(refused) == 300, out
        assert int(n) <= 256 or float(took) > 4, out  # what is silent for a while gives way
        assert neighbour.python(ASK + f"print(ask('{PUBLIC4}'))") == "1"
        # A flood to where nothing may go harms nobody else, and leaves the own connections alone.
        assert b.python(ASK + CONNECT + f"""
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(20000):
    try: s.sendto(bytes(1400), ("{OTHER4}", 1 + i % 60000))
    except OSError: pass
print(connect("{PUBLIC4}", 7))
""") == "open"
        assert neighbour.python(ASK + f"print(ask('{PUBLIC4}'))") == "1"


def test_udp_does_not_pass_by_the_opener_or_rules_about_names(w):
    secret(w, "quic", ["api.test"])
    rules = [f"{PUBLIC4}:443,853,5300/udp", "api.test"]
    with Datagrams(w) as d, Datagrams(w, port=443) as quic, Datagrams(w, port=853) as dot, Datagrams(w, port=8) as eight:
        code = ASK + f"print(ask('{PUBLIC4}', 443), ask('{PUBLIC4}', 853), ask('{PUBLIC4}'))"
        with w.create("allow", allow=rules) as b:
            assert b.python(code) == "1 1 1"
        with w.create("allow", allow=rules, secrets={"env": {"KEY": "quic"}}) as b:
            assert b.python(code) == "ECONNREFUSED 1 1"
        for more in ({"deny": ["evil.test"]}, {"permissions": ["ask host:evil.test"]}, {"permissions": ["deny host:evil.test"]},
                     {"permissions": ["deny method:POST evil.test"]}):
            with w.create("public", allow=rules, **more) as b:
                assert b.python(code) == "ECONNREFUSED ECONNREFUSED 1", more
        # a name that is denied on a port shares its address with another: who is meant is not seen
        with w.create("public", allow=[f"{PUBLIC4}/udp"], deny=["same.test:8"]) as b:
            assert b.python(ASK + f"print(ask('{PUBLIC4}', 8))\nsocket.getaddrinfo('same.test', 8)\nprint(ask('{PUBLIC4}', 8), ask('{PUBLIC4}'))") == "1\nECONNREFUSED 1"
        with w.create("allow", allow=[f"{PUBLIC4}/udp", "same.test"], permissions=["deny method:POST same.test"]) as b:
            assert b.python(ASK + f"print(ask('{PUBLIC4}', 8))\nsocket.getaddrinfo('same.test', 8)\nprint(ask('{PUBLIC4}', 8), ask('{PUBLIC4}'))") == "1\nECONNREFUSED ECONNREFUSED"
        # taken away from a flow that is open
        with w.create("allow", allow=[f"{PUBLIC4}:5300/udp", "api.test"]) as b:
            said = held(w, b)
            secret(w, "late", ["api.test:5300"])
            assert w.request("PATCH", f"/v1/sandboxes/{b.id}", {"secrets": {"env": {"KEY": "late"}}})[0] == 200
            assert said() == "cut"
    for name in ("quic", "late"):
        w.request("DELETE", f"/v1/secrets/{name}")


def test_udp_ends_with_its_policy(w):
    with Datagrams(w), w.create("public", allow=[f"{PUBLIC4}:5300/udp", f"[{PUBLIC6}]:5300/udp"]) as b:
        said, other = held(w, b), held(w, b, PUBLIC6)
        assert b.network(mode="public", allow=[f"[{PUBLIC6}]:5300/udp"])[0] == 200
        assert said() == "cut"
        assert b.python(ASK + f"print(ask('{PUBLIC4}'), ask('{PUBLIC6}'))") == "ECONNREFUSED 1"
        assert b.network(mode="none")[0] == 200
        assert other() == "cut"
        assert b.python(ASK + f"print(ask('{PUBLIC6}'))") in ("ENETUNREACH", "EADDRNOTAVAIL")
        assert b.network(mode="public", allow=[f"{PUBLIC4}:5300/udp"])[0] == 200
        assert b.python(ASK + f"print(ask('{PUBLIC4}'))") == "1"


def test_udp_after_the_edge_was_killed(w):
    with Datagrams(w), w.create("public", allow=[f"{PUBLIC4}:5300/udp"]) as b:
        assert b.python(ASK + f"print(ask('{PUBLIC4}'))") == "1"
        for pid in w.edges():
            os.kill(pid, 9)
        assert until(lambda: b.python(ASK + f"print(ask('{PUBLIC4}', timeout=1))") == "1", 60)
