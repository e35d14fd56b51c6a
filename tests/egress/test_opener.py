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

MAGIC, CONFIG, EDGE = 0x434F5031, 1, 2
EVENT = "<IIII40s256s24s256s120s"
PLACEHOLDER, VALUE = "caisson-placeholder-" + "ab" * 32, "canary-value-0123456789"


class Opener:
    def __init__(self, w):
        at = lambda name: os.path.join(w.folder, "opener-" + name)
        self.heads, self.crt, self.key, self.ca = [], at("host.pem"), at("host.key"), at("ca.pem")
        new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        world.sh(f"{new} -keyout {self.key} -out {self.crt} -subj /CN=host -addext subjectAltName=DNS:api.test")
        world.sh(f"{new} -keyout {at('ca.key')} -out {self.ca} -subj /CN=deputy -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign")
        world.sh(f"openssl x509 -in {self.ca} -outform der -out {at('ca.der')}; openssl pkey -in {at('ca.key')} -outform der -out {at('key.der')}")
        self.daemon, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        leaks = {"ASAN_OPTIONS": "detect_leaks=0"} if "ASAN_OPTIONS" in os.environ else {}  # looking for them needs what its cage forbids
        self.process = subprocess.Popen([CAISSON, "opener", "2"], close_fds=False, preexec_fn=lambda: os.dup2(theirs.fileno(), 3),
                                        env={"SSL_CERT_FILE": self.crt} | leaks)
        theirs.close()
        coded = [base64.b64encode(open(at(f), "rb").read()).decode() for f in ("ca.der", "key.der")]
        config = "".join(x + "\0" for x in (f"certificate={coded[0]}", f"signer={coded[1]}", "secret=sec_1", f"placeholder={PLACEHOLDER}",
                                            f"value={VALUE}", "host=api.test:443", "header=Authorization", "path=/v1")).encode()
        memory = os.memfd_create("keys")
        os.write(memory, config)
        os.lseek(memory, 0, 0)
        socket.send_fds(self.daemon, [struct.pack("<IIII", MAGIC, CONFIG, len(config), 0)], [memory])
        os.close(memory)
        self.edge, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(self.daemon, [struct.pack("<IIII", MAGIC, EDGE, 0, 0)], [theirs.fileno()])
        theirs.close()

    def connect(self):
        """A client's TLS connection through it, to a host that answers with what it was sent."""
        client, a = socket.socketpair()
        host, b = socket.socketpair()
        a.setblocking(False)
        b.setblocking(False)
        socket.send_fds(self.edge, [struct.pack("<II256s", MAGIC, 443, b"api.test")], [a.fileno(), b.fileno()])
        a.close()
        b.close()
        threading.Thread(target=self.serve, args=(host,), daemon=True).start()
        client.settimeout(60)
        return ssl.create_default_context(cafile=self.ca).wrap_socket(client, server_hostname="api.test")

    def serve(self, s):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.crt, self.key)
        data = b""
        try:
            t = context.wrap_socket(s, server_side=True)
            while True:
                while b"\r\n\r\n" not in data:
                    more = t.recv(65536)
                    if not more:
                        return
                    data += more
                head, data = data.split(b"\r\n\r\n", 1)
                self.heads.append(head.decode())
                t.sendall(b"HTTP/1.1 200 OK\r\nX-Echo: %s\r\nContent-Length: %d\r\n\r\n" % (VALUE.encode(), len(head)) + head)
        except OSError:
            pass

    def event(self):
        self.daemon.settimeout(30)
        fields = struct.unpack(EVENT, self.daemon.recv(4096))
        return fields[1], [f.split(b"\0")[0].decode() for f in fields[4:]]

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
