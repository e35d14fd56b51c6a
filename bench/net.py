"""What opening a connection costs: small HTTPS requests from a sandbox to one host, by a name that has a secret and by one that has none.

Both sides alternate on connections that stay open, then with a new connection for each request. The host, the client and the server share this
machine's cores. bench/run net"""
import os
import signal
import socket
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/egress"))
import world

REQUESTS, ROUNDS, CONNECTIONS = 10000, 10, 300
PORT = 8443
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{\"ok\":true}\n"
CLIENT = f"""
import os, socket, ssl, time
K, context = os.environ["KEY"], ssl._create_unverified_context()
def connect(name):
    s = socket.create_connection((name, {PORT}))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(s, server_hostname=name)
def ask(s, name, n):
    request = f"POST /v1/x HTTP/1.1\\r\\nHost: {{name}}:{PORT}\\r\\nAuthorization: Bearer {{K}}\\r\\nContent-Length: 20\\r\\n\\r\\n{{'x' * 20}}".encode()
    for _ in range(n):
        s.sendall(request)
        got = 0
        while got < {len(ANSWER)}:
            more = len(s.recv(4096))
            assert more
            got += more
def timed(f):
    t = time.monotonic()
    f()
    return time.monotonic() - t
names = ["other.test", "api.test"]
kept, fresh = [connect(n) for n in names], [0, 0]
took = [0, 0]
for s, n in zip(kept, names):
    ask(s, n, 100)
for r in range({ROUNDS}):
    for i in (0, 1) if r % 2 else (1, 0):
        took[i] += timed(lambda: ask(kept[i], names[i], {REQUESTS // ROUNDS}))
def once(n):
    s = connect(n)
    ask(s, n, 1)
    s.close()
for r in range({ROUNDS}):
    for i in (0, 1) if r % 2 else (1, 0):
        fresh[i] += timed(lambda: [once(names[i]) for _ in range({CONNECTIONS // ROUNDS})])
print(*took, *fresh)
"""


def host(_, c):
    data = b""
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while more := c.recv(4096):
        data += more
        while len(data) >= (end := data.find(b"\r\n\r\n") + 24) > 24:
            data = data[end:]
            c.sendall(ANSWER)


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves nothing behind then either
    w = world.World()
    try:
        w.ready()
        world.patience = 8
        server = world.Server(w, "net", PORT, host, tls=w.certificate_context)
        status, s = w.request("POST", "/v1/secrets", {"name": "key", "value": "a-value-of-some-length", "hosts": [f"api.test:{PORT}"]})
        assert status == 201, s
        with w.create(mode="allow", allow=[f"api.test:{PORT}", f"other.test:{PORT}"], secrets={"env": {"KEY": "key"}}) as box:
            plain, opened, plain_new, opened_new = map(float, box.python(CLIENT).split())
        server.close()
    finally:
        w.close()
    us, ms = 1e6 / REQUESTS, 1e3 / CONNECTIONS
    print(f"\n## {REQUESTS} small HTTPS requests from a sandbox, opened and not\n")
    print("| | not opened | opened | added | ratio |\n|---|---|---|---|---|")
    print(f"| request on a connection that is there | {plain * us:.0f} us | {opened * us:.0f} us | {(opened - plain) * us:.0f} us | {opened / plain:.2f} |")
    print(f"| connection with one request | {plain_new * ms:.2f} ms | {opened_new * ms:.2f} ms | {(opened_new - plain_new) * ms:.2f} ms | {opened_new / plain_new:.2f} |")


main()
