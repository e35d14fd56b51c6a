"""Names: what is answered, and what must agree with it."""
from test_audit import audit
from test_reach import CONNECT, REFUSED
from world import *

DNS = """
import socket, struct, sys
def ask(name, kind=1, server="10.97.83.1", raw=None):
    labels = raw if raw is not None else b"".join(bytes([len(l)]) + l for l in name.encode().split(b".") if l) + b"\\0"
    q = b"\\x12\\x34\\x01\\x00\\x00\\x01" + b"\\0" * 6 + labels + struct.pack(">HH", kind, 1)
    s = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(8)
    s.sendto(q, (server, 53))
    try:
        a, peer = s.recvfrom(4096)
    except TimeoutError:
        return "silence", 0
    assert peer[0] == server, peer
    return a[3] & 15, a[7]
"""
STREAM = """
import socket, struct
def question(name, kind=1):
    q = b"\\x12\\x34\\x01\\x00\\x00\\x01" + b"\\0" * 6 + b"".join(bytes([len(l)]) + l for l in name.encode().split(b".")) + b"\\0" + struct.pack(">HH", kind, 1)
    return struct.pack(">H", len(q)) + q
class Stream:
    def __init__(self, server="10.97.83.1"):
        self.s, self.held = socket.create_connection((server, 53), 8), b""
    def take(self, n):
        while len(self.held) < n:
            more = self.s.recv(4096)
            if not more:
                raise ConnectionResetError
            self.held += more
        out, self.held = self.held[:n], self.held[n:]
        return out
    def ask(self, data, answers=1, piece=65536):
        got = []
        try:
            for i in range(0, len(data), piece):
                self.s.sendall(data[i:i + piece])
            for _ in range(answers):
                a = self.take(struct.unpack(">H", self.take(2))[0])
                got.append(f"({a[3] & 15},{a[7]})")
        except OSError:
            got.append("ended")
        return got
"""
TLS = """
import socket, ssl
def tls(address, name, port=443):
    c = ssl.create_default_context()
    c.check_hostname, c.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((address, port), 8) as s, c.wrap_socket(s, server_hostname=name) as t:
            t.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            return "open" if t.recv(10) else "closed"
    except OSError as e:
        return "refused"
"""
HTTP = """
import socket
def http(address, *requests, port=80):
    out = []
    try:
        with socket.create_connection((address, port), 8) as s:
            for r in requests:
                s.sendall(r)
                got = s.recv(4096)
                out.append(got.split(b" ")[1].decode() if got else "closed")
    except OSError:
        out.append("refused")
    return out
"""


def test_only_allowed_names_are_asked_upstream(w):
    w.names.asked.clear()
    with w.create("allow", allow=["api.test:443", "*.wild.test"]) as b:
        out = b.python(DNS + "for n in ('api.test', 'API.Test', 'a.wild.test', 'wild.test', 'other.test', 'secret-data.api.test', 'api.test.evil.test', "
                             "'evilwild.test'): print(n, *ask(n))")
        assert out.split("\n") == ["api.test 0 1", "API.Test 0 1", "a.wild.test 0 1", "wild.test 3 0", "other.test 3 0", "secret-data.api.test 3 0",
                                   "api.test.evil.test 3 0", "evilwild.test 3 0"], out
        assert {n for n, _ in w.names.asked} == {"api.test", "a.wild.test"}, w.names.asked
        # other types are never asked, not even of an allowed name: their contents are a channel
        w.names.asked.clear()
        out = b.python(DNS + "for k in (16, 15, 33, 64, 65, 5, 12, 255): print(*ask('api.test', k))")
        assert out.split("\n") == ["0 0"] * 8, out
        assert w.names.asked == []


def test_names_in_disguise(w):
    w.names.asked.clear()
    with w.create("allow", allow=["api.test"]) as b:
        out = b.python(DNS + """
for raw in (b"\\x08api\\0evil\\x04test\\0", b"\\x09api;other\\x04test\\0", b"\\x08api.test\\0", b"\\x03a i\\x04test\\0", b"\\x04\\xc3\\xa4pi\\x04test\\0",
            b"\\x04-api\\x04test\\0", b"\\0", b"\\x0a2130706433\\0", b"\\x3f" + b"a" * 63 + b"\\x04test\\0"):
    print(*ask("", raw=raw))""")
        assert all(l.split()[0] in ("1", "3") and l.split()[1] == "0" for l in out.split("\n")), out
    assert w.names.asked == []


def test_every_resolver_is_ours(w):
    before = w.names.count("v4.test")
    with w.create("public") as b:
        out = b.python(DNS + f"for s in ('8.8.8.8', '1.1.1.1', '{LAN4}', '{METADATA4}', '{PUBLIC6}', '10.97.83.1', 'fdca:1550:9753::1'): "
                             "print(*ask('v4.test', 1, s))")
        assert out.split("\n") == ["0 1"] * 7, out
        assert w.names.count("v4.test") == before + 7


def test_names_asked_by_connections(w):
    w.names.table["many.test"] = [f"93.184.{i}.7" for i in range(32)]
    w.names.asked.clear()
    with w.create("allow", allow=["api.test:443", "many.test"]) as b:
        out = b.python(STREAM + f"""
for s in ('8.8.8.8', '{LAN4}', '{METADATA4}', '{PUBLIC6}', '10.97.83.1', 'fdca:1550:9753::1'):
    print(*Stream(s).ask(question('api.test')))
s = Stream()
print(*s.ask(question('api.test')), *s.ask(question('other.test')), *s.ask(question('data.api.test')), *s.ask(question('api.test', 16)))
# several at once, in pieces, one after the other in the answers; then our end
print(*s.ask(question('api.test') + question('other.test') + question('many.test'), 3, 1))
s.s.shutdown(socket.SHUT_WR)
print(s.s.recv(1))""")
        assert out.split("\n") == ["(0,1)"] * 6 + ["(0,1) (3,0) (3,0) (0,0)", "(0,1) (3,0) (0,32)", "b''"], out
        assert {n for n, _ in w.names.asked} == {"api.test", "many.test"}, w.names.asked
        # more than a datagram holds: it says so, and the system's own resolver finds the rest
        out = b.python("import socket; print(len(socket.getaddrinfo('many.test', 443, socket.AF_INET, socket.SOCK_STREAM)))")
        assert out == "32", out
        # what is no question ends the connection, and only that one
        for bad in ("b'\\0\\0'", "b'\\xff\\xff' + b'x' * 100", "b'\\0\\x05hello'", "b'\\0\\x0c\\x12\\x34\\x80' + b'\\0' * 9"):
            assert b.python(STREAM + f"print(Stream().ask({bad}))") == "['ended']", bad
        # hundreds that ask nothing: they are ended, and others are answered meanwhile
        out = b.python(STREAM + "held = [Stream() for _ in range(300)]\nprint(*Stream().ask(question('api.test')))")
        assert out == "(0,1)", out
        # a change of policy holds for connections that are there
        assert b.network(mode="allow", allow=["other.test"])[0] == 200
        assert b.python(STREAM + "print(*Stream().ask(question('api.test')), *Stream().ask(question('other.test')))") == "(3,0) (0,1)"
    assert any(n == "other.test" for n, _ in w.names.asked)


def test_answers_that_lead_inwards_are_dropped(w):
    with w.create("public") as b:
        for name in ("lan.test", "meta.test", "loop.test", "host.test", "private.test", "chainlan.test"):
            assert b.python(DNS + f"print(*ask('{name}'), *ask('{name}', 28))") == "0 0 0 0", name
        assert b.python(DNS + "print(*ask('chain.test'), *ask('mixed.test'))") == "0 1 0 1"
        assert b.run(argv=["curl", "-s", "-m", "5", "http://mixed.test/"])["stdout"].startswith("hello"), "the good address of two"


def test_a_name_that_turns_round(w):
    """The address that was judged is the one that is dialled."""
    answers = [[PUBLIC4], [LAN4], ["127.0.0.1"], [METADATA4]]
    w.names.table["turn.test"] = lambda: answers.pop(0) if len(answers) > 1 else answers[0]
    before = w.lan.connections
    with w.create("allow", allow=["turn.test"]) as b:
        assert b.python(DNS + "print(*ask('turn.test'))") == "0 1"
        for _ in range(3):
            assert b.python(DNS + "print(*ask('turn.test'))") == "0 0"
        out = b.python(HTTP + f"r = b'GET / HTTP/1.1\\r\\nHost: turn.test\\r\\n\\r\\n'\nprint(http('{PUBLIC4}', r), http('{LAN4}', r), http('{METADATA4}', r))")
        assert out.startswith("['200']") and "200" not in out[7:], out
    assert w.lan.connections == before


def test_tls_must_ask_for_the_name_that_was_looked_up(w):
    with w.create("allow", allow=["api.test:443"]) as b:
        assert b.python(TLS + f"print(tls('{PUBLIC4}', 'api.test'))") == "refused", "an address that nobody was given"
        out = b.python("import socket\nsocket.getaddrinfo('api.test', 443)\n" + TLS + f"""
for a in ("{PUBLIC4}", "{PUBLIC6}"):
    print(tls(a, "api.test"), tls(a, "API.TEST"), tls(a, "other.test"), tls(a, "x.api.test"), tls(a, None), tls(a, "api.test", 80))""")
        assert out.split("\n") == ["open open refused refused refused refused"] * 2, out
        r = b.run(argv=["curl", "-s", "-k", "-m", "8", "https://api.test/"])
        assert r["stdout"].startswith("hello"), r
        # the address of an allowed name, asked for another: what an allowed front would lead to
        r = b.run(argv=["curl", "-s", "-k", "-m", "8", "--connect-to", "::api.test:443", "https://other.test/"])
        assert r["exit_code"] and not r["stdout"], r
    seen = len(w.https.seen)
    with w.create("allow", allow=["api.test:443"]) as b:  # a name with ECH
        out = b.python(f"""
import socket, struct
socket.getaddrinfo("api.test", 443)
def hello(extra):
    name = b"api.test"
    ext = b"\\0\\0" + struct.pack(">HHBH", len(name) + 5, len(name) + 3, 0, len(name)) + name + extra
    body = b"\\x03\\x03" + b"\\0" * 32 + b"\\0\\0\\x02\\x13\\x01\\x01\\0" + struct.pack(">H", len(ext)) + ext
    m = b"\\x01" + struct.pack(">I", len(body))[1:] + body
    return b"\\x16\\x03\\x01" + struct.pack(">H", len(m)) + m
for extra in (b"", b"\\xfe\\x0d\\0\\1\\0"):
    s = socket.create_connection(("{PUBLIC4}", 443), 8)
    s.sendall(hello(extra))
    try:
        print("answered" if s.recv(10) else "closed")
    except OSError as e:
        print("refused")
""")
        assert out == "answered\nrefused", out
    assert len(w.https.seen) == seen


def test_http_must_ask_for_the_name_every_time(w):
    w.http.seen.clear()
    with w.create("allow", allow=["api.test:80", "a.wild.test"]) as b:
        out = b.python("import socket\nsocket.getaddrinfo('api.test', 80)\n" + HTTP + f"""
def get(host, more=b""): return b"GET / HTTP/1.1\\r\\nHost: " + host + b"\\r\\n" + more + b"\\r\\n"
a = "{PUBLIC4}"
print(http(a, get(b"api.test"), get(b"API.test:80"), get(b"api.test")))
print(http(a, get(b"api.test"), get(b"evil.test")))
print(http(a, get(b"evil.test")))
print(http(a, get(b"a.wild.test")))                                  # allowed, but this address was not given for it
print(http(a, b"GET / HTTP/1.1\\r\\n\\r\\n"), http(a, b"GET / HTTP/1.1\\r\\nHost: api.test\\r\\nHost: evil.test\\r\\n\\r\\n"))
print(http(a, b"GET http://evil.test/ HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n"), http(a, b"CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"))
print(http(a, b"POST / HTTP/1.1\\r\\nHost: api.test\\r\\nContent-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n"))
print(http(a, b"\\x00\\x01binary"), http(a, b"SSH-2.0-x\\r\\n"), http(a, b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n"), http(a, get(b"api.test.")))
print(http(a, get(b"api.test", b"Upgrade: h2c\\r\\nConnection: Upgrade\\r\\n")))
print(http(a, get(b"api.test", b"Upgrade: websocket\\r\\nConnection: Upgrade\\r\\n"), b"GET / HTTP/1.1\\r\\nHost: evil.test 101 \\r\\n\\r\\n"))
""").split("\n")
        assert out[0] == "['200', '200', '200']", out
        assert out[1] == "['200', 'refused']" and out[2] == "['refused']" and out[3] == "['refused']", out
        assert out[4] == "['refused'] ['refused']" and out[5] == "['refused'] ['refused']" and out[6] == "['refused']", out
        assert out[7] == "['refused'] ['refused'] ['refused'] ['refused']" and out[8] == "['refused']", out
        assert out[9].startswith("['101', "), out
    assert set(w.http.seen) <= {"api.test", "API.test:80"}, w.http.seen


# What two readers of HTTP/1.1 could take for different things; who takes it for a request answers it, or waits for the rest.
TWO_WAYS = r"""
def two_ways(host):
    def post(*fields): return "POST / HTTP/1.1\r\nHost: NAME\r\n" + "".join(f + "\r\n" for f in fields) + "\r\nabc"
    def get(line="GET / HTTP/1.1", h="Host: NAME"): return line + "\r\n" + h + "\r\n\r\n"
    def chunks(text): return "POST / HTTP/1.1\r\nHost: NAME\r\nTransfer-Encoding: chunked\r\n\r\n" + text
    lengths = [post(f"Content-Length: {n}") for n in ("+3", "0x3", "3,3", "3 3", "-1", "99999999999999999999", "", "3.0")]
    lengths += [post("Content-Length: 0", "Content-Length: 3"), post("Content-Length: 3", "Transfer-Encoding: chunked"), post("Transfer-Encoding: chunked", "Content-Length: 0")]
    codings = [post(f"Transfer-Encoding: {t}") for t in ("xchunked", "chunked, chunked", "identity", "gzip, chunked", "chunked;q=1", "chunked\x0b", "", "chunked, identity")]
    codings += [post("Transfer-Encoding : chunked"), post("Transfer-Encoding:\r\n chunked"), post("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), post("Transfer-Encoding\x00: chunked")]
    fields = [post(f) for f in ("no colon", ": x", "X : y", "X: a\rb", "X: a\nHost: evil.test", "X: a\x00b", "X: a\r\n Host: evil.test", "Host: evil.test", "X\x7f: y", "(x): y")]
    fields += ["GET / HTTP/1.1\r\n Host: NAME\r\n\r\n", "GET / HTTP/1.1\nHost: NAME\n\n", "GET / HTTP/1.1\r\n\r\n"]
    firsts = [get(l) for l in ("GET  / HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET / HTTP/1.10", "GET / HTTP/2.0", "GET / http/1.1", "GET /\x01 HTTP/1.1", "GET\t/ HTTP/1.1", "GET /a b HTTP/1.1", "GET /",
              "GET http://evil.test/ HTTP/1.1", "GET http://NAME@evil.test/ HTTP/1.1", "GET http:evil.test/ HTTP/1.1", "GET evil.test/ HTTP/1.1", "G@T / HTTP/1.1", "CONNECT evil.test:443 HTTP/1.1", "CONNECT NAME:443 HTTP/1.1")]
    hosts = [get(h="Host: " + h) for h in ("NAME@evil.test", "NAME, evil.test", "NAME:80:80", "NAME/evil", "NAME evil.test", "NAME\x00.evil.test", "NAME\u3002", "NAME.", "NAME..", ".NAME", "[NAME]", "evil.test#NAME", "NAME%00", "NAME:80x", "NAME:-1", "NAME:123456", "[NAME]:80", "[::1]NAME", "")]
    chunked = [chunks(t) for t in ("0x5\r\nhello\r\n0\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n", "FFFFFFFFFFFFFFFFF\r\nx", "-1\r\nx", "\r\nx", "5\rhello\r\n0\r\n\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n", "g\r\nx")]
    switches = [get(h="Host: NAME\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\nUpgrade: " + u) for u in ("h2c", "websocket, h2c", "H2C")]
    all = lengths + codings + fields + firsts + hosts + chunked + switches + ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    return [v.replace("NAME", host).encode("utf-8") for v in all]
"""


def test_http_that_could_be_read_in_two_ways(w):
    w.http.seen.clear()
    with w.create("allow", allow=["api.test:80"]) as b:
        out = b.python("import socket\nsocket.getaddrinfo('api.test', 80)\n" + HTTP + TWO_WAYS + f"""
for v in two_ways("api.test"):
    with socket.create_connection(("{PUBLIC4}", 80), 8) as s:
        got = b""
        try:
            s.sendall(v)
            while b"\\r\\n\\r\\n" not in got: got += s.recv(4096) or b"ended\\r\\n\\r\\n"
            print(got[:60], v)
        except OSError as e:
            if type(e) is not ConnectionResetError: print(e, v)
print("all")""")
        assert out == "all", out
    assert set(w.http.seen) <= {"api.test"}, w.http.seen


def test_raw_names_and_ports(w):
    with w.create("allow", allow=["api.test:7/raw", "other.test:7"]) as b:
        out = b.python("import socket\nfor n in ('api.test', 'other.test'): socket.getaddrinfo(n, 1)\n" + CONNECT +
                       f"print(connect('{PUBLIC4}', 7), connect('{PUBLIC4}', 2525), connect('{OTHER4}', 7, bytes(4)))")
        a, other_port, not_raw = out.split()
        assert a == "open" and other_port in REFUSED and not_raw in REFUSED, out


def test_denied_names_in_public(w):
    with w.create("public", deny=["other.test", "*.wild.test"]) as b:
        assert b.python(DNS + "print(*ask('other.test'), *ask('a.wild.test'), *ask('api.test'))") == "3 0 3 0 0 1"
        out = b.python(TLS + f"print(tls('{OTHER4}', 'other.test'), tls('{OTHER4}', 'a.wild.test'), tls('{OTHER4}', 'api.test'), tls('{OTHER4}', None))")
        assert out == "refused refused open open", out
        out = b.python(HTTP + f"print(http('{OTHER4}', b'GET / HTTP/1.1\\r\\nHost: other.test\\r\\n\\r\\n'), http('{OTHER4}', b'GET / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n'))")
        assert out == "['refused'] ['200']", out
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 853))") in REFUSED
    with w.create("public", deny=[f"{OTHER4}", f"{PUBLIC4}:80"]) as b:
        out = b.python(CONNECT + f"print(connect('{OTHER4}', 7), connect('{PUBLIC4}', 80), connect('{PUBLIC4}', 7))")
        a, c, d = out.split()
        assert a in REFUSED and c in REFUSED and d == "open", out


PASSES = """
import socket, time
def passes(address, v, size=65536):
    "do such first bytes, sent in pieces of that size, come back from an echo? False: the connection was reset"
    with socket.create_connection((address, 7), 8) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in [v[at:at + size] for at in range(0, min(8 * size, len(v)), size)] + [v[8 * size:]]:
                s.sendall(piece)
                time.sleep(0.01 if size < len(v) else 0)
            return (got := s.recv(4096)) and got == v[:len(got)]
        except OSError as e:
            return None if type(e) is not ConnectionResetError else False
"""


def test_denied_names_in_http_that_is_none(w):
    """What our parser refuses and some server reads all the same is not taken for another protocol; and those are."""
    with w.create("public", deny=["other.test"]) as b:
        out = b.python(TWO_WAYS + PASSES + rf"""
more = [b"GET / HTTP/1.1\nHost: other.test\n\n", b"FOO / HTTP/1.1\nHost: other.test\n\n", b"\n\nGET / HTTP/1.1\nHost: other.test\n\n", b"get / http/1.1\nHost: other.test\n\n", b"GET\t/ HTTP/1.1\r\nHost: other.test\r\n\r\n"]
print([v for v in two_ways("other.test") + more if b"Host: \r" not in v and passes("{OTHER4}", v) is not False])  # (that one names nothing)
print([v for v in (b"SSH-2.0-x\r\n", b"\0\1binary", b"*1\r\n$4\r\nPING\r\n", b"NICK x\r\nUSER x\r\n", b"AMQP\0\0\x09\1", b"\x16binary", b"GET key\r\n", b"y" * 9000, b"hello " + b"y" * 9000) if not passes("{OTHER4}", v)])""").split("\n")
        assert out == ["[]", "[]"], out
    with w.create("public", permissions=["deny method:POST other.test"]) as b:  # whose address it knows from elsewhere
        out = b.python(HTTP + f"print(*[http('{OTHER4}', r) for r in (b'POST / HTTP/1.1\\nHost: other.test\\n\\n', b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')])")
        assert out == "['refused'] ['refused']", out


def test_denied_names_in_tls_that_only_some_servers_read(w):
    """OpenSSL takes a hello of SSL 2 (without a name), and one behind an empty change of ciphers; Go one of another version, or behind a warning."""
    for more in ({"deny": ["other.test"]}, {"permissions": ["deny method:POST other.test"]}):  # whose address it knows from elsewhere
        with w.create("public", **more) as b:
            out = b.python(PASSES + rf"""
import ssl
sent = ssl.MemoryBIO()
c = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="other.test")
try: c.do_handshake()
except ssl.SSLWantReadError: hello = sent.read()
old = b"\1\3\3\0\3\0\0\0\x10\0\0\x2f" + bytes(16)
print([v[:12] for v in (hello, b"\x16\2" + hello[2:], b"\x16\0" + hello[2:], b"\x15\3\3\0\2\1\x5a" + hello, b"\x15\0\0\0\2\1\x5a" + hello,
                        b"\x14\3\3\0\0" * 5 + hello, bytes((0x80, len(old))) + old) for size in (1, 2, 999) if passes("{OTHER4}", v, size)])
print([v for v in (b"\x16binary", b"\x15\1\0\0\7\0\0\0", b"\xff\xfd\1", b"\x80\0\0\x28") if not passes("{OTHER4}", v)])""")
            assert out.split("\n") == ["[]", "[]"], (more, out)


def test_questions_have_a_rate(w):
    w.names.asked.clear()
    with w.create("public") as b:
        b.python("""
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(3000):
    n = b"x%d" % i
    s.sendto(b"\\x12\\x34\\x01\\x00\\x00\\x01" + b"\\0" * 6 + bytes([len(n)]) + n + b"\\x04test\\0\\0\\x01\\0\\x01", ("10.97.83.1", 53))
""")
        time.sleep(1)
        assert len(w.names.asked) < 1500, len(w.names.asked)
        assert until(lambda: b.python(DNS + "print(*ask('api.test'))") == "0 1")


# Hellos by hand, with any name; HRR is what a server says that asks for another one.
HELLOS = r'''
import socket, struct, time
HRR = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
def hello(name, group=b"\0\x17", share=b""):
    def ext(kind, data): return struct.pack(">HH", kind, len(data)) + data
    n = name.encode()
    exts = (ext(0, struct.pack(">HBH", len(n) + 3, 0, len(n)) + n) if n else b"") + ext(43, b"\2\3\4") + ext(10, b"\0\4\0\x1d" + group) + ext(13, b"\0\4\4\3\x08\4")
    exts += ext(51, struct.pack(">H", len(share)) + share)
    body = b"\3\3" + b"r" * 32 + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack(">H", len(exts)) + exts
    m = b"\1" + struct.pack(">I", len(body))[1:] + body
    return b"\x16\3\1" + struct.pack(">H", len(m)) + m
POINT = bytes.fromhex("046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c2964fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5")
SECOND = b"\0\x17" + struct.pack(">H", 65) + POINT
def talk(address, first, *more, size=65536, port=4433, wait=True):
    "what the server says at last, or how it ended"
    with socket.create_connection((address, port), 8) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            s.sendall(first)
            got = s.recv(4096) if wait else HRR
            if HRR not in got: return "no second hello asked for"
            for m in more:
                for at in range(0, len(m), size):
                    s.sendall(m[at:at + size])
                    time.sleep(0.002 if size < len(m) else 0)
            got = s.recv(4096)
            while got and got[0] == 20: got = got[6:] or s.recv(4096)
            return {0x16: "hello", 0x15: "alert"}.get(got[0] if got else 0, "ended")
        except OSError as e:
            return "reset" if type(e) is ConnectionResetError else str(e)
'''


def asks_again(w):
    """OpenSSL's server, which takes one group alone: whoever has guessed another is asked for a second hello."""
    p = subprocess.Popen(["nsenter", f"--net={w.path('net')}", "openssl", "s_server", "-accept", "4433", "-cert", os.path.join(w.folder, "cert.pem"), "-key",
                          os.path.join(w.folder, "key.pem"), "-groups", "P-256", "-tls1_3", "-www", "-naccept", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def up():
        with Inside(w.path("net")):
            try:
                socket.create_connection((PUBLIC4, 4433), 1).close()
                return True
            except OSError:
                return False
    assert until(up)
    return p


def test_a_second_hello_names_the_same_host(w):
    server = asks_again(w)
    try:
        for policy, refused in (({"mode": "allow", "allow": ["api.test:4433"]}, ("other.test", "", "x.api.test")), ({"mode": "public", "deny": ["other.test"]}, ("other.test", "same.test"))):
            with w.create(**policy) as b:
                out = b.python(f"import socket\nsocket.getaddrinfo('api.test', 4433)\n" + HELLOS + f"""
a, one = "{PUBLIC4}", hello("api.test")
ccs, early = b"\\x14\\3\\3\\0\\1\\1", b"\\x17\\3\\3\\0\\x40" + b"e" * 64
print(*[talk(a, one, hello("api.test", share=SECOND), size=s) for s in (65536, 7)], talk(a, one, ccs, hello("API.test", share=SECOND)), talk(a, one, ccs + hello("api.test", share=SECOND)))
for name in {refused!r}:
    two = hello(name, share=SECOND)
    print(*[talk(a, one, two, size=s) for s in (65536, 7)], talk(a, one, ccs, two), talk(a, one + ccs + two, wait=False), talk(a, one, two[:5] + b"\\1", two[6:]), talk(a, one, ccs, early + two))
""")
                assert out.split("\n") == ["hello hello hello hello"] + ["reset reset reset reset reset reset"] * len(refused), (policy, out)
                # a client of every day: curl's first guess is X25519
                r = b.run(argv=["curl", "-s", "-k", "-m", "8", "-o", "/dev/null", "-w", "%{http_code}", "https://api.test:4433/"])
                assert r["stdout"] == "200", r
                assert until(lambda: any(l.get("reason", "").endswith(("second hello (TLS)", "looked up and allowed", "deny list")) for l in audit(w, b)))
    finally:
        server.kill()
        server.wait()
