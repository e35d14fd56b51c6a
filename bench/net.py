"""What a network costs. Bulk, connections and round trips through a gate, beside the same out of a namespace behind a veth that the kernel routes; many
sandboxes with a network at once; and what opening a connection costs: small HTTPS requests to one host, by a name that has a secret and by one that has none.

Both sides alternate in one run. The hosts, the clients and the server share this machine's cores. bench/run net"""
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

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


BULK, MANY = 256 << 20, 500
# Run in a sandbox and in that namespace alike: prints one line of JSON.
PLAIN = """
import json, select, socket, statistics, sys, time
A, P = %r, %d
def connect():
    s = socket.create_connection((A, P), 30)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s
def up(n):
    s, data = connect(), b"x" * (1 << 20)
    t = time.monotonic()
    s.sendall(b"u")
    for _ in range(n >> 20):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    assert s.recv(1) == b"k"
    return time.monotonic() - t
def down(n):
    s, room, got = connect(), bytearray(1 << 20), 0
    t = time.monotonic()
    s.sendall(b"d" + n.to_bytes(8, "big"))
    while got < n:
        k = s.recv_into(room)
        assert k
        got += k
    return time.monotonic() - t
def trips(n):
    s, took = connect(), []
    s.sendall(b"e")
    for _ in range(n):
        t = time.monotonic()
        s.sendall(b"x")
        assert s.recv(1)
        took.append(time.monotonic() - t)
    return statistics.median(took)
def fresh(n):
    t = time.monotonic()
    for _ in range(n):
        s = connect()
        s.sendall(b"e1")
        assert s.recv(1)
        s.close()
    return n / (time.monotonic() - t)
def burst(n, at_once):
    poll, open_, begun, done = select.epoll(), {}, 0, 0
    def begin():
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((A, P))
        open_[s.fileno()] = s
        poll.register(s, select.EPOLLOUT)
    t = time.monotonic()
    for begun in range(1, at_once + 1):
        begin()
    while open_:
        for fd, events in poll.poll(30):
            s = open_[fd]
            if events == select.EPOLLOUT:
                s.send(b"x")
                poll.modify(fd, select.EPOLLIN)
                continue
            assert s.recv(1) == b"x"
            del open_[fd]
            s.close()
            done += 1
            if begun < n:
                begun += 1
                begin()
    assert done == n
    return time.monotonic() - t
"""
# From a program to another beside it, in seconds: what an emulated processor does with bytes at all.
LOOPBACK = """
import socket, threading, time
server, n = socket.create_server(("127.0.0.1", 0)), %d
def take():
    c, room = server.accept()[0], bytearray(1 << 20)
    while c.recv_into(room):
        pass
    c.sendall(b"k")
threading.Thread(target=take, daemon=True).start()
s, data = socket.create_connection(server.getsockname()), b"x" * (1 << 20)
t = time.monotonic()
for _ in range(n >> 20):
    s.sendall(data)
s.shutdown(socket.SHUT_WR)
assert s.recv(1) == b"k"
print(time.monotonic() - t)
"""
# Many short connections: one thread, which a thread for each would be too slow for.
SHORT = """
import select, socket
s = socket.create_server(("0.0.0.0", %d), backlog=4096)
poll, open_ = select.epoll(), {}
poll.register(s, select.EPOLLIN)
print("up", flush=True)
while True:
    for fd, _ in poll.poll():
        if fd == s.fileno():
            c, _ = s.accept()
            open_[c.fileno()] = c
            poll.register(c, select.EPOLLIN)
            continue
        data = open_[fd].recv(64)
        if data:
            open_[fd].send(data)
        else:
            open_.pop(fd).close()
"""


def plain_host(_, c):
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    kind, room = c.recv(1), bytearray(1 << 20)
    if kind == b"u":
        while c.recv_into(room):
            pass
        c.sendall(b"k")
    elif kind == b"d":
        left = int.from_bytes(c.recv(8, socket.MSG_WAITALL), "big")
        while left > 0:
            c.sendall(room[:min(left, len(room))])
            left -= len(room)
    else:
        while data := c.recv(4096):
            c.sendall(data)


class Routed:
    """A namespace behind a veth, routed by the kernel: what a sandbox would have without a gate (and without NAT, which costs a little)."""

    def __init__(self, w):
        t = self.tag = w.tag
        sh = world.sh
        sh(f"ip netns add {t}-veth && ip -n {t}-veth link set lo up && ip -n {t}-host link add veth type veth peer name out netns {t}-veth")
        sh(f"ip -n {t}-host addr add 10.79.0.1/30 dev veth && ip -n {t}-host link set veth up")
        sh(f"ip -n {t}-veth addr add 10.79.0.2/30 dev out && ip -n {t}-veth link set out up && ip -n {t}-veth route add default via 10.79.0.1")
        sh(f"ip netns exec {t}-host sysctl -qw net.ipv4.ip_forward=1")

    def python(self, code):
        return subprocess.run(["ip", "netns", "exec", f"{self.tag}-veth", "python3", "-c", code], capture_output=True, text=True, check=True, timeout=300).stdout

    def close(self):
        subprocess.run(["ip", "netns", "del", f"{self.tag}-veth"], check=False)


def connections(w, veth, boxes):
    """A second, all together, with 32 under way from each of them."""
    server = subprocess.Popen(["ip", "netns", "exec", f"{w.tag}-net", "python3", "-c", SHORT % 9001], stdout=subprocess.PIPE)
    server.stdout.readline()
    code = PLAIN % (world.PUBLIC4, 9001) + "print(burst(%d, %d))"
    each, best = 2000, [0, 0]
    try:
        with ThreadPoolExecutor(len(boxes)) as pool:
            for _ in range(3):
                best[0] = max(best[0], each * len(boxes) / float(veth.python(code % (each * len(boxes), 32 * len(boxes)))))
                best[1] = max(best[1], each * len(boxes) / max(pool.map(lambda b: float(b.python(code % (each, 32))), boxes)))
    finally:
        server.kill()
        server.wait()
    return best


def available():
    with open("/proc/meminfo") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("MemAvailable"))


def row(what, routed, gate, budget):
    print(f"| {what} | {routed} | {gate} | **{gate / routed:.2f}**{f' ({budget})' if budget else ''} |")


def through_a_gate(w):
    server, veth = world.Server(w, "net", 9000, plain_host), Routed(w)
    code = PLAIN % (world.PUBLIC4, 9000)
    try:
        with w.create(mode="public") as box:
            took = {"veth": [], "gate": []}
            for name, where in (("veth", veth), ("gate", box), ("gate", box), ("veth", veth)):
                took[name].append(json.loads(where.python(code + f"print(json.dumps([up({BULK}), down({BULK}), fresh(700), trips(2000) * 1e6]))")))
            n, g = ([statistics.mean(column) for column in zip(*took[name])] for name in ("veth", "gate"))
            rate = lambda s: round(BULK * 8 / s / 1e9, 2)
            print("\n### Through a gate, beside a veth and the kernel's routing\n\n| | veth, routed | gate | ratio |\n|---|---|---|---|")
            row("upload, Gb/s", rate(n[0]), rate(g[0]), "budget at least 0.40")
            row("download, Gb/s", rate(n[1]), rate(g[1]), "budget at least 0.40")
            row("new connections with one exchange, one after the other, a second", round(n[2]), round(g[2]), "")
            row("round trip of a byte, us", round(n[3]), round(g[3]), "")
            held = [w.create(mode="public") for _ in range(4)]
            try:
                row("new connections with one exchange, 128 at a time out of 4 sandboxes, a second", *map(round, connections(w, veth, held)), "budget: 3,000")
                for h in held:
                    status, r = w.request("POST", f"/v1/sandboxes/{h.id}/runs", {"language": "python", "detach": True,
                                          "code": code + "held = [connect() for _ in range(1000)]\nprint('up', flush=True)\ntime.sleep(600)"})
                    ended = lambda: w.request("GET", f"/v1/sandboxes/{h.id}/runs/{r['id']}")[1]["state"] == "exited"
                    assert status == 201 and world.until(lambda: "up" in w.output(h, r["id"]) or ended(), 60) and not ended(), r
                with_idle = float(box.python(code + "print(trips(2000) * 1e6)"))
            finally:
                for h in held:
                    h.delete()
            print(f"| the same with 4,000 idle connections of others, us | | {with_idle:.0f} | **{with_idle / g[3]:.2f}** of that with one (budget 3) |")
    finally:
        veth.close()
        server.close()


def through_a_machine(w):
    try:
        w.ready("vm")
    except world.Skip as why:
        print(f"\n(no machines: {why})")
        return
    server, veth = world.Server(w, "net", 9000, plain_host), Routed(w)
    code, took, own = PLAIN % (world.PUBLIC4, 9000) + f"print(json.dumps([up({BULK // 2}), down({BULK // 2})]))", {"veth": [], "gate": []}, []
    try:
        with w.create(mode="public") as box:
            for name, where in (("veth", veth), ("gate", box), ("gate", box), ("veth", veth)):
                took[name].append(json.loads(where.python(code)))
                if name == "gate":
                    own.append(float(box.python(LOOPBACK % (BULK // 2))))
        print(f"\n### Through a machine's gate, emulated\n\n| | veth, routed | gate | ratio | the machine's own loopback | ratio |\n|---|---|---|---|---|---|")
        rate = lambda seconds: round(BULK * 4 / statistics.mean(seconds) / 1e9, 2)
        for what, a, b in zip(("upload", "download"), zip(*took["veth"]), zip(*took["gate"])):
            print(f"| {what}, Gb/s | {rate(a)} | {rate(b)} | **{rate(b) / rate(a):.2f}** (budget at least 0.25) | {rate(own)} | {rate(b) / rate(own):.2f} |")
    finally:
        veth.close()
        server.close()


def create_ms(w, mode, n):
    took = []
    for _ in range(n):
        time.sleep(0.03)
        t = time.monotonic()
        box = w.create(mode=mode)
        took.append((time.monotonic() - t) * 1e3)
        box.delete()
    return statistics.median(took[n // 5:])


def many_at_once(w):
    kib = {}
    for mode in ("none", "public"):
        create_ms(w, mode, 10)  # the pool knows of them
        before = available()
        boxes = []
        try:
            for _ in range(MANY):
                boxes.append(w.create(mode=mode))
            if mode == "public":
                assert boxes[-1].python(PLAIN % (world.PUBLIC4, 7) + "s = connect(); s.sendall(b'x'); print(s.recv(1))") == "b'x'"
            kib[mode] = (before - available()) / MANY
        finally:
            for b in boxes:
                b.delete()
    print(f"\n{MANY} sandboxes with a network at once: {kib['public']:.0f} KiB each (MemAvailable), without one {kib['none']:.0f}: "
          f"**{kib['public'] - kib['none']:.0f} KiB** for the network (budget 300)\n")
    none, public = create_ms(w, "none", 60), create_ms(w, "public", 60)
    print(f"A create from the pool with a network {public:.2f} ms, without one {none:.2f} ms: **{public - none:.2f} ms** more (budget 1)")


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves nothing behind then either
    w = world.World()
    try:
        w.ready()
        world.patience = 8
        through_a_gate(w)
        many_at_once(w)
        server = world.Server(w, "net", PORT, host, tls=w.certificate_context)
        status, s = w.request("POST", "/v1/secrets", {"name": "key", "value": "a-value-of-some-length", "hosts": [f"api.test:{PORT}"]})
        assert status == 201, s
        with w.create(mode="allow", allow=[f"api.test:{PORT}", f"other.test:{PORT}"], secrets={"env": {"KEY": "key"}}) as box:
            plain, opened, plain_new, opened_new = map(float, box.python(CLIENT).split())
        server.close()
        through_a_machine(w)
    finally:
        w.close()
    us, ms = 1e6 / REQUESTS, 1e3 / CONNECTIONS
    print(f"\n### {REQUESTS} small HTTPS requests from a sandbox, opened and not\n")
    print("| | not opened | opened | added | ratio |\n|---|---|---|---|---|")
    print(f"| request on a connection that is there | {plain * us:.0f} us | {opened * us:.0f} us | {(opened - plain) * us:.0f} us | {opened / plain:.2f} |")
    print(f"| connection with one request | {plain_new * ms:.2f} ms | {opened_new * ms:.2f} ms | {(opened_new - plain_new) * ms:.2f} ms | {opened_new / plain_new:.2f} |")


main()
