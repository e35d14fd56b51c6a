"""HTTP/1.1 and WebSocket framing, as little as recording and replaying need."""
import os
import socket


class Stream:
    """A socket with what was read too much of it."""
    def __init__(self, sock):
        self.sock, self.rest = sock, b""

    def more(self):
        chunk = self.sock.recv(65536)
        if not chunk:
            raise EOFError
        self.rest += chunk

    def exactly(self, n):
        while len(self.rest) < n:
            self.more()
        out, self.rest = self.rest[:n], self.rest[n:]
        return out

    def until(self, mark):
        while mark not in self.rest:
            self.more()
        return self.exactly(self.rest.index(mark) + len(mark))

    def message(self, method=None):
        """One whole request, or the response to `method`: (head, body as it came, body without chunks)."""
        head = self.until(b"\r\n\r\n")
        fields = {}
        for line in head.split(b"\r\n")[1:-2]:
            name, _, value = line.partition(b":")
            fields[name.strip().lower()] = value.strip()
        status = int(head.split(b" ")[1]) if head.startswith(b"HTTP/") else None
        if status is not None and (status in (101, 204, 304) or method == b"HEAD"):
            return head, b"", b""
        if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
            raw, plain = b"", b""
            while True:
                line = self.until(b"\r\n")
                n = int(line.split(b";")[0], 16)
                data = self.exactly(n + 2) if n else self.until(b"\r\n")
                raw += line + data
                plain += data[:n]
                if n == 0:
                    return head, raw, plain
        body = self.exactly(int(fields.get(b"content-length", b"0")))
        return head, body, body

    def frame(self):
        """One WebSocket frame: (first byte, payload unmasked)."""
        first, second = self.exactly(2)
        n = second & 127
        if n > 125:
            n = int.from_bytes(self.exactly(2 if n == 126 else 8), "big")
        mask = self.exactly(4) if second & 128 else b"\0\0\0\0"
        data = self.exactly(n)
        return first, bytes(b ^ mask[i & 3] for i, b in enumerate(data)) if any(mask) else data


def frame(first, data, masked):
    n = len(data)
    head = bytes([first, (128 if masked else 0) | (n if n < 126 else 126 if n < 65536 else 127)])
    if n > 125:
        head += n.to_bytes(2 if n < 65536 else 8, "big")
    return head + (b"\0\0\0\0" if masked else b"") + data


def connect(host, port):
    s = socket.create_connection((host, port), 60 * int(os.environ.get("TEST_PATIENCE", 1)))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s
