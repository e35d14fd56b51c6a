"""Keys, images, info, health, metrics."""
import http.client
import re
import socket
import uuid

import pytest

from conftest import create


def test_keys_are_made_used_and_revoked(client, server):
    r = client.post("/v1/keys", {"name": "second"})
    assert r.status == 201 and re.fullmatch(r"e2b_[0-9a-f]{40}", r.json["key"]), r
    made = r.json
    other = client.with_key(made["key"])
    assert other.get("/v1/sandboxes").status == 200
    assert other.get("/v1/keys").status == 403 and other.get("/v1/keys").error["kind"] == "denied"
    assert other.post("/v1/keys", {"name": "x"}).status == 403
    listed = {k["id"]: k for k in client.get("/v1/keys").json["items"]}
    assert listed[made["id"]]["name"] == "second" and listed[made["id"]]["revoked"] is False
    assert made["key"] not in client.get("/v1/keys").body.decode()
    assert client.delete("/v1/keys/" + made["id"]).status == 204
    r = other.get("/v1/sandboxes")
    assert r.status == 401 and r.headers["WWW-Authenticate"] == 'Bearer realm="caisson"'
    assert client.delete("/v1/keys/nothing").status == 404


def test_what_a_revoked_key_holds_open_ends(client, box):
    made = client.post("/v1/keys", {"name": "leaves"}).json
    other = client.with_key(made["key"])
    code = {"code": "import time\nprint('begun', flush=True)\ntime.sleep(1000)"}
    held, r = other.open("POST", box.path + "/interpreters/default/execute", code, query={"stream": True})
    assert b"begun" in r.readline()
    mine, mine_r = client.open("POST", box.path + "/interpreters/default/execute", {"code": "print(6 * 7)"}, query={"stream": True})
    assert client.delete("/v1/keys/" + made["id"]).status == 204
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        r.read()
    held.close()
    assert b"42" in mine_r.read()  # which another key asked for, and the one before it was interrupted, since its client has gone
    mine.close()


def test_tenants_do_not_see_each_other(client, box):
    made = client.post("/v1/keys", {"name": "t", "tenant": "t-" + uuid.uuid4().hex[:8]}).json
    other = client.with_key(made["key"])
    assert other.get("/v1/sandboxes").json["items"] == []
    counts = other.get("/v1/info").json
    assert (counts["sandboxes"], counts["running"]) == (0, 0), "how many others have is theirs to know"
    for r in (other.get(box.path), other.post(box.path + "/runs", {"shell": "true"}), other.post(box.path + "/stop"), other.get(box.path + "/files", {"path": "/"}),
              other.get(box.path + "/runs"), other.patch(box.path, {"labels": {}}), other.get(box.path + "/ports/80/proxy/")):
        assert r.status == 404 and r.error["kind"] == "not_found", r
    assert other.delete(box.path).status == 204 and client.get(box.path).status == 200, "another's delete deletes nothing"
    mine = create(other, name=client.get(box.path).json["name"][:20] + "x")
    assert client.get(mine.path).status == 404
    other.delete(mine.path)
    client.delete("/v1/keys/" + made["id"])


def test_images(client):
    items = client.get("/v1/images").json["items"]
    assert items and all(re.fullmatch(r"sha256:[0-9a-f]{64}", i["digest"]) for i in items)
    one = client.get("/v1/images/default")
    assert one.status == 200 and one.json["digest"] in [i["digest"] for i in items]
    assert client.get("/v1/images/" + one.json["digest"]).json["digest"] == one.json["digest"]
    r = client.get("/v1/images/no-such/image:1")
    assert r.status == 404 and r.error["kind"] == "not_found"
    r = client.post("/v1/sandboxes", {"image": "no-such-image:9"})
    assert r.status in (400, 404, 422) and "no-such-image:9" in r.error["message"] and "default" in r.error["message"], "it names what is there"


def test_info(client):
    r = client.get("/v1/info")
    assert r.status == 200, r
    i = r.json
    assert i["api"] == "v1" and re.fullmatch(r"\d+\.\d+\.\d+.*", i["version"])
    assert i["default_boundary"] in i["boundaries"] and i["defaults"]["memory_mib"] > 0 and i["defaults"]["cpus"] > 0


def test_health_and_metrics_need_no_key_here(client, server):
    bare = client.with_key(None)
    assert bare.get("/healthz").json == {"status": "ok"}
    r = bare.get("/metrics")
    assert r.status == 200 and r.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for line in r.body.decode().splitlines():
        assert line.startswith("# ") or re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]*"\})? \d+', line), line
    assert "caisson_sandboxes " in r.body.decode()
    assert bare.get("/v1/info").status == 401
    bad = client.with_key("e2b_" + "0" * 40)
    assert bad.get("/healthz").status == 401, "a wrong key is wrong everywhere"


def test_the_unix_socket_speaks_the_same(client, server):
    s = socket.socket(socket.AF_UNIX)
    s.connect(server.data + "/run/socket")
    s.sendall(f"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {client.key}\r\nConnection: close\r\n\r\n".encode())
    out = b""
    while chunk := s.recv(65536):
        out += chunk
    s.close()
    assert out.startswith(b"HTTP/1.1 200 ")
