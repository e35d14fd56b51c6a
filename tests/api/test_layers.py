"""Builds of images: what their first steps made is kept, and not made again."""
import io
import secrets
import tarfile

import pytest

from client import PATIENCE, Sandbox
from conftest import wait_for

ROLL = "cat /proc/sys/kernel/random/uuid > "  # says something else each time it is run


def build(client, text, hashes=(), name=None):
    """(name of the snapshot, log)"""
    name = name or "built-" + secrets.token_hex(6)
    body = {"name": name, "buildInfo": {"dockerfileContent": text, "contextHashes": list(hashes)}}
    made = client.post("/daytona/snapshots", body, timeout=60)
    assert made.status == 200, made
    url = client.get(f"/daytona/snapshots/{made.json['id']}/build-logs-url").json["url"]

    def state():
        return client.get("/daytona/snapshots/" + name).json["state"]
    wait_for(lambda: state() in ("active", "build_failed"), 60)
    log = client.get(url[url.index("/daytona/"):]).body.decode()
    assert state() == "active", log
    return name, log


def look(client, name, script):
    """What a shell script says in a sandbox that begins as this snapshot."""
    made = client.post("/daytona/sandbox", {"snapshot": name}, timeout=60)
    assert made.status == 200, made
    try:
        r = Sandbox(client, made.json).sh(script)
        assert r["exit_code"] == 0, r
        return r["stdout"].split("\n")[:-1]
    finally:
        assert client.delete("/daytona/sandbox/" + made.json["id"]).status == 200
        assert client.delete("/daytona/snapshots/" + name).status == 200


def layers(client):
    return {s["name"] for s in client.get("/v1/snapshots").json["items"] if s["name"].startswith("build-layer-")}


def bring(client, **files):
    """A build context with these files; its hash."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    access = client.get("/daytona/object-storage/push-access").json
    digest = secrets.token_hex(16)
    put = client.put(f"/daytona/storage/{access['bucket']}/local/{digest}/context.tar", content.getvalue(), headers={"X-Amz-Security-Token": access["sessionToken"]})
    assert put.status == 200, put
    return digest


@pytest.mark.limit(120 * PATIENCE)
def test_the_same_first_steps_are_not_run_twice(own):
    server, client = own
    head = f"FROM default\nENV A=1\nWORKDIR /srv/x\nRUN {ROLL} one; echo said by one\n"
    first, log = build(client, head + f"RUN {ROLL} two\n")
    assert "\nsaid by one\n" in log and "cached" not in log, log
    one, two = look(client, first, "cat one two")

    again, log = build(client, head + f"RUN {ROLL} two\nRUN {ROLL} three; echo $A $(id -un) $(pwd) > four\nENV B=2\n")
    assert log.count("cached") == 4 and "\nsaid by one\n" not in log, log
    said = look(client, again, "cat one two four; echo $A$B; wc -l < three")
    assert said == [one, two, "1 root /srv/x", "12", "1"]

    other, log = build(client, head + f"RUN {ROLL} two; true\n")
    assert look(client, other, "cat one")[0] == one and "cached" in log
    other, log = build(client, head.replace("A=1", "A=2"))
    assert look(client, other, "cat one")[0] != one and "cached" not in log
    # a sandbox of its own, from the same words, and after a restart
    server.kill()
    client = server.start()
    box = client.post("/daytona/sandbox", {"buildInfo": {"dockerfileContent": head}, "env": {"MINE": "m"}}, timeout=60).json
    wait_for(lambda: client.get("/daytona/sandbox/" + box["id"]).json["state"] == "started", 60)
    assert Sandbox(client, box).sh("cat one; echo $A$MINE; pwd")["stdout"].split("\n") == [one, "1m", "/srv/x", ""]


@pytest.mark.limit(120 * PATIENCE)
def test_who_the_user_is_at_the_end_is_not_of_an_earlier_build(own):
    _, client = own
    look(client, build(client, "FROM default\nRUN echo x > /x\nUSER nobody\nWORKDIR /tmp\n")[0], "true")
    name, _ = build(client, "FROM default\nRUN echo x > /x\n")
    assert look(client, name, "id -un; pwd; cat /x") == ["daytona", "/home/daytona", "x"]


@pytest.mark.limit(120 * PATIENCE)
def test_files_that_are_brought_along_count(own):
    _, client = own
    text = f"FROM default\nRUN {ROLL} /one\nCOPY a /data/\nRUN {ROLL} /two\nCOPY b* /data/\nRUN {ROLL} /three\n"
    old, new = bring(client, a="A1\n", b="B1\n", b2="gone\n"), bring(client, a="A1\n", b="B2\n")
    script = "cat /one /two /three; cat /data/*; ls -A /tmp | grep caisson-build | wc -l"
    first = look(client, build(client, text, [old])[0], script)
    assert first[3:] == ["A1", "B1", "gone", "0"]
    assert look(client, build(client, text, [old])[0], script) == first
    changed = look(client, build(client, text, [new])[0], script)
    assert changed[0] == first[0] and changed[1] != first[1] and changed[2] != first[2] and changed[3:] == ["A1", "B2", "0"]


@pytest.mark.limit(120 * PATIENCE)
def test_layers_are_of_one_tenant_and_not_of_anybodys_list(own):
    _, client = own
    other = client.with_key(client.post("/v1/keys", {"name": "x", "tenant": "other"}).json["key"])
    text = f"FROM default\nRUN {ROLL} /one\n"
    mine = look(client, build(client, text)[0], "cat /one")
    assert look(other, build(other, text)[0], "cat /one") != mine
    assert len(layers(client)) == 1 and len(layers(other)) == 1
    assert not [s for s in client.get("/daytona/snapshots").json["items"] if "layer" in s["name"]]
    for name in layers(client):
        assert client.delete("/v1/snapshots/" + name).status == 204
    assert look(client, build(client, text)[0], "cat /one") != mine


@pytest.mark.limit(240 * PATIENCE)
def test_layers_do_not_grow_without_bound(own):
    _, client = own
    steps = "".join(f"RUN : {i}\n" for i in range(70))
    look(client, build(client, "FROM default\n" + steps)[0], "true")
    wait_for(lambda: len(layers(client)) == 64, 30)
    # the last ones are those that stay
    _, log = build(client, "FROM default\n" + steps + "RUN echo more\n")
    assert log.count("cached") == 70, log
