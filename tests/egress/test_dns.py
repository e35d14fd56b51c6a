"""The resolver between sandboxes that ask what is no question and a name server that answers what is no answer."""
from test_names import DNS, STREAM, TLS
from world import *

MANY = [f"93.184.{i}.7" for i in range(32)]


def test_answers_too_long_for_a_datagram(w):
    """A truncated answer is none: it is asked for by a connection, whose answer comes in pieces."""
    w.names.table["long.test"] = MANY
    w.names.by_stream["long.test"] = lambda q: [bytes([b]) for b in w.names.framed(q)[:20]] + [w.names.framed(q)[20:]]
    w.names.by_stream.update({"ends.test": lambda q: [], "huge.test": lambda q: [b"\xff\xff" + bytes(70000)], "empty.test": lambda q: [b"\0\0"],
                              "false.test": lambda q: [b"\0\x0c" + q[:2] + b"\x81\x80" + bytes(8)]})
    with w.create("public") as b:
        out = b.python(STREAM + "print(*Stream().ask(question('long.test')), *Stream().ask(question('long.test')))")
        assert out == "(0,32) (0,32)", out
        # what does not fit says so, and the system's own resolver comes back by a connection
        out = b.python("import socket; print(len(socket.getaddrinfo('long.test', 443, socket.AF_INET, socket.SOCK_STREAM)))")
        assert out == "32", out
        for name in ("huge.test", "empty.test", "false.test"):
            start = time.time()
            assert b.python(DNS + f"print(*ask({name!r}))") == "2 0", name
            assert time.time() - start < 8 * patience, name
        # one that says nothing there: within the time of its tries, and others are answered meanwhile
        start = time.time()
        out = b.python(STREAM + "a, b = Stream(), Stream()\na.s.settimeout(30)\na.s.sendall(question('ends.test'))\nprint(*b.ask(question('api.test')))\nprint(*a.ask(b''))")
        assert out.split("\n")[0] == "(0,1)" and out.split("\n")[1] in ("(2,0)", "ended"), out
        assert time.time() - start < 25 * patience
    for name in ("long.test", "ends.test", "huge.test", "empty.test", "false.test"):
        del w.names.by_stream[name]


def test_a_name_that_is_asked_again_keeps_its_address(w):
    """There is room for 1,024 addresses; who makes way is what would be over first, not what was there first."""
    for i in range(40):
        w.names.table[f"n{i}.wild.test"] = [f"93.190.{i}.{j}" for j in range(32)]
    with w.create("allow", allow=["api.test", "*.wild.test"]) as b:
        out = b.python(DNS + TLS + f"""
ask("api.test")
for i in range(31): assert ask(f"n{{i}}.wild.test")[0] == 0
print(tls("{PUBLIC4}", "api.test"))
ask("api.test")
for i in range(31, 40): assert ask(f"n{{i}}.wild.test")[0] == 0
print(tls("{PUBLIC4}", "api.test"))""")
        assert out == "open\nopen", out


def test_answers_that_are_none(w):
    """Before each true answer comes one that is not; a server that has nothing but those has no answer."""
    def forged(f, true):
        return lambda q: [f(q)] + ([w.names.answer(q)] if true else [])

    def records(n, more):
        """An answer that says that it has n records."""
        return lambda q: q[:2] + b"\x81\x80\0\1" + n.to_bytes(2, "big") + bytes(4) + q[12:] + more

    a = b"\0\1\0\1\0\0\0\5\0\4\x5d\xb8\xd8\x23"  # OTHER4, behind a name
    ignored = {
        "another id": lambda q: bytes([q[0] ^ 1]) + records(1, b"\xc0\x0c" + a)(q)[1:],
        "another case": lambda q: q[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + bytes(c ^ 0x20 if chr(c).isalpha() else c for c in q[12:-4]) + q[-4:] + b"\xc0\x0c" + a,
        "another type": lambda q: q[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + q[12:-4] + b"\0\x10\0\1\xc0\x0c" + a,
        "a question": lambda q: q[:2] + b"\1\0" + q[4:],
        "another opcode": lambda q: q[:2] + b"\xa1\x80" + records(1, b"\xc0\x0c" + a)(q)[4:],
        "no question": lambda q: q[:2] + b"\x81\x80" + b"\0\0\0\1\0\0\0\0" + b"\1x\0" + a,
        "two questions": lambda q: q[:2] + b"\x81\x80\0\2\0\1\0\0\0\0" + q[12:] + q[12:] + b"\xc0\x0c" + a,
        "a pointer to itself": lambda q: records(1, bytes([0xc0 | (len(q) >> 8), len(q) & 255]) + a)(q),
        "a pointer forward": records(1, b"\xc0\xff" + a + bytes(250)),
        "two that point at each other": lambda q: records(1, bytes([0xc0, len(q) + 2, 0xc0, len(q)]) + a)(q),
        "a label of 191": records(1, b"\xbf" + b"x" * 191 + b"\0" + a),
        "a name of 300": records(1, (b"\x3b" + b"x" * 59) * 5 + b"\0" + a),
        "fewer records than it says": records(9, b"\xc0\x0c" + a),
        "data beyond its end": records(1, b"\xc0\x0c\0\1\0\1\0\0\0\5\xff\xff\x5d"),
        "a CNAME that is cut": records(1, b"\xc0\x0c\0\5\0\1\0\0\0\5\0\4\3abc"),
        "nothing": lambda q: b"", "two bytes": lambda q: q[:2], "a head alone": lambda q: q[:2] + b"\x81\x80\0\1\0\1" + bytes(4),
    }
    # answers, but without an address that is for the name
    harmless = {
        "of another name": records(1, b"\5other\4test\0" + a), "of another class": records(1, b"\xc0\x0c\0\1\0\3" + a[4:]),
        "five bytes": records(1, b"\xc0\x0c\0\1\0\1\0\0\0\5\0\5\x5d\xb8\xd8\x23\0"), "no record": records(0, b""),
        "a CNAME to itself": records(1, b"\xc0\x0c\0\5\0\1\0\0\0\5\0\2\xc0\x0c"),
        "a chain of thirty": lambda q: records(31, b"".join(
            (b"\xc0\x0c" if i == 0 else b"\1" + bytes([96 + i]) + b"\0") + (b"\0\5\0\1\0\0\0\5\0\3\1" + bytes([97 + i]) + b"\0") for i in range(30)) + b"\1\x7e\0" + a)(q),
    }
    w.names.table["forged.test"] = [PUBLIC4]
    with w.create("allow", allow=["forged.test"]) as b:
        for what, f in ignored.items():
            w.names.forged["forged.test"] = forged(f, true=True)
            out = b.python(DNS + TLS + f"print(*ask('forged.test'), tls('{OTHER4}', 'forged.test'), tls('{PUBLIC4}', 'forged.test'))")
            assert out == "0 1 refused open", (what, out)
        for what, f in harmless.items():
            w.names.forged["forged.test"] = forged(f, true=False)
            assert b.python(DNS + "print(*ask('forged.test'))") == "0 0", what
        w.names.forged["forged.test"] = records(1, b"\xc0\x0c\0\1\0\1\xff\xff\xff\xff\0\4\x5d\xb8\xd8\x22")  # a time that is negative
        w.names.forged["forged.test"] = forged(w.names.forged["forged.test"], true=False)
        assert b.python(DNS + "print(*ask('forged.test'))") == "0 1"
    del w.names.forged["forged.test"]


def test_answers_that_lead_inwards_in_disguise(w):
    w.names.table["inwards.test"] = ["::ffff:127.0.0.1", "::ffff:169.254.169.254", "::10.1.2.3", "64:ff9b::a01:203", "64:ff9b:1::a01:203", "2002:a01:203::1", "2001::a01:203",
                                     "fe80::1", "fd00:ec2::254", "fd78::5", "::1", "::", "ff02::1", "fec0::1", HOST6, LAN6, "0.0.0.0", "127.1.2.3", "169.254.169.254",
                                     "100.100.100.200", "168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255", "240.0.0.1", HOST4, LAN4, LAN_PUBLIC4, "100.64.1.1"]
    for mode in ({"mode": "public"}, {"mode": "allow", "allow": ["inwards.test"]}):
        with w.create(**mode) as b:
            out = b.python(DNS + "print(*ask('inwards.test'), *ask('inwards.test', 28))")
            assert out == "0 0 0 0", (mode, out)


def test_questions_that_are_none(w):
    """Nothing of them goes upstream, and an answer is hardly longer than what was asked."""
    w.names.asked.clear()
    with w.create("public") as b:
        out = b.python("""
import socket, struct
def message(flags=b"\\1\\0", counts=(1, 0, 0, 0), body=b"\\3api\\4test\\0\\0\\1\\0\\1"):
    return b"\\x12\\x34" + flags + struct.pack(">4H", *counts) + body
name = b"\\3api\\4test\\0"
bad = [message(counts=c) for c in ((0, 0, 0, 0), (2, 0, 0, 0), (1, 1, 0, 0), (1, 0, 1, 0), (1, 0, 0, 2), (65535,) * 4)]
bad += [message(counts=(2, 0, 0, 0), body=2 * (name + b"\\0\\1\\0\\1"))]
bad += [message(body=n + b"\\0\\1\\0\\1") for n in (b"\\xc0\\x0c", b"\\xc0\\x0e", b"\\3api\\xc0\\x0c", b"\\xc0\\xff", b"\\x40" + b"x" * 64 + b"\\0", b"\\x80", b"\\x3f", b"\\3a.i\\4test\\0",
        b"\\3a\\0i\\4test\\0", b"\\3a\\\\i\\4test\\0", b"\\3a\\ni\\4test\\0", b"\\4\\xc3\\xa4pi\\4test\\0", b"\\x08\\xe2\\x80\\xae" + b"evil!" + b"\\0", (b"\\x3f" + b"x" * 63) * 4 + b"\\0", (b"\\1x" * 127) + b"\\1x\\0", b"")]
bad += [message(body=name + struct.pack(">HH", 1, c)) for c in (0, 2, 3, 4, 254, 255, 65535)]
bad += [message(body=name + struct.pack(">HH", k, 1)) for k in (0, 2, 6, 10, 13, 16, 41, 46, 64, 65, 249, 250, 251, 252, 253, 254, 255, 65535)]
bad += [message(flags=bytes([f, 0])) for f in (0x80, 0x81, 0x08, 0x10, 0x20, 0x28, 0x78, 0x02)]
bad += [b"", b"x", message()[:11], message()[:12], message()[:-1], message()[:-4]]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("10.97.83.1", 53))
worst = 0
for m in bad:
    s.settimeout(0.1)
    s.send(m)
    try:
        a = s.recv(4096)
    except TimeoutError:
        continue
    assert a[:2] == b"\\x12\\x34" and a[2] & 0x80 and a[7] == 0, (m, a)
    worst = max(worst, len(a) - len(m))
print("longer by", worst)
s.settimeout(8)
s.send(message())
print(s.recv(4096)[7])
""")
        assert out == "longer by 0\n1", out
    assert set(w.names.asked) == {("api.test", 1)}, w.names.asked
