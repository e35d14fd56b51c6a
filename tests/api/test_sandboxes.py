"""Create, list, change, stop, start, delete; lifetimes."""
import re
import time
import uuid

import pytest

from client import Sandbox
from conftest import create, wait_for

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def test_create_says_what_it_is(client):
    r = client.post("/v1/sandboxes", {"name": "what-1", "labels": {"a": "1"}, "env": {"E": "é"}, "resources": {"cpus": 0.5, "memory_mib": 128, "pids": 64},
                                      "lifetime": {"idle_s": 3600, "max_s": 7200}, "hostname": "hosty"})
    assert r.status == 201, r
    s = r.json
    try:
        assert re.fullmatch(UUID, s["id"])
        assert r.headers["Location"] == "/v1/sandboxes/" + s["id"]
        assert (s["name"], s["state"], s["error"], s["labels"], s["env"]) == ("what-1", "running", None, {"a": "1"}, {"E": "é"})
        assert s["resources"]["cpus"] == 0.5 and s["resources"]["memory_mib"] == 128 and s["resources"]["pids"] == 64
        assert s["resources"]["disk_mib"] > 0
        assert s["lifetime"] == {"idle_s": 3600, "max_s": 7200, "delete_after_s": -1}
        assert s["network"] == {"mode": "none", "allow": [], "deny": [], "limits": {}}
        assert re.fullmatch(TIME, s["created_at"]) and re.fullmatch(r"sha256:[0-9a-f]{64}", s["image_digest"])
        box = Sandbox(client, s)
        assert box.sh('hostname 2>/dev/null || cat /proc/sys/kernel/hostname')["stdout"] in ("hosty\n", box.sh("uname -n")["stdout"])
        assert box.sh('printf %s "$E"')["stdout"] == "é"
        assert client.get("/v1/sandboxes/what-1").json["id"] == s["id"], "by name"
        got = client.get("/v1/sandboxes/" + s["id"]).json
        assert {k: got[k] for k in got if k not in ("updated_at", "active_at")} == {k: s[k] for k in s if k not in ("updated_at", "active_at")}
    finally:
        assert client.delete("/v1/sandboxes/" + s["id"]).status == 204
    assert client.get("/v1/sandboxes/" + s["id"]).status == 404
    assert client.delete("/v1/sandboxes/" + s["id"]).status == 204, "again"
    assert client.delete("/v1/sandboxes/" + str(uuid.uuid4())).status == 204


def test_a_name_is_taken_once(client, box):
    s = create(client, name="taken")
    r = client.post("/v1/sandboxes", {"name": "taken"})
    assert r.status == 409 and r.error["kind"] == "conflict" and "taken" in r.error["message"]
    r = client.post("/v1/sandboxes", {"name": box.id})  # it would be shadowed by the id
    assert r.status == 409 and "taken" in r.error["message"]
    client.delete(s.path)
    s = create(client, name="taken")
    client.delete(s.path)


def test_the_same_key_gives_the_same_sandbox(client):
    key = uuid.uuid4().hex
    a = client.post("/v1/sandboxes", {"idempotency_key": key})
    b = client.post("/v1/sandboxes", {}, headers={"Idempotency-Key": key})
    assert (a.status, b.status) == (201, 201)
    assert a.json["id"] == b.json["id"]
    client.delete("/v1/sandboxes/" + a.json["id"])


def test_list_pages_and_filters(client):
    group = uuid.uuid4().hex
    made = [create(client, labels={"group": group, "n": str(i % 2)}).id for i in range(7)]
    try:
        seen, cursor, pages = [], None, 0
        while True:
            query = [("label", "group:" + group), ("limit", 3)] + ([("cursor", cursor)] if cursor else [])
            r = client.get("/v1/sandboxes", query)
            assert r.status == 200, r
            assert r.json["total"] == 7
            seen += [s["id"] for s in r.json["items"]]
            pages += 1
            cursor = r.json["next"]
            if cursor is None:
                break
        assert seen == made and pages == 3
        newest = client.get("/v1/sandboxes", [("label", "group:" + group), ("order", "newest")]).json["items"]
        assert [s["id"] for s in newest] == made[::-1]
        both = client.get("/v1/sandboxes", [("label", "group:" + group), ("label", "n:1")]).json
        assert [s["id"] for s in both["items"]] == made[1::2] and both["total"] == 3
        assert client.get("/v1/sandboxes", [("label", "group:" + group), ("state", "stopped")]).json["items"] == []
        one = client.get("/v1/sandboxes", {"id_prefix": made[3]}).json["items"]
        assert [s["id"] for s in one] == [made[3]]
        exact = client.get("/v1/sandboxes", [("label", "group:" + group), ("limit", 7)]).json
        assert exact["next"] is None, "no empty page at the end"
    finally:
        for i in made:
            client.delete("/v1/sandboxes/" + i)


def test_update_is_all_or_nothing(client, box):
    r = client.patch(box.path, {"labels": {"x": "y"}, "env": {"A": "1", "B": "2"}, "lifetime": {"idle_s": 50}})
    assert r.status == 200, r
    assert r.json["labels"] == {"x": "y"} and r.json["env"] == {"A": "1", "B": "2"} and r.json["lifetime"]["idle_s"] == 50
    r = client.patch(box.path, {"env": {"A": None, "C": "3"}, "labels": {}})
    assert r.json["env"] == {"B": "2", "C": "3"} and r.json["labels"] == {} and r.json["lifetime"]["idle_s"] == 50
    assert box.sh("echo ${A-none} $B $C")["stdout"] == "none 2 3\n"
    bad = client.patch(box.path, {"env": {"D": "4"}, "lifetime": {"idle_s": -1}})
    assert bad.status == 400 and "idle_s" in bad.error["message"]
    assert client.get(box.path).json["env"] == {"B": "2", "C": "3"}
    client.patch(box.path, {"lifetime": {"idle_s": 0}})


def test_stop_and_start_keep_files_and_no_process(client, box):
    box.sh("echo kept > /tmp/f; echo kept > f; (sleep 1000 &)")
    before = box.sh("cat f")["stdout"]
    r = client.post(box.path + "/stop")
    assert r.status == 200 and r.json["state"] == "stopped", r
    again = client.post(box.path + "/stop")
    assert again.status == 200 and again.json["state"] == "stopped"
    run = client.post(box.path + "/runs", {"shell": "true"})
    assert run.status == 409 and run.error["kind"] == "conflict" and "stopped" in run.error["message"]
    assert client.get(box.path + "/files", {"path": "f"}).status == 409
    r = client.post(box.path + "/start")
    assert r.status == 200 and r.json["state"] == "running", r
    assert client.post(box.path + "/start").json["state"] == "running"
    assert box.sh("cat f")["stdout"] == before == "kept\n"
    assert "sleep" not in box.sh("cat /proc/[0-9]*/comm")["stdout"].split()


def test_pause_and_resume(client, box):
    info = client.get("/v1/info").json
    r = client.post(box.path + "/pause")
    if not info["capabilities"]["pause"]:
        assert r.status == 422 and r.error["kind"] == "unsupported"
        return
    assert r.status == 200 and r.json["state"] == "paused", r
    r = client.post(box.path + "/resume")
    assert r.status == 200 and r.json["state"] == "running", r
    assert box.sh("echo on")["stdout"] == "on\n"


def test_a_paused_one_can_be_deleted(client):
    s = create(client)
    client.post(s.path + "/pause")
    assert client.delete(s.path).status == 204
    assert client.get(s.path).status == 404


def test_usage(client, box):
    r = client.get(box.path + "/usage")
    assert r.status == 200, r
    u = r.json
    limits = client.get(box.path).json["resources"]
    assert u["pids_limit"] == limits["pids"] or u["pids_limit"] == 0
    assert u["memory_limit_bytes"] in (limits["memory_mib"] << 20, 0)
    assert set(u) == {"memory_bytes", "memory_limit_bytes", "cpu_usec", "cpu_limit", "pids", "pids_limit", "disk_bytes", "disk_limit_bytes",
                      "inodes", "inodes_limit", "oom_kills"}


def test_idle_ones_are_stopped(client):
    s = create(client, lifetime={"idle_s": 1})
    kept = create(client, lifetime={"idle_s": 2})
    deadline = time.monotonic() + 3.5
    while time.monotonic() < deadline:
        assert client.post(kept.path + "/touch").status == 204
        time.sleep(0.3)
    assert client.get(kept.path).json["state"] == "running"
    wait_for(lambda: client.get(s.path).json["state"] == "stopped", 10)
    client.delete(s.path)
    client.delete(kept.path)


def test_a_run_is_activity(client):
    s = create(client, lifetime={"idle_s": 1})
    assert s.sh("sleep 3; echo done")["stdout"] == "done\n"
    client.delete(s.path)


def test_the_maximum_lifetime_deletes(client):
    s = create(client, lifetime={"max_s": 2})
    run = s.start({"shell": "sleep 60"})
    assert run["state"] in ("queued", "running")
    wait_for(lambda: client.get(s.path).status == 404, 15)


def test_deletion_after_a_stop(client):
    s = create(client, lifetime={"delete_after_s": 0})
    assert client.post(s.path + "/stop").status == 200
    wait_for(lambda: client.get(s.path).status == 404, 15)
    t = create(client, ephemeral=True)
    assert client.post(t.path + "/stop").status == 204
    wait_for(lambda: client.get(t.path).status == 404, 15)


def test_deleting_ends_a_running_command(client):
    s = create(client)
    c, r = client.open("POST", s.path + "/runs", {"shell": "echo begun; sleep 100"}, {"stream": 1})
    assert b'"started"' in r.readline() and b"begun" in r.readline()
    t = time.monotonic()
    assert client.delete(s.path).status == 204
    assert time.monotonic() - t < 5
    last = r.read()
    assert b'"end"' in last and b'"lost"' in last or last == b"", last
    c.close()


@pytest.mark.parametrize("when", ["creating", "twice"])
def test_delete_at_odd_moments(client, when):
    import threading
    name = "odd-" + uuid.uuid4().hex[:8]
    results = []
    creator = threading.Thread(target=lambda: results.append(client.post("/v1/sandboxes", {"name": name})))
    creator.start()
    deleters = [threading.Thread(target=lambda: results.append(client.delete("/v1/sandboxes/" + name))) for _ in range(2 if when == "twice" else 1)]
    for d in deleters:
        d.start()
    for t in deleters + [creator]:
        t.join(30)
    assert len(results) == len(deleters) + 1
    assert all(r.status in (201, 204, 404, 409, 410) for r in results), results
    assert client.delete("/v1/sandboxes/" + name).status == 204
    assert client.get("/v1/sandboxes/" + name).status == 404


def test_a_boundary_that_is_not_there(client):
    info = client.get("/v1/info").json
    r = client.post("/v1/sandboxes", {"boundary": "cloud"})
    assert r.status == 400 and f"(this server offers: {', '.join(info['boundaries'])})" in r.error["message"], r
