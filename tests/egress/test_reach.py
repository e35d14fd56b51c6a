"""Where connections lead."""
import os

import world
from world import *

CONNECT = """
import socket, sys, time
def connect(a, port, send=b"x"):
    "0, or the name of the error; connected means that a byte came back or the far side took ours"
    s = socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET)
    s.settimeout(5)
    try:
        s.connect((a, port))
        s.sendall(send)
        return "closed" if not s.recv(1) else "open"
    except OSError as e:
        return type(e).__name__ if not e.errno else __import__("errno").errorcode[e.errno]
    finally:
        s.close()
"""
REFUSED = {"ECONNRESET", "ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EACCES", "EINVAL", "EPIPE", "closed"}
NEVER4 = [PRIVATE4, METADATA4, "100.64.1.1", "172.16.9.9", "168.63.129.16", "100.100.100.200", "198.18.0.9", LAN4, LAN_PUBLIC4, HOST4, "93.184.220.1",
          "192.168.77.1", "127.0.0.1", "0.0.0.0", "10.97.83.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"]
NEVER6 = [METADATA6, "64:ff9b::a01:203", "2002:a01:203::1", LAN6, HOST6, "fd78::1", "fd77::2", "::1", "::", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
          "::ffff:10.1.2.3", "fdca:1550:9753::1", "fe80::1", "ff02::1"]


def counts(w):
    return [s.connections for s in (w.echo, w.http, w.https, w.lan, w.host, w.loopback)]


def nothing_reached(w, box, ports=(7, 80, 443, 8081, 8082)):
    before = counts(w)
    out = box.python(CONNECT + f"for a in {NEVER4 + NEVER6}:\n  for p in {list(ports)}: print(a, p, connect(a, p))")
    for line in out.splitlines():
        assert line.split()[2] in REFUSED, line
    assert counts(w) == before, (before, counts(w))


def test_none_is_nothing_at_all(w):
    asked = len(w.names.asked)
    with w.create("none") as b:
        if w.machines:  # there is a device, and no link
            assert b.run(argv=["cat", "/sys/class/net/eth0/carrier"])["stdout"] == "0\n"
        else:
            assert b.python("import os; print(sorted(os.listdir('/proc/sys/net/ipv4/conf')))").count("eth0") == 0
        out = b.python(CONNECT + f"for a in {[PUBLIC4, PUBLIC6, LAN4, METADATA4]}: print(connect(a, 80))")
        assert set(out.split()) <= {"ENETUNREACH", "EADDRNOTAVAIL"}, out
        start = time.time()
        r = b.run(shell="getent hosts api.test")
        assert r["exit_code"] == 2 and time.time() - start < 4 * world.patience, r
    assert len(w.names.asked) == asked


def test_public_reaches_the_internet_and_not_the_neighbours(w):
    with w.create("public") as b:
        out = b.python(CONNECT + f"print(connect('{PUBLIC4}', 7), connect('{PUBLIC6}', 7), connect('{OTHER4}', 7), connect('8.8.8.8', 7))")
        assert out == "open open open open", out
        nothing_reached(w, b)


def test_allow_by_address_does_not_open_what_is_never_open(w):
    with w.create("allow", allow=["0.0.0.0/0", "::/0"]) as b:
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 7), connect('{PUBLIC6}', 7))") == "open open"
        nothing_reached(w, b)


def test_other_spellings_of_addresses(w):
    before = counts(w)
    with w.create("public") as b:
        for host in ("2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "[::ffff:7f00:1]",
                     "[::ffff:a9fe:a9fe]", "169.254.169.254.", "0"):
            for port in (80, 8082):
                r = b.run(argv=["curl", "-s", "-m", "4", "-o", "/dev/null", "-w", "%{http_code}", f"http://{host}:{port}/"])
                assert r["stdout"] == "000", (host, port, r)
    assert counts(w) == before


def test_an_empty_allow_list_denies_all(w):
    before = counts(w)
    with w.create("allow") as b:
        out = b.python(CONNECT + f"print(connect('{PUBLIC4}', 7), connect('{PUBLIC6}', 443))")
        assert set(out.split()) <= REFUSED, out
        assert b.run(shell="getent hosts api.test")["exit_code"] == 2
    assert counts(w) == before


def test_bytes_both_ways_half_closes_and_a_server_that_speaks_first(w):
    def first(self, c):
        c.sendall(b"welcome\n")
        data = b""
        while more := c.recv(65536):
            data += more
        c.sendall(b"got %d" % len(data))

    server = Server(w, "net", 2525, first)
    try:
        with w.create("public", deny=["*.denied.test"]) as b:  # names on the deny list: first bytes are looked at
            out = b.python(f"""
import socket
s = socket.create_connection(("{PUBLIC4}", 2525), 10)
print(s.recv(100).decode().strip())
s.sendall(b"y" * 3000000)
s.shutdown(socket.SHUT_WR)
print(s.recv(100).decode())
""")
            assert out == "welcome\ngot 3000000", out
    finally:
        server.close()


def test_large_transfers_are_exact(w):
    with w.create("public") as b:
        out = b.python(f"""
import hashlib, os, socket, threading
for a in ("{PUBLIC4}", "{PUBLIC6}"):
    s = socket.create_connection((a, 7), 20)
    data = os.urandom(8 << 20)
    def send():
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=send)
    t.start()
    got = hashlib.sha256()
    while more := s.recv(1 << 16): got.update(more)
    t.join()
    print(got.digest() == hashlib.sha256(data).digest())
""")
        assert out == "True\nTrue", out


def test_datagrams_are_refused_at_once(w):
    with w.create("public") as b:
        out = b.python(f"""
import socket, time
for a, p in (("{PUBLIC4}", 443), ("{PUBLIC6}", 443), ("{LAN4}", 5353), ("{METADATA4}", 123)):
    s = socket.socket(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(3)
    s.connect((a, p))
    start = time.time()
    try:
        s.send(b"x")
        s.recv(10)
        print("answered")
    except ConnectionRefusedError:
        print("refused", time.time() - start < 1)
    except OSError as e:
        print(e)
""")
        assert out.split("\n") == ["refused True"] * 4, out


def test_an_echo_of_the_gateway_only(w):
    with w.create("public") as b:
        out = b.python(f"""
import socket
for a in ("10.97.83.1", "{PUBLIC4}", "{LAN4}"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
    s.settimeout(1)
    s.sendto(b"\\x08\\0\\xf7\\xfe\\0\\0\\0\\1", (a, 0))
    try:
        print(s.recvfrom(100)[1][0] == a)
    except OSError:
        print("no answer")
""")
        assert out == "True\nno answer\nno answer", out


def test_many_connections_and_their_limit(w):
    with w.create(network={"mode": "public", "limits": {"connections": 1024}}) as b:
        out = b.python(f"""
import socket
held, refused = [], 0
for i in range(1100):
    s = socket.socket()
    s.settimeout(10)
    try:
        s.connect(("{PUBLIC4}", 7))
        s.sendall(b"x")
        if s.recv(1) == b"x":
            held.append(s)
        else:
            refused += 1
    except OSError:
        refused += 1
print(len(held), refused)
for s in held: s.close()
s = socket.create_connection(("{PUBLIC4}", 7), 10)
""")
        held, refused = map(int, out.split())
        assert held == 1024 and refused == 76, out


def test_a_sandbox_that_does_not_read_costs_little(w):
    def flood(self, c):
        c.settimeout(20)
        try:
            while True:
                c.sendall(bytes(1 << 20))
        except OSError:
            pass

    server = Server(w, "net", 2600, flood)
    try:
        with w.create("public") as b, w.create("public") as neighbour:
            status, r = w.request("POST", f"/v1/sandboxes/{b.id}/runs", {"language": "python", "detach": True, "code": f"""
import socket, time
held = [socket.create_connection(("{PUBLIC4}", 2600), 20) for _ in range(150)]
open("/tmp/held", "w").close()
time.sleep(60)
"""})
            assert until(lambda: b.run(argv=["test", "-e", "/tmp/held"])["exit_code"] == 0, 30)
            assert until(lambda: neighbour.python(CONNECT + f"print(connect('{PUBLIC4}', 7))") == "open", 30)
            with open(f"/proc/{w.edges()[0]}/status") as f:
                kib = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
            assert kib < world.MEMORY * 40 << 10, kib
    finally:
        server.close()


def test_clients_get_a_clear_error(w):
    with w.create("allow", allow=["api.test:443"]) as b:
        r = b.run(argv=["curl", "-sS", "-m", "10", f"http://{OTHER4}/"])
        assert r["exit_code"] in (7, 55, 56) and ("connect" in r["stderr"].lower() or "reset" in r["stderr"]), r
        r = b.run(argv=["curl", "-sS", "-m", "10", "http://other.test/"])
        assert r["exit_code"] == 6 and "resolve" in r["stderr"], r
