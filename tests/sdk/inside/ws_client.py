"""A small WebSocket client, for what SDKs do not show."""
import base64, json, os, socket, time, urllib.parse


def _exactly(s, n):
    b = b""
    while len(b) < n:
        more = s.recv(n - len(b))
        if not more:
            raise EOFError("the server hung up")
        b += more
    return b


def _frame(s):
    h = _exactly(s, 2)
    n = h[1] & 127
    if n == 126:
        n = int.from_bytes(_exactly(s, 2), "big")
    elif n == 127:
        n = int.from_bytes(_exactly(s, 8), "big")
    return h[0] & 15, _exactly(s, n)


def interpret(url, key, sandbox, request, leave=None):
    """All messages of one piece of code, and {"type": "close", "code"} at the end. leave: hang up after so many seconds."""
    at = urllib.parse.urlsplit(url)
    s = socket.create_connection((at.hostname, at.port), 60)
    s.sendall(("GET %s/toolbox/%s/process/interpreter/execute HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
               "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n" % (at.path, sandbox, at.netloc, key, base64.b64encode(os.urandom(16)).decode())).encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += _exactly(s, 1)
    assert head.startswith(b"HTTP/1.1 101"), head
    data = json.dumps(request).encode()
    s.sendall(bytes([0x81, 0x80 | 126]) + len(data).to_bytes(2, "big") + b"\0\0\0\0" + data)
    if leave is not None:
        time.sleep(leave)
        s.close()
        return []
    said = []
    while True:
        kind, data = _frame(s)
        if kind == 8:
            s.close()
            return said + [{"type": "close", "code": int.from_bytes(data[:2], "big")}]
        if kind == 1:
            said.append(json.loads(data))
