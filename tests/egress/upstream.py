"""The host that a secret is for: HTTPS of the tests' own, which keeps every head that it was sent."""
import hashlib
import hmac
import os
import ssl
import subprocess
import threading
import time
import urllib.parse

import world

PORT, STRANGER = 8443, 8444


class Upstream:
    """On PORT with a certificate that openers believe, on STRANGER with one that they do not."""

    def __init__(self, w):
        self.heads, self.bodies, self.go = [], [], threading.Event()
        self.received, self.slow = 0, False
        stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        crt, key = os.path.join(w.folder, "stranger.pem"), os.path.join(w.folder, "stranger.key")
        world.sh(f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out {crt} -days 2 -subj /CN=x "
                 "-addext subjectAltName=DNS:api.test")
        stranger.load_cert_chain(crt, key)
        self.server = world.Server(w, "net", PORT, self.talk, tls=w.certificate_context)
        self.stranger = world.Server(w, "net", STRANGER, self.talk, tls=stranger)

    def close(self):
        self.server.close()
        self.stranger.close()

    def field(self, name, at=-1):
        for line in self.heads[at].split("\r\n")[1:]:
            if line.lower().startswith(name.lower() + ":"):
                return line.split(":", 1)[1].strip()

    def talk(self, _, c):
        head, data = world.take_head(c, b"")
        while head is not None:
            self.heads.append(head)
            path = head.split(" ")[1]
            if path.startswith("/v1/ws"):
                self.server.upgrade(c, data)
                return
            data, body = self.body(c, data, world.fields_of(head), keep=not path.startswith("/v1/upload"))
            self.bodies.append(body)
            getattr(self, "on_" + path.split("?")[0].strip("/").replace("/", "_"), self.plain)(c, head)
            head, data = world.take_head(c, data)

    def body(self, c, data, fields, keep):
        got, out = 0, b""
        if "chunked" in fields.get("transfer-encoding", ""):
            while True:
                while b"\r\n" not in data:
                    data += c.recv(65536)
                size, data = data.split(b"\r\n", 1)
                n = int(size, 16)
                while len(data) < n + 2:
                    data += c.recv(65536)
                out, data = out + data[:n] if keep else out, data[n + 2:]
                got += n
                if n == 0:
                    break
        else:
            left = int(fields.get("content-length", 0))
            while left:
                if not data:
                    data = c.recv(1 << 20)
                    if not data:
                        return b"", out
                    if self.slow:
                        time.sleep(0.001)
                n = min(left, len(data))
                out = out + data[:n] if keep else out
                data, left, got = data[n:], left - n, got + n
        self.received = got
        return data, out

    def plain(self, c, head):
        text = f"hello {self.received}\n".encode()
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(text) + text)

    def on_v1_echo(self, c, head):
        """Shows the request to whoever sent it, in a head and, cut in two, in a chunked body."""
        authorization = next((l for l in head.split("\r\n") if l.lower().startswith("authorization")), "")
        text = head.encode()
        half = len(text) // 2
        at = text.find(b"canary-")
        half = at + 9 if at > 0 else half
        c.sendall(b"HTTP/1.1 200 OK\r\nX-Echo: " + authorization.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (text[:half], text[half:]):
            c.sendall(b"%x\r\n" % len(part) + part + b"\r\n")
            time.sleep(0.05)
        c.sendall(b"0\r\n\r\n")

    def on_v1_events(self, c, head):
        """The second event only once the test has seen that the first one is there."""
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: one\n\n")
        self.go.wait(20)
        c.sendall(b"data: two\n\n")
        c.unwrap() if hasattr(c, "unwrap") else None
        raise OSError("over")

    def on_v1_slowly(self, c, head):
        """What stands behind the question mark, and the rest once the test has seen that it is there."""
        text = head.split(" ")[1].split("?")[1].encode()
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(text) + 4) + text)
        self.go.wait(20)
        c.sendall(b"rest")

    def on_v1_away(self, c, head):
        c.sendall(b"HTTP/1.1 302 Found\r\nLocation: https://other.test:8443/v1/landed\r\nContent-Length: 0\r\n\r\n")


def aws_signature(secret, head, body, service, region="eu-west-1"):
    """What the signature of this request should be, by an implementation of the tests' own."""
    lines = head.split("\r\n")
    method, target, _ = lines[0].split(" ")
    fields = {l.split(":", 1)[0].lower(): " ".join(l.split(":", 1)[1].split()) for l in lines[1:]}
    claim = dict(p.strip().split("=", 1) for p in fields["authorization"].split(" ", 1)[1].split(","))
    date, scope = claim["Credential"].split("/")[1], claim["Credential"].split("/", 1)[1]
    path, _, query = target.partition("?")
    if service != "s3":
        path = urllib.parse.quote(path, safe="/-._~")
    query = "&".join(sorted(p if "=" in p else p + "=" for p in query.split("&") if p))
    names = claim["SignedHeaders"].split(";")
    canonical = "\n".join([method, path, query, *(f"{n}:{fields[n]}" for n in names), "", claim["SignedHeaders"],
                           fields.get("x-amz-content-sha256") or hashlib.sha256(body).hexdigest()])
    text = "\n".join(["AWS4-HMAC-SHA256", fields["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return claim["Signature"], hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def openers(w):
    """pids of openers of this server (children of its daemon)."""
    found = []
    daemon = subprocess.run(["pgrep", "-f", f"caisson serve --data {w.data} "], capture_output=True, text=True).stdout.split()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as f:
                name, rest = f.read().rsplit(")", 1)
            if name.split("(", 1)[1] == "caisson-opener" and rest.split()[1] in daemon and rest.split()[0] != "Z":
                found.append(int(pid))
        except OSError:
            pass
    return found
