"""Rules about hosts among a sandbox's permissions, and names that somebody is asked for."""
import glob
import struct

from test_names import DNS, HTTP, TLS
from test_reach import CONNECT, REFUSED
from world import *

RESOLVE = """
import socket
def resolve(name):
    try:
        return len({i[4][0] for i in socket.getaddrinfo(name, 443, socket.AF_INET)})
    except OSError as e:
        return type(e).__name__
"""


def begin(w, box, code):
    status, r = w.request("POST", f"/v1/sandboxes/{box.id}/runs", {"code": code, "language": "python", "detach": True})
    assert status in (200, 201, 202), r
    return r["id"]


def said(w, box, run):
    assert until(lambda: w.request("GET", f"/v1/sandboxes/{box.id}/runs/{run}")[1]["state"] == "exited", 30)
    return w.output(box, run)


def questions(w, box):
    return w.request("GET", f"/v1/sandboxes/{box.id}/permissions")[1]["items"]


def waiting(w, box, name):
    assert until(lambda: any(q["host"] == name for q in questions(w, box)), 30), questions(w, box)
    return next(q for q in questions(w, box) if q["host"] == name)


def answer(w, box, question, verdict):
    return w.request("POST", f"/v1/sandboxes/{box.id}/permissions/{question['id']}", {"verdict": verdict})[0]


def test_what_makes_no_sense_is_refused_of_hosts(w):
    for mode, rule, status in (("none", "deny host:api.test", 400), ("allow", "allow host:api.test", 400), ("public", "allow host:a b", 400),
                               ("public", "ask host:10.0.0.0/8", 422), ("public", "allow host:api.test/udp", 422), ("public", "deny host:", 400)):
        got, body = w.request("POST", "/v1/sandboxes", {"network": {"mode": mode}, "permissions": [rule]})
        assert got == status and "host" in body["error"]["message"], (rule, got, body)


def test_allow_leaves_nothing_else_of_a_public_network(w):
    with w.create("public", permissions=["allow host:api.test:443", "allow host:*.wild.test", "deny host:evil.wild.test"]) as b:
        out = b.python(DNS + CONNECT + f"print(*[ask(n)[0] for n in ('api.test', 'a.wild.test', 'evil.wild.test', 'other.test')], connect('{OTHER4}', 7))").split()
        assert out[:4] == ["0", "0", "3", "3"] and out[4] in REFUSED, out
        assert b.run(argv=["ls", "/"])["exit_code"] == 0, "of programs there is no rule"


def test_what_the_networks_own_list_names_stays_beside_allow(w):
    """A range that the operator opened, and one host, and nothing else of the internet."""
    w.stop()
    w.serve("--network-lan", f"{LAN4}/32")
    with w.create("public", allow=[f"{LAN4}:80", f"{OTHER4}:7"], permissions=["allow host:api.test:80"]) as b:
        out = b.python(DNS + CONNECT + f"print(*[ask(n)[0] for n in ('api.test', 'other.test')], connect('{LAN4}', 80), connect('{OTHER4}', 7), connect('{PUBLIC4}', 7))").split()
        assert out[:4] == ["0", "3", "open", "open"] and out[4] in REFUSED, out
        assert b.run(argv=["curl", "-s", "-m", "5", "http://api.test/"])["stdout"].startswith("hello")
        w.request("PATCH", f"/v1/sandboxes/{b.id}", {"permissions": []})
        assert b.python(CONNECT + f"print(connect('{LAN4}', 80), connect('{PUBLIC4}', 7))") == "open open"


def hear_anew(w, box):
    """Its guest takes us for the daemon, until the daemon says hello again."""
    [path] = [p for folder in (w.data, "/run/caisson*") for p in glob.glob(f"{folder}/**/{box.id}.sock", recursive=True)]
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(30)
        s.connect(path)
        s.sendall(struct.pack("<IBBHQI", 4, 1, 0, 0, 0x314e4f5353494143, 1))
        while s.recv(65536):
            pass


def test_questions_stay_when_the_guest_is_heard_anew(w):
    """What waits at the edge and at the opener waits on, and what waits inside is told again."""
    if w.machines:
        raise Skip("a machine's guest has one line, which cannot be taken over")
    rules = ["ask host:api.test", "ask method:DELETE other.test", "allow program:/usr", "ask program:/usr/bin/id"]
    with w.create("public", permissions=rules, ephemeral=False) as b:
        runs = {"host": begin(w, b, RESOLVE + "print(resolve('api.test'))"), "program": begin(w, b, "import os\nprint(os.system('id >/dev/null'))"),
                "method": begin(w, b, "import os\nos.system('curl -s -o /dev/null -w %{http_code} -X DELETE http://other.test/')")}
        assert until(lambda: len(questions(w, b)) == 3, 30), questions(w, b)
        before = {q["kind"]: q["id"] for q in questions(w, b)}
        hear_anew(w, b)
        assert until(lambda: {q["kind"]: q["id"] for q in questions(w, b)} == before, 30), (before, questions(w, b))
        for q in questions(w, b):
            assert answer(w, b, q, "allow") == 204, q
        assert {kind: said(w, b, run) for kind, run in runs.items()} == {"host": "1", "program": "0", "method": "200"}
        assert questions(w, b) == []
        hang = begin(w, b, RESOLVE + "print(resolve('api.test'))")  # answered for already
        assert said(w, b, hang) == "1"
        begin(w, b, "import os\nos.system('curl -s -X DELETE http://other.test/')")
        assert until(lambda: len(questions(w, b)) == 1, 30)
        assert w.request("POST", f"/v1/sandboxes/{b.id}/stop")[0] in (200, 204) and questions(w, b) == []


def test_deny_is_beside_the_networks_own(w):
    with w.create("public", deny=["other.test"], permissions=["deny host:api.test"]) as b:
        assert b.python(DNS + "print(*[ask(n)[0] for n in ('api.test', 'other.test', 'a.wild.test')])") == "3 3 0"


def test_a_name_that_is_asked_for_is_held(w):
    with w.create("public", permissions=["ask host:*.wild.test", "ask host:api.test"]) as b:
        w.names.asked.clear()
        run = begin(w, b, RESOLVE + "print(resolve('api.test'), resolve('api.test'))")
        q = waiting(w, b, "api.test")
        assert q["kind"] == "host" and q["rule"] == "ask host:api.test" and q["run"] is None and "path" not in q, q
        assert b.python(RESOLVE + "print(resolve('other.test'))") == "1", "others do not wait"
        assert not [n for n, _ in w.names.asked if n == "api.test"], "nothing of it has left the host"
        assert answer(w, b, q, "allow") == 204 and answer(w, b, q, "allow") == 404
        assert said(w, b, run) == "1 1"
        run = begin(w, b, RESOLVE + "print(resolve('a.wild.test'), resolve('a.wild.test'))")
        assert answer(w, b, waiting(w, b, "a.wild.test"), "deny") == 204
        assert said(w, b, run) == "gaierror gaierror"
        assert questions(w, b) == []
        items = w.request("GET", f"/v1/audit?limit=1000&sandbox={b.id}")[1]["items"]
        lines = [(x["type"].split(".")[1], x["name"], x.get("verdict"), "key" in x) for x in items if x["type"].startswith("permission.")]
        assert lines == [("asked", "api.test", None, False), ("answered", "api.test", "allow", True), ("asked", "a.wild.test", None, False),
                         ("answered", "a.wild.test", "deny", True)], lines


def test_questions_keep_their_rules_whatever_changes(w):
    with w.create("public", permissions=["ask host:*.wild.test", "ask host:api.test"]) as b:
        runs = [begin(w, b, RESOLVE + f"print(resolve('{n}'))") for n in ("a.wild.test", "b.wild.test", "api.test")]
        rules = {"a.wild.test": "ask host:*.wild.test", "b.wild.test": "ask host:*.wild.test", "api.test": "ask host:api.test"}
        seen = lambda: {q["host"]: q["rule"] for q in questions(w, b)}
        assert until(lambda: seen() == rules, 30), seen()
        for i in range(20):
            assert w.request("PATCH", f"/v1/sandboxes/{b.id}", {"labels": {"n": "x" * i}})[0] == 200
            assert seen() == rules, (i, seen())
        assert answer(w, b, waiting(w, b, "a.wild.test"), "allow") == 204 and said(w, b, runs[0]) == "1"
        del rules["a.wild.test"]
        assert seen() == rules, seen()
        # nobody is asked for it any more
        assert w.request("PATCH", f"/v1/sandboxes/{b.id}", {"permissions": ["ask host:api.test"]})[0] == 200
        assert list(seen()) == ["api.test"], seen()
        assert answer(w, b, waiting(w, b, "api.test"), "deny") == 204 and said(w, b, runs[2]) == "gaierror"


def test_who_knows_the_address_is_no_further(w):
    """The name that is asked for is looked for in what a connection says first, too."""
    with w.create("public", permissions=["ask host:api.test"]) as b:
        assert b.python(TLS + f"print(tls('{PUBLIC4}', 'api.test'), tls('{PUBLIC4}', 'other.test'))") == "refused open"
        assert b.python(CONNECT + f"print(connect('{PUBLIC4}', 853))") in REFUSED


def test_an_answer_is_for_the_name_under_a_list_too(w):
    with w.create("allow", allow=["other.test"], permissions=["ask host:*.wild.test:443"]) as b:
        run = begin(w, b, DNS + RESOLVE + "print(resolve('a.wild.test'), ask('b.test')[0])")
        assert answer(w, b, waiting(w, b, "a.wild.test"), "allow") == 204
        assert said(w, b, run) == "1 3"
        run = begin(w, b, RESOLVE + "print(resolve('b.wild.test'))")
        assert answer(w, b, waiting(w, b, "b.wild.test"), "deny") == 204
        assert said(w, b, run) == "gaierror"


def test_a_flood_of_names_is_bounded(w):
    with w.create("public", permissions=["ask host:*.wild.test"]) as b:
        out = b.python("import socket, struct\n"
                       "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n"
                       "for i in range(80):\n"
                       "    l = b'n%d' % i\n"
                       "    s.sendto(struct.pack('>H', i) + b'\\x01\\0\\0\\x01' + b'\\0' * 6 + bytes([len(l)]) + l + b'\\4wild\\4test\\0\\0\\1\\0\\1', ('10.97.83.1', 53))\n"
                       "n = 0\n"
                       "try:\n"
                       "    while n < 16: n += s.recv(512)[3] & 15 == 2\n"
                       "except TimeoutError: pass\n"
                       "print(n)")
        assert out == "16", out
        assert until(lambda: 1 <= len(questions(w, b)) <= 64)
        assert b.python(RESOLVE + "print(resolve('other.test'))") == "1", "others are answered"
