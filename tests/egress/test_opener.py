"""The opener alone: the test is the daemon, the edge, the client and the host."""
import base64
import os
import socket
import ssl
import struct
import subprocess
import threading

import world
from world import CAISSON

MAGIC, CONFIG, EDGE, ANSWER = 0x434F5032, 1, 2, 3
EVENT = "<IIIIIIQ40s256s24s256s120s512s"
SECRET, METHOD, ASK, ASK_END = 1, 2, 3, 4
PLACEHOLDER, VALUE = "caisson-placeholder-" + "ab" * 32, "canary-value-0123456789"


class Opener:
    def __init__(self, w, *rules):
        at = lambda name: os.path.join(w.folder, "opener-" + name)
        self.heads, self.crt, self.key, self.ca = [], at("host.pem"), at("host.key"), at("ca.pem")
        new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        world.sh(f"{new} -keyout {self.key} -out {self.crt} -subj /CN=host -addext subjectAltName=DNS:api.test")
        world.sh(f"{new} -keyout {at('ca.key')} -out {self.ca} -subj /CN=deputy -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign")
        world.sh(f"openssl x509 -in {self.ca} -outform der -out {at('ca.der')}; openssl pkey -in {at('ca.key')} -outform der -out {at('key.der')}")
        self.daemon, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        leaks = {"ASAN_OPTIONS": "detect_leaks=0"} if world.SANITIZED else {}  # looking for them needs what its cage forbids
        self.process = subprocess.Popen([CAISSON, "opener", "2"], close_fds=False, preexec_fn=lambda: os.dup2(theirs.fileno(), 3),
                                        env={"SSL_CERT_FILE": self.crt} | leaks)
        theirs.close()
        coded = [base64.b64encode(open(at(f), "rb").read()).decode() for f in ("ca.der", "key.der")]
        config = "".join(x + "\0" for x in (f"certificate={coded[0]}", f"signer={coded[1]}", *(f"rule={r}" for r in rules), "secret=sec_1", f"placeholder={PLACEHOLDER}",
                                            f"value={VALUE}", "host=api.test:443", "header=Authorization", "path=/v1")).encode()
        memory = os.memfd_create("keys")
        os.write(memory, config)
        os.lseek(memory, 0, 0)
        socket.send_fds(self.daemon, [struct.pack("<IIIIQ", MAGIC, CONFIG, len(config), 0, 0)], [memory])
        os.close(memory)
        self.edge, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self.daemon, [struct.pack("<IIIIQ", MAGIC, EDGE, 0, 0, 0)], [theirs.fileno()])
        theirs.close()

    def connect(self, protocols=()):
        """A client's TLS connection through it, to a host that answers with what it was sent."""
        client, a = socket.socketpair()
        host, b = socket.socketpair()
        a.setblocking(False)
        b.setblocking(False)
        socket.send_fds(self.edge, [struct.pack("<III256s", MAGIC, 443, 0, b"api.test")], [a.fileno(), b.fileno()])
        a.close()
        b.close()
        threading.Thread(target=self.serve, args=(host,), daemon=True).start()
        client.settimeout(60)
        context = ssl.create_default_context(cafile=self.ca)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context.wrap_socket(client, server_hostname="api.test")

    def serve(self, s):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.crt, self.key)
        try:
            t = context.wrap_socket(s, server_side=True)
            head, data = world.take_head(t, b"")
            while head is not None:
                self.heads.append(head)
                t.sendall(f"HTTP/1.1 200 OK\r\nX-Echo: {VALUE}\r\nContent-Length: {len(head)}\r\n\r\n{head}".encode())
                head, data = world.take_head(t, data)
        except OSError:
            pass

    def event(self):
        self.daemon.settimeout(30)
        fields = struct.unpack(EVENT, self.daemon.recv(4096))
        assert fields[1] == SECRET, fields
        return fields[2], [f.split(b"\0")[0].decode() for f in fields[7:12]]

    def close(self):
        self.daemon.close()
        return self.process.wait(30)


def ask(t, path, authorization=None):
    t.sendall((f"GET {path} HTTP/1.1\r\nHost: api.test\r\n" + (f"Authorization: {authorization}\r\n" if authorization else "") + "\r\n").encode())
    data = b""
    while b"\r\n\r\n" not in data:
        more = t.recv(65536)
        assert more, data
        data += more
    head, data = data.split(b"\r\n\r\n", 1)
    length = next(int(l.split(b":")[1]) for l in head.split(b"\r\n") if l.lower().startswith(b"content-length"))
    while len(data) < length:
        data += t.recv(65536)
    return head.decode(), data.decode()


def test_opener_puts_a_secret_in_and_takes_it_out_again(w):
    o = Opener(w)
    try:
        t = o.connect()
        head, body = ask(t, "/v1/x", "Bearer " + PLACEHOLDER)
        assert "Authorization: Bearer " + VALUE in o.heads[0], o.heads
        assert VALUE not in head + body and "X-Echo: " + "*" * len(VALUE) in head and "*" * len(VALUE) in body, (head, body)
        assert o.event() == (1, ["sec_1", "api.test", "GET", "/v1/x", ""])
        head, body = ask(t, "/v2/y")  # without it the path does not matter; the same connection
        assert head.startswith("HTTP/1.1 200") and len(o.heads) == 2
        head, body = ask(t, "/v2/y", "Bearer " + PLACEHOLDER)
        assert head.startswith("HTTP/1.1 403") and "may not go to this path" in body and len(o.heads) == 2, (head, body)
        assert o.event()[0] == 0
        with open(f"/proc/{o.process.pid}/status") as f:
            assert "Seccomp:\t2" in f.read()
        assert os.readlink(f"/proc/{o.process.pid}/ns/net") != os.readlink("/proc/self/ns/net")
    finally:
        assert o.close() == 0


# --- HTTP/2, frame by frame ---


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def field(name, value):
    """A literal that goes into no table."""
    size = lambda n: bytes([n]) if n < 127 else bytes([127]) + number(n - 127)
    return b"\0" + size(len(name)) + name + size(len(value)) + value


def number(n):
    return bytes([n]) if n < 128 else bytes([n % 128 | 128]) + number(n // 128)


HEAD = b"\x82\x87" + field(b":path", b"/v1/x") + field(b":authority", b"api.test")
DATA, HEADERS, RESET, SETTINGS, PUSH, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 9


class Frames:
    """One end of HTTP/2 that says what it wants."""

    def __init__(self, tls, client):
        self.t, self.data = tls, b""
        self.t.sendall((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if client else b"") + frame(SETTINGS, 0, 0))
        if not client:
            self.take(24)

    def take(self, n):
        while len(self.data) < n:
            more = self.t.recv(65536)
            if not more:
                raise EOFError
            self.data += more
        out, self.data = self.data[:n], self.data[n:]
        return out

    def frame(self):
        """(kind, flags, stream, body); settings are acknowledged."""
        h = self.take(9)
        body = self.take(int.from_bytes(h[:3], "big"))
        if h[3] == SETTINGS and not h[4] & 1:
            self.t.sendall(frame(SETTINGS, 1, 0))
        return h[3], h[4], int.from_bytes(h[5:], "big"), body

    def until(self, *kinds):
        """The next frame of these kinds; None = it was cut."""
        try:
            while True:
                f = self.frame()
                if f[0] in kinds:
                    return f
        except TimeoutError:
            raise
        except (EOFError, OSError):
            return None


def answer(f):
    """A host that answers every request at once."""
    while got := f.until(HEADERS):
        f.t.sendall(frame(HEADERS, 5, got[2], b"\x88"))


class Opener2(Opener):
    """With hosts of HTTP/2; each runs self.host."""

    def __init__(self, w, *rules):
        self.host, self.requests = answer, 0
        super().__init__(w, *rules)

    def serve(self, s):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.crt, self.key)
        context.set_alpn_protocols(["h2"])
        try:
            self.host(Frames(context.wrap_socket(s, server_side=True), False))
        except (EOFError, OSError):
            pass

    def client(self):
        t = self.connect(["h2"])
        assert t.selected_alpn_protocol() == "h2"
        return Frames(t, True)

    def works(self):
        """A request of now is answered, and little memory is kept."""
        self.host = answer
        f = self.client()
        f.t.sendall(frame(HEADERS, 5, 1, HEAD))
        assert f.until(HEADERS, RESET, GOAWAY)[0] == HEADERS
        f.t.close()
        with open(f"/proc/{self.process.pid}/status") as status:
            peak = int(next(l for l in status if l.startswith("VmHWM")).split()[1])
        assert peak < world.MEMORY * 32 << 10, peak  # KiB


def send(f, *parts):
    """As much of it as the other side takes."""
    try:
        for p in parts:
            f.t.sendall(p)
    except OSError:
        pass


def cut(f):
    """It ends with GOAWAY, or without a word."""
    got = f.until(GOAWAY)
    return got is None or int.from_bytes(got[3][4:8], "big") != 0


def test_opener_judges_methods_that_are_none(w):
    """Of HTTP/2, whose methods are values: nothing that could be read as the one that is denied gets to the host."""
    o, seen = Opener2(w, "deny method:POST api.test", "deny method:* api.test/no"), []

    def host(f):
        while got := f.until(HEADERS):
            seen.append(got[3])
            f.t.sendall(frame(HEADERS, 5, got[2], b"\x88"))

    o.host = host
    try:
        method, path, rest = (lambda v: field(b":method", v)), (lambda v: field(b":path", v)), b"\x87" + field(b":authority", b"api.test")
        odd = [method(v) + path(b"/") for v in (b"POST", b"post", b"Post", b"POST ", b" POST", b"PO\tST", b"POST\0", b"", b"P" * 24, b"P" * 5000, b"GET, POST", b"PO$T", b"CONNECT", b"TRACE")]
        odd += [method(b"GET") + path(p) for p in (b"/no", b"/no/x", b"/%6eo", b"/x/../no", b"//no", b"/.%2e/no", b"/x\\no", b"/no;x", b"no", b"http://api.test/", b"")]
        odd += [method(b"GET") + method(b"POST") + path(b"/"), path(b"/"), method(b"GET") + path(b"/") + path(b"/no"),
                method(b"GET") + path(b"/") + field(b":protocol", b"websocket"), method(b"GET") + path(b"/") + field(b":scheme", b"http"),
                method(b"GET") + path(b"/") + field(b"x", b"y") + field(b":method", b"POST")]
        for head in odd:
            f = o.client()
            send(f, frame(HEADERS, 5, 1, head + rest))
            got = f.until(HEADERS, RESET, GOAWAY)
            assert got is None or got[0] != HEADERS or got[3][:1] != b"\x88", head
            f.t.close()
        assert not seen, seen
        # one that says it by the other fields says it to the host, as before
        f = o.client()
        send(f, frame(HEADERS, 5, 1, method(b"GET") + path(b"/no-more?/no") + rest + field(b"x-http-method-override", b"POST")))
        assert f.until(HEADERS, RESET, GOAWAY)[3] == b"\x88" and len(seen) == 1
    finally:
        assert o.close() == 0


def test_opener_survives_hostile_clients_of_http2(w):
    o = Opener2(w)
    try:
        # a head without end
        f = o.client()
        send(f, frame(HEADERS, 1, 1, HEAD), *[frame(CONTINUATION, 0, 1, field(b"x-%d" % i, b"v" * 1000)) for i in range(500)])
        assert cut(f)
        o.works()
        # a head that is too large, of many fields, and of few bytes that stand for many: the stream is reset, the next one is served
        for ends, body in ((RESET, b"".join(field(b"x-%d" % i, b"v" * 40) for i in range(250))), (HEADERS, field(b"x", b"v" * 14000)),
                           (RESET, b"\x40\x01x\x7f" + number(4000 - 127) + b"v" * 4000 + b"\xbe" * 10000)):
            f = o.client()
            parts = [body[i:i + 16000] for i in range(0, len(body), 16000)]
            send(f, frame(HEADERS, 1, 1, HEAD), *[frame(CONTINUATION, 4 if p is parts[-1] else 0, 1, p) for p in parts], frame(HEADERS, 5, 3, HEAD))
            got = [f.until(HEADERS, RESET, GOAWAY) for _ in range(2)]
            assert {(g[0], g[2]) for g in got} == {(HEADERS, 3), (ends, 1)}, got
        o.works()
        # requests that are taken back at once: a bounded number of them is passed on
        asked = []

        def count(f):
            while got := f.until(HEADERS, RESET):
                asked.append(got[0])

        o.host = count
        f = o.client()
        send(f, *[frame(HEADERS, 5, i, HEAD) + frame(RESET, 0, i, b"\0\0\0\x08") for i in range(1, 12000, 2)])
        assert cut(f) and asked.count(HEADERS) < 2000, len(asked)
        o.works()
        # questions whose answers are not read, and what no client says
        for flood in ([frame(PING, 0, 0, b"12345678") * 100] * 2000, [frame(SETTINGS, 0, 0, b"\0\4\0\0\1\0") * 100] * 2000, [b"x" * 4000],
                      [frame(PUSH, 4, 1, b"\0\0\0\2" + HEAD)],
                      [frame(HEADERS, 5, 2, HEAD)], [frame(DATA, 0, 9, b"x")]):
            o.host = lambda f: f.until(99)
            f = o.client()
            f.t.settimeout(5)
            send(f, *flood)
            f.t.settimeout(60)
            assert cut(f), flood[0][:20]
        o.works()
        # more than the window of a stream, for a host that reads little of it
        f = o.client()
        send(f, frame(HEADERS, 4, 1, HEAD), *[frame(DATA, 0, 1, b"x" * 16000)] * 40)
        assert f.until(RESET, GOAWAY)[3][-4:] == b"\0\0\0\x03"
        # heads that could be read in two ways reach nobody
        for more in (b"connection", b"transfer-encoding", b"X-Upper"):
            f = o.client()
            send(f, frame(HEADERS, 5, 1, HEAD + field(more, b"close")))
            assert f.until(HEADERS, RESET, GOAWAY)[0] == RESET, more
        f = o.client()
        send(f, frame(HEADERS, 5, 1, HEAD + field(b"x", b"a\r\nb: c")))
        assert f.until(HEADERS, RESET, GOAWAY)[0] == RESET
    finally:
        assert o.close() == 0


def test_opener_survives_hostile_hosts_of_http2(w):
    o = Opener2(w)
    says = {
        "a promise": lambda i: frame(PUSH, 4, i, b"\0\0\0\2" + HEAD),
        "more than the window": lambda i: frame(HEADERS, 4, i, b"\x88") + frame(DATA, 0, i, b"x" * 16000) * 40,
        "a head without end": lambda i: frame(HEADERS, 0, i, b"\x88") + frame(CONTINUATION, 0, i, field(b"x", b"v" * 1000)) * 500,
        "a head that is too large": lambda i: frame(HEADERS, 4, i, b"\x88" + b"".join(field(b"x-%d" % k, b"v") for k in range(250))),
        "a status of words": lambda i: frame(HEADERS, 5, i, field(b":status", b"fine")),
        "data before a head": lambda i: frame(DATA, 1, i, b"x"),
        "another stream": lambda i: frame(HEADERS, 5, i + 2, b"\x88"),
        "noise": lambda i: b"x" * 4000,
        "nothing more": lambda i: b"",
    }
    try:
        for what, bytes_of in says.items():
            def host(f):
                got = f.until(HEADERS)
                f.t.sendall(bytes_of(got[2]))
                if what == "nothing more":
                    f.t.close()
                f.until(99)

            o.host = host
            f = o.client()
            send(f, frame(HEADERS, 5, 1, HEAD))
            # never a whole answer
            got = None
            while (got := f.until(HEADERS, DATA, RESET, GOAWAY)) and got[0] in (HEADERS, DATA):
                assert not got[1] & 1 or got[0] == CONTINUATION, (what, got)
            f.t.close()
            o.works()
    finally:
        assert o.close() == 0
