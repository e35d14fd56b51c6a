"""Runs inside a sandbox: answers a WebSocket handshake, then sends every text frame back in upper case."""
import base64, hashlib, socket, struct, sys

def exactly(c, n):
    data = b""
    while len(data) < n:
        more = c.recv(n - len(data))
        if not more:
            sys.exit(0)
        data += more
    return data

s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(8)
while True:
    c, _ = s.accept()
    head = b""
    while b"\r\n\r\n" not in head:
        more = c.recv(4096)
        if not more:
            break
        head += more
    key = [l.split(b":", 1)[1].strip() for l in head.split(b"\r\n") if l.lower().startswith(b"sec-websocket-key:")]
    if not key:
        c.close()
        continue
    accept = base64.b64encode(hashlib.sha1(key[0] + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    leaked = b"authorization" in head.lower() or b"preview-token" in head.lower() or b"daytona_sandbox" in head.lower()
    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    while True:
        b0, b1 = exactly(c, 2)
        n = b1 & 127
        if n == 126:
            n = struct.unpack(">H", exactly(c, 2))[0]
        mask = exactly(c, 4)
        data = bytes(x ^ mask[i % 4] for i, x in enumerate(exactly(c, n)))
        if b0 & 15 == 8:
            c.sendall(bytes([0x88, len(data)]) + data)
            c.close()
            break
        if b0 & 15 == 1:
            reply = b"LEAKED" if leaked else data.upper()
            c.sendall(bytes([0x81, len(reply)]) + reply)
