"""Limits of a sandbox that is there."""
import pytest

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
