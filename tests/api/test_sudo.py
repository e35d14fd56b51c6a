"""Who may become root inside is part of a sandbox's settings."""


def run(client, box, shell, **more):
    r = client.post(f"/v1/sandboxes/{box['id']}/runs", {"shell": shell, **more})
    assert r.status == 200, r
    return r.json


def new(client, **more):
    r = client.post("/v1/sandboxes", {"ephemeral": True, **more})
    assert r.status == 201, r
    return r.json


def test_sudo_is_permitted_unless_said_otherwise(client):
    box = new(client)
    assert box["sudo"] is True
    done = run(client, box, "sudo id -u; sudo sh -c 'exit 9'")
    assert done["stdout"] == "0\n" and done["exit_code"] == 9
    assert run(client, box, "sudo id -u", user="nobody")["exit_code"] == 1


def test_no_sudo(client):
    box = new(client, sudo=False)
    assert box["sudo"] is False and client.get(f"/v1/sandboxes/{box['id']}").json["sudo"] is False
    done = run(client, box, "sudo -n id -u")
    assert done["exit_code"] == 1 and done["stdout"] == "" and "sudo" in done["stderr"]


def test_a_snapshot_remembers(client):
    box = new(client, sudo=False, ephemeral=False)
    snapshot = client.post("/v1/snapshots", {"sandbox": box["id"]})
    assert snapshot.status == 201, snapshot
    name = snapshot.json["id"]
    for asked, expected in (({}, False), ({"sudo": True}, True)):
        child = new(client, ephemeral=False, from_snapshot=name, **asked)
        assert child["sudo"] is expected
        done = run(client, child, "sudo id -u")
        assert (done["stdout"] == "0\n") is expected and (done["exit_code"] == 0) is expected, done


def test_sudo_holds_over_stop_and_start(client):
    for asked in (True, False):
        box = new(client, sudo=asked, ephemeral=False)
        for verb in ("stop", "start"):
            assert client.post(f"/v1/sandboxes/{box['id']}/{verb}", {}).status == 200
        assert run(client, box, "sudo true")["exit_code"] == (0 if asked else 1)


def test_bad_values_are_refused(client):
    r = client.post("/v1/sandboxes", {"sudo": "yes"})
    assert r.status == 400 and "sudo" in r.json["error"]["message"]


def test_ready_ones_are_of_their_kind(client):
    kind = {"resources": {"memory_mib": 311}, "ephemeral": True}
    assert client.put("/v1/pools", {**kind, "sudo": False, "size": 1}).status == 200
    try:
        pools = [p for p in client.get("/v1/pools").json["items"] if p["resources"]["memory_mib"] == 311]
        assert [p["sudo"] for p in pools] == [False]
        box = new(client, resources={"memory_mib": 311})
        assert run(client, box, "sudo id -u")["stdout"] == "0\n"
    finally:
        assert client.put("/v1/pools", {**kind, "sudo": False, "size": 0}).status == 200
