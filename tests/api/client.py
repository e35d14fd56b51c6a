"""A small HTTP and WebSocket client, so that the tests see exactly what goes over the wire."""
import base64
import http.client
import json
import os
import socket
import struct
import urllib.parse

BOUNDARY = os.environ.get("CAISSON_TEST_BOUNDARY") or "process"
PATIENCE = 1 if BOUNDARY == "process" else 10  # machines may be emulated
LEAST_MEMORY_MIB = 64 if BOUNDARY == "process" else 128  # of a sandbox in which things run


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    def __repr__(self):
        return f"<{self.status} {self.body[:400]!r}>"


class Client:
    def __init__(self, host, port, key):
        self.host, self.port, self.key = host, port, key

    def with_key(self, key):
        return Client(self.host, self.port, key)

    def target(self, path, query=None):
        if not query:
            return path
        pairs = []
        for name, value in query.items() if isinstance(query, dict) else query:
            if isinstance(value, bool):
                value = "true" if value else "false"
            pairs.append((name, value))
        return path + "?" + urllib.parse.urlencode(pairs)

    def open(self, method, path, body=None, query=None, headers=None, timeout=60):
        """Sends; returns (connection, response) with the body still to be read."""
        head = {}
        if self.key is not None:
            head["Authorization"] = "Bearer " + self.key
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            head["Content-Type"] = "application/json"
        head.update(headers or {})
        c = http.client.HTTPConnection(self.host, self.port, timeout=timeout * PATIENCE)
        c.request(method, self.target(path, query), body=body, headers=head, encode_chunked=hasattr(body, "__next__"))
        return c, c.getresponse()

    def call(self, method, path, body=None, query=None, headers=None, timeout=60):
        c, r = self.open(method, path, body, query, headers, timeout)
        try:
            return Reply(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, query=None, **kw):
        return self.call("GET", path, None, query, **kw)

    def post(self, path, body=None, **kw):
        return self.call("POST", path, body, **kw)

    def put(self, path, body, query=None, **kw):
        return self.call("PUT", path, body, query, **kw)

    def delete(self, path, query=None, **kw):
        return self.call("DELETE", path, None, query, **kw)

    def patch(self, path, body, **kw):
        return self.call("PATCH", path, body, **kw)

    def raw(self, data, timeout=20):
        """Sends bytes as they are; returns everything until the server closes."""
        with socket.create_connection((self.host, self.port), timeout * PATIENCE) as s:
            s.sendall(data)
            out = b""
            while chunk := s.recv(65536):
                out += chunk
            return out


class Sandbox:
    """One sandbox by its paths."""

    def __init__(self, client, view):
        self.client, self.view = client, view
        self.id = view["id"]
        self.path = "/v1/sandboxes/" + self.id

    def run(self, body, timeout=60, **kw):
        r = self.client.post(self.path + "/runs", body, timeout=timeout, **kw)
        assert r.status == 200, r
        return r.json

    def sh(self, script, timeout=60, **fields):
        return self.run({"shell": script, **fields}, timeout)

    def start(self, body):
        r = self.client.post(self.path + "/runs", {**body, "detach": True})
        assert r.status == 201, r
        return r.json

    def runpath(self, run, rest=""):
        return f"{self.path}/runs/{run['id']}{rest}"

    def events(self, body, headers=None, timeout=60):
        """A streamed run: yields events as they come."""
        c, r = self.client.open("POST", self.path + "/runs", body, {"stream": 1}, headers, timeout)
        assert r.status == 200, (r.status, r.read())
        assert r.headers["Content-Type"] == "application/x-ndjson"
        try:
            while line := r.readline():
                yield json.loads(line)
        finally:
            c.close()


def output(result, stream):
    """The bytes of a result's stream, whichever way they came."""
    text, b64 = result.get(stream), result.get(stream + "_base64")
    assert (text is None) != (b64 is None), result
    return text.encode() if b64 is None else base64.b64decode(b64, validate=True)


def event_bytes(event):
    return event["data"].encode() if "data" in event else base64.b64decode(event["data_base64"], validate=True)


class WebSocket:
    """RFC 6455, client side, no extensions."""

    def __init__(self, client, path, query=None, headers=None, timeout=30):
        self.s = socket.create_connection((client.host, client.port), timeout * PATIENCE)
        self.buffer = b""
        nonce = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {client.target(path, query)} HTTP/1.1", f"Host: {client.host}:{client.port}", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {nonce}"]
        if client.key:
            lines.append("Authorization: Bearer " + client.key)
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        self.s.sendall("\r\n".join(lines + ["", ""]).encode())
        while b"\r\n\r\n" not in self.buffer:
            chunk = self.s.recv(65536)
            if not chunk:
                break
            self.buffer += chunk
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        self.status = int(head.split()[1])
        self.head = head
        self.code = None

    def _take(self, n):
        while len(self.buffer) < n:
            chunk = self.s.recv(1 << 20)
            if not chunk:
                raise EOFError
            self.buffer += chunk
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def send(self, data, opcode=None):
        if isinstance(data, (dict, list)):
            data = json.dumps(data)
        if opcode is None:
            opcode = 1 if isinstance(data, str) else 2
        if isinstance(data, str):
            data = data.encode()
        mask = os.urandom(4)
        n = len(data)
        head = bytes([0x80 | opcode])
        if n < 126:
            head += bytes([0x80 | n])
        elif n < 65536:
            head += struct.pack("!BH", 0x80 | 126, n)
        else:
            head += struct.pack("!BQ", 0x80 | 127, n)
        key = int.from_bytes((mask * (n // 4 + 1))[:n], "big") if n else 0
        masked = (int.from_bytes(data, "big") ^ key).to_bytes(n, "big") if n else b""
        self.s.sendall(head + mask + masked)

    def receive(self):
        """(opcode, payload) of the next data message; None once closed (self.code says how)."""
        while True:
            a, b = self._take(2)
            n = b & 127
            if n == 126:
                n = struct.unpack("!H", self._take(2))[0]
            elif n == 127:
                n = struct.unpack("!Q", self._take(8))[0]
            payload = self._take(n)
            op = a & 15
            if op == 9:
                self.send(payload, 10)
            elif op == 8:
                self.code = struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else 1005
                try:
                    self.send(payload, 8)
                except OSError:
                    pass
                return None
            elif op in (1, 2):
                assert a & 0x80, "the server does not fragment"
                return op, payload

    def stdin(self, data):
        self.send(b"\0" + data)

    def until_end(self):
        """(stdout, stderr, end message)"""
        out = {1: b"", 2: b""}
        end = None
        while (m := self.receive()) is not None:
            if m[0] == 2:
                out[m[1][0]] += m[1][1:]
            else:
                j = json.loads(m[1])
                if j["type"] == "end":
                    end = j["result"]
                elif j["type"] == "error":
                    raise AssertionError(j)
        return out[1], out[2], end

    def close(self):
        self.s.close()
