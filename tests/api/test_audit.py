"""The audit log: what is in it, who may read it, that nothing of it can be changed unnoticed; streams and webhooks."""
import base64
import glob
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import socket
import subprocess
import threading

import pytest

from conftest import create, wait_for


def lines(client, **query):
    items, after = [], 0
    while after is not None:
        page = client.get("/v1/audit", {"limit": 1000, **query, "after": after}).json
        items += page["items"]
        after = page["next"]
    return items


def types_of(client, sandbox):
    return [l["type"] for l in lines(client, sandbox=sandbox)]


def folder(server):
    return server.data + "/d/state/audit"


def verify(server, *args):
    r = subprocess.run([os.environ["CAISSON_BIN"], "audit", "verify", *args, folder(server)], capture_output=True, text=True)
    return r.returncode, r.stdout + r.stderr


def chain_of(raw, prev="0" * 64):
    """What docs/internals/audit.md says, done again with nothing of ours."""
    for line in raw.splitlines():
        body, rest = line.rsplit(b',"hash":"', 1)
        digest = hashlib.sha256(prev.encode() + body).hexdigest()
        assert rest == digest.encode() + b'"}', line
        prev = digest
        yield json.loads(line)


def test_a_sandbox_from_beginning_to_end(client, server):
    me = [k for k in client.get("/v1/keys").json["items"] if k["name"] == "first"][0]["id"]
    box = create(client, labels={"a": "b"})
    box.run({"argv": ["sh", "-c", "echo out; exit 3"]})
    assert client.put(box.path + "/files", b"12345", {"path": "/tmp/f"}).status in (200, 201, 204)
    assert client.get(box.path + "/files", {"path": "/tmp/f"}).body == b"12345"
    client.delete(box.path + "/files", {"path": "/tmp/f"})
    client.delete(box.path)
    got = lines(client, sandbox=box.id)
    kinds = [l["type"] for l in got]
    assert kinds[0] == "sandbox.created" and kinds[-1] == "sandbox.deleted"
    by = {l["type"]: l for l in got}
    assert by["sandbox.created"]["key"] == me and by["sandbox.created"]["network"] == "none"
    assert by["run.started"]["key"] == me and "exit 3" in by["run.started"]["command"]
    assert by["run.ended"]["exit_code"] == 3 and by["run.ended"]["stdout_bytes"] == 4 and "key" not in by["run.ended"]
    assert by["file.write"]["bytes"] == 5 and by["file.read"]["bytes"] == 5 and by["file.read"]["path"] == "/tmp/f"
    assert by["file.delete"]["key"] == me
    asked = [l for l in got if l["type"] == "sandbox.state" and l["to"] == "deleting"]
    assert len(asked) == 1 and asked[0]["key"] == me
    assert all(l["tenant"] == "default" for l in got)


def test_environment_input_and_output_are_not_in_it(client, server):
    canary = "canary-7c1f"
    box = create(client, env={"A": canary})
    box.run({"argv": ["cat"], "stdin": canary, "env": {"B": canary}})
    client.put(box.path + "/files", canary.encode(), {"path": "/tmp/f"})
    client.delete(box.path)
    for name in glob.glob(folder(server) + "/*"):
        assert canary.encode() not in pathlib.Path(name).read_bytes()


def test_what_others_do_is_not_seen(client):
    key = client.post("/v1/keys", {"name": "other", "tenant": "audit-other"}).json["key"]
    other = client.with_key(key)
    box = create(client)
    theirs = create(other)
    assert lines(other, sandbox=box.id) == []
    seen = lines(other)
    assert seen and all(l.get("tenant") == "audit-other" for l in seen)
    assert {theirs.id} == {l["sandbox"] for l in seen if "sandbox" in l}
    assert any(l.get("sandbox") == theirs.id for l in lines(client))  # an operator sees all
    raw = other.get("/v1/audit/stream").body
    assert box.id.encode() not in raw and theirs.id.encode() in raw
    assert other.get("/v1/webhooks").status == 403 and other.post("/v1/webhooks", {"url": "http://127.0.0.1/"}).status == 403
    client.delete(box.path)
    other.delete(theirs.path)


def test_keys(client):
    made = client.post("/v1/keys", {"name": "k1"}).json
    client.with_key(made["key"]).get("/v1/sandboxes")
    client.delete("/v1/keys/" + made["id"])
    assert client.with_key(made["key"]).get("/v1/sandboxes").status == 401
    all_of_them = lines(client, type="key")
    assert {"key.created", "key.used", "key.revoked"} <= {l["type"] for l in all_of_them if made["id"] in (l.get("id"), l.get("key"))}
    wait_for(lambda: any(l["type"] == "key.refused" for l in lines(client, type="key.refused")))
    assert made["key"] not in json.dumps(all_of_them)


def test_pages(client):
    box = create(client)
    for _ in range(5):
        box.run({"argv": ["true"]})
    everything = lines(client, sandbox=box.id)
    paged, after = [], 0
    while after is not None:
        page = client.get("/v1/audit", {"sandbox": box.id, "limit": 2, "after": after}).json
        assert len(page["items"]) <= 2
        paged += page["items"]
        after = page["next"]
    assert paged[:len(everything)] == everything
    assert [l["seq"] for l in lines(client)] == sorted(l["seq"] for l in lines(client))
    assert {l["type"] for l in lines(client, type="run")} == {"run.started", "run.ended"}
    assert lines(client, type="ru") == []
    by_name = client.get("/v1/audit", {"sandbox": box.view["name"]}).json["items"]
    assert by_name[0]["sandbox"] == box.id
    for bad in ({"limit": 0}, {"limit": 1001}, {"after": -1}, {"after": "x"}, {"what": 1}):
        assert client.get("/v1/audit", bad).status == 400, bad
    client.delete(box.path)


def test_the_stream_is_the_chain(client, server):
    box = create(client)
    client.put(box.path + "/files", b"", {"path": "/tmp/ch\u00e4in \"quoted\""})
    client.delete(box.path)
    raw = client.get("/v1/audit/stream").body
    parsed = list(chain_of(raw))
    assert [l["seq"] for l in parsed] == list(range(1, len(parsed) + 1))
    assert any(l.get("path") == "/tmp/ch\u00e4in \"quoted\"" and l["sandbox"] == box.id for l in parsed)


def events_of(client, headers):
    c, r = client.open("GET", "/v1/audit/stream", headers={"Accept": "text/event-stream", **headers}, timeout=30)
    assert r.status == 200 and r.headers["Content-Type"] == "text/event-stream"
    return c, r


def next_event(r):
    event = {}
    while True:
        line = r.readline().decode().rstrip("\n")
        if line.startswith(":"):
            continue
        if not line:
            if event:
                return event
            continue
        name, value = line.split(": ", 1)
        event[name] = value


def test_server_sent_events_go_on_where_they_were(client):
    head = client.get("/v1/audit", {"limit": 1}).json["head"]["seq"]
    c, r = events_of(client, {"Last-Event-ID": str(head)})
    box = create(client)
    seen = []
    while not any(l["type"] == "sandbox.state" and l["to"] == "running" and l["sandbox"] == box.id for l in seen):
        event = next_event(r)
        seen.append(json.loads(event["data"]))
        assert int(event["id"]) == seen[-1]["seq"]
    c.close()
    client.delete(box.path)  # while nobody listens
    c, r = events_of(client, {"Last-Event-ID": str(seen[-1]["seq"])})
    while seen[-1]["type"] != "sandbox.deleted":
        seen.append(json.loads(next_event(r)["data"]))
    c.close()
    assert [l["seq"] for l in seen] == list(range(seen[0]["seq"], seen[-1]["seq"] + 1))


@pytest.mark.limit(120)
def test_a_kill_loses_no_line_and_verify_finds_tampering(own):
    server, client = own
    done = []
    for _ in range(3):
        box = create(client)
        box.run({"argv": ["true"]})
        client.delete(box.path)
        done.append(box.id)
        server.kill()
        code, said = verify(server)
        assert code == 0, said
        client = server.start()
    for id in done:
        assert types_of(client, id)[0] == "sandbox.created" and types_of(client, id)[-1] == "sandbox.deleted", id
    exported = server.data + "/export"
    command = [os.environ["CAISSON_BIN"], "audit"]
    env = {**os.environ, "CAISSON_URL": f"http://127.0.0.1:{server.port}", "CAISSON_API_KEY": client.key}
    pathlib.Path(exported).write_bytes(subprocess.run(command + ["export"], env=env, capture_output=True, check=True).stdout)
    assert subprocess.run(command + ["verify", exported], capture_output=True).returncode == 0
    tail = subprocess.run(command + ["tail", "-n", "5"], env=env, capture_output=True, text=True, check=True).stdout
    assert len(tail.splitlines()) >= 5
    head = client.get("/v1/audit", {"limit": 1}).json["head"]
    server.stop()
    code, said = verify(server, "--expect", f"{head['seq']}:{head['hash']}")
    assert code == 0, said
    path = sorted(glob.glob(folder(server) + "/audit-*"))[-1]
    good = pathlib.Path(path).read_bytes()
    whole = good.splitlines(keepends=True)
    spoiled = {
        "changed": good.replace(b'"run.started"', b'"run.stopped"', 1),
        "missing": b"".join(whole[:3] + whole[4:]),
        "moved": b"".join(whole[:3] + [whole[4], whole[3]] + whole[5:]),
        "the end is missing": b"".join(whole[:-2]),
    }
    for word, bytes_ in spoiled.items():
        pathlib.Path(path).write_bytes(bytes_)
        code, said = verify(server)
        assert code == 125 and word in said, (word, said)
    pathlib.Path(path).write_bytes(spoiled["the end is missing"])
    client = server.start()  # it serves, and goes on saying so
    assert lines(client, type="audit.damaged")
    assert verify(server)[0] == 125


# --- webhooks ---


class Receiver:
    """Takes what is posted; answers with what `status` says."""

    def __init__(self):
        outer = self
        self.status, self.got, self.secret, self.authorizations = 200, [], None, []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((outer.status, self.headers["Caisson-Signature"], body))
                outer.authorizations.append(self.headers["Authorization"])
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taken(self):
        return [l for status, _, body in self.got if status == 200 for l in json.loads(body)["lines"]]

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    r = Receiver()
    yield r
    r.stop()


def test_a_webhook_gets_every_line_signed(client, receiver):
    hook = client.post("/v1/webhooks", {"url": receiver.url}).json
    box = create(client)
    client.delete(box.path)
    wait_for(lambda: any(l["type"] == "sandbox.deleted" and l["sandbox"] == box.id for l in receiver.taken()))
    for _, signature, body in receiver.got:
        at, mac = (part.split("=")[1] for part in signature.split(","))
        assert hmac.compare_digest(mac, hmac.new(hook["secret"].encode(), at.encode() + b"." + body, "sha256").hexdigest())
        assert json.loads(body)["webhook"] == hook["id"]
    seqs = [l["seq"] for l in receiver.taken()]
    assert seqs == list(range(seqs[0], seqs[-1] + 1))
    listed = [w for w in client.get("/v1/webhooks").json["items"] if w["id"] == hook["id"]][0]
    assert "secret" not in listed and listed["failures"] == 0
    assert client.delete("/v1/webhooks/" + hook["id"]).status == 204
    assert client.delete("/v1/webhooks/" + hook["id"]).status == 404


def test_a_webhook_of_some_types(client, receiver):
    hook = client.post("/v1/webhooks", {"url": receiver.url, "types": ["run", "sandbox.deleted"], "secret": "0123456789abcdef"}).json
    box = create(client)
    box.run({"argv": ["true"]})
    client.delete(box.path)
    wait_for(lambda: any(l["type"] == "sandbox.deleted" and l["sandbox"] == box.id for l in receiver.taken()))
    assert {l["type"] for l in receiver.taken()} == {"run.started", "run.ended", "sandbox.deleted"}
    client.delete("/v1/webhooks/" + hook["id"])


def content(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:  # gone meanwhile: the server goes on
        return b""


@pytest.mark.limit(120)
def test_a_receiver_that_is_away_misses_nothing(own, receiver):
    server, client = own
    receiver.status = 503
    hook = client.post("/v1/webhooks", {"url": receiver.url, "types": ["sandbox.created"]}).json
    first = create(client)
    wait_for(lambda: receiver.got)
    failing = lambda: [w for w in client.get("/v1/webhooks").json["items"] if w["id"] == hook["id"] and w["failures"] and "503" in w["error"]]
    wait_for(failing)
    server.kill()
    client = server.start()
    second = create(client)
    receiver.status = 200
    wait_for(lambda: {l["sandbox"] for l in receiver.taken()} >= {first.id, second.id}, 60)
    assert [l["sandbox"] for l in receiver.taken()].count(first.id) == 1
    # the secret is what it was, and it is in no file of the server's
    at, mac = (part.split("=")[1] for part in receiver.got[-1][1].split(","))
    assert mac == hmac.new(hook["secret"].encode(), at.encode() + b"." + receiver.got[-1][2], "sha256").hexdigest()
    files = [p for p in pathlib.Path(server.data).rglob("*") if p.is_file() and p.parent.name != "disks"]  # those are the sandboxes'
    assert len(files) > 3 and not [p for p in files if hook["secret"].encode() in content(p)]


def test_a_receiver_that_is_not_there_holds_up_nothing(client):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        hook = client.post("/v1/webhooks", {"url": f"http://127.0.0.1:{s.getsockname()[1]}/"}).json
    box = create(client)
    assert box.run({"argv": ["true"]})["exit_code"] == 0
    client.delete(box.path)
    wait_for(lambda: [w for w in client.get("/v1/webhooks").json["items"] if w["id"] == hook["id"] and w["failures"]])
    client.delete("/v1/webhooks/" + hook["id"])


SAYS = {
    "": "it is empty", "x": "http:// or https://", "ftp://a/": "http:// or https://", "file:///etc/passwd": "http:// or https://", "http://": "host",
    "http://a b/": "url: ", "http://a/\x01": "url: ", "http://a:99999/": "ort", "http://a:0/": "1 to 65535", "http://a/" + "x" * 2048: "too long",
}


@pytest.mark.parametrize("url", SAYS)
def test_what_is_no_address_is_told(client, url):
    r = client.post("/v1/webhooks", {"url": url})
    assert r.status == 400, r
    message = r.json["error"]["message"]
    assert message.startswith("url: ") and SAYS[url] in message and "https://example.org/hook, of at most 2048 bytes" in message
    assert len(url) < 5 or url not in message, "it may hold a password"


def test_what_else_of_a_webhook_is_wrong_is_told(client):
    for more, *words in (({"secret": "short"}, "secret: 5 bytes", "16 to 256"), ({"secret": "x" * 257}, "secret: 257 bytes", "16 to 256"),
                         ({"types": ["run", "A b"]}, 'types: "A b"', "1 to 64"), ({"types": [""]}, 'types: ""', "1 to 64"),
                         ({"types": ["run"] * 33}, "types: 33", "at most 32"), ({"types": ["a" * 65]}, "types: ", "1 to 64")):
        r = client.post("/v1/webhooks", {"url": "http://a/", **more})
        assert r.status in (400, 413) and all(w in r.json["error"]["message"] for w in words), (more, r)


def test_a_password_in_a_webhooks_address_is_used_and_not_shown(own, receiver):
    """Nor a name: GitHub and others take a token in its place."""
    server, client = own
    name, password = "n4me-or-token", "pa55-word"
    hooks = [client.post("/v1/webhooks", {"url": receiver.url.replace("//", f"//{user}@")}).json for user in (f"{name}:{password}", name)]
    client.delete(create(client).path)
    wanted = "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
    wait_for(lambda: wanted in receiver.authorizations)
    for round in range(2):
        listed = client.get("/v1/webhooks").json["items"]
        said = json.dumps([hooks, listed, lines(client)])
        assert name not in said and password not in said, said
        assert sorted(w["url"] for w in listed) == [receiver.url.replace("//", "//***:***@"), receiver.url.replace("//", "//***@")]
        for path in pathlib.Path(server.data).rglob("*"):
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                assert name.encode() not in content and password.encode() not in content, path
        if round == 0:
            receiver.authorizations.clear()
            server.stop()
            client = server.start()
            client.delete(create(client).path)
            wait_for(lambda: wanted in receiver.authorizations)
    for w in listed:
        assert client.delete("/v1/webhooks/" + w["id"]).status == 204


@pytest.mark.parametrize("body", [{}, {"url": "ftp://a/"}, {"url": "file:///etc/passwd"}, {"url": "x"}, {"url": 7}, {"url": "http://a/", "secret": "short"},
                                  {"url": "http://a/", "types": ["A b"]}, {"url": "http://a/", "types": "run"}, {"url": "http://a/", "more": 1}])
def test_what_is_no_webhook(client, body):
    assert client.post("/v1/webhooks", body).status == 400
