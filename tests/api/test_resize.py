"""Limits of a sandbox that is there."""
import contextlib
import json
import sqlite3

import pytest

from client import BOUNDARY
from conftest import create


def memory_limit(client, box):
    return client.get(box.path + "/usage").json["memory_limit_bytes"]


@pytest.fixture
def able(client):
    if not client.get("/v1/info").json["capabilities"]["resize"]:
        pytest.skip("this boundary cannot change the limits of a started sandbox")


def test_of_a_running_one(client, able):
    box = create(client, resources={"memory_mib": 128, "cpus": 0.5, "pids": 64})
    eat = "python3 -c 'x = bytearray(200 << 20); print(len(x))'"
    assert box.sh(eat)["exit_code"] != 0
    r = client.post(box.path + "/resize", {"memory_mib": 512, "cpus": 1, "pids": 100})
    assert r.status == 200, r
    assert {k: r.json["resources"][k] for k in ("memory_mib", "cpus", "pids")} == {"memory_mib": 512, "cpus": 1, "pids": 100}
    assert r.json["resources"]["disk_mib"] == box.view["resources"]["disk_mib"]
    assert memory_limit(client, box) == 512 << 20
    assert box.sh(eat)["stdout"] == f"{200 << 20}\n"
    # down again, but not below what is in use
    hold = box.start({"argv": ["python3", "-c", "import time; x = bytearray(300 << 20); print('held', flush=True); time.sleep(60)"]})
    while "held" not in client.get(box.runpath(hold), {"output": True}).json["stdout"]:
        pass
    r = client.post(box.path + "/resize", {"memory_mib": 128})
    assert r.status == 409 and "uses more memory" in r.error["message"], r
    assert memory_limit(client, box) == 512 << 20
    client.delete(box.runpath(hold))
    # what was set holds over a stop
    client.post(box.path + "/stop")
    r = client.post(box.path + "/resize", {"memory_mib": 256})
    assert r.status == 200 and r.json["resources"]["memory_mib"] == 256 and r.json["state"] == "stopped"
    client.post(box.path + "/start")
    assert memory_limit(client, box) == 256 << 20
    client.delete(box.path)


def test_refused(client, box):
    disk = box.view["resources"]["disk_mib"]
    assert client.post(box.path + "/resize", {"disk_mib": disk + 1}).status == 422
    assert client.post(box.path + "/resize", {"memory_mib": 1}).status == 400
    assert client.post(box.path + "/resize", {"memory": 100}).status == 400
    assert client.post("/v1/sandboxes/nobody/resize", {}).status == 404


def test_impossible_ones_are_refused_whether_it_runs_or_not(client, box):
    """As a create refuses them: by the kind's own least, and by what the host has."""
    had = box.view["resources"]
    wrong = [({"memory_mib": 1 << 20}, 400, "more than this host has"), ({"cpus": 1000}, 400, "more than this host has")]
    if BOUNDARY == "vm":
        wrong.append(({"memory_mib": 64}, 422, "needs 128 MiB"))
    for state in ("running", "stopped"):
        for limits, status, word in wrong:
            r = client.post(box.path + "/resize", limits)
            assert (r.status, client.post("/v1/sandboxes", {"resources": limits}).status) == (status, status) and word in r.error["message"], (state, r)
        assert client.get(box.path).json["resources"] == had
        client.post(box.path + "/stop")
    assert client.post(box.path + "/start").json["state"] == "running"


def edited(own, **columns):
    """What is stored of the only sandbox is something else, then."""
    server, _ = own
    server.kill()
    with contextlib.closing(sqlite3.connect(server.data + "/d/state/caisson.db")) as db, db:
        for name, change in columns.items():
            had = db.execute(f"SELECT {name} FROM sandboxes").fetchone()[0]
            db.execute(f"UPDATE sandboxes SET {name} = ?", (change(had),))
    return server.start()


def of_a_larger_host(spec):
    spec = json.loads(spec)
    spec["memory_mib"] = 1 << 20
    return json.dumps(spec)


def test_a_start_that_is_refused_leaves_it_stopped(own):
    _, client = own
    box = create(client)
    client.post(box.path + "/stop")
    client = edited(own, spec=of_a_larger_host)
    r = client.post(box.path + "/start")
    assert r.status == 400 and "more than this host has" in r.error["message"], r
    view = client.get(box.path).json
    assert (view["state"], view["error"]) == ("stopped", None), view
    assert client.post(box.path + "/resize", {"memory_mib": 256}).status == 200
    assert client.post(box.path + "/start").json["state"] == "running"


def test_one_that_has_failed_gets_other_limits(own):
    _, client = own
    box = create(client)
    client.post(box.path + "/stop")
    client = edited(own, state=lambda had: "error", error=lambda had: "it was out of memory")
    r = client.post(box.path + "/resize", {"memory_mib": 512})
    assert r.status == 200 and (r.json["resources"]["memory_mib"], r.json["state"]) == (512, "error"), r
    assert client.post(box.path + "/start").json["state"] == "running"
