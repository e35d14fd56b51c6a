"""Sandboxes that are ready before anybody asks."""
import glob
import os
import signal
import subprocess
import threading
import time

import pytest

from client import BOUNDARY, LEAST_MEMORY_MIB, PATIENCE
from conftest import wait_for

KIND = {"resources": {"memory_mib": 300}, "ephemeral": True}


def pool(client, memory=300):
    items = client.get("/v1/pools").json["items"]
    found = [p for p in items if p["resources"]["memory_mib"] == memory and p["ephemeral"]]
    assert len(found) <= 1, items
    return found[0] if found else {"size": 0, "ready": 0, "standing": 0}


def until_ready(client, n, memory=300):
    end = time.time() + 60 * PATIENCE
    while pool(client, memory)["ready"] != n:
        assert time.time() < end, client.get("/v1/pools").json
        time.sleep(0.05)


def guests(server):
    """First processes of sandboxes: children of the warden, which is the server's."""
    children = lambda pid: [int(p) for path in glob.glob(f"/proc/{pid}/task/*/children") for p in open(path).read().split()]
    return [p for warden in children(server.process.pid) for p in children(warden) if open(f"/proc/{p}/cmdline").read().startswith("caisson-guest")]


def set_size(client, n, **more):
    r = client.put("/v1/pools", {**KIND, "size": n, **more})
    assert r.status == 200, r
    return r


def new(client, **more):
    r = client.post("/v1/sandboxes", {**KIND, **more})
    assert r.status == 201 and r.json["state"] == "running", r
    return r.json


def run(client, sandbox, *argv):
    return client.post(f"/v1/sandboxes/{sandbox['id']}/runs", {"argv": list(argv)}).json


def test_a_create_takes_a_ready_one_that_is_as_a_cold_one(client):
    set_size(client, 6)
    until_ready(client, 6)
    warm, cold = new(client, env={"A": "1"}, labels={"l": "x"}), new(client, name="cold-one", env={"A": "1"}, labels={"l": "x"})
    try:
        for field in ("image", "image_digest", "boundary", "resources", "env", "labels", "user", "workdir", "lifetime", "network"):
            assert warm[field] == cold[field], field
        assert run(client, warm, "hostname")["stdout"].strip() == warm["id"], "its host name is its id"
        assert run(client, cold, "hostname")["stdout"].strip() == "cold-one"
        assert run(client, warm, "sh", "-c", "echo $A; id -u; pwd; ls /tmp")["stdout"] == \
            run(client, cold, "sh", "-c", "echo $A; id -u; pwd; ls /tmp")["stdout"]
        assert run(client, warm, "sh", "-c", "exit 7")["exit_code"] == 7
        assert client.get(f"/v1/sandboxes/{warm['id']}").json["state"] == "running"
    finally:
        for s in (warm, cold):
            assert client.delete(f"/v1/sandboxes/{s['id']}").status == 204
    until_ready(client, 6)
    set_size(client, 0)


def test_a_network_is_part_of_the_kind_and_its_rules_are_not(client):
    kind = {"resources": {"memory_mib": 310}, "ephemeral": True}
    assert client.put("/v1/pools", {**kind, "network": {"mode": "public"}, "size": 5}).status == 200
    until_ready(client, 5, 310)
    assert pool(client, 310)["network"] is True
    one = new(client, **kind, network={"mode": "allow", "allow": ["api.test:443"]})
    try:
        assert one["network"]["allow"] == ["api.test:443"]
        assert run(client, one, "hostname")["stdout"].strip() == one["id"]
        assert "eth0" in run(client, one, "cat", "/proc/net/dev")["stdout"]
    finally:
        client.delete(f"/v1/sandboxes/{one['id']}")
        client.put("/v1/pools", {**kind, "network": {"mode": "public"}, "size": 0})


def test_a_kind_that_cannot_be_says_why(client):
    kind = {"resources": {"memory_mib": 1 << 20}, "ephemeral": True}
    assert client.put("/v1/pools", {**kind, "size": 1}).status == 200
    end = time.time() + 30 * PATIENCE
    while not (p := pool(client, 1 << 20)).get("error"):
        assert time.time() < end, p
        time.sleep(0.1)
    assert p["ready"] == 0 and "memory" in p["error"], p
    client.put("/v1/pools", {**kind, "size": 0})


def test_ready_ones_are_nobodys(client):
    before = len(client.get("/v1/sandboxes", {"limit": 1000}).json["items"])
    set_size(client, 5)
    until_ready(client, 5)
    assert len(client.get("/v1/sandboxes", {"limit": 1000}).json["items"]) == before
    a, b = new(client), new(client)
    assert a["id"] != b["id"]
    again = client.post("/v1/sandboxes", {**KIND, "idempotency_key": "pool-1"}).json
    assert client.post("/v1/sandboxes", {**KIND, "idempotency_key": "pool-1"}).json["id"] == again["id"]
    for s in (a, b, again):
        client.delete(f"/v1/sandboxes/{s['id']}")
    set_size(client, 0)


def test_the_operators_wish_outlives_a_restart(own):
    server, client = own
    set_size(client, 7)
    until_ready(client, 7)
    taken = new(client)
    assert run(client, taken, "sh", "-c", "echo kept > /tmp/f; echo done")["stdout"] == "done\n"
    server.kill()
    client = server.start()
    assert pool(client)["standing"] == 7
    until_ready(client, 7)
    assert [s["id"] for s in client.get("/v1/sandboxes").json["items"]] == [taken["id"]]
    assert run(client, taken, "cat", "/tmp/f")["stdout"] == "kept\n"
    client.delete(f"/v1/sandboxes/{taken['id']}")
    set_size(client, 0)
    assert pool(client)["standing"] == 0


def test_what_the_host_cannot_have_is_not_tried_again_and_again(own):
    _, client = own
    huge = {"resources": {"memory_mib": 1048576}, "ephemeral": True}
    assert client.post("/v1/sandboxes", huge).status == 400
    end = time.time() + 30  # half of what a kind that was asked for is kept
    while pool(client, 1048576)["size"]:
        assert time.time() < end, client.get("/v1/pools").json
        time.sleep(0.05)


@pytest.mark.skipif(BOUNDARY != "process", reason="kills guests as processes of this host")
def test_a_kind_that_ends_at_once_is_made_ever_more_seldom(own):
    server, client = own
    set_size(client, 1)
    waited = []
    for _ in range(3):
        until_ready(client, 1)
        began = time.monotonic()
        assert (killed := guests(server))
        for guest in killed:
            os.kill(guest, signal.SIGKILL)
        wait_for(lambda: pool(client)["error"])
        until_ready(client, 1)
        waited.append(time.monotonic() - began)
    assert waited[0] > 4.5 and waited[1] > 9.5 and waited[2] > 19.5, waited
    taken = new(client)
    assert run(client, taken, "echo", "x")["stdout"] == "x\n"
    client.delete(f"/v1/sandboxes/{taken['id']}")
    set_size(client, 0)


def test_a_kind_whose_image_is_gone_says_so_and_can_be_given_up(own):
    server, client = own
    name = "pool-test-" + os.path.basename(server.data).lower() + ":1"
    tag = lambda *args: subprocess.run([os.environ["CAISSON_BIN"], "image", *args], env={**os.environ, "CAISSON_DATA": server.data + "/d"}, check=True, capture_output=True)
    tag("tag", "default", name)
    try:
        set_size(client, 2, image=name)
        until_ready(client, 2)
    finally:
        tag("rm", name)
    wait_for(lambda: pool(client).get("error"))
    gone = pool(client)
    assert gone["image_digest"] == name and name in gone["error"] and (gone["size"], gone["standing"], gone["ready"]) == (2, 2, 0), gone
    server.kill()
    client = server.start()
    wait_for(lambda: pool(client).get("error"))
    assert client.put("/v1/pools", {**KIND, "image": name, "size": 1}).status == 400
    set_size(client, 0, image=name)
    assert pool(client)["standing"] == 0
    assert client.get("/v1/sandboxes").json["items"] == []


def test_sizes_that_change_while_it_fills_and_is_taken_from(own):
    """Nobody gets the same one twice, and in the end there is what was wished last."""
    _, client = own
    taken, errors = [], []

    def take():
        mine = client.with_key(client.key)
        for _ in range(6):
            r = mine.post("/v1/sandboxes", KIND)
            (taken if r.status == 201 else errors).append(r.json)

    takers = [threading.Thread(target=take) for _ in range(3)]
    for t in takers:
        t.start()
    for size in (8, 0, 3, 10, 1, 0, 5) * 3:
        set_size(client, size)
    for t in takers:
        t.join()
    assert not errors and len({s["id"] for s in taken}) == 18, errors
    for s in taken:
        assert client.delete(f"/v1/sandboxes/{s['id']}").status == 204
    until_ready(client, 5)
    set_size(client, 0)


def test_many_kinds_are_not_all_kept(own):
    _, client = own
    for i in range(40):
        r = client.post("/v1/sandboxes", {"resources": {"memory_mib": LEAST_MEMORY_MIB + i}, "ephemeral": True})
        assert r.status == 201, r
        assert client.delete(f"/v1/sandboxes/{r.json['id']}").status == 204
    kept = [p["resources"]["memory_mib"] for p in client.get("/v1/pools").json["items"] if p["size"]]
    assert 0 < len(kept) <= 32 and LEAST_MEMORY_MIB + 39 in kept and LEAST_MEMORY_MIB not in kept, kept


def test_only_an_operator_may_and_nonsense_is_refused(client):
    key = client.post("/v1/keys", {"name": "plain", "operator": False}).json["key"]
    plain = client.with_key(key)
    assert plain.get("/v1/pools").status == 403 and plain.put("/v1/pools", {"size": 1}).status == 403
    for body, word in (({}, "size"), ({"size": -1}, "size"), ({"size": 10001}, "size"), ({"size": 1, "name": "x"}, "name"),
                       ({"size": 1, "image": "no-such:1"}, "no-such:1"), ({"size": 1, "boundary": "none"}, "boundary")):
        r = client.put("/v1/pools", body)
        assert r.status == 400 and word in r.error["message"], (body, r)
