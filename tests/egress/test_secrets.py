"""Credentials: a value that a sandbox may use and never sees."""
import base64
import json
import os
import socket
import subprocess
import time
import urllib.parse

import world
from test_audit import audit
from test_names import HTTP, TWO_WAYS
from upstream import Upstream, aws_signature, openers
from world import CAISSON, PUBLIC4, Box, until

CANARY = "canary-4f1d0c7e-value-that-nobody-may-see"


def secret(w, name, hosts, value=CANARY, **more):
    w.request("DELETE", f"/v1/secrets/{name}")
    status, s = w.request("POST", "/v1/secrets", {"name": name, "value": value, "hosts": hosts, **more})
    assert status == 201, (status, s)
    return s


def cli(w, *args, **more):
    return subprocess.run([CAISSON, *args], env=dict(os.environ, CAISSON_URL=f"unix:{w.socket}", CAISSON_API_KEY=w.key), capture_output=True,
                          text=True, timeout=60, **more)


def test_secret_is_told_to_nobody(w):
    made = secret(w, "told", ["api.test"], paths=["/v1"])
    assert made["hosts"] == ["api.test:443"] and made["headers"] == ["Authorization"] and made["basic"], made
    assert CANARY not in repr(made)
    for path in ("/v1/secrets", "/v1/secrets/told", f"/v1/secrets/{made['id']}"):
        status, s = w.request("GET", path)
        assert status == 200 and CANARY not in repr(s) and made["placeholder"] in repr(s)
    assert w.request("POST", "/v1/secrets", {"name": "told", "value": "x", "hosts": ["a.test"]})[0] == 409
    status, s = w.request("POST", "/v1/secrets", {"name": "bad", "value": CANARY + "\r\nX: y", "hosts": ["a.test"]})
    assert status == 400 and CANARY not in repr(s), s
    # On the disk: the database holds the placeholder and not the value, nor does any other file.
    found = subprocess.run(["grep", "-rlaF", CANARY, w.folder], capture_output=True, text=True)
    assert found.stdout == "", found.stdout
    assert subprocess.run(["grep", "-rlaF", made["placeholder"], w.folder], capture_output=True, text=True).stdout
    assert os.stat(os.path.join(w.data, "state/secrets.key")).st_mode & 0o777 == 0o600
    assert CANARY not in w.logged()


def test_secret_is_a_placeholder_inside(w):
    made = secret(w, "inside", ["api.test"])
    with w.create(mode="allow", allow=["api.test:443"], secrets={"env": {"API_KEY": "inside"}, "files": {"/srv/keys/api": "inside"}}) as box:
        out = box.run(shell="echo $API_KEY; cat /srv/keys/api; echo; stat -c %a /srv/keys/api; echo $SSL_CERT_FILE $NODE_EXTRA_CA_CERTS")["stdout"].split()
        assert out[:3] == [made["placeholder"], made["placeholder"], "644"], out
        assert out[3:] == ["/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates/caisson.crt"], out
        # The authority is in the bundle, once, behind what was there.
        assert box.python("own = open('/usr/local/share/ca-certificates/caisson.crt').read()\n"
                          "all = open('/etc/ssl/certs/ca-certificates.crt').read()\n"
                          "print(all.count(own), all.endswith(own), 'BEGIN CERTIFICATE' in own)") == "1 True True"
        status, s = w.request("PATCH", f"/v1/sandboxes/{box.id}", {"secrets": {"env": {"OTHER": "inside"}}})
        assert status == 200 and s["secrets"] == {"env": {"OTHER": "inside"}, "files": {}}, s
        assert box.run(shell="echo ${API_KEY-none} $OTHER")["stdout"].split() == ["none", made["placeholder"]]
        assert w.request("PATCH", f"/v1/sandboxes/{box.id}", {"secrets": {"env": {"X": "not-there"}}})[0] == 400
        lines = w.request("GET", f"/v1/audit?limit=1000&sandbox={box.id}")[1]["items"]
        given = [(l["type"], l["secrets"], "key" in l) for l in lines if "secrets" in l]
        assert given == [("sandbox.created", ["API_KEY=inside", "/srv/keys/api=inside"], True), ("sandbox.secrets", ["OTHER=inside"], True)], given
        w.request("DELETE", "/v1/secrets/inside")
        assert box.run(shell="echo ${OTHER-none}")["stdout"] == "none\n"
    status, s = w.request("POST", "/v1/sandboxes", {"secrets": {"env": {"X": "not-there"}}})
    assert status == 400 and "not-there" in s["error"]["message"], s


def test_secret_by_the_command_line(w):
    w.request("DELETE", "/v1/secrets/cli")
    r = cli(w, "secret", "add", "cli", "--host", "api.test", "--header", "X-Api-Key", input=CANARY + "\n")
    assert r.returncode == 0 and r.stdout == "cli\n", r
    r = cli(w, "secret", "ls")
    assert "cli" in r.stdout and "api.test:443" in r.stdout and CANARY not in r.stdout, r
    box = cli(w, "create", "--secret", "KEY=cli", "--ephemeral").stdout.strip()
    try:
        r = cli(w, "exec", box, "--", "sh", "-c", "echo $KEY")
        assert r.stdout.startswith("caisson-placeholder-"), r
    finally:
        assert cli(w, "rm", "-f", box).returncode == 0
    assert cli(w, "secret", "rm", "cli").stdout == "cli\n"
    assert cli(w, "secret", "rm", "cli").returncode != 0
    assert cli(w, "secret", "add", "cli", input="x").returncode == 2  # to nowhere


def test_secret_of_another_tenant(w):
    made = secret(w, "mine", ["api.test"])
    status, k = w.request("POST", "/v1/keys", {"name": "other", "tenant": "other"})
    mine, w.key = w.key, k["key"]
    try:
        assert w.request("GET", "/v1/secrets")[1]["items"] == []
        assert w.request("GET", f"/v1/secrets/{made['id']}")[0] == 404
        assert w.request("DELETE", f"/v1/secrets/{made['id']}")[0] == 404
        assert w.request("POST", "/v1/sandboxes", {"secrets": {"env": {"X": made["id"]}}})[0] == 400
    finally:
        w.key = mine


# --- what goes out ---

ASK = """
import http.client, json, os, ssl, sys
K = os.environ.get("KEY", "")
def ask(method="GET", path="/v1/x", host="api.test", port=8443, body=None, **headers):
    c = http.client.HTTPSConnection(host, port, timeout=20)
    try:
        c.request(method, path, body=body, headers={k.replace("_", "-"): v for k, v in headers.items()})
        r = c.getresponse()
        return r.status, dict(r.getheaders()), r.read().decode()
    finally:
        c.close()
"""


class Set:
    """A sandbox with one secret, and the host that it is for."""

    def __init__(self, w, allow=("api.test:8443", "other.test:8443"), mode="allow", env=None, ephemeral=True, **spec):
        self.w = w
        self.up = Upstream(w)
        self.made = secret(w, "key", spec.pop("hosts", ["api.test:8443"]), **spec)
        self.box = w.create(mode=mode, allow=allow if mode == "allow" else (), secrets={"env": env or {"KEY": "key"}}, ephemeral=ephemeral)

    def ask(self, code):
        return self.box.python(ASK + code)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.box.delete()
        self.up.close()


def test_secret_arrives_and_is_never_seen(w):
    with Set(w) as t:
        out = t.ask("print(K); s, h, b = ask(Authorization='Bearer ' + K); print(s, b)")
        assert t.up.field("Authorization") == "Bearer " + CANARY, t.up.heads
        assert CANARY not in out and t.made["placeholder"] in out and "200 hello" in out, out
        # Two more on one connection, one without it; a body with the placeholder stays as it is.
        t.ask("c = http.client.HTTPSConnection('api.test', 8443)\n"
              "for i in range(3):\n"
              "    c.request('POST', '/v1/n', body=K if i == 1 else 'x', headers={'Authorization': 'Bearer ' + K} if i != 1 else {})\n"
              "    r = c.getresponse(); r.read(); assert r.status == 200, r.status\n")
        assert [t.up.field("Authorization", -k) for k in (3, 2, 1)] == ["Bearer " + CANARY, None, "Bearer " + CANARY]
        assert t.up.bodies[-2].decode() == t.made["placeholder"]
        # how the sandbox was prepared for it is nobody's transfer of files
        types = [x["type"] for x in w.request("GET", f"/v1/audit?limit=1000&sandbox={t.box.id}")[1]["items"]]
        assert "secret.used" in types and not [x for x in types if x.startswith("file.")], types


def test_secret_to_a_host_that_has_only_ipv6(w):
    with Set(w, allow=["six.wild.test:8443"], hosts=["*.wild.test:8443"]) as t:
        t.ask("import socket\n"
              "assert {i[0] for i in socket.getaddrinfo('six.wild.test', 8443)} == {socket.AF_INET6}\n"
              "assert ask(host='six.wild.test', Authorization='Bearer ' + K)[0] == 200\n"
              "s, h, b = ask(host='six.wild.test', Authorization='Bearer ' + K, Host='a.wild.test'); assert s == 421, (s, b)\n")
        assert t.up.field("Authorization") == "Bearer " + CANARY and len(t.up.heads) == 1, t.up.heads


def test_secret_in_basic_query_and_fields(w):
    with Set(w, headers=["X-Api-Key"], query=["key"], basic=True) as t:
        t.ask("import base64\n"
              "assert ask(X_Api_Key=K)[0] == 200\n"
              "assert ask(path='/v1/q?a=1&key=' + K + '&b=2')[0] == 200\n"
              "assert ask(Authorization='Basic ' + base64.b64encode(('me:' + K).encode()).decode())[0] == 200\n"
              "s, h, b = ask(Authorization='Bearer ' + K); assert s == 403 and 'may not stand in this field' in b, (s, b)\n"
              "s, h, b = ask(path='/v1/q?other=' + K); assert s == 403 and 'parameter' in b, (s, b)\n"
              "s, h, b = ask(path='/v1/' + K); assert s == 403 and 'path' in b, (s, b)\n")
        assert [t.up.field("X-Api-Key", 0), t.up.heads[1].split(" ")[1]] == [CANARY, f"/v1/q?a=1&key={CANARY}&b=2"]
        assert base64.b64decode(t.up.field("Authorization", 2).split()[1]).decode() == "me:" + CANARY
        assert len(t.up.heads) == 3  # what was refused was not sent


def test_secret_in_disguise_or_beside_another(w):
    """What is not the placeholder letter by letter is not replaced; beside a value of ours there is none of the sandbox's."""
    with Set(w, headers=["Authorization"], query=["key"], basic=True) as t:
        t.ask("import base64\n"
              "def twice(*fields):\n"
              "    c = http.client.HTTPSConnection('api.test', 8443, timeout=20); c.putrequest('GET', '/v1/x')\n"
              "    for n, v in fields: c.putheader(n, v)\n"
              "    c.endheaders(); r = c.getresponse(); return r.status, r.read().decode()\n"
              "for other in ('mine', 'Bearer ' + K, 'Basic ' + base64.b64encode(b'me:x').decode()):\n"
              "    for fields in ((('Authorization', 'Bearer ' + K), ('authorization', other)), (('AUTHORIZATION', other), ('Authorization', 'Bearer ' + K))):\n"
              "        s, b = twice(*fields); assert s == 400 and 'second field' in b, (fields, s, b)\n"
              "for odd in ('%63' + K[1:], K.upper(), K[:-1], K[:30] + '+' + K[30:], K.replace('-', '%2D')):\n"
              "    s, h, b = ask(path='/v1/q?key=' + odd); assert s == (200 if odd == K.upper() else 403), (odd, s, b)\n"
              "for path in ('/v1/%63' + K[1:], '/v1/x?other=' + K.replace('a', '%61'), '/v1/x?' + K.replace('-', '%2d')): assert ask(path=path)[0] == 403, path\n"
              "for n in ('X_Auth', 'Proxy_Authorization'): assert ask(**{n: 'basic  ' + base64.b64encode(('me:' + K).encode()).decode()})[0] == 403, n\n"
              "assert ask(Authorization='Bearer ' + base64.b64encode(K.encode()).decode())[0] == 200\n"
              "assert ask(method='POST', body=K, X_Other='x')[0] == 200\n")
        assert t.up.heads and not [h for h in t.up.heads if CANARY in h] and not [b for b in t.up.bodies if CANARY.encode() in b], t.up.heads


def test_secret_and_heads_that_are_refused_say_why(w):
    with Set(w) as t:
        out = t.ask("import socket\n"
                    "def raw(head):\n"
                    "    s = ssl.create_default_context().wrap_socket(socket.create_connection(('api.test', 8443), 20), server_hostname='api.test'); s.sendall(head)\n"
                    "    got = b''\n"
                    "    while more := s.recv(65536): got += more\n"
                    "    return got.split()[1].decode() + ' ' + got.decode().rsplit('message', 1)[1][3:-3].strip('\"}')\n"
                    "print(raw(b'GET /v1/x HTTP/1.1\\r\\n\\r\\n'))\n"
                    "print(raw(b'GET /v1/x HTTP/1.1\\r\\nHost: api.test:8443\\r\\n' + b'a: b\\r\\n' * 101 + b'\\r\\n'))\n"
                    "print(raw(b'CONNECT api.test:8443 HTTP/1.1\\r\\nHost: api.test:8443\\r\\n\\r\\n'))\n")
        lines = out.split("\n")
        assert lines[0] == "400 no Host" and lines[1] == "431 more than 100 header fields" and lines[2].startswith("400 ") and "method" in lines[2], out
        assert "421" in t.ask("print(ask(Host='evil.test:8443')[0])")
        assert not t.up.heads
        told = {(l.get("reason"), l.get("method")) for l in audit(w, t.box) if l["type"] == "secret.denied"}
        assert {("no Host", ""), ("more than 100 header fields", "")} <= told and "another host than the one that this connection is for" in {r for r, _ in told}, told
    with w.create("allow", allow=["api.test:80"]) as b:
        out = b.python("import socket\nsocket.getaddrinfo('api.test', 80)\n" + HTTP + f"""
print(http('{PUBLIC4}', b'GET / HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n', b'GET / HTTP/1.1\\r\\nHost: api.test\\r\\n' + b'a: b\\r\\n' * 101 + b'\\r\\n'))""")
        assert out == "['200', 'refused']", out
        b.python(HTTP + f"print(http('{PUBLIC4}', b'CONNECT evil.test:443 HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n'), http('{PUBLIC4}', b'GET / HTTP/1.1\\r\\n\\r\\n'))")
        reasons = {"more than 100 header fields", "method CONNECT is not carried here", "no Host"}
        assert until(lambda: reasons <= {l.get("reason") for l in audit(w, b)}), audit(w, b)


def test_secret_goes_nowhere_else(w):
    with Set(w, methods=["GET"], paths=["/v1"]) as t:
        t.ask("auth = dict(Authorization='Bearer ' + K)\n"
              "assert ask(**auth)[0] == 200\n"
              "for method, path in (('POST', '/v1/x'), ('GET', '/v10'), ('GET', '/'), ('GET', '/v1/../x'), ('GET', '/v1/%2e%2e/x'), ('GET', '/v1//x'),\n"
              "                     ('GET', '/v1/%252e%252e/x'), ('GET', '/v1/%2E%2e%2fx'), ('GET', '/v1/..;/x'), ('GET', '/v1/%zz')):\n"
              "    s, h, b = ask(method, path, **auth); assert s == 403 and 'secret' in b, (method, path, s, b)\n"
              "s, h, b = ask(Authorization='Bearer caisson-placeholder-' + '0' * 64); assert s == 403, (s, b)\n"
              # another host is not opened: it shows its own certificate, and gets what the sandbox has
              "own = ssl._create_unverified_context(); c = http.client.HTTPSConnection('other.test', 8443, context=own)\n"
              "c.request('GET', '/v1/x', headers=auth); assert c.getresponse().status == 200\n")
        assert [h.split("\r\n")[0] for h in t.up.heads] == ["GET /v1/x HTTP/1.1"] * 2
        assert t.up.field("Authorization", 1) == "Bearer " + t.made["placeholder"]
        lines = lambda kind: [x for x in w.request("GET", f"/v1/audit?type={kind}&sandbox={t.box.id}")[1]["items"]]
        assert until(lambda: len(lines("secret.denied")) == 11), lines("secret.denied")
        denied, used = lines("secret.denied")[0], lines("secret.used")
        assert (denied["id"], denied["name"], denied["port"], denied["method"]) == (t.made["id"], "api.test", 8443, "POST") and denied["reason"], denied
        assert len(used) == 1 and used[0]["path"] == "/v1/x" and CANARY not in repr(used + [denied]), used


def test_secret_does_not_follow_a_redirect(w):
    with Set(w) as t:
        t.ask("import urllib.request\n"
              "r = urllib.request.Request('https://api.test:8443/v1/away', headers={'Authorization': 'Bearer ' + K})\n"
              "try: urllib.request.urlopen(r, context=ssl._create_unverified_context(), timeout=20)\n"
              "except Exception as e: print(e)\n")
        assert t.up.field("Authorization", 0) == "Bearer " + CANARY
        assert t.up.heads[1].startswith("GET /v1/landed") and t.up.field("Authorization", 1) == "Bearer " + t.made["placeholder"]


def test_secret_that_comes_back_is_starred_out(w):
    with Set(w) as t:
        out = t.ask("s, h, b = ask(path='/v1/echo', Authorization='Bearer ' + K, Accept_Encoding='gzip'); print(s, h, b)")
        assert CANARY in t.up.heads[0] and CANARY not in out and "*" * len(CANARY) in out, out
        assert out.count("*" * len(CANARY)) == 2 and t.up.field("Accept-Encoding") == "identity", out


def test_secret_that_comes_back_as_it_was_sent_is_starred_out(w):
    """In Basic credentials and in a query, where it does not look like itself."""
    value = CANARY + "/+="
    quoted = urllib.parse.quote(value, safe="")
    with Set(w, value=value, query=["key"], basic=True) as t:
        out = t.ask("import base64\n"
                    "for user in ('', 'm', 'me', 'you'):\n"
                    "    s, h, b = ask(path='/v1/echo?key=' + K, Authorization='Basic ' + base64.b64encode((user + ':' + K).encode()).decode())\n"
                    "    print(s, h['X-Echo'], b)\n")
        sent = [base64.b64decode(t.up.field("Authorization", i).split()[1]) for i in range(4)]
        assert sent == [f"{user}:{value}".encode() for user in ("", "m", "me", "you")] and all(quoted in h for h in t.up.heads), t.up.heads
        assert out.count("?key=" + "*" * len(quoted) + " ") == 4 and CANARY[:9] not in out, out
        for line in out.split("\n"):
            coded = line.split("Basic ")[1:]
            assert all(CANARY[4:12].encode() not in base64.b64decode(c.split()[0].replace("*", "A") + "===") for c in coded), line


def test_secret_is_not_found_out_by_what_waits(w):
    """Of an answer that is the sandbox's own text, nothing waits for what follows only because a value begins so."""
    with Set(w) as t:
        run = t.box.run(code=ASK + "c = http.client.HTTPSConnection('api.test', 8443, timeout=60)\n"
                        f"c.request('GET', '/v1/slowly?{CANARY[:9]}'); r = c.getresponse()\n"
                        f"print(r.read({len(CANARY[:9])}).decode(), flush=True); print(r.read().decode())\n", detach=True)
        assert until(lambda: CANARY[:9] in w.output(t.box, run["id"])), w.output(t.box, run["id"])
        t.up.go.set()
        assert until(lambda: w.output(t.box, run["id"]).endswith("rest")), w.output(t.box, run["id"])


def test_secret_names_must_agree(w):
    with Set(w) as t:
        t.ask("for host in ('other.test', 'other.test:8443', 'api.test:443', 'api.test.', ''):\n"
              "    s, h, b = ask(Host=host, Authorization='Bearer ' + K); assert s in (421, 400), (host, s, b)\n"
              "s, h, b = ask('TRACE'); assert s == 400, (s, b)\n"
              "s, h, b = ask(path='http://other.test/x'); assert s in (400, 421), (s, b)\n"
              "s, h, b = ask(Transfer_Encoding='chunked', Content_Length='3', body='abc'); assert s == 400, (s, b)\n"
              "assert ask(Host='API.test:8443', Authorization='Bearer ' + K)[0] == 200\n")
        assert len(t.up.heads) == 1
        out = t.ask("import socket\n"
                    "def hello(name):\n"
                    "    x = ssl._create_unverified_context()\n"
                    "    try: x.wrap_socket(socket.create_connection(('api.test', 8443)), server_hostname=name); return 'up'\n"
                    "    except OSError as e: return 'down'\n"
                    "print(hello('api.test'), hello('other.test'), hello(None))")
        assert out == "up down down", out


def test_secret_and_http_that_could_be_read_in_two_ways(w):
    with Set(w) as t:
        out = t.ask(TWO_WAYS + "import socket\nx = ssl.create_default_context()\nn = 0\n"
                    "for v in two_ways('api.test:8443'):\n"
                    "    with x.wrap_socket(socket.create_connection(('api.test', 8443), 20), server_hostname='api.test') as s:\n"
                    "        try:\n"
                    "            s.sendall(v.replace(b'\\r\\n', b'\\r\\nAuthorization: Bearer ' + K.encode() + b'\\r\\n', 1)); got = s.recv(4096); n += 1\n"
                    "        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError): got = b''\n"
                    "        if got[9:12] not in (b'', b'400', b'421', b'501', b'505'): print(got[:80], v)\n"
                    "print('all' if n > 60 else n)")
        assert out == "all", out
        assert not [h for h in t.up.heads if "Transfer-Encoding: chunked" not in h or "evil" in h], t.up.heads
        assert t.ask("print(ask(Authorization='Bearer ' + K)[0])") == "200"


def test_secret_of_a_host_that_is_not_who_it_says(w):
    with Set(w, hosts=["api.test:8444"], allow=["api.test:8444"]) as t:
        out = t.ask("print(ask(port=8444, Authorization='Bearer ' + K))")
        assert "502" in out and "certificate" in out and CANARY not in out, out
        assert t.up.heads == []


def test_secret_streams(w):
    with Set(w) as t:
        # Server-sent events: the second is sent only once the first has been seen inside.
        run = t.box.run(code=ASK + "c = http.client.HTTPSConnection('api.test', 8443)\n"
                        "c.request('GET', '/v1/events', headers={'Authorization': 'Bearer ' + K}); r = c.getresponse()\n"
                        "print(r.fp.readline().decode().strip(), flush=True); r.fp.readline(); print(r.fp.readline().decode().strip(), r.read())\n", detach=True)
        assert until(lambda: "data: one" in w.output(t.box, run["id"])), w.output(t.box, run["id"])
        t.up.go.set()
        assert until(lambda: "data: two b'\\n'" in w.output(t.box, run["id"])), w.output(t.box, run["id"])
        # A websocket: behind the 101 the bytes pass as they are.
        t.ask("import socket\n"
              "s = ssl.create_default_context().wrap_socket(socket.create_connection(('api.test', 8443)), server_hostname='api.test')\n"
              "s.sendall(('GET /v1/ws HTTP/1.1\\r\\nHost: api.test:8443\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nAuthorization: Bearer '\n"
              "           + K + '\\r\\n\\r\\n').encode())\n"
              "f = s.makefile('rb')\n"
              "assert b'101' in f.readline()\n"
              "while f.readline() != b'\\r\\n': pass\n"
              "for i in range(50):\n"
              "    s.sendall(b'\\x00GET / HTTP/1.1' + bytes([i]) * 1000); assert f.read(1015) == b'\\x00GET / HTTP/1.1' + bytes([i]) * 1000\n")
        assert t.up.field("Authorization") == "Bearer " + CANARY


def test_secret_with_a_large_upload(w):
    with Set(w) as t:
        size = (200 << 20) // world.patience
        t.ask("class Body:\n"
              f"    left = {size}\n"
              "    def read(self, n=65536):\n"
              "        k = min(n, self.left, 1 << 16); self.left -= k; return b'x' * k\n"
              f"s, h, b = ask('PUT', '/v1/upload', body=Body(), Content_Length='{size}', Authorization='Bearer ' + K, Expect='100-continue')\n"
              f"assert s == 200 and b == 'hello {size}\\n', (s, b)\n"
              "s, h, b = ask('PUT', '/v1/upload', body=iter([b'y' * 100000] * 50), Authorization='Bearer ' + K)\n"
              "assert b == 'hello 5000000\\n', b\n")
        assert "chunked" in t.up.heads[-1] and t.up.field("Authorization") == "Bearer " + CANARY
        with open(f"/proc/{openers(w)[0]}/status") as f:
            peak = int(next(l for l in f if l.startswith("VmHWM")).split()[1])
        assert peak < world.MEMORY * 64 << 10, peak  # KiB: nothing of it was kept


def test_secret_with_an_opener_that_was_killed(w):
    with Set(w) as t:
        run = t.box.run(code=ASK + "c = http.client.HTTPSConnection('api.test', 8443)\n"
                        "c.request('GET', '/v1/events', headers={'Authorization': 'Bearer ' + K}); r = c.getresponse(); print(r.fp.readline(), flush=True)\n"
                        "try: print('rest', r.read())\n"
                        "except Exception as e: print('cut', type(e).__name__)\n", detach=True)
        assert until(lambda: "one" in w.output(t.box, run["id"]))
        pid = openers(w)[0]
        os.kill(pid, 9)
        t.up.go.set()
        assert until(lambda: "cut" in w.output(t.box, run["id"]) or "rest" in w.output(t.box, run["id"])), w.output(t.box, run["id"])
        assert "two" not in w.output(t.box, run["id"])
        heads = len(t.up.heads)
        out = t.ask("try: print(ask(Authorization='Bearer ' + K)[0])\nexcept Exception as e: print('closed')")
        # Either none runs yet, and then nothing passes; or the next one does, and then it is as before.
        assert (out == "closed" and len(t.up.heads) == heads) or out == "200", out
        assert until(lambda: t.ask("try: print(ask(Authorization='Bearer ' + K)[0])\nexcept Exception as e: print('closed')") == "200")
        assert openers(w) != [pid] and t.up.field("Authorization") == "Bearer " + CANARY
    assert until(lambda: openers(w) == []), openers(w)


def test_secret_with_an_edge_that_was_killed(w):
    with Set(w) as t:
        assert t.ask("print(ask(Authorization='Bearer ' + K)[0])") == "200"
        os.kill(w.edges()[0], 9)
        assert until(lambda: t.ask("try: print(ask(Authorization='Bearer ' + K)[0])\nexcept Exception as e: print('closed')") == "200", 20)
        assert t.up.field("Authorization") == "Bearer " + CANARY


def test_secret_over_a_restart_of_the_server(w):
    with Set(w) as t:
        # ephemeral sandboxes go with nothing but a delete; this one stays
        w.stop()
        w.serve()
        assert t.ask("print(ask(Authorization='Bearer ' + K)[0])") == "200"
        assert t.up.field("Authorization") == "Bearer " + CANARY


def test_secret_that_changes(w):
    with Set(w) as t:
        t.ask("assert ask(Authorization='Bearer ' + K)[0] == 200")
        assert w.request("PATCH", "/v1/secrets/key", {"value": "another-value-of-it"})[0] == 200
        t.ask("assert ask(Authorization='Bearer ' + K)[0] == 200")
        assert t.up.field("Authorization") == "Bearer another-value-of-it"
        assert w.request("PATCH", "/v1/secrets/key", {"paths": ["/only"]})[0] == 200
        t.ask("assert ask(Authorization='Bearer ' + K)[0] == 403; assert ask(path='/only/x', Authorization='Bearer ' + K)[0] == 200")
        w.request("DELETE", "/v1/secrets/key")
        assert until(lambda: openers(w) == [])
        heads = len(t.up.heads)
        t.ask(f"K = '{t.made['placeholder']}'\n"
              "c = http.client.HTTPSConnection('api.test', 8443, context=ssl._create_unverified_context())\n"
              "c.request('GET', '/v1/x', headers={'Authorization': 'Bearer ' + K}); print(c.getresponse().status)")
        assert all(CANARY not in h and "another" not in h for h in t.up.heads[heads:])


def test_secret_in_public(w):
    with Set(w, mode="public") as t:
        assert t.ask("print(ask(Authorization='Bearer ' + K)[0])") == "200"
        assert t.up.field("Authorization") == "Bearer " + CANARY
        # An address without a name is nobody's secret's; a server that speaks first is not kept waiting.
        assert t.ask("import socket\ns = socket.create_connection(('93.184.216.34', 7)); s.sendall(b'hi'); print(s.recv(9))") == "b'hi'"


def test_secret_signs_for_aws(w):
    key = "canary-wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
    with Set(w, value=key, aws_key_id="AKIDEXAMPLE", env={"AWS_SECRET_ACCESS_KEY": "key"}) as t:
        t.ask("import hashlib\n"
              "assert os.environ['AWS_ACCESS_KEY_ID'] == 'AKIDEXAMPLE'\n"
              "def signed(service, sha, method, path, body):\n"
              "    h = {'X-Amz-Date': '20261130T010203Z', 'X-Amz-Target': 'a  b'}\n"
              "    if sha: h['X-Amz-Content-Sha256'] = hashlib.sha256(body).hexdigest()\n"
              "    names = ';'.join(sorted([n.lower() for n in h] + ['host']))\n"
              "    h['Authorization'] = f'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261130/eu-west-1/{service}/aws4_request, SignedHeaders={names}, Signature=' + '0' * 64\n"
              "    s, _, b = ask(method, path, body=body, **h); assert s == 200, (s, b)\n"
              "signed('s3', True, 'PUT', '/bucket/a%20b?x=2&x=1&acl', b'data')\n"
              "signed('dynamodb', False, 'POST', '/a%20b', b'{\"a\": 1}')\n"
              "signed('sts', False, 'GET', '/?Action=x', None or b'')\n"
              "s, h, b = ask(Authorization='AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261130/e/s3/aws4_request, SignedHeaders=host, Signature=' + '0' * 64,\n"
              "              X_Amz_Date='20261130T010203Z', X_Amz_Content_Sha256='STREAMING-AWS4-HMAC-SHA256-PAYLOAD')\n"
              "assert s == 400 and 'piece by piece' in b, (s, b)\n")
        for at, service in ((0, "s3"), (1, "dynamodb"), (2, "sts")):
            sent, right = aws_signature(key, t.up.heads[at], t.up.bodies[at], service)
            assert sent == right, (service, t.up.heads[at])
        assert all(key not in h for h in t.up.heads)


def test_secret_for_git(w):
    with Set(w, git=True) as t:
        if t.box.run(shell="command -v git")["exit_code"]:
            raise world.Skip("there is no git in this image")
        r = t.box.run(shell="git ls-remote https://api.test:8443/me/repo.git 2>&1")
        assert t.up.heads, r
        assert base64.b64decode(t.up.field("Authorization", 0).split()[1]).decode() == "x-access-token:" + CANARY, t.up.heads


def test_secret_is_found_nowhere(w):
    with Set(w) as t:
        run = t.box.run(code=ASK + "import time\nheld = [ask(path='/v1/echo', Authorization='Bearer ' + K) for i in range(3)]\nprint('up', flush=True)\ntime.sleep(60)",
                        detach=True)
        assert until(lambda: "up" in w.output(t.box, run["id"]))
        needle = CANARY.encode()
        inside = [p for p in filter(str.isdigit, os.listdir("/proc")) if cgroup_of(p).find(t.box.id) >= 0]
        assert inside
        outside = w.edges()
        for pid in [*inside, *outside]:
            assert needle not in memory_of(pid), (pid, open(f"/proc/{pid}/comm").read())
        # the scan itself finds what is there: the opener has it
        assert needle in memory_of(openers(w)[0])
        assert not files_with(w, CANARY), files_with(w, CANARY)
        out = t.box.run(shell=f"env | grep -c canary; grep -rlaF {CANARY[:20]} /etc /home /root /tmp /var /srv 2>/dev/null | head")["stdout"]
        assert out.split() == ["0"], out
        assert CANARY not in w.logged()


def test_the_server_forgets_values(w):
    """Once stored a value is in no memory of the server's: not of its requests, of what was refused, nor of what its opener was given."""
    values = [f"canary-{i}-" + os.urandom(12).hex() for i in range(9)]
    with Set(w, value=values[0]) as t:
        placeholder = t.made["placeholder"]
        in_pieces(w, "pieces", values[6], length=True)
        in_pieces(w, "chunks", values[7], length=False)
        assert w.request("PATCH", "/v1/secrets/key", {"value": values[1]})[0] == 200
        assert "200" in t.ask("print(ask(Authorization='Bearer ' + K)[0])") and values[1] in t.up.field("Authorization")
        assert w.request("POST", "/v1/secrets", {"name": "key", "value": values[2], "hosts": ["a.test"]})[0] == 409
        assert w.request("POST", "/v1/secrets", {"name": "no good", "value": values[3], "hosts": ["a.test"]})[0] == 400
        assert w.request("POST", "/v1/secrets", {"name": "bad", "value": values[4] + "\n", "hosts": ["a.test"]})[0] == 400
        status, of_daytona = w.request("POST", "/daytona/secret", {"name": "daytona", "value": values[5], "hosts": ["a.test"]})
        assert status in (200, 201), of_daytona
        status, hook = w.request("POST", "/v1/webhooks", {"url": "https://a.test/hook", "secret": values[8]})
        assert status == 201, hook
        for path in ("/v1/secrets/daytona", "/v1/secrets/pieces", "/v1/secrets/chunks", "/v1/webhooks/" + hook["id"]):
            assert w.request("DELETE", path)[0] == 204, path
        assert placeholder.encode() in memory_of(w.process.pid), "the scan does not see what is there"
        found = []

        def forgotten():
            held = memory_of(w.process.pid)
            found[:] = [(i, bytes(held[max(held.find(v.encode()) - 40, 0):][:100])) for i, v in enumerate(values) if v.encode() in held]
            return not found

        assert until(forgotten, 30), found  # what is being sent to a webhook has its secret until that has ended


def in_pieces(w, name, value, length):
    """A request whose body comes after its head, in two parts: of a length that is told, or chunked."""
    text = json.dumps({"name": name, "value": value, "hosts": ["a.test"]}).encode() + b" " * 3000
    parts = [text[:40], text[40:]]
    with socket.socket(socket.AF_UNIX) as c:
        c.settimeout(60)
        c.connect(w.socket)
        c.sendall(f"POST /v1/secrets HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {w.key}\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  .encode() + (b"Content-Length: %d\r\n\r\n" % len(text) if length else b"Transfer-Encoding: chunked\r\n\r\n"))
        for p in parts:
            time.sleep(0.05)
            c.sendall(p if length else b"%x\r\n%s\r\n" % (len(p), p))
        if not length:
            c.sendall(b"0\r\n\r\n")
        answer = c.recv(4096)
        assert answer.split()[1] == b"201", answer


def test_secret_is_in_no_snapshot(w):
    """Nor in what begins as one: of the disk, and of memory where there are such, while connections with it are open."""
    aws = "canary-aws-7b3e-signing-key-that-nobody-may-see"
    secret(w, "signer", ["api.test:8443"], value=aws, aws_key_id="AKIDEXAMPLE")
    marker = "marker-" + os.urandom(8).hex()
    values = [CANARY, aws]
    with Set(w, env={"KEY": "key", "AWS": "signer"}, ephemeral=False) as t:
        run = t.box.run(code=ASK + f"import time\nheld = '{marker}'\nopen('/var/tmp/m', 'w').write(held)\nos.sync()\n"
                        "print([ask(path='/v1/echo', Authorization='Bearer ' + K) for i in range(2)] and 'up', flush=True)\ntime.sleep(60)", detach=True)
        assert until(lambda: "up" in w.output(t.box, run["id"]), 30)
        memory = w.request("GET", "/v1/info")[1]["capabilities"]["snapshot_memory"]
        status, s = w.request("POST", "/v1/snapshots", {"sandbox": t.box.id, "memory": memory})
        assert status == 201, (status, s)
        assert files_with(w, marker), "the scan does not see what is in a snapshot"
        assert not files_with(w, *values), files_with(w, *values)
        status, c = w.request("POST", "/v1/sandboxes", {"from_snapshot": s["id"], "ephemeral": True})
        assert status == 201, (status, c)
        with Box(w, c["id"]) as child:
            assert child.run(argv=["cat", "/var/tmp/m"])["stdout"] == marker
            for pid in (p for p in filter(str.isdigit, os.listdir("/proc")) if cgroup_of(p).find(child.id) >= 0):
                held = memory_of(pid)
                assert not [v for v in values if v.encode() in held], pid
        assert w.request("DELETE", "/v1/snapshots/" + s["id"])[0] == 204
        assert not [v for v in values if v in w.logged()]


def files_with(w, *texts):
    """Of the server's folder: state, database and its log, audit, disks, snapshots, logs."""
    needles = [t.encode() for t in texts]
    return [p for at, _, names in os.walk(w.folder) for p in (os.path.join(at, n) for n in names) if os.path.isfile(p) and holds(p, needles)]


def holds(path, needles, piece=4 << 20):
    """Disks are mostly holes: only what is there is read."""
    try:
        f = open(path, "rb", 0)
    except FileNotFoundError:  # it has gone meanwhile
        return False
    with f:
        at, last = 0, b""
        while True:
            try:
                start = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:
                return False
            end = os.lseek(f.fileno(), start, os.SEEK_HOLE)
            last = last if start == at else b""
            data = os.pread(f.fileno(), min(piece, end - start), start)
            if not data:
                return False
            if any(n in last + data for n in needles):
                return True
            at, last = start + len(data), data[-256:]


def cgroup_of(pid):
    try:
        with open(f"/proc/{pid}/cgroup") as f:
            return f.read()
    except OSError:
        return ""


def memory_of(pid):
    """All that is readable of a process's memory."""
    out = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, rights = line.split()[:2]
            if "r" not in rights or "[v" in line:
                continue
            low, high = (int(x, 16) for x in span.split("-"))
            if world.SANITIZED and high - low > 1 << 32:
                continue  # the sanitizer's own, which mirrors the rest
            try:
                mem.seek(low)
                out.append(mem.read(high - low))
            except (OSError, ValueError):
                pass
    return b"".join(out)
