"""Secrets in HTTP/2: node and curl inside, node as the host."""
import base64
import json
import os
import subprocess
import sys
import threading

import world
from test_secrets import CANARY, Set, cli, secret
from upstream import aws_signature, openers
from world import until

PORT = 8445

# What node programs begin with: ask(headers, body) -> {status, h, text, trailers, error}
ASK = """
const http2 = require('http2'), assert = require('assert'), K = process.env.KEY;
const connect = () => { const s = http2.connect('https://api.test:%d'); s.on('error', () => {}); return s; };
const auth = { authorization: 'Bearer ' + K };
function open(s, h, more) { return s.request({ ':path': '/v1/x', ...h }, more); }
function ask(s, h, body) {
  const r = open(s, body === undefined ? h : { ':method': 'POST', ...h }), out = { text: '', trailers: {}, interim: [] };
  r.on('response', (x) => { out.status = x[':status']; out.h = x; });
  r.on('headers', (x) => out.interim.push(x[':status']));
  r.on('trailers', (x) => { out.trailers = x; });
  r.on('data', (d) => { out.text += d; });
  r.on('error', (e) => { out.error = e.code; });
  r.end(body);
  return new Promise((done) => r.on('close', () => done({ ...out, code: r.rstCode })));
}
setTimeout(() => { console.log('too long'); process.exit(9); }, 50000).unref();
""" % PORT


class Host:
    def __init__(self, w):
        key = os.path.join(w.folder, "key.pem")
        self.lines = []
        self.process = subprocess.Popen(["nsenter", f"--net={w.path('net')}", "node", os.path.join(world.HERE, "h2-host.mjs"), w.ca, key, str(PORT)],
                                        stdout=subprocess.PIPE, text=True)
        assert "ready" in self.process.stdout.readline()
        threading.Thread(target=lambda: [self.lines.append(json.loads(l)) for l in self.process.stdout], daemon=True).start()

    def sent(self, path):
        """Heads of requests to this path."""
        return [l["headers"] for l in list(self.lines) if "headers" in l and l["headers"][":path"].split("?")[0] == path]

    def closed(self, path):
        return [l["closed"] for l in list(self.lines) if "closed" in l and l["path"] == path]

    def sessions(self):
        return sum("session" in l for l in list(self.lines))

    def close(self):
        self.process.kill()
        self.process.wait()


class Set2(Set):
    """The same with a host of HTTP/2."""

    def __init__(self, w, **spec):
        env = spec.pop("env", {"KEY": "key"})
        self.w, self.up = w, Host(w)
        self.made = secret(w, "key", [f"api.test:{PORT}"], **spec)
        self.box = w.create(mode="allow", allow=[f"api.test:{PORT}", f"other.test:{PORT}"], secrets={"env": env})

    def node(self, code):
        r = self.box.run(argv=["node", "-e", ASK + "(async () => {" + code + "})().catch((e) => { console.log(e); process.exit(1); })"], timeout_ms=120000)
        assert r["exit_code"] == 0, r
        return r["stdout"].strip()


def test_http2_puts_secrets_in_and_takes_them_out(w):
    with Set2(w, headers=["Authorization"], query=["key"]) as t:
        out = t.node("""
            const s = connect();
            const all = await Promise.all([...Array(30).keys()].map((i) => ask(s, { ...auth, ':path': '/v1/many?n=' + i }, 'y'.repeat(i))));
            all.forEach((r, i) => { assert.equal(r.status, 200); assert.equal(r.text, `hello ${i}\\n`); });
            const echo = await ask(s, { ...auth, ':path': '/v1/echo', 'accept-encoding': 'gzip' });
            assert.equal((await ask(s, { ':path': '/v1/q?a=1&key=' + K })).status, 200);
            assert.equal((await ask(s, { authorization: 'Basic ' + Buffer.from('me:' + K).toString('base64') })).status, 403);
            assert.equal((await ask(s, { ':path': '/v1/body' }, K)).status, 200);
            assert.equal(s.alpnProtocol, 'h2');
            s.close();
            console.log(JSON.stringify(echo));""")
        many = t.up.sent("/v1/many")
        assert len(many) == 30 and all(h["authorization"] == "Bearer " + CANARY for h in many), many
        assert CANARY not in out and out.count("*" * len(CANARY)) == 3, out  # a field, the body, a trailer
        assert t.up.sent("/v1/echo")[0]["accept-encoding"] == "identity"
        assert t.up.sent("/v1/q")[0][":path"] == f"/v1/q?a=1&key={CANARY}"
        assert t.up.sessions() == 1 and not t.up.sent("/v1/x")


def test_http2_refuses_what_http1_refuses(w):
    with Set2(w, methods=["GET"], paths=["/v1"]) as t:
        t.node("""
            const s = connect();
            const no = async (status, h, body) => { const r = await ask(s, h, body); assert.equal(r.status, status, JSON.stringify([h, r])); return r; };
            const r = await no(403, { 'x-other': K });
            assert.equal(r.h['x-caisson'], 'refused'); assert.match(r.text, /may not stand in this field/);
            await no(403, { ...auth, ':method': 'POST' }, 'x'.repeat(300000)); // told while it still sends
            for (const p of ['/v10', '/v1/../x', '/v1/%2e%2e/x', '/v1//x']) await no(403, { ...auth, ':path': p });
            await no(403, { ':path': '/v1/' + K });
            await no(403, { authorization: 'Bearer caisson-placeholder-' + '0'.repeat(64) });
            for (const a of ['other.test:PORT', 'api.test:443', 'api.test.']) await no(421, { ...auth, ':authority': a });
            await no(421, { ...auth, host: 'other.test' });
            await no(400, { ...auth, ':method': 'TRACE' });
            assert.equal((await ask(s, auth)).status, 200);
            s.close();""".replace("PORT", str(PORT)))
        assert len([l for l in t.up.lines if "headers" in l]) == 1
        lines = lambda: w.request("GET", f"/v1/audit?type=secret.denied&sandbox={t.box.id}")[1]["items"]
        assert until(lambda: len(lines()) == 13), lines()
        assert len([l for l in lines() if "another host" in l["reason"]]) == 4


def test_http2_streams(w):
    with Set2(w) as t:
        size = (40 << 20) // world.patience
        t.node("""
            const s = connect();
            // the second event comes only when the first has arrived: it is asked for on the same connection
            const ev = open(s, { ...auth, ':path': '/v1/events' });
            await new Promise((done) => ev.once('data', (d) => { assert.equal(String(d), 'data: one\\n\\n'); done(); }));
            assert.equal((await ask(s, { ...auth, ':path': '/v1/go' })).status, 204);
            await new Promise((done) => ev.once('data', (d) => { assert.equal(String(d), 'data: two\\n\\n'); done(); }));
            // trailers, as gRPC has them, and an answer that is nothing but them
            const call = await ask(s, { ...auth, ':path': '/v1/call', te: 'trailers', 'grpc-accept-encoding': 'gzip' }, 'm'.repeat(100000));
            assert.equal(call.text.length, 100000); assert.equal(call.trailers['grpc-status'], '0');
            assert.equal((await ask(s, { ...auth, ':path': '/v1/only-trailers' })).h['grpc-status'], '5');
            const interim = await ask(s, { ...auth, ':path': '/v1/interim' });
            assert.equal(interim.text, 'final'); assert.deepEqual(interim.interim, [103]);
            // trailers of a request
            const up = open(s, { ...auth, ':method': 'POST', ':path': '/v1/call' }, { waitForTrailers: true });
            up.on('wantTrailers', () => up.sendTrailers({ 'x-end': 'yes' }));
            up.resume().end('abc');
            await new Promise((done) => up.on('close', done));
            assert.equal(up.rstCode, 0);
            // a large upload
            const body = open(s, { ...auth, ':method': 'PUT', ':path': '/v1/upload' });
            let left = %d, text = '';
            const more = () => { while (left > 0) { left -= 65536; if (!body.write(Buffer.alloc(65536))) { body.once('drain', more); return; } } body.end(); };
            body.on('data', (d) => { text += d; });
            more();
            await new Promise((done) => body.on('close', done));
            assert.equal(text, 'hello %d\\n');
            s.close();""" % (size, size))
        assert t.up.sent("/v1/call")[0]["grpc-accept-encoding"] == "identity" and t.up.sent("/v1/call")[0]["te"] == "trailers"
        assert t.up.sent("/v1/upload")[0]["authorization"] == "Bearer " + CANARY
        with open(f"/proc/{openers(w)[0]}/status") as f:
            peak = int(next(l for l in f if l.startswith("VmHWM")).split()[1])
        assert peak < world.MEMORY * 48 << 10, peak  # KiB


def test_http2_one_that_reads_slowly_stops_nobody_else(w):
    with Set2(w) as t:
        out = t.node("""
            const s = connect();
            await new Promise((done) => s.on('connect', done));
            s.setLocalWindowSize(4 << 20); // so that the client itself is not what stands
            const slow = [1, 2, 3, 4, 5, 6].map(() => open(s, { ...auth, ':path': '/v1/big' }));
            for (const r of slow) await new Promise((done) => r.once('response', done));
            for (let i = 0; i < 20; i++) assert.equal((await ask(s, auth, 'z'.repeat(1000))).text, 'hello 1000\\n');
            for (const r of slow.slice(1)) r.close(http2.constants.NGHTTP2_CANCEL);
            let n = 0;
            slow[0].on('data', (d) => { n += d.length; });
            await new Promise((done) => slow[0].on('close', done));
            s.close();
            console.log(n);""")
        assert out == str(256 << 16), out
        assert until(lambda: sorted(t.up.closed("/v1/big")) == [0] + [8] * 5), t.up.closed("/v1/big")


def test_http2_ends_are_told(w):
    with Set2(w) as t:
        t.node("""
            let s = connect();
            const broken = await ask(s, { ...auth, ':path': '/v1/reset' });
            assert.equal(broken.code, 2); assert.equal(broken.text, 'some');
            const early = await ask(s, { ...auth, ':path': '/v1/early' }, 'u'.repeat(1 << 20));
            assert.equal(early.status, 413); assert.equal(early.text, 'enough'); assert.equal(early.code, 0);
            // what nobody needs is stopped, also when it has no end by itself
            const idle = open(s, { ...auth, ':method': 'POST', ':path': '/v1/early' }), endless = open(s, { ...auth, ':method': 'POST', ':path': '/v1/early' });
            idle.resume().write('a word');
            endless.resume().on('error', () => {});
            const more = () => { if (!endless.destroyed) endless.write(Buffer.alloc(65536), more); };
            more();
            for (const r of await Promise.all([idle, endless].map((r) => new Promise((done) => r.on('close', () => done(r)))))) assert.equal(r.rstCode, 0);
            let away = false;
            s.on('goaway', () => { away = true; });
            assert.equal((await ask(s, { ...auth, ':path': '/v1/goaway' })).text, 'last');
            assert.equal(away, true);
            s = connect();
            assert.equal((await ask(s, auth)).status, 200);
            s.close();""")
        # A host that is gone in the middle of an answer, and one whose opener is.
        for victim in ("opener", "host"):
            run = t.box.run(argv=["node", "-e", ASK + """
                const s = connect(), r = open(s, { ...auth, ':path': '/v1/events' });
                r.on('data', (d) => console.log(String(d).trim())); r.on('error', () => {});
                r.on('close', () => console.log(r.rstCode ? 'cut' : 'complete', r.rstCode));"""], detach=True)
            assert until(lambda: "one" in w.output(t.box, run["id"])), w.output(t.box, run["id"])
            os.kill(openers(w)[0] if victim == "opener" else t.up.process.pid, 9)
            assert until(lambda: "cut" in w.output(t.box, run["id"])), w.output(t.box, run["id"])
            assert until(lambda: openers(w))


def test_http2_with_curl(w):
    with Set2(w) as t:
        ask = f"curl -sS -m 60 -H \"Authorization: Bearer $KEY\" -w '%{{http_version}}' https://api.test:{PORT}"
        assert t.box.run(shell=f"{ask}/v1/x --http2")["stdout"] == "hello 0\n2"
        assert t.box.run(shell=f"head -c 3000000 /dev/zero | {ask}/v1/x --http2 -T -")["stdout"] == "hello 3000000\n2"
        assert t.box.run(shell=f"{ask}/v1/x --http2 -H 'X-Other: '$KEY")["stdout"].endswith("2")
        for size in (3000000, 30000000):  # refused while it sends: the second one is more than is thrown away
            r = t.box.run(shell=f"head -c {size} /dev/zero | {ask}/v1/x --http2 -H 'X-Other: '$KEY -T -")
            assert '"kind":"denied"' in r["stdout"] and r["stdout"].endswith("2") and r["exit_code"] == 0, r
        assert [h["authorization"] for h in t.up.sent("/v1/x")] == ["Bearer " + CANARY] * 2
        # the other one is not opened: there the placeholder is nothing but a text
        assert t.box.run(shell=f"{ask.replace('api.test', 'other.test')}/v1/y -k --http2")["stdout"] == "hello 0\n2"
        assert t.up.sent("/v1/y")[0]["authorization"] == "Bearer " + t.made["placeholder"]
    with Set(w) as t:  # a host that speaks the older one only
        r = t.box.run(shell="curl -sS -m 60 --http2 -H \"Authorization: Bearer $KEY\" -w '%{http_version}' https://api.test:8443/v1/x")
        assert r["stdout"] == "hello 0\n1.1" and t.up.field("Authorization") == "Bearer " + CANARY, r


def test_http2_with_httpx(w):
    lib = os.path.join(w.folder, "httpx")
    if not os.path.exists(lib):
        pip = [sys.executable, "-m", "pip", "--retries", "0", "--timeout", "15", "install", "-q", "--no-compile", "--target", lib, "httpx[http2]"]
        got = subprocess.run(pip, capture_output=True, text=True)
        if got.returncode:
            raise world.Skip("httpx cannot be had here: " + got.stderr[-200:])
    code = """
import os, sys
sys.path.insert(0, '/tmp/httpx')
import httpx
with httpx.Client(http1=%r, http2=%r, timeout=60) as c:
    for size in (0, 1000, 300000):
        r = c.put('https://api.test:%d/v1/x', headers={'Authorization': 'Bearer ' + os.environ['KEY']}, content=b'x' * size)
        print(r.http_version, r.status_code, r.text.strip())
    for _ in range(3): # it sends first and reads then: whoever refuses has to wait for it
        r = c.post('https://api.test:%d/v1/x', headers={'Authorization': 'Bearer ' + os.environ['KEY']}, content=b'x' * %d)
        print(r.status_code, r.headers['x-caisson'])
"""
    for kind, port, name, refused in ((Set, 8443, "HTTP/1.1", 1000), (Set2, PORT, "HTTP/2", 300000)):
        with kind(w, methods=["PUT"]) as t:
            assert cli(w, "cp", lib, f"{t.box.id}:/tmp/").returncode == 0
            out = t.box.python(code % (name == "HTTP/1.1", name == "HTTP/2", port, port, refused)).split("\n")
            assert out == [f"{name} 200 hello {n}" for n in (0, 1000, 300000)] + ["403 refused"] * 3, out


def test_http2_signs_for_aws(w):
    key = "canary-wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
    with Set2(w, value=key, aws_key_id="AKIDEXAMPLE", env={"AWS_SECRET_ACCESS_KEY": "key"}) as t:
        t.node("""
            const s = connect();
            const signed = (path, body, method) => ask(s, { ':path': path, ':method': method, 'x-amz-date': '20261130T010203Z', cookie: ['a=1', 'b=2'], authorization:
                'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261130/eu-west-1/dynamodb/aws4_request, SignedHeaders=cookie;host;x-amz-date, Signature=' + '0'.repeat(64) }, body);
            const big = 'b'.repeat(700000);
            const all = await Promise.all([signed('/v1/x?b=2&a=1', 'data', 'POST'), signed('/v1/x?c', undefined, 'GET'), signed('/v1/x?d', big, 'PUT')]);
            assert.deepEqual(all.map((r) => r.text), ['hello 4\\n', 'hello 0\\n', 'hello 700000\\n']);
            const over = await signed('/v1/x?e', big + big, 'PUT');
            assert.equal(over.status, 413);
            s.close();""")
        heads = {h[":path"]: h for h in t.up.sent("/v1/x")}
        assert len(heads) == 3, heads
        for path, body in (("/v1/x?b=2&a=1", b"data"), ("/v1/x?c", b""), ("/v1/x?d", b"b" * 700000)):
            h = heads[path]
            head = "\r\n".join([f"{h[':method']} {path} HTTP/1.1", "host: " + h[":authority"], *(f"{k}: {v}" for k, v in h.items() if k[0] != ":" and isinstance(v, str))])
            sent, right = aws_signature(key, head, body, "dynamodb")
            assert sent == right, h
