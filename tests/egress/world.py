"""A small internet of the tests' own: three network namespaces, and programs in them.

    host    where the server under test runs; its way out is a link to `net`, its neighbour is `lan`
    net     a router with public, private and metadata addresses on it, name server, TCP, HTTP and TLS servers
    lan     a neighbour of the host, with a private address and a public-looking one

Nothing of the machine's own network is touched."""
import ctypes
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("CAISSON_BUILD", os.path.join(TOP, "build"))
IMAGES = os.environ.get("CAISSON_IMAGES", "/var/lib/caisson/images")
CAISSON = os.path.join(BUILD, "src/bin/caisson")
libc = ctypes.CDLL(None, use_errno=True)

PUBLIC4, OTHER4, PUBLIC6 = "93.184.216.34", "93.184.216.35", "2606:2800:220:1::34"
PRIVATE4, METADATA4, METADATA6 = "10.1.2.3", "169.254.169.254", "fd00:ec2::254"
LAN4, LAN_PUBLIC4, LAN6 = "192.168.77.5", "93.184.220.5", "fd78::5"
HOST4, HOST6 = "10.77.0.1", "fd77::1"
NET_ADDRESSES = [PUBLIC4, OTHER4, PRIVATE4, METADATA4, "100.64.1.1", "8.8.8.8", "172.16.9.9", "168.63.129.16", "100.100.100.200", "198.18.0.9"]
NET_ADDRESSES6 = [PUBLIC6, METADATA6, "64:ff9b::a01:203", "2002:a01:203::1"]


SANITIZED = "ASAN_OPTIONS" in os.environ
MEMORY = 3 if SANITIZED else 1  # times what a process may take: a sanitizer takes as much again, and keeps what was freed


def sh(command):
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{command}: {done.stderr}")
    return done.stdout


def take_head(c, data):
    """The next head of HTTP/1 as text, and the bytes behind it; (None, b"") at the end."""
    while b"\r\n\r\n" not in data:
        more = c.recv(65536)
        if not more:
            return None, b""
        data += more
    head, data = data.split(b"\r\n\r\n", 1)
    return head.decode("latin-1"), data


def fields_of(head):
    return {l.split(":", 1)[0].lower(): l.split(":", 1)[1].strip() for l in head.split("\r\n")[1:] if ":" in l}


class Skip(Exception):
    """Not for this boundary, or not on this host: counts neither way."""


class Inside:
    """with Inside(path): this thread is in that network namespace."""

    def __init__(self, path):
        self.path = path

    @staticmethod
    def enter(fd):
        try:
            if libc.setns(fd, 0x40000000):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(fd)

    def __enter__(self):
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.enter(os.open(self.path, os.O_RDONLY))

    def __exit__(self, *_):
        self.enter(self.before)


class Server:
    """A listener in a namespace; `talk(connection)` in a thread for each. Counts, and keeps what it saw."""

    def __init__(self, world, where, port, talk=None, family=socket.AF_INET6, tls=None):
        self.seen, self.connections, self.talk, self.tls = [], 0, talk or self.echo, tls
        self.bytes = 0
        made = []

        def make():
            Inside(world.path(where)).__enter__()
            s = socket.socket(family)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            s.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
            s.listen(512)
            made.append(s)

        t = threading.Thread(target=make)
        t.start()
        t.join()
        self.socket = made[0]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, peer = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.one, args=(c,), daemon=True).start()

    def one(self, c):
        try:
            if self.tls:
                c = self.tls.wrap_socket(c, server_side=True)
            self.talk(self, c)
        except OSError:
            pass
        finally:
            try:
                c.close()
            except OSError:
                pass

    @staticmethod
    def echo(self, c):
        while data := c.recv(65536):
            self.bytes += len(data)
            c.sendall(data)

    @staticmethod
    def http(self, c):
        """HTTP/1.1 with keep-alive; answers with the Host it was asked for."""
        head, data = take_head(c, b"")
        while head is not None:
            fields = fields_of(head)
            self.seen.append(fields.get("host"))
            body = f"hello from {fields.get('host')}\n".encode()
            if fields.get("upgrade") == "websocket":
                self.upgrade(c, data)
                return
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            head, data = take_head(c, data)

    def upgrade(self, c, data):
        """To a WebSocket, of which nothing is understood: its bytes go back as they come."""
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + data)
        self.echo(self, c)

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # else the accept that waits keeps the port
        except OSError:
            pass
        self.socket.close()


class Names:
    """The upstream name server: names -> addresses, and what was asked."""

    def __init__(self, world, where):
        self.asked, self.table = [], {}
        self.forged = {}  # name -> what is sent in answer to a datagram, of the question: several messages, or none
        self.by_stream = {}  # name -> the same by a connection; a name that is here says by datagrams that its answer is too long for them
        made = []

        def make():
            Inside(world.path(where)).__enter__()
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind(("0.0.0.0", 53))
            made.append(s)
            made.append(Server(world, where, 53, self.stream, family=socket.AF_INET))

        t = threading.Thread(target=make)
        t.start()
        t.join()
        self.socket, self.streams = made
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                q, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            name = self.parse(q)[0]
            if name in self.by_stream:
                answers = [q[:2] + b"\x83\x80" + q[4:]]
            elif name in self.forged:
                answers = self.forged[name](q)
            else:
                answers = [self.answer(q)]
            for a in answers:
                self.socket.sendto(a, peer)

    def stream(self, _, c):
        data = b""
        while more := c.recv(4096):
            data += more
            while len(data) >= 2 and len(data) >= 2 + int.from_bytes(data[:2], "big"):
                n = 2 + int.from_bytes(data[:2], "big")
                q, data = data[2:n], data[n:]
                for a in self.by_stream.get(self.parse(q)[0], lambda q: [self.framed(q)])(q):
                    c.sendall(a)
                    time.sleep(0.02)

    def framed(self, q):
        a = self.answer(q)
        return len(a).to_bytes(2, "big") + a

    @staticmethod
    def parse(q):
        """Name, type, and the question as it was sent."""
        at, labels = 12, []
        while q[at]:
            labels.append(q[at + 1:at + 1 + q[at]].decode("latin-1"))
            at += q[at] + 1
        return ".".join(labels).lower(), int.from_bytes(q[at + 1:at + 3], "big"), q[12:at + 5]

    def answer(self, q):
        name, kind, question = self.parse(q)
        self.asked.append((name, kind))
        found = self.table.get(name)
        if callable(found):
            found = found()
        if found is None:
            return q[:2] + b"\x81\x83" + q[4:6] + b"\0" * 6 + question
        records, ttl, owner = b"", 5, b"\xc0\x0c"
        n = 0
        for item in found:
            if isinstance(item, str) and item.startswith("cname:"):
                target = b"".join(bytes([len(l)]) + l.encode() for l in item[6:].split(".")) + b"\0"
                records += owner + b"\0\x05\0\x01" + ttl.to_bytes(4, "big") + len(target).to_bytes(2, "big") + target
                owner = target
                n += 1
                continue
            raw = socket.inet_pton(socket.AF_INET6 if ":" in item else socket.AF_INET, item)
            if (kind == 1 and len(raw) == 4) or (kind == 28 and len(raw) == 16):
                records += owner + kind.to_bytes(2, "big") + b"\0\x01" + ttl.to_bytes(4, "big") + len(raw).to_bytes(2, "big") + raw
                n += 1
        return q[:2] + b"\x81\x80" + q[4:6] + n.to_bytes(2, "big") + b"\0" * 4 + question + records

    def count(self, name):
        return sum(1 for n, _ in self.asked if n == name)


class World:
    def __init__(self, options=()):
        self.tag = f"cst{os.getpid()}"
        self.folder = tempfile.mkdtemp(prefix="caisson-egress-")
        os.chmod(self.folder, 0o711)  # the daemon has to get through
        self.data = os.path.join(self.folder, "data")
        self.options, self.process, self.more, self.boundary = list(options), None, (), "process"
        t = self.tag
        for n in ("host", "net", "lan"):
            sh(f"ip netns add {t}-{n} && ip -n {t}-{n} link set lo up")
        sh(f"ip -n {t}-host link add out type veth peer name in netns {t}-net")
        sh(f"ip -n {t}-host link add lan type veth peer name in netns {t}-lan")
        sh(f"ip -n {t}-host addr add {HOST4}/30 dev out && ip -n {t}-net addr add 10.77.0.2/30 dev in")
        sh(f"ip -n {t}-host addr add {HOST6}/64 dev out nodad && ip -n {t}-net addr add fd77::2/64 dev in nodad")
        sh(f"ip -n {t}-host addr add 192.168.77.1/24 dev lan && ip -n {t}-lan addr add {LAN4}/24 dev in")
        sh(f"ip -n {t}-host addr add 93.184.220.1/24 dev lan && ip -n {t}-lan addr add {LAN_PUBLIC4}/24 dev in")
        sh(f"ip -n {t}-host addr add fd78::1/64 dev lan nodad && ip -n {t}-lan addr add {LAN6}/64 dev in nodad")
        for n, dev in (("host", "out"), ("host", "lan"), ("net", "in"), ("lan", "in")):
            sh(f"ip -n {t}-{n} link set {dev} up")
        sh(f"ip -n {t}-host route add default via 10.77.0.2 && ip -n {t}-host -6 route add default via fd77::2")
        sh(f"ip -n {t}-net route add default via {HOST4} && ip -n {t}-net -6 route add default via {HOST6}")
        for a in NET_ADDRESSES:
            sh(f"ip -n {t}-net addr add {a}/32 dev lo")
        for a in NET_ADDRESSES6:
            sh(f"ip -n {t}-net addr add {a}/128 dev lo nodad")
        self.names = Names(self, "net")
        self.names.table.update({
            "api.test": [PUBLIC4, PUBLIC6], "other.test": [OTHER4], "same.test": [PUBLIC4], "v4.test": [PUBLIC4], "v6.test": [PUBLIC6],
            "lan.test": [LAN4], "meta.test": [METADATA4], "loop.test": ["127.0.0.1", "::1"], "host.test": [HOST4],
            "chain.test": ["cname:deep.test", PUBLIC4], "chainlan.test": ["cname:deep.test", LAN4], "a.wild.test": [PUBLIC4], "six.wild.test": [PUBLIC6],
            "private.test": [PRIVATE4], "mixed.test": [PRIVATE4, PUBLIC4],
        })
        self.echo = Server(self, "net", 7)
        self.http = Server(self, "net", 80, Server.http)
        self.https = Server(self, "net", 443, Server.http, tls=self.certificate())
        self.lan = Server(self, "lan", 80)
        self.host = Server(self, "host", 8081)
        self.loopback = Server(self, "host", 8082)

    def certificate(self):
        """Of a test authority: self-signed, for every name used here."""
        key, crt, conf = (os.path.join(self.folder, f) for f in ("key.pem", "cert.pem", "cert.conf"))
        with open(conf, "w") as f:
            f.write("[req]\ndistinguished_name=d\nx509_extensions=e\nprompt=no\n[d]\nCN=test\n[e]\nsubjectAltName=DNS:api.test,DNS:other.test,"
                    "DNS:same.test,DNS:*.wild.test\nbasicConstraints=critical,CA:TRUE\n")
        sh(f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out {crt} -days 2 -config {conf}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(crt, key)
        self.ca, self.certificate_context = crt, context
        return context

    def path(self, name):
        return f"/run/netns/{self.tag}-{name}"

    @property
    def machines(self):
        return self.boundary != "process"

    def serve(self, *more, under=()):
        """With more options, started by the command `under`."""
        self.more = (*under, *more)
        env = {k: v for k, v in os.environ.items() if not k.startswith("CAISSON_")}
        env["CAISSON_LOG"] = os.environ.get("CAISSON_LOG", "warn")
        env["SSL_CERT_FILE"] = self.ca  # whom openers believe
        self.socket = os.path.join(self.folder, "api.sock")
        self.log = open(os.path.join(self.folder, "log"), "ab")
        self.process = subprocess.Popen(
            ["nsenter", f"--net={self.path('host')}", *under, CAISSON, "serve", "--data", self.data, "--socket", self.socket, "--listen", "none",
             "--images", IMAGES, "--resolver", "10.77.0.2",
             "--boundary", self.boundary, *(["--accelerator", "emulated"] if self.machines else []), *self.options, *more],
            stdout=subprocess.PIPE, stderr=self.log, env=env)
        line = self.process.stdout.readline().decode()
        if not line.startswith("ready "):
            raise AssertionError("the server did not start: " + self.logged())
        with open(os.path.join(self.data, "api-key")) as f:
            self.key = f.read().strip()
        return self

    def ready(self, boundary="process"):
        """A server with the ordinary options, whatever the last test did."""
        if boundary != "process" and not machines():
            raise Skip("there is no QEMU here, no kernel for it, or no /dev/net/tun")
        if not self.process or self.process.poll() is not None or self.more or boundary != self.boundary:
            self.stop()
            self.boundary = boundary
            self.serve()
        global patience
        patience = 10 if self.machines else 1  # a machine is emulated here

    def logged(self):
        with open(os.path.join(self.folder, "log"), errors="replace") as f:
            return f.read()[-4000:]

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def request(self, method, path, body=None):
        c = socket.socket(socket.AF_UNIX)
        c.settimeout(60 * patience)
        c.connect(self.socket)
        data = json.dumps(body).encode() if body is not None else b""
        c.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\nConnection: close\r\n"
                  f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        answer = b""
        while more := c.recv(65536):
            answer += more
        head, body = answer.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if b"chunked" in head.lower():
            out = b""
            while body:
                size, body = body.split(b"\r\n", 1)
                if not (n := int(size, 16)):
                    break
                out, body = out + body[:n], body[n + 2:]
            body = out
        return status, json.loads(body) if body else None

    def create(self, mode="public", allow=(), deny=(), **more):
        network = {"mode": mode}
        if allow:
            network["allow"] = list(allow)
        if deny:
            network["deny"] = list(deny)
        status, s = self.request("POST", "/v1/sandboxes", {"network": network, "ephemeral": True, **more})
        assert status == 201, (status, s)
        return Box(self, s["id"])

    def output(self, box, run):
        """What a detached run has printed on stdout."""
        done = subprocess.run([CAISSON, "logs", box.id, run], env=dict(os.environ, CAISSON_URL=f"unix:{self.socket}", CAISSON_API_KEY=self.key),
                              capture_output=True, text=True, timeout=30)
        return done.stdout.strip()

    def edges(self):
        """pids of edges of this server (they are children of its warden)."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm") as f:
                    if f.read().strip() != "caisson-edge":
                        continue
                if os.stat(f"/proc/{pid}/ns/net").st_ino == os.stat(self.path("host")).st_ino:
                    found.append(int(pid))
            except OSError:
                pass
        return found

    def close(self):
        self.stop()
        for s in (self.names.streams, self.echo, self.http, self.https, self.lan, self.host, self.loopback):
            s.close()
        for n in ("host", "net", "lan"):
            subprocess.run(["ip", "netns", "del", f"{self.tag}-{n}"], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Box:
    """A sandbox."""

    def __init__(self, world, id):
        self.world, self.id = world, id

    def run(self, argv=None, shell=None, code=None, timeout_ms=30000, **more):
        body = {"timeout_ms": timeout_ms * patience, **more}
        if code is not None:
            body.update({"language": "python", **body, "code": code})
        elif shell is not None:
            body["shell"] = shell
        else:
            body["argv"] = argv
        status, r = self.world.request("POST", f"/v1/sandboxes/{self.id}/runs", body)
        assert status in (200, 201), (status, r)
        return r

    def python(self, code):
        """What it prints; an exception in it is the test's."""
        r = self.run(code=code)
        assert r["exit_code"] == 0, r
        return r["stdout"].strip()

    def network(self, **network):
        return self.world.request("PATCH", f"/v1/sandboxes/{self.id}", {"network": network})

    def delete(self):
        status, _ = self.world.request("DELETE", f"/v1/sandboxes/{self.id}")
        assert status == 204, status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.delete()


def machines():
    return all(map(os.path.exists, ("/usr/bin/qemu-system-x86_64", os.path.join(IMAGES, "vm/current"), "/dev/net/tun")))


patience = 1  # how many times as long things may take


def until(condition, within=10):
    end = time.time() + within * patience
    while time.time() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
