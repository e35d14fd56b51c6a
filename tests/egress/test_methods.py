"""Rules about methods: every request to a host that one names is read, with TLS and without, and judged by itself."""
import json
import os

from test_host_rules import answer, begin, questions, said
from test_http2 import ASK as NODE, Host
from test_names import TLS
from test_secrets import ASK, CANARY, cli, secret
from test_udp import ASK as DATAGRAM, Datagrams
from upstream import Upstream, aws_signature, openers
from world import OTHER4, PUBLIC4, Server, until

# One connection: each piece is sent when the one before it was answered. The statuses, and what the last answer said.
PLAIN = """
import socket
def plain(*pieces, host='api.test', port=80, wait=20):
    out, got = [], b''
    with socket.create_connection((host, port), wait) as s:
        try:
            for p in pieces:
                s.sendall(p if isinstance(p, bytes) else p.encode())
                while b'\\r\\n\\r\\n' not in got or (b'ength:' in got and len(got.split(b'\\r\\n\\r\\n', 1)[1]) < int(got.split(b'ength:')[1].split(b'\\r')[0])):
                    more = s.recv(65536)
                    if not more: return out + ['closed'], got.decode('latin-1')
                    got += more
                out.append(got.split(b' ')[1].decode()); last = got; got = b''
        except OSError as e:
            return out + ['refused'], got.decode('latin-1')
    return out, last.decode('latin-1')
def req(method, path='/', host='api.test', more=''):
    return f'{method} {path} HTTP/1.1\\r\\nHost: {host}\\r\\n{more}\\r\\n'
"""


def lines(w, box, kind=None):
    items = w.request("GET", f"/v1/audit?limit=1000&sandbox={box.id}")[1]["items"]
    return [x for x in items if x["type"].startswith("permission.") and x.get("kind") == "method" and kind in (None, x["type"].split(".")[1])]


def waiting(w, box, n=1):
    assert until(lambda: len(questions(w, box)) == n, 30), questions(w, box)
    return questions(w, box)


def firsts(up):
    return [h.split(" HTTP")[0] for h in up.heads]


class Place:
    """A sandbox with rules, and a host that keeps what it was sent."""

    def __init__(self, w, *rules, mode="allow", allow=("api.test", "other.test"), **more):
        self.w, self.up = w, Upstream(w)
        self.box = w.create(mode, allow=allow if mode == "allow" else (), **({"permissions": list(rules)} if rules else {}), **more)

    def ask(self, code):
        return self.box.python(ASK + PLAIN + code)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.box.delete()
        self.up.close()


def test_method_rules_that_make_no_sense_are_refused(w):
    for rule, status, word in (("deny method:POST", 400, "VERDICT method"), ("deny method:post api.test", 400, "capitals"), ("deny method:GET, api.test", 400, "capitals"),
                               ("deny method:GET 10.0.0.1", 422, "give a name"), ("deny method:GET a b", 400, "a b"), ("deny method:GET api.test/x?y", 400, "query"),
                               ("ask method:CONNECT api.test", 400, "CONNECT"), ("deny method:GET api.test/a*b", 400, "end of a path"),
                               ("deny method:* api.test/" + "x" * 600, 400, "511"), ("deny method:GET api.test/a/../b", 400, "two ways")):
        got, body = w.request("POST", "/v1/sandboxes", {"network": {"mode": "public"}, "permissions": [rule]})
        assert got == status and word in body["error"]["message"], (rule, got, body)
    got, body = w.request("POST", "/v1/sandboxes", {"network": {"mode": "none"}, "permissions": ["deny method:POST api.test"]})
    assert got == 400 and "methods, and no network" in body["error"]["message"], body


def test_method_that_a_rule_denies_goes_nowhere(w):
    """By TLS and without, on one connection and with others before and behind; each is a line of the log."""
    with Place(w, "deny method:POST,PUT api.test", "deny method:* other.test/private", mode="public") as p:
        w.http.seen.clear()
        out = p.ask("print(json.dumps([ask()[0], ask('POST', body='x'), ask('PUT', '/v1/y')[0], ask('HEAD')[0],"
                    " plain(req('GET'), req('POST', more='Content-Length: 1\\r\\n') + 'x'), plain(req('POST'))[0], plain(req('GET', host='other.test'),"
                    " req('GET', '/private/x', host='other.test'), host='other.test')[0]]))")
        get, post, put, head, both, only, other = json.loads(out)
        assert (get, put, head, only, other) == (200, 403, 200, ["403"], ["200", "403"]), out
        assert post[0] == 403 and "POST is denied here by the rule 'deny method:POST,PUT api.test'" in post[2] and post[1]["X-Caisson"] == "refused", post
        assert both[0] == ["200", "403"] and "deny method:POST,PUT api.test" in both[1], both
        assert firsts(p.up) == ["GET /v1/x", "HEAD /v1/x"] and w.http.seen == ["api.test", "other.test"], (p.up.heads, w.http.seen)
        assert until(lambda: len(lines(w, p.box, "denied")) == 5), lines(w, p.box)
        first = lines(w, p.box, "denied")[0]
        assert (first["method"], first["name"], first["port"], first["path"], first["rule"]) == ("POST", "api.test", 8443, "/v1/x", "deny method:POST,PUT api.test"), first
        assert lines(w, p.box, "allowed")[0]["reason"] == "no rule names it"


def test_method_that_is_not_allowed_is_denied(w):
    with Place(w, "allow method:GET,HEAD *.test/v1", "allow method:POST api.test:8443/v1/new*") as p:
        out = p.ask("print(*[ask(*a)[0] for a in (('GET',), ('POST',), ('POST', '/v1/new'), ('POST', '/v1/newer/x?y'), ('GET', '/v2'), ('GET', '/v1x'), ('GET', '/v1/%6eew'),"
                    " ('DELETE',), ('get',), ('GET', '/v1/../v1/x'), ('GET', '/v1//x'), ('GET', '/v1/%2e%2e/x'))], *plain(req('GET', '/v1'), req('POST', '/v1/new'))[0])")
        assert out.split() == "200 403 200 200 403 403 200 403 400 403 403 403 200 403".split(), out
        assert len(p.up.heads) == 4


def test_method_in_http2(w):
    """Streams of one connection are judged one by one; what is held holds no other."""
    host = Host(w)
    with Place(w, "deny method:POST api.test/v1/no", "ask method:DELETE api.test", allow=["api.test:8445"]) as p:
        try:
            run = begin_node(w, p.box, """
const http2 = require('http2');
const s = http2.connect('https://api.test:8445');
s.on('error', (e) => console.log(e));
function ask(method, path, body) {
  return new Promise((done) => {
    const r = s.request({ ':method': method, ':path': path });
    let out = '';
    r.on('response', (h) => { out = h[':status'] + ' '; });
    r.on('data', (d) => { out += d; });
    r.on('error', (e) => { out += e.code; });
    r.on('close', () => done(out.slice(0, 90)));
    r.end(body);
  });
}
(async () => {
  const held = ask('DELETE', '/v1/held', 'body-of-it');
  console.log((await Promise.all([ask('POST', '/v1/no/x', 'x'), ask('POST', '/v1/x', 'x'), ask('GET', '/v1/no/x')])).map((x) => x.slice(0, 3)).join(' '));
  console.log((await held).slice(0, 3), (await ask('DELETE', '/v1/second')).slice(0, 60));
  s.close();
})();
""")
            q = waiting(w, p.box)[0]
            assert (q["kind"], q["method"], q["host"], q["path"], q["rule"], q["run"]) == ("method", "DELETE", "api.test", "/v1/held", "ask method:DELETE api.test", None), q
            assert not host.sent("/v1/held")
            assert answer(w, p.box, q, "allow") == 204 and answer(w, p.box, q, "allow") == 404
            q = next(x for x in waiting(w, p.box) if x["path"] == "/v1/second")
            assert answer(w, p.box, q, "deny") == 204
            out = said(w, p.box, run).split("\n")
            assert out[0] == "403 200 200" and out[1].startswith("200 403") and "DELETE is denied" in out[1], out
            assert len(host.sent("/v1/held")) == 1 and not host.sent("/v1/second") and not host.sent("/v1/no/x")[1:]
        finally:
            host.close()


def begin_node(w, box, code):
    status, r = w.request("POST", f"/v1/sandboxes/{box.id}/runs", {"argv": ["node", "-e", code], "detach": True})
    assert status in (200, 201, 202), r
    return r["id"]


def test_method_that_is_asked_for_waits(w):
    with Place(w, "ask method:DELETE api.test/v1", "ask method:PUT api.test", mode="public") as p:
        run = begin(w, p.box, ASK + PLAIN + "print(ask('DELETE', '/v1/a?b=c')[0], ask('DELETE', '/v2')[0], ask('DELETE', '/v1/b')[::2], plain(req('PUT'))[0])")
        q = waiting(w, p.box)[0]
        assert q["path"] == "/v1/a" and not p.up.heads, q
        shown = cli(w, "permissions", "ls", p.box.id).stdout
        assert "DELETE api.test/v1/a" in shown, shown
        assert p.ask("print(ask()[0], ask('DELETE', '/v2/x')[0])") == "200 200", "others do not wait"
        assert cli(w, "permissions", "allow", p.box.id, q["id"]).returncode == 0
        assert until(lambda: any(x["path"] == "/v1/b" for x in questions(w, p.box)), 30)
        assert answer(w, p.box, waiting(w, p.box)[0], "deny") == 204
        assert until(lambda: any(x["method"] == "PUT" for x in questions(w, p.box)), 30)
        assert answer(w, p.box, waiting(w, p.box)[0], "allow") == 204
        out = said(w, p.box, run)
        assert out.startswith("200 200 (403, ") and "as it was answered" in out and out.endswith("['200']"), out
        assert "DELETE /v1/a?b=c" in firsts(p.up) and "DELETE /v1/b" not in firsts(p.up)
        told = [(x["type"].split(".")[1], x["method"], x["path"]) for x in lines(w, p.box) if x.get("rule")]
        assert told == [(t, *m) for m in (("DELETE", "/v1/a"), ("DELETE", "/v1/b"), ("PUT", "/")) for t in ("asked", "answered", "denied" if m[1] == "/v1/b" else "allowed")], told


def test_method_whose_asker_has_gone_is_nobodys(w):
    with Place(w, "ask method:POST api.test") as p:
        w.http.seen.clear()
        p.ask("import time\n"
              "a = socket.create_connection(('api.test', 80)); a.sendall(req('POST').encode())\n"
              "c = http.client.HTTPSConnection('api.test', 8443); c.request('POST', '/v1/x', body='x' * 30000)\n"
              "time.sleep(1)")
        assert until(lambda: questions(w, p.box) == [], 30), questions(w, p.box)
        assert not p.up.heads and not w.http.seen
        assert until(lambda: len(lines(w, p.box, "asked")) == 2)


def test_method_and_only_so_many_wait(w):
    with Place(w, "ask method:POST api.test") as p:
        out = p.ask("import time, threading\n"
                    "s = [socket.create_connection(('api.test', 80)) for i in range(70)]\n"
                    "for c in s: c.sendall(req('POST', more='Content-Length: 100000000\\r\\n').encode()); c.setblocking(False)\n"
                    "sent = 0\n"
                    "end = time.time() + 3\n"
                    "while time.time() < end:\n"
                    "    try: sent += s[0].send(b'x' * 65536)\n"
                    "    except BlockingIOError: time.sleep(0.05)\n"
                    "n = 0\n"
                    "for c in s:\n"
                    "    c.settimeout(0.01)\n"
                    "    try: n += b'too many requests wait' in c.recv(4096)\n"
                    "    except TimeoutError: pass\n"
                    "print(n, sent < 16 << 20, plain(req('GET'))[0])")
        assert out == "6 True ['200']", out
        assert until(lambda: len(questions(w, p.box)) <= 1, 30), "they went with their askers, but one whose end is behind what is not read"


def test_method_and_no_way_round(w):
    """What hides its host, or is no HTTP, or is for another host, does not get to one whose requests are read."""
    echo = Server(w, "net", 8446)
    try:
        for mode, allow in (("public", ()), ("allow", ("api.test", "api.test/raw", "same.test:443", "other.test"))):
            with w.create(mode, allow=allow, permissions=["deny method:POST api.test"]) as b:
                w.http.seen.clear()
                seen = w.http.connections
                out = b.python(TLS + PLAIN + f"""
socket.getaddrinfo('api.test', 80); socket.getaddrinfo('same.test', 80)
def raw(send, port):
    try:
        with socket.create_connection(('{PUBLIC4}', port), 8) as s:
            s.sendall(send)
            return 'open' if s.recv(100) else 'closed'
    except TimeoutError: return 'silence'
    except OSError: return 'refused'
print(tls('{PUBLIC4}', None), tls('{PUBLIC4}', '{PUBLIC4}'), tls('{PUBLIC4}', 'other.test'), tls('{PUBLIC4}', 'nobody.test'),
      raw(b'\\0\\1', 8446), raw(b'POST / HTTP/1.1\\nHost: api.test\\n\\n', 80), raw(b'POST /\\r\\n\\r\\n', 80), raw(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n', 80),
      raw(b'POST / HTTP/1.0\\r\\n\\r\\n', 80), raw(b'POST / HTTP/1.1\\r\\nHost: {PUBLIC4}\\r\\n\\r\\n', 80), raw(b'CONNECT api.test:443 HTTP/1.1\\r\\nHost: api.test:443\\r\\n\\r\\n', 80))
""")
                assert set(out.split()) == {"refused"}, out
                statuses = b.python(PLAIN + """
def go(*p): return plain(*p)[0][-1]
print(go('POST http://api.test/ HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n'), go('GET http://other.test/ HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n'), go(req('GET', host='same.test'), req('POST')),
      go(req('GET'), req('GET', host='same.test')), go(req('post')), go(req('P' * 30)), go(req('POST ')), go(req('POST\\t')), go(req('GET', more='Upgrade: h2c\\r\\nConnection: Upgrade\\r\\n')),
      go(req('GET', more='Content-Length: 5\\r\\nTransfer-Encoding: chunked\\r\\n') + '0\\r\\n\\r\\nPOST / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n'),
      go(req('GET', more='Content-Length: 3\\r\\nContent-Length: 30\\r\\n') + 'xxx'), go(req('GET', more='Transfer-Encoding : chunked\\r\\n')), go(req('GET') + req('POST') + req('POST')))
""")
                assert not set(statuses.split()[:-1]) & {"200"}, statuses
                # of what was pipelined the first one is answered, and the rest judged as ever
                assert w.http.seen.count("api.test") <= 2 and "POST" not in repr(w.http.seen), (statuses, w.http.seen)
        assert not echo.bytes
    finally:
        echo.close()


def test_method_rules_change_while_it_runs(w):
    """On connections that are kept, too, opened ones and ones that were not; and what waits is judged anew."""
    with Place(w, mode="public") as p:
        change = lambda *rules, status=200: (got := w.request("PATCH", f"/v1/sandboxes/{p.box.id}", {"permissions": list(rules)}))[0] == status and got[1]
        run = begin(w, p.box, ASK + PLAIN + """
import time
def step(n):
    open(f'/tmp/at{n}', 'w').close()
    while not os.path.exists(f'/tmp/go{n}'): time.sleep(0.05)
def post(c):
    try:
        c.request('POST', '/v1/x'); r = c.getresponse(); r.read(); return r.status
    except (OSError, http.client.HTTPException): c.close(); return 'cut'
tls = lambda: http.client.HTTPSConnection('api.test', 8443, timeout=20, context=ssl._create_unverified_context())
a, b, s = tls(), http.client.HTTPConnection('api.test', 80, timeout=20), socket.create_connection(('api.test', 7))
s.sendall(b'x'); s.recv(1)
print(post(a), post(b), end=' '); step(1)
try: s.sendall(b'x'); time.sleep(0.2); s.sendall(b'x'); print('open' if s.recv(9) else 'closed', end=' ')
except OSError: print('cut', end=' ')
print(post(a), post(b)); a, b = tls(), http.client.HTTPConnection('api.test', 80, timeout=20)
print(post(a), post(b)); a, b = tls(), http.client.HTTPConnection('api.test', 80, timeout=20)
a.request('GET', '/v1/x'); a.getresponse().read(); b.request('GET', '/'); b.getresponse().read(); step(2)
print(post(a), post(b), end=' '); step(3)
print(post(a), post(b), end=' '); step(4); print(post(a))
""")
        at = lambda n: until(lambda: p.box.run(shell=f"test -e /tmp/at{n}")["exit_code"] == 0, 30)
        go = lambda n: p.box.run(shell=f"touch /tmp/go{n}")
        assert at(1) and change("deny method:POST api.test")["permissions"] == ["deny method:POST api.test"]
        assert p.ask("print(ask()[0])") == "200", "new programs trust the authority"
        go(1)
        assert at(2) and change()["permissions"] == []
        go(2)
        assert at(3) and change("ask method:POST api.test")
        go(3)
        assert (first := waiting(w, p.box)[0])["method"] == "POST" and change("ask method:POST *.test")
        assert questions(w, p.box)[0]["id"] == first["id"], "it still has to be asked for"
        assert change("deny method:POST *.test")
        assert until(lambda: at(4) and not questions(w, p.box), 30)
        assert answer(w, p.box, first, "allow") == 404
        assert change("deny method:GET *.test")
        go(4)
        out = said(w, p.box, run).split("\n")
        assert out == ["200 200 cut cut cut", "403 403", "cut cut 403 403 200"], out  # without rules there is no opener any more
        assert change("allow program:/usr/bin", status=422)["error"]["message"].count("stay as they are") and change("deny method:x api.test", status=400)
        assert w.request("GET", f"/v1/sandboxes/{p.box.id}")[1]["permissions"] == ["deny method:GET *.test"]
        changed = [x["permissions"] for x in w.request("GET", f"/v1/audit?limit=1000&sandbox={p.box.id}&type=sandbox.permissions")[1]["items"] if "permissions" in x]
        assert len(changed) == 5 and changed[0] == ["deny method:POST api.test"], changed
    with w.create("none") as b:
        status, got = w.request("PATCH", f"/v1/sandboxes/{b.id}", {"permissions": ["deny method:POST api.test"]})
        assert status == 400 and "no network" in got["error"]["message"], got


def test_method_is_not_passed_by_datagrams(w):
    rules = [f"{PUBLIC4}:5300,443/udp", f"{OTHER4}:5300/udp", "api.test", "other.test"]
    with Datagrams(w), Datagrams(w, port=443), w.create("allow", allow=rules, permissions=["deny method:POST api.test"]) as b:
        out = b.python(DATAGRAM + f"print(ask('{PUBLIC4}', 443), ask('{PUBLIC4}'))\nsocket.getaddrinfo('api.test', 80)\nprint(ask('{PUBLIC4}'), ask('{OTHER4}'))")
        assert out == "ECONNREFUSED 1\nECONNREFUSED 1", out


def test_method_of_an_upgrade_is_get(w):
    with Place(w, "allow method:GET api.test") as p:
        out = p.ask("with socket.create_connection(('api.test', 80)) as s:\n"
                    "    s.sendall(req('GET', more='Upgrade: websocket\\r\\nConnection: Upgrade\\r\\n').encode())\n"
                    "    got = s.recv(4096); s.sendall(b'opaque'); print(got.split(b' ')[1].decode(), s.recv(100).decode())")
        assert out == "101 opaque", out


def test_method_rules_beside_secrets(w):
    """A secret goes out by TLS as ever, and never without it, whatever the rules read."""
    secret(w, "key", ["api.test:8443", "api.test:80"])
    with Place(w, "deny method:POST *", secrets={"env": {"KEY": "key"}}) as p:
        w.http.seen.clear()
        out = p.ask("auth = 'Authorization: Bearer ' + K + '\\r\\n'\n"
                    "print(ask(Authorization='Bearer ' + K)[0], ask('POST', Authorization='Bearer ' + K)[0], *plain(req('GET', more=auth))[0], ask(host='other.test')[0])")
        assert out == "200 403 403 200", out
        assert p.up.field("Authorization", 0) == "Bearer " + CANARY and len(p.up.heads) == 2 and not w.http.seen


def test_method_that_waited_is_signed_with_all_of_its_body(w):
    """What came while it waited is a part of it: all of it, or as much as a window, with more behind."""
    key, host = "canary-wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY", Host(w)
    secret(w, "key", ["api.test:8445"], value=key, aws_key_id="AKIDEXAMPLE")
    with w.create("allow", allow=["api.test:8445"], secrets={"env": {"AWS_SECRET_ACCESS_KEY": "key"}}, permissions=["ask method:* api.test"]) as b:
        try:
            run = begin_node(w, b, NODE + """
(async () => {
  const s = connect();
  const signed = (path, body, method) => ask(s, { ':path': path, ':method': method, 'x-amz-date': '20261130T010203Z', authorization:
    'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261130/eu-west-1/dynamodb/aws4_request, SignedHeaders=x-amz-date, Signature=' + '0'.repeat(64) }, body);
  const all = await Promise.all([signed('/v1/x?a=1', 'data', 'POST'), signed('/v1/x?c', undefined, 'GET'), signed('/v1/x?d', 'b'.repeat(700000), 'PUT')]);
  console.log(all.map((r) => r.text.trim() || r.error).join(','));
  s.close();
})();
""")
            for q in waiting(w, b, 3):
                assert answer(w, b, q, "allow") == 204
            assert said(w, b, run) == "hello 4,hello 0,hello 700000"
            heads = {h[":path"]: h for h in host.sent("/v1/x")}
            for path, body in (("/v1/x?a=1", b"data"), ("/v1/x?c", b""), ("/v1/x?d", b"b" * 700000)):
                h = heads[path]
                head = "\r\n".join([f"{h[':method']} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in h.items() if k[0] != ":" and isinstance(v, str))])
                sent, right = aws_signature(key, head, body, "dynamodb")
                assert sent == right, h
        finally:
            host.close()


def test_method_rules_without_an_opener_are_closed(w):
    with Place(w, "deny method:POST api.test") as p:
        assert p.ask("print(ask()[0])") == "200"
        pid = openers(w)[0]
        run = begin(w, p.box, ASK + "import time\nc = http.client.HTTPSConnection('api.test', 8443); c.request('GET', '/v1/x'); c.getresponse().read()\n"
                    "open('/tmp/ready', 'w').close()\n"
                    "for i in range(3000):\n"
                    "    try:\n"
                    "        c.request('POST', '/v1/x'); r = c.getresponse(); print(r.status, end=' '); r.read()\n"
                    "    except OSError: c.close()\n"
                    "    except http.client.HTTPException: c.close()\n"
                    "    if os.path.exists('/tmp/enough'): break\n")
        assert until(lambda: p.box.run(shell="test -e /tmp/ready")["exit_code"] == 0, 30)
        os.kill(pid, 9)
        assert until(lambda: (o := openers(w)) and o[0] != pid, 30)
        assert p.ask("print(ask()[0], ask('POST')[0])") == "200 403"
        p.box.run(shell="touch /tmp/enough")
        assert set(said(w, p.box, run).split()) == {"403"}
        assert not [h for h in firsts(p.up) if h.startswith("POST")]
