"""Volumes: shared between sandboxes, kept over restarts, gone only when nobody has them."""
import pathlib
import uuid

import pytest

from conftest import create


@pytest.fixture
def able(client):
    if not client.get("/v1/info").json["capabilities"]["volumes"]:
        pytest.skip("this boundary has no volumes")


def make(client, **fields):
    r = client.post("/v1/volumes", fields)
    assert r.status == 201, r
    return r.json


def files(server):
    return sorted(p.name for p in pathlib.Path(server.data + "/d/disks").glob("*volume-*"))


def test_said_where_there_are_none(client):
    if client.get("/v1/info").json["capabilities"]["volumes"]:
        pytest.skip("there are")
    r = client.post("/v1/volumes", {"name": "v"})
    assert (r.status, r.json["error"]["kind"]) == (422, "unsupported"), r
    r = client.post("/v1/sandboxes", {"volumes": [{"volume": "v", "path": "/data"}]})
    assert (r.status, r.json["error"]["kind"]) == (422, "unsupported"), r
    assert client.get("/v1/volumes").json["items"] == []


def test_life(client, server, able):
    v = make(client, name="work", size_mib=64)
    assert (v["name"], v["state"], v["size_mib"], v["sandboxes"], v["used_at"]) == ("work", "ready", 64, 0, None)
    assert client.get("/v1/volumes/work").json == client.get("/v1/volumes/" + v["id"]).json
    assert client.post("/v1/volumes", {"name": "work"}).status == 409
    one = create(client, volumes=[{"volume": "work", "path": "/data"}])
    assert one.view["volumes"] == [{"volume": v["id"], "path": "/data", "subpath": None, "read_only": False}]
    two = create(client, volumes=[{"volume": v["id"], "path": "/mnt/v", "subpath": "sub/dir"}, {"volume": "work", "path": "/ro", "read_only": True}])
    assert two.sh("echo from two > /mnt/v/f; cat /ro/sub/dir/f; touch /ro/x 2>/dev/null || echo read-only")["stdout"] == "from two\nread-only\n"
    assert one.sh("cat /data/sub/dir/f; head -c 3000000 /dev/urandom > /data/big; sync /data/big")["stdout"] == "from two\n"
    now = client.get("/v1/volumes/work").json
    assert (now["sandboxes"], now["used_at"] is None) == (2, False) and now["used_bytes"] > 3000000, now
    # of a stopped one, too
    assert client.post(one.path + "/stop").status == 200
    assert client.delete(two.path).status == 204
    r = client.delete("/v1/volumes/work")
    assert r.status == 409 and one.id in r.json["error"]["message"], r
    assert client.post(one.path + "/start").status == 200
    assert one.sh("cat /data/sub/dir/f")["stdout"] == "from two\n"
    # a fork shares it, it does not copy it
    child = client.post(one.path + "/fork", {}).json["items"][0]
    assert child["volumes"] == one.view["volumes"]
    at = f"/v1/sandboxes/{child['id']}/runs"
    assert client.post(at, {"shell": "cat /data/sub/dir/f; echo from the child > /data/sub/c"}).json["stdout"] == "from two\n"
    assert one.sh("cat /data/sub/c")["stdout"] == "from the child\n"
    assert client.delete("/v1/sandboxes/" + child["id"]).status == 204
    assert client.delete(one.path).status == 204
    assert client.delete("/v1/volumes/work").status == 204
    assert client.delete("/v1/volumes/work").status == 204, "again"
    assert client.get("/v1/volumes/work").status == 404
    r = client.post("/v1/sandboxes", {"volumes": [{"volume": "work", "path": "/data"}]})
    assert r.status == 400 and "work" in r.json["error"]["message"], r


def test_form(client):
    for volumes, word in (([{"volume": "v"}], "path"), ([{"path": "/x"}], "volume"), ({}, "array"), ([1], "objects"),
                          ([{"volume": "v", "path": "x"}], "path"), ([{"volume": "v", "path": "/x/../y"}], "path"), ([{"volume": "v", "path": "/"}], "path"),
                          ([{"volume": "v", "path": "/proc"}], "/proc"), ([{"volume": "v", "path": "/dev/shm"}], "/dev"),
                          ([{"volume": "v", "path": "/x", "subpath": "../y"}], "subpath"), ([{"volume": "v", "path": "/x", "subpath": "/y"}], "subpath"),
                          ([{"volume": "v", "path": "/x", "mode": 1}], "mode"), ([{"volume": "v", "path": "/x"}] * 2, "two"),
                          ([{"volume": "v", "path": "/" + "x" * 200}], "path"), ([{"volume": "../v", "path": "/x"}], "volume")):
        r = client.post("/v1/sandboxes", {"volumes": volumes})
        assert r.status == 400 and word in r.json["error"]["message"], (volumes, r)
    r = client.post("/v1/sandboxes", {"volumes": [{"volume": "v", "path": f"/x{i}"} for i in range(9)]})
    assert r.status == 413, r
    for body in ({"name": ""}, {"name": "a/b"}, {"name": ".a"}, {"size_mib": 1}, {"size_mib": 1 << 40}, {"size": 1}):
        assert client.post("/v1/volumes", body).status == 400, body


def test_another_tenants_is_not_there(client, able):
    v = make(client, name="mine-" + uuid.uuid4().hex[:8], size_mib=16)
    key = client.post("/v1/keys", {"name": "other", "tenant": "others"}).json
    other = client.with_key(key["key"])
    assert other.get("/v1/volumes").json["items"] == []
    assert other.get("/v1/volumes/" + v["id"]).status == 404
    assert other.delete("/v1/volumes/" + v["id"]).status == 204, "not there is success"
    assert other.post("/v1/sandboxes", {"volumes": [{"volume": v["id"], "path": "/x"}]}).status == 400
    assert client.get("/v1/volumes/" + v["id"]).status == 200
    assert client.delete("/v1/volumes/" + v["id"]).status == 204


def test_over_kill_9(own):
    server, client = own
    if not client.get("/v1/info").json["capabilities"]["volumes"]:
        pytest.skip("this boundary has no volumes")
    v = make(client, name="kept", size_mib=32)
    one = create(client, volumes=[{"volume": "kept", "path": "/data"}])
    one.sh("echo before > /data/f")
    server.kill()
    client = server.start()
    assert client.get("/v1/volumes/kept").json["sandboxes"] == 1
    # the adopted one and a new one are at the same file system
    two = create(client, volumes=[{"volume": "kept", "path": "/data"}])
    assert two.sh("cat /data/f; echo after > /data/g")["stdout"] == "before\n"
    assert client.post(f"/v1/sandboxes/{one.id}/runs", {"shell": "cat /data/g"}).json["stdout"] == "after\n"
    assert client.delete("/v1/volumes/kept").status == 409
    for box in (one, two):
        assert client.delete("/v1/sandboxes/" + box.id).status == 204
    server.kill()
    client = server.start()
    three = create(client, volumes=[{"volume": v["id"], "path": "/data"}])
    assert three.sh("cat /data/f /data/g")["stdout"] == "before\nafter\n"
    assert client.delete("/v1/sandboxes/" + three.id).status == 204
    assert client.delete("/v1/volumes/kept").status == 204
    assert files(server) == [] or all(f.startswith("trash-") for f in files(server))
