"""Snapshots, creates from them, forks; what is left of them, also after kill -9."""
import concurrent.futures
import os
import pathlib
import uuid

import pytest

from client import Sandbox
from conftest import create, wait_for


@pytest.fixture(autouse=True)
def able(client):
    if not client.get("/v1/info").json["capabilities"]["snapshot_disk"]:
        pytest.skip("this boundary takes no snapshots")


def snapshot(client, box, **fields):
    r = client.post("/v1/snapshots", {"sandbox": box.id, **fields})
    assert r.status == 201, r
    return r.json


def disks(server):
    """Files of the host that hold disks; empty for boundaries that keep them elsewhere."""
    folder = pathlib.Path(server.data + "/d/disks")
    return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []


def test_snapshot_and_create_from_it(client):
    box = create(client, env={"A": "1", "B": "2"}, resources={"memory_mib": 256, "disk_mib": 64, "pids": 99}, workdir="/tmp")
    box.sh("echo one > ~/f")
    s = snapshot(client, box, name="first:1.0")
    assert client.get("/v1/snapshots/first:1.0").json == s == client.get("/v1/snapshots/" + s["id"]).json
    assert (s["name"], s["state"], s["sandbox"], s["memory"], s["used_at"]) == ("first:1.0", "ready", box.id, False, None)
    assert s["bytes"] > 0 and s["resources"] == box.view["resources"] and s["image_digest"] == box.view["image_digest"]
    box.sh("echo two > ~/f")
    child = create(client, from_snapshot="first:1.0", env={"B": "3"})
    assert child.sh("cat ~/f; echo $A$B; pwd")["stdout"] == "one\n13\n/tmp\n"
    assert child.view["from_snapshot"] == s["id"] and child.view["resources"] == box.view["resources"]
    assert box.sh("cat ~/f")["stdout"] == "two\n"
    assert child.sh("cat /etc/machine-id")["stdout"].strip() == child.id.replace("-", "") or client.get("/v1/info").json["default_boundary"] == "fake"
    assert client.get("/v1/snapshots/first:1.0").json["used_at"] is not None
    # listed, and only to those whose it is
    assert [x["id"] for x in client.get("/v1/snapshots").json["items"]] == [s["id"]]
    assert client.get("/v1/snapshots", {"sandbox": str(uuid.uuid4())}).json["items"] == []
    assert client.delete(box.path).status == 204
    assert client.delete("/v1/snapshots/first:1.0").status == 204
    assert client.delete("/v1/snapshots/first:1.0").status == 204, "again"
    assert client.get("/v1/snapshots/first:1.0").status == 404
    assert child.sh("cat ~/f")["stdout"] == "one\n"
    client.delete(child.path)


def test_what_does_not_go_together_is_refused(client, box):
    s = snapshot(client, box)
    assert s["name"] == s["id"]
    try:
        for fields, word in (({"resources": {"disk_mib": 77}}, "disk_mib"), ({"image": "debian:1"}, "image")):
            r = client.post("/v1/sandboxes", {"from_snapshot": s["id"], **fields})
            assert r.status == 400 and word in r.error["message"], r
        assert client.post("/v1/sandboxes", {"from_snapshot": "nobody"}).status == 400
        assert client.post("/v1/sandboxes", {"from_snapshot": "../x"}).status == 400
        assert client.post("/v1/snapshots", {"sandbox": "nobody"}).status == 404
        assert client.post("/v1/snapshots", {"sandbox": box.id, "name": "a b"}).status == 400
        assert client.post("/v1/snapshots", {"sandbox": box.id, "name": s["id"]}).status == 409
        assert client.post("/v1/snapshots", {}).status == 400
        r = client.post("/v1/snapshots", {"sandbox": box.id, "memory": True})
        assert r.status == (201 if client.get("/v1/info").json["capabilities"]["snapshot_memory"] else 422), r
    finally:
        for x in client.get("/v1/snapshots").json["items"]:
            client.delete("/v1/snapshots/" + x["id"])


def test_of_a_stopped_one_and_of_a_paused_one(client, box):
    box.sh("echo kept > ~/f")
    ids = []
    if client.post(box.path + "/pause").status == 200:
        ids.append(snapshot(client, box)["id"])
        assert client.get(box.path).json["state"] == "paused"
        client.post(box.path + "/resume")
    client.post(box.path + "/stop")
    ids.append(snapshot(client, box)["id"])
    assert client.get(box.path).json["state"] == "stopped"
    for i in ids:
        child = create(client, from_snapshot=i, ephemeral=True)
        assert child.sh("cat ~/f")["stdout"] == "kept\n"
        assert client.delete(child.path).status == 204
        assert client.delete("/v1/snapshots/" + i).status == 204


def test_fork(client):
    box = create(client, labels={"k": "v"}, env={"E": "x"})
    box.sh("echo parent > ~/f")
    slow = box.start({"shell": "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.1; done"})
    r = client.post(box.path + "/fork", {"count": 3})
    assert r.status == 201, r
    children = [Sandbox(client, v) for v in r.json["items"]]
    assert len({c.id for c in children} | {box.id}) == 4
    for c in children:
        assert c.view["labels"] == {"k": "v"} and c.view["state"] == "running" and c.view["name"] == c.id
        assert c.sh(f"cat ~/f; echo $E; echo {c.id} > ~/f")["stdout"] == "parent\nx\n"
    assert {c.sh("cat ~/f")["stdout"].strip() for c in children} == {c.id for c in children}
    assert box.sh("cat ~/f")["stdout"] == "parent\n"
    assert client.get(box.runpath(slow), {"wait": True, "output": True}).json["stdout"] == "".join(f"{i}\n" for i in range(1, 9))
    named = client.post(box.path + "/fork", {"name": "the-child"}).json["items"][0]
    assert named["name"] == "the-child"
    assert client.post(box.path + "/fork", {"name": "the-child"}).status == 409
    assert client.post(box.path + "/fork", {"name": "x", "count": 2}).status == 400
    assert client.post(box.path + "/fork", {"count": 0}).status == 400
    assert client.post("/v1/sandboxes/nobody/fork").status == 404
    assert client.get("/v1/snapshots").json["items"] == [], "a fork leaves no snapshot"
    for i in [c.id for c in children] + [named["id"], box.id]:
        assert client.delete("/v1/sandboxes/" + i).status == 204


def test_at_the_same_time(client, box):
    """Snapshots and forks of one sandbox queue; nobody is refused, nothing is mixed up."""
    box.sh("echo p > ~/f")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        shots = [pool.submit(lambda: snapshot(client, box)) for _ in range(3)]
        forks = [pool.submit(lambda: client.post(box.path + "/fork", {}, timeout=60)) for _ in range(3)]
        shots, forks = [f.result() for f in shots], [f.result() for f in forks]
    assert [r.status for r in forks] == [201] * 3, forks
    assert len({s["id"] for s in shots}) == 3
    for r in forks:
        c = Sandbox(client, r.json["items"][0])
        assert c.sh("cat ~/f")["stdout"] == "p\n"
        client.delete(c.path)
    for s in shots:
        assert client.delete("/v1/snapshots/" + s["id"]).status == 204


def test_deleted_meanwhile(client):
    box = create(client)
    box.sh("head -c 30000000 /dev/urandom > ~/big")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        shot = pool.submit(lambda: client.post("/v1/snapshots", {"sandbox": box.id}, timeout=60))
        gone = pool.submit(lambda: client.delete(box.path, timeout=60))
        shot, gone = shot.result(), gone.result()
    assert gone.status == 204
    assert shot.status in (201, 404, 409, 410), shot
    left = client.get("/v1/snapshots").json["items"]
    assert [x["id"] for x in left] == ([shot.json["id"]] if shot.status == 201 else [])
    for x in left:
        client.delete("/v1/snapshots/" + x["id"])


@pytest.mark.limit(300)
def test_kill_nine(own):
    """What was acknowledged is there afterwards and whole; what was not has left nothing."""
    server, client = own
    box = create(client)
    box.sh("echo kept > ~/f; head -c 20000000 /dev/urandom > ~/big; sha256sum ~/big > ~/sum")
    s = snapshot(client, box, name="kept")
    for i in range(3):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            lost = pool.submit(lambda: _quietly(client, box, i))
            server.kill()
            lost.result()
        client = server.start()
        box.client = client
        assert [x["id"] for x in client.get("/v1/snapshots").json["items"] if x["name"] == "kept"] == [s["id"]]
        for x in client.get("/v1/snapshots").json["items"]:
            assert x["state"] == "ready"
            child = create(client, from_snapshot=x["id"])
            assert child.sh("cat ~/f; sha256sum -c --status ~/sum && echo whole")["stdout"] == "kept\nwhole\n"
            assert client.delete(child.path).status == 204
            if x["id"] != s["id"]:
                client.delete("/v1/snapshots/" + x["id"])
        assert box.sh("echo alive")["stdout"] == "alive\n"
    assert client.delete("/v1/snapshots/kept").status == 204
    for v in client.get("/v1/sandboxes").json["items"]:
        client.delete("/v1/sandboxes/" + v["id"])
    wait_for(lambda: not [d for d in disks(server) if not d.startswith(("template-", "spare-"))])


def _quietly(client, box, i):
    try:
        return client.post("/v1/snapshots", {"sandbox": box.id, "name": f"lost-{i}"}, timeout=30)
    except OSError:
        return None
    except Exception:  # the connection broke in the middle of an answer
        return None


def test_a_fork_of_what_had_a_secret_that_is_gone(client):
    names = ["kept-" + os.urandom(4).hex(), "gone-" + os.urandom(4).hex()]
    for n in names:
        assert client.post("/v1/secrets", {"name": n, "value": "a-value-of-some-length", "hosts": ["api.test:443"]}).status == 201
    box = create(client, network={"mode": "allow", "allow": ["api.test:443"]}, secrets={"env": {"KEPT": names[0], "GONE": names[1]}})
    assert client.delete("/v1/secrets/" + names[1]).status == 204
    r = client.post(box.path + "/fork", {"count": 1})
    assert r.status == 201, r
    child = Sandbox(client, r.json["items"][0])
    wait_for(lambda: client.get(child.path).json["state"] == "running")
    assert client.get(child.path).json["secrets"]["env"] == {"KEPT": names[0]}
    assert child.sh("echo ${GONE:-none} ${KEPT%%-*}")["stdout"] == "none caisson\n"
    for b in (box, child):
        assert client.delete(b.path).status == 204
    assert client.delete("/v1/secrets/" + names[0]).status == 204
