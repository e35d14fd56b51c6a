"""Virtual machines that are ready before anybody asks. Emulated, which every host can; making the first takes a boot."""
import os
import pathlib
import time

import pytest

from conftest import Server, delete_all, remove, wait_for

PATIENCE = 300
KIND = {"boundary": "vm", "resources": {"memory_mib": 256}, "ephemeral": True}
FACTS = "cat /proc/sys/kernel/random/uuid /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1; hostname"
IMAGES = os.environ.get("CAISSON_IMAGES", "/var/lib/caisson/images")


class Machines(Server):
    def command(self):
        return super().command() + ["--accelerator", "emulated", "--pool", "0"]


@pytest.fixture(scope="module")
def client():
    if not (os.path.exists("/usr/bin/qemu-system-x86_64") and pathlib.Path(IMAGES, "vm/current").exists()):
        pytest.skip("no machines on this host")
    server = Machines()
    try:
        client = server.start()
        yield client
        delete_all(client)
    finally:
        server.stop()
        remove(server.data)


def pool(client):
    return next(p for p in client.get("/v1/pools").json["items"] if p["boundary"] == "vm")


def set_size(client, n):
    assert client.put("/v1/pools", {**KIND, "size": n}).status == 200
    wait_for(lambda: n == 0 or pool(client)["ready"] == n, PATIENCE)


def new(client, **more):
    r = client.post("/v1/sandboxes", {**KIND, **more})
    assert r.status == 201 and r.json["state"] == "running", r
    return r.json


def sh(client, sandbox, text):
    r = client.post(f"/v1/sandboxes/{sandbox['id']}/runs", {"shell": text}).json
    assert r["exit_code"] == 0, r
    return r["stdout"].split("\n")[:-1]


def assert_right_time(client, sandbox):
    before = time.time()
    there = float(sh(client, sandbox, "date +%s.%N")[0])
    assert before - 0.1 < there < time.time() + 0.1


def test_ready_machines_are_as_cold_ones_and_differ(client):
    set_size(client, 2)
    boxes = [new(client), new(client, name="by-name")]
    assert pool(client)["ready"] == 0, "both were ready"
    set_size(client, 0)
    boxes.append(new(client, name="cold"))
    facts = [sh(client, s, FACTS) for s in boxes]
    for of_one in zip(*facts):
        assert len(set(of_one)) == len(boxes), facts
    for s, (_, machine, _, host) in zip(boxes, facts):
        assert machine == s["id"].replace("-", "")
        assert host == s["name"]
        assert_right_time(client, s)


def test_the_clock_is_right_again_after_a_pause(client):
    s = new(client)
    base = f"/v1/sandboxes/{s['id']}"
    assert client.post(base + "/pause").status == 200
    time.sleep(2)
    assert client.post(base + "/resume").status == 200
    assert_right_time(client, s)
