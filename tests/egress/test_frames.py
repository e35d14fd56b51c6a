"""What no honest network stack sends: frames made by hand, where a sandbox can make any (root of a machine); else that it cannot."""
import ctypes
import fcntl

from test_reach import CONNECT, NEVER4, NEVER6, counts
from test_udp import ASK, Datagrams
from world import *

FRAMES = """
import os, socket, struct, time
GATE, BOX4, BOX6, GATE4, GATE6 = bytes.fromhex("02ca15509753"), "10.97.83.2", "fdca:1550:9753::2", "10.97.83.1", "fdca:1550:9753::1"
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
line.bind(("eth0", 0))
with open("/sys/class/net/eth0/address") as f:
    ME = bytes.fromhex(f.read().strip().replace(":", ""))
sent = 0

def a4(t): return socket.inet_pton(socket.AF_INET, t)
def a6(t): return socket.inet_pton(socket.AF_INET6, t)

def total(data):
    data += b"\\0" * (len(data) % 2)
    n = sum(struct.unpack(f">{len(data) // 2}H", data))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff

def frame(kind, body, to=GATE, of=None, tag=b""):
    global sent
    data = to + (of or ME) + tag + struct.pack(">H", kind) + body
    try:
        line.send(data + b"\\0" * max(0, 60 - len(data)))
        sent += 1
    except OSError as e:
        if e.errno not in (90, 105): raise  # too long for the device, or it is full: the next one then

def ip4(source, to, proto, body, flags=0x4000, options=b"", ttl=64):
    head = struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(body), 7, flags, ttl, proto, 0, a4(source), a4(to)) + options
    return head[:10] + struct.pack(">H", total(head)) + head[12:] + body

def ip6(source, to, proto, body, hops=64):
    return struct.pack(">IHBB16s16s", 6 << 28, len(body), proto, hops, a6(source), a6(to)) + body

def summed(source, to, proto, body, at):
    f = a6 if ":" in to else a4
    pseudo = f(source) + f(to) + (struct.pack(">IxxxB", len(body), proto) if ":" in to else struct.pack(">xBH", proto, len(body)))
    return body[:at] + struct.pack(">H", total(pseudo + body)) + body[at + 2:]

def syn(source, to, port, flags=2):
    body = struct.pack(">HHIIBBHHH", 40000 + sent % 20000, port, 1, 0, 0x50, flags, 65535, 0, 0)
    return summed(source, to, 6, body, 16)

def question(source, to, name=b"\\x05frame\\x04test\\0"):
    q = b"\\x12\\x34\\x01\\x00\\x00\\x01" + b"\\0" * 6 + name + b"\\0\\1\\0\\1"
    return summed(source, to, 17, struct.pack(">HHHH", 5353, 53, 8 + len(q), 0) + q, 6)

def icmp6(source, to, body):
    return ip6(source, to, 58, summed(source, to, 58, body[:2] + b"\\0\\0" + body[4:], 2), 255)

def any4(source, to, port): frame(0x800, ip4(source, to, 6, syn(source, to, port)))
def any6(source, to, port): frame(0x86dd, ip6(source, to, 6, syn(source, to, port)))
"""

STRANGE = FRAMES + """
PORTS = (7, 80, 8081, 8082)
for to in %(never4)r + [%(public4)r]:
    for port in PORTS:
        for source in ("127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1", GATE4, "10.97.83.3", "10.97.83.0", "8.8.8.8", %(lan4)r, %(host4)r):
            any4(source, to, port)
for to in %(never4)r:
    for port in PORTS: any4(BOX4, to, port)
for to in [t for t in %(never6)r if "." not in t] + [%(public6)r]:
    for port in PORTS:
        for source in ("::1", "::", GATE6, "fdca:1550:9753::3", "fe80::1", "ff02::1", "2001:4860:4860::8888", %(lan6)r, %(host6)r, "::ffff:8.8.8.8"):
            any6(source, to, port)
for to in ("::1", "::ffff:127.0.0.1", "::ffff:10.1.2.3", "fe80::1", %(host6)r, %(lan6)r):
    for port in PORTS: any6(BOX6, to, port)
# names, asked by somebody else, of anybody
for source in ("8.8.8.8", GATE4, "127.0.0.1", "10.97.83.3", %(lan4)r):
    for to in (GATE4, "8.8.8.8", %(lan4)r): frame(0x800, ip4(source, to, 17, question(source, to)))
for source in ("2001:4860:4860::8888", GATE6, "::1", "fdca:1550:9753::99"):
    for to in (GATE6, "2001:4860:4860::8888"): frame(0x86dd, ip6(source, to, 17, question(source, to)))
# source routes, fragments, headers upon headers
lan = %(lan4)r
frame(0x800, ip4(BOX4, GATE4, 6, syn(BOX4, GATE4, 80), options=b"\\x83\\x0b\\x04" + a4(lan) + a4(lan) + b"\\1"))
whole = syn(BOX4, lan, 80)
frame(0x800, ip4(BOX4, lan, 6, whole[:8], 0x2000))
frame(0x800, ip4(BOX4, lan, 6, whole[8:], 0x0001))
frame(0x800, ip4(BOX4, lan, 6, whole[:8], 0x2000))
frame(0x800, ip4(BOX4, lan, 6, whole, 0x0000))
for i in range(300): frame(0x800, ip4(BOX4, lan, 6, os.urandom(1400), 0x2000 | i % 180))
routing0 = bytes([6, 2, 0, 1]) + b"\\0" * 4 + a6(%(lan6)r)
frame(0x86dd, ip6(BOX6, %(public6)r, 43, routing0 + syn(BOX6, %(lan6)r, 80)))
frame(0x86dd, ip6(BOX6, %(lan6)r, 0, b"\\x3c\\0\\1\\4\\0\\0\\0\\0" + b"\\6\\0\\1\\4\\0\\0\\0\\0" + syn(BOX6, %(lan6)r, 80)))
frame(0x86dd, ip6(BOX6, %(lan6)r, 44, struct.pack(">BxHI", 6, 1, 9) + syn(BOX6, %(lan6)r, 80)[:8]))
for n in (0, 1, 19, 20, 39, 40): frame(0x800, os.urandom(n)); frame(0x86dd, os.urandom(n))
for proto in (1, 2, 4, 41, 47, 50, 51, 89, 94, 103, 112, 132, 136, 255): frame(0x800, ip4(BOX4, lan, proto, syn(BOX4, lan, 80)))
frame(0x800, ip4(BOX4, GATE4, 4, ip4(lan, %(host4)r, 6, syn(lan, %(host4)r, 8081))))
frame(0x800, ip4(BOX4, GATE4, 41, ip6(%(lan6)r, %(host6)r, 6, syn(%(lan6)r, %(host6)r, 8081))))
# tags, other protocols, wrong stations
inner = ip4(BOX4, lan, 6, syn(BOX4, lan, 80))
for tag in (b"\\x81\\0\\0\\0", b"\\x81\\0\\0\\1", b"\\x81\\0\\x0f\\xff", b"\\x88\\xa8\\0\\5\\x81\\0\\0\\6", b"\\x91\\0\\0\\5"): frame(0x800, inner, tag=tag)
for kind in (0x0600, 0x0805, 0x6003, 0x809b, 0x80f3, 0x8137, 0x8847, 0x8848, 0x8863, 0x8864, 0x886d, 0x888e, 0x88a2, 0x88ca, 0x88cc, 0x88e5, 0x88f7, 0x8902,
             0x8906, 0x8914, 0x22f0, 0x4305, 0x9000, 0xfbfb, 0xffff, 46, 1500):
    frame(kind, inner)
    frame(kind, os.urandom(64), to=b"\\xff" * 6)
for to in (b"\\xff" * 6, bytes.fromhex("01005e000001"), bytes.fromhex("333300000001"), bytes.fromhex("0180c2000000"), bytes.fromhex("525400123456"), b"\\0" * 6):
    frame(0x800, inner, to=to)
for of in (GATE, b"\\xff" * 6, b"\\0" * 6, bytes.fromhex("01005e000001")): frame(0x800, inner, of=of)
"""

NEIGHBOURS = FRAMES + """
def arp(op, mac, ip, to_mac, to_ip, **more): frame(0x806, struct.pack(">HHBBH", 1, 0x800, 6, 4, op) + mac + a4(ip) + to_mac + a4(to_ip), **more)
for i in range(2000):
    arp(1, ME, f"10.{i >> 8}.{i & 255}.9", b"\\0" * 6, GATE4, to=b"\\xff" * 6)
    arp(2, os.urandom(6), f"10.97.{i >> 8}.{i & 255}", GATE, GATE4)
for i in range(4):
    arp(2, ME, GATE4, GATE, GATE4); arp(1, ME, GATE4, b"\\0" * 6, GATE4, to=b"\\xff" * 6); arp(2, bytes.fromhex("020000000009"), BOX4, GATE, GATE4)
for i in range(2000):
    for source in (f"fdca:1550:9753::{i + 16:x}", f"fe80::{i + 16:x}", f"2001:db8::{i + 16:x}"):
        frame(0x86dd, icmp6(source, GATE6, b"\\x87\\0\\0\\0\\0\\0\\0\\0" + a6(GATE6) + b"\\1\\1" + ME))
    frame(0x86dd, icmp6(f"fdca:1550:9753::{i + 16:x}", GATE6, b"\\x88\\0\\0\\0\\x60\\0\\0\\0" + a6(f"fdca:1550:9753::{i + 16:x}") + b"\\2\\1" + ME))
    any6(f"fdca:1550:9753::{i + 16:x}", %(public6)r, 7)
for mac in (ME, bytes.fromhex("020000000009")):
    frame(0x86dd, icmp6(BOX6, GATE6, b"\\x88\\0\\0\\0\\xe0\\0\\0\\0" + a6(GATE6) + b"\\2\\1" + mac))
prefix = b"\\3\\4\\x40\\xc0" + b"\\xff" * 8 + b"\\0" * 4 + a6("2001:db8:bad::")
frame(0x86dd, icmp6("fe80::1", "ff02::1", b"\\x86\\0\\0\\0\\x40\\0\\x07\\x08" + b"\\0" * 8 + b"\\1\\1" + ME + prefix), to=bytes.fromhex("333300000001"))
frame(0x86dd, icmp6(BOX6, GATE6, b"\\x86\\0\\0\\0\\x40\\0\\x07\\x08" + b"\\0" * 8 + b"\\1\\1" + ME + prefix))
frame(0x86dd, icmp6(BOX6, GATE6, b"\\x89\\0\\0\\0\\0\\0\\0\\0" + a6("fe80::9") + a6(%(public6)r)))
frame(0x800, ip4(BOX4, GATE4, 1, b"\\5\\1" + struct.pack(">H", total(b"\\5\\1\\0\\0" + a4("10.97.83.3") + b"E" * 28)) + a4("10.97.83.3") + b"E" * 28))
"""

LONG = FRAMES + """
import fcntl
def mtu(n): fcntl.ioctl(line, 0x8922, struct.pack("16si12x", b"eth0", n))
mtu(9000)
for n in (1600, 4000, 8900): frame(0x800, ip4(BOX4, GATE4, 17, struct.pack(">HHHH", 5, 5, n, 0) + bytes(n - 8)))
# segments that a device is to cut, with sizes that make no sense
line.close()
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
line.setsockopt(263, 15, 1)
line.bind(("eth0", 0))
tried = 0
for kind in (0, 1, 3, 4, 5, 0x81, 7):
    for size in (0, 1, 7, 1400, 65535):
        for head in (0, 14, 54, 200, 65535):
            for flags, start, offset in ((0, 0, 0), (1, 34, 16), (1, 14, 6), (1, 0, 0), (1, 65535, 65535), (2, 0, 0)):
                body = GATE + ME + b"\\x08\\0" + ip4(BOX4, %(lan4)r, 6, syn(BOX4, %(lan4)r, 80, 0x10) + bytes(5000))
                try: line.send(struct.pack("<BBHHHH", flags, kind, head, size, start, offset) + body)
                except OSError: continue
                tried += 1
mtu(1500)
print(tried > 0)
"""
PARTS = FRAMES + """
def datagram(source, to, data, length=None, check=None, port=5300):
    body = summed(source, to, 17, struct.pack(">HHHH", 4000, port, 8 + len(data) if length is None else length, 0) + data, 6)
    return body if check is None else body[:6] + check + body[8:]
def parts4(body, pieces, number, last=None):
    "pieces: (begin, end) of the body, in the order in which they are sent"
    for begin, end in pieces:
        more = 0 if end == (last or len(body)) else 0x2000
        head = ip4(BOX4, %(public4)r, 17, body[begin:end], more | begin // 8)
        head = head[:4] + struct.pack(">H", number) + head[6:10] + b"\\0\\0" + head[12:]
        frame(0x800, head[:10] + struct.pack(">H", total(head[:20])) + head[12:])
def parts6(body, pieces, number):
    for begin, end in pieces:
        frame(0x86dd, ip6(BOX6, %(public6)r, 44, struct.pack(">BxHI", 17, begin | (end != len(body)), number) + body[begin:end]))
# in order, backwards, and with two that say different things of the same place
for v, send, ends in ((b"4", parts4, (BOX4, %(public4)r)), (b"6", parts6, (BOX6, %(public6)r))):
    good = datagram(*ends, b"whole" + v + bytes(3000))
    pieces = [(0, 1400), (1400, 2800), (2800, len(good))]
    send(good, pieces, 11)
    send(good, pieces[::-1], 12)
    send(datagram(*ends, b"overlapping" + bytes(3000)), [(0, 1400), (1392, 2800), (2800, 3019)], 13)
    send(good, pieces[:2], 14)
    send(good, pieces[1:], 15)
# beyond 64 KiB, and the smallest of parts
big = datagram(BOX4, %(public4)r, bytes(65000))
parts4(big, [(0, 1400), (65496, 65536 - 8 - 16)], 16, 65512)
for i in range(8, 8000, 8): frame(0x800, ip4(BOX4, %(public4)r, 17, big[i:i + 8], 0x2000 | i // 8))
# lengths and sums that are not so; sources and ports that are nobody's
for n in (0, 7, 9, 1000, 65535): frame(0x800, ip4(BOX4, %(public4)r, 17, datagram(BOX4, %(public4)r, b"length", n)))
frame(0x800, ip4(BOX4, %(public4)r, 17, datagram(BOX4, %(public4)r, b"sum", None, b"\\1\\2")))
frame(0x86dd, ip6(BOX6, %(public6)r, 17, datagram(BOX6, %(public6)r, b"no sum", None, b"\\0\\0")))
for source in ("8.8.8.8", GATE4, "10.97.83.3", "127.0.0.1", %(public4)r): frame(0x800, ip4(source, %(public4)r, 17, datagram(source, %(public4)r, b"spoofed")))
for source in (GATE6, "::1", "fe80::1", "2001:db8::1", %(public6)r): frame(0x86dd, ip6(source, %(public6)r, 17, datagram(source, %(public6)r, b"spoofed")))
for port in (0, 53, 4): frame(0x800, ip4(BOX4, %(public4)r, 17, datagram(BOX4, %(public4)r, b"port", None, None, port)))
no_port = datagram(BOX4, %(public4)r, b"from port 0")
frame(0x800, ip4(BOX4, %(public4)r, 17, b"\\0\\0" + no_port[2:6] + b"\\0\\0" + no_port[8:]))
# errors that nobody made
for kind, code in ((3, 3), (3, 1), (3, 4), (11, 0), (12, 0)):
    body = bytes([kind, code, 0, 0]) + bytes(4) + ip4(%(public4)r, BOX4, 17, datagram(%(public4)r, BOX4, b"inner"))[:28]
    frame(0x800, ip4(BOX4, %(public4)r, 1, body[:2] + struct.pack(">H", total(body)) + body[4:]))
"""
WORDS = {"never4": NEVER4, "never6": NEVER6, "public4": PUBLIC4, "public6": PUBLIC6, "lan4": LAN4, "lan6": LAN6, "host4": HOST4, "host6": HOST6}


def neighbours():
    """Entries in the kernel's tables of them; these are one for all namespaces."""
    def of(name):
        with open(f"/proc/net/stat/{name}") as f:
            return int(f.read().split("\n")[1].split()[0], 16)
    return of("arp_cache"), of("ndisc_cache")


def host_sees(w):
    return [sh(f"ip -n {w.tag}-{n} {what}") for n in ("host", "lan", "net") for what in ("-o link", "-4 route", "-6 route")]


def works(box, addresses=(PUBLIC4, PUBLIC6)):
    return box.python(CONNECT + "".join(f"print(connect('{a}', 7))\n" for a in addresses)) == "\n".join(["open"] * len(addresses))


def only(w, boundary):
    if w.boundary != boundary:
        raise Skip(f"it is about {boundary}")


def filled(script):
    for name, value in WORDS.items():
        script = script.replace(f"%({name})r", repr(value))
    return script


def harmless(w, script):
    """A sandbox sends that, and neither reaches anything, nor harms a neighbour, the host, or for long itself."""
    with w.create("public", user="root") as b, w.create("public") as neighbour:
        assert works(b) and works(neighbour)
        before, asked, saw, known = counts(w), len(w.names.asked), host_sees(w), neighbours()
        out = b.python(filled(script))
        grown = [now - then for now, then in zip(neighbours(), known)]
        assert counts(w) == before, (before, counts(w))
        assert all(n != "frame.test" for n, _ in w.names.asked[asked:]), w.names.asked[asked:]
        assert host_sees(w) == saw
        assert max(grown) < 500, grown
        assert works(neighbour)
        # what it has said of the gateway to itself is its own affair, and is forgotten
        assert until(lambda: works(b), 60)
        return out


def test_frames_that_come_from_nowhere(w):
    only(w, "vm")
    harmless(w, STRANGE)


def test_frames_about_neighbours(w):
    only(w, "vm")
    harmless(w, NEIGHBOURS)


def test_frames_of_datagrams(w):
    """Those in parts arrive whole or not at all, and nothing with another's source or a wrong sum."""
    only(w, "vm")
    rules = [f"{PUBLIC4}:5300/udp", f"[{PUBLIC6}]:5300/udp"]
    with Datagrams(w) as d, w.create("allow", allow=rules, user="root") as b, w.create("allow", allow=rules) as neighbour:
        b.python(filled(PARTS))
        for box in (neighbour, b):
            assert box.python(ASK + f"print(ask('{PUBLIC4}'), ask('{PUBLIC6}'))") == "1 1"
        whole = [data[:6] for data, _ in d.seen if len(data) == 3006]
        assert sorted(whole) == [b"whole4"] * 2 + [b"whole6"] * 2, whole
        assert {data for data, _ in d.seen if len(data) != 3006} <= {b"x"}, [data[:20] for data, _ in d.seen]


def test_frames_that_are_too_long(w):
    only(w, "vm")
    assert harmless(w, LONG) == "True"


def test_no_frames_from_a_process(w):
    only(w, "process")
    with w.create("public", user="root") as b:
        out = b.python("""
import socket
for family, kind, proto in ((17, socket.SOCK_RAW, 0), (17, socket.SOCK_DGRAM, 0x300), (socket.AF_INET, socket.SOCK_RAW, 6), (socket.AF_INET, socket.SOCK_RAW, 255),
                            (socket.AF_INET6, socket.SOCK_RAW, 58)):
    try:
        socket.socket(family, kind, proto)
        print("made")
    except OSError:
        print("refused")
""")
        assert out.split() == ["refused"] * 5, out


def test_sources_that_are_not_its_own(w):
    """Any program may bind to an address that is not there; what it sends from it ends in the gate, and leaves no trace there."""
    with w.create("public") as b:
        assert works(b)
        before, asked, known = counts(w), len(w.names.asked), neighbours()
        out = b.python(f"""
import socket
done = 0
for i in range(1500):
    for family, source, to in ((socket.AF_INET6, f"fdca:1550:9753::{{i + 16:x}}", "{PUBLIC6}"), (socket.AF_INET, f"10.97.{{i >> 8}}.{{i & 255}}", "{PUBLIC4}")):
        s = socket.socket(family, socket.SOCK_DGRAM)
        try:
            s.setsockopt(socket.SOL_IP if family == socket.AF_INET else 41, 15 if family == socket.AF_INET else 78, 1)
            s.bind((source, 0))
            s.sendto(b"\\x12\\x34\\x01\\x00\\x00\\x01" + b"\\0" * 6 + b"\\x05frame\\x04test\\0\\0\\1\\0\\1", (to, 53))
            done += 1
        except OSError:
            pass
        s.close()
for i in range(1500):  # and everybody who could be on the same line
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        s.sendto(b"x", (f"fdca:1550:9753::{{i + 16:x}}", 9))
    except OSError:
        pass
    s.close()
print(done)
""")
        assert int(out) > 1000, out
        grown = [now - then for now, then in zip(neighbours(), known)]
        assert max(grown) < 500 and counts(w) == before, (grown, before, counts(w))
        assert all(n != "frame.test" for n, _ in w.names.asked[asked:])
        assert works(b)


def at_the_tap(w, box, look):
    """look(is QEMU elsewhere?) in the namespace of the other end of a machine's network device, wherever that is."""
    with open(os.path.join(w.data, "vm", box.id, "vmm")) as f:
        pid = int(f.read().split()[0])
    names = {os.readlink(f"/proc/{pid}/fd/{n}"): int(n) for n in os.listdir(f"/proc/{pid}/fd")}
    pidfd = os.pidfd_open(pid)
    tap = libc.syscall(438, pidfd, names["/dev/net/tun"], 0)
    namespace = fcntl.ioctl(tap, 0x54e3)
    found = []

    def go():
        libc.setns(namespace, 0x40000000)
        found.append(look(os.stat(f"/proc/{pid}/ns/net").st_ino != os.fstat(namespace).st_ino))

    t = threading.Thread(target=go)
    t.start()
    t.join()
    for fd in (pidfd, tap, namespace):
        os.close(fd)
    return found[0]


def tap_flags(w, box):
    def look(elsewhere):
        assert elsewhere, "QEMU is in the gate"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            return int.from_bytes(fcntl.ioctl(s, 0x8913, b"tap" + bytes(37))[16:18], "little") & 1
    return at_the_tap(w, box, look)


def test_a_gate_finds_a_sandbox_that_it_has_forgotten(w):
    """It asks by itself, and does not wait until the sandbox says something about itself."""
    only(w, "vm")
    with w.create("public") as b:
        assert works(b)
        at_the_tap(w, b, lambda _: sh("ip neigh flush dev tap; ip -6 neigh flush dev tap"))
        assert works(b)


def test_a_machine_without_a_network_has_nobody_at_the_other_end(w):
    only(w, "vm")
    with w.create("none", user="root") as b:
        assert tap_flags(w, b) == 0
        assert b.network(mode="public")[0] == 200
        assert tap_flags(w, b) == 1
        assert b.network(mode="none")[0] == 200
        assert tap_flags(w, b) == 0
