"""kill -9 of the daemon: runs go on, their output is complete, sandboxes are adopted."""
import contextlib
import hashlib
import pathlib
import random
import sqlite3
import sys
import threading
import time

import pytest

from client import BOUNDARY, output
from conftest import Server, create, remove, wait_for

sys.path.append(str(pathlib.Path(__file__).parent.parent / "containment"))
from held import held, move


@pytest.mark.limit(300)
def test_kill_nine_loses_nothing(own):
    server, client = own
    box = create(client, name="survivor", labels={"k": "v"})
    client.put(box.path + "/files", b"here", {"path": "/tmp/f"})
    assert client.post(box.path + "/sessions", {"id": "s"}).status == 201
    assert box.run({"shell": "V=7", "session": "s"})["exit_code"] == 0
    done = box.run({"shell": "head -c 3000000 /dev/urandom | tee /tmp/r; exit 5"})
    digest = hashlib.sha256(output(done, "stdout")).hexdigest()
    slow = box.start({"shell": "i=0; while [ $i -lt 80 ]; do echo line $i; i=$((i+1)); sleep 0.1; done; exit 6"})
    bulk = box.start({"shell": "head -c 40000000 /dev/urandom | tee /tmp/b; sha256sum < /tmp/b >&2; exit 4"})
    rng = random.Random(20)
    for _ in range(4):
        time.sleep(rng.uniform(0.05, 1.2))
        server.kill()
        client = server.start()
        box.client = client
        s = client.get("/v1/sandboxes/survivor").json
        assert s["id"] == box.id and s["state"] == "running" and s["labels"] == {"k": "v"}
        assert box.sh("cat /tmp/f")["stdout"] == "here"
    r = client.get(box.runpath(slow), {"wait": True, "output": True}).json
    assert r["exit_code"] == 6 and r["stdout"] == "".join(f"line {i}\n" for i in range(80))
    r = client.get(box.runpath(bulk), {"wait": True, "output": True}, timeout=120).json
    data = output(r, "stdout")
    assert r["exit_code"] == 4 and len(data) == 40000000 and r["stderr"].split()[0] == hashlib.sha256(data).hexdigest()
    old = client.get(box.runpath(done), {"output": True}).json
    assert old["exit_code"] == 5 and hashlib.sha256(output(old, "stdout")).hexdigest() == digest
    assert box.run({"shell": "echo $V", "session": "s"})["stdout"] == "7\n"


@pytest.mark.parametrize("session", [None, "s"])
def test_input_survives_the_daemon(own, session):
    server, client = own
    box = create(client)
    if session:
        assert client.post(box.path + "/sessions", {"id": session}).status == 201
    asked = {"shell": "cat; exit 3", "stdin_open": True} | ({"session": session} if session else {})
    fed = box.start(asked)
    closed = box.start({"shell": "cat; sleep 600", "stdin_open": True})
    none = box.start({"shell": "sleep 600"})

    def feed(run, data, query=""):
        """Until the new daemon has heard of the run: it says 409 before."""
        answers = []

        def answered():
            answers.append(client.post(box.runpath(run, "/stdin" + query), data).status)
            return answers[-1] != 409
        wait_for(answered)
        return answers[-1]

    assert feed(fed, b"first\n") == 204 and feed(closed, b"", "?close=true") == 204
    for word in (b"second\n", b"third\n"):
        server.kill()
        client = box.client = server.start()
        assert feed(fed, word) == 204
        assert feed(closed, b"x") == 410 and feed(none, b"x") == 410
    assert feed(fed, b"", "?close=true") == 204
    r = client.get(box.runpath(fed), {"wait": True, "output": True}).json
    assert r["exit_code"] == 3 and r["stdout"] == "first\nsecond\nthird\n"


@pytest.mark.limit(300)
def test_kill_nine_while_creating_and_deleting(own):
    server, client = own
    rng = random.Random(7)
    for _ in range(4):
        acknowledged, deleted = [], []

        def work():
            try:
                while True:
                    s = create(client)
                    acknowledged.append(s.id)
                    if rng.random() < 0.5:
                        assert client.delete(s.path).status == 204
                        deleted.append(s.id)
            except (OSError, AssertionError, Exception):
                pass  # the server is gone

        workers = [threading.Thread(target=work) for _ in range(3)]
        for w in workers:
            w.start()
        time.sleep(rng.uniform(0.1, 0.6))
        server.kill()
        for w in workers:
            w.join(60)
        client = server.start()
        there = {s["id"]: s["state"] for s in client.get("/v1/sandboxes", {"limit": 1000}).json["items"]}
        for i in acknowledged:
            if i not in deleted and i in there:
                assert there[i] in ("running", "deleting"), there[i]
        assert not set(deleted) & set(there), "an acknowledged delete stays one"
        lost = [i for i in acknowledged if i not in deleted and i not in there]
        assert len(lost) <= 3, "only what was being deleted when it happened may be gone"
        for i in there:
            assert client.delete("/v1/sandboxes/" + i).status == 204
    assert client.get("/v1/sandboxes").json["total"] == 0


@pytest.mark.parametrize("stored", ["running", "paused"])
def test_kill_nine_before_a_pause_or_resume_is_stored(own, stored):
    """The boundary has done it, the daemon died before it wrote so down: what is written holds."""
    server, client = own
    box = create(client)
    box.start({"shell": "while :; do :; done"})
    if client.post(box.path + "/pause").status == 422:
        pytest.skip("this boundary cannot pause")
    if stored == "paused":
        assert client.post(box.path + "/resume").status == 200
    server.kill()
    with contextlib.closing(sqlite3.connect(server.data + "/d/state/caisson.db")) as db, db:
        db.execute("UPDATE sandboxes SET state = ?", (stored,))
    client = server.start()
    box.client = client
    assert client.get(box.path).json["state"] == stored
    if stored == "paused":
        before = client.get(box.path + "/usage").json["cpu_usec"]
        time.sleep(0.5)
        assert client.get(box.path + "/usage").json["cpu_usec"] < before + 50000, "frozen again"
        assert client.post(box.path + "/resume").status == 200
    assert box.sh("echo up", timeout_ms=10000)["stdout"] == "up\n"


def test_a_polite_end_keeps_the_sandboxes(own):
    server, client = own
    box = create(client)
    run = box.start({"shell": "echo a; sleep 2; echo b"})
    wait_for(lambda: client.get(box.runpath(run)).json["stdout_bytes"])
    server.process.terminate()
    assert server.process.wait(30) == 0
    client = server.start()
    box.client = client
    r = client.get(box.runpath(run), {"wait": True, "output": True}).json
    assert r["exit_code"] == 0 and r["stdout"] == "a\nb\n"


def test_a_key_survives_and_idempotency_too(own):
    server, client = own
    made = client.post("/v1/keys", {"name": "x"}).json["key"]
    a = client.post("/v1/sandboxes", {"idempotency_key": "once"}).json
    server.kill()
    client = server.start()
    assert client.with_key(made).get("/v1/sandboxes").status == 200
    assert client.post("/v1/sandboxes", {"idempotency_key": "once"}).json["id"] == a["id"]


@pytest.mark.limit(120)
def test_a_build_under_way_has_failed_after_a_restart_and_leaves_nothing(own):
    server, client = own
    info = {"buildInfo": {"dockerfileContent": "FROM default\nRUN echo begun; sleep 600\n"}}

    def log(client, ref):
        url = client.get(f"/daytona/{ref}/build-logs-url").json["url"]
        return client.get(url[url.index("/daytona/"):]).body.decode()

    snapshot = client.post("/daytona/snapshots", {"name": "half", **info}).json
    box = client.post("/daytona/sandbox", info).json
    builder = wait_for(lambda: [s for s in client.get("/v1/sandboxes").json["items"] if s["labels"].get("caisson.build") == "half"])[0]
    fork = client.post(f"/daytona/sandbox/{builder['id']}/fork", {"name": "copy"})
    assert fork.status == 200, fork
    for ref in (f"snapshots/{snapshot['id']}", f"sandbox/{box['id']}"):
        wait_for(lambda: "begun" in log(client, ref).split("\n"))
    server.kill()
    client = server.start()
    for ref in ("snapshots/half", f"snapshots/{snapshot['id']}", f"sandbox/{box['id']}"):
        now = client.get("/daytona/" + ref).json
        assert now["state"] == "build_failed" and "restarted" in now["errorReason"], now
    assert "restarted" in log(client, f"snapshots/{snapshot['id']}")
    # what somebody forked is theirs; the builder goes, and the sandbox stops and keeps its files
    wait_for(lambda: {s["id"]: s["state"] for s in client.get("/v1/sandboxes").json["items"]} ==
             {box["id"]: "stopped", fork.json["id"]: "running"})
    assert client.delete("/daytona/snapshots/half").status == 200
    assert client.get("/daytona/snapshots/half").status == 404
    made = client.post("/daytona/snapshots", {"name": "half", "imageName": "default"})
    assert made.status == 200, made
    wait_for(lambda: client.get("/daytona/snapshots/half").json["state"] == "active")
    assert client.delete("/daytona/snapshots/half").status == 200


@pytest.mark.limit(120)
def test_a_build_that_is_finished_just_before_the_end_is_kept(own):
    """The snapshot is there, its builder perhaps still, too, when the daemon is killed."""
    server, client = own
    text = "FROM default\nRUN echo here > /made\nENV A=1\n"
    for n in range(3):
        made = client.post("/daytona/snapshots", {"name": f"whole{n}", "buildInfo": {"dockerfileContent": text}})
        assert made.status == 200, made
        wait_for(lambda: client.get(f"/daytona/snapshots/whole{n}").json["state"] == "active", every=0.002)
        server.kill()
        client = server.start()
        for ref in (f"whole{n}", client.get(f"/daytona/snapshots/whole{n}").json["id"]):
            assert client.get("/daytona/snapshots/" + ref).json["state"] == "active"
        box = client.post("/daytona/sandbox", {"snapshot": f"whole{n}"}).json
        said = client.post(f"/daytona/toolbox/{box['id']}/process/execute", {"command": "cat /made; echo $A"}).json
        assert (said["exitCode"], said["result"]) == (0, "here\n1\n")
        assert client.delete("/daytona/sandbox/" + box["id"]).status == 200
        wait_for(lambda: not client.get("/v1/sandboxes").json["items"])
    server.kill()
    client = server.start()
    for n in range(3):
        assert client.delete(f"/daytona/snapshots/whole{n}").status == 200


class InANamespace(Server):
    """As a service manager that gives each start mounts of its own."""

    def command(self):
        return ["unshare", "-m", "--propagation", "slave", *super().command()]


def processes_of(box):
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if box.id in (p / "cgroup").read_text() and (p / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(p.name)
        except OSError:
            pass
    return found


@pytest.mark.skipif(BOUNDARY != "process", reason="of the warden's records")
def test_servers_with_mounts_of_their_own_find_what_the_last_one_left():
    server = InANamespace()
    try:
        client = server.start()
        boxes = [create(client, ephemeral=e) for e in (False, True)]
        runs = [b.start({"shell": "sleep 100000"}) for b in boxes]
        for _ in range(2):
            server.kill()
            client = server.start()
            for b, run in zip(boxes, runs):
                b.client = client
                assert client.get(b.path).json["state"] == "running"
                assert client.get(b.runpath(run)).json["state"] == "running"
                assert b.sh("echo up")["stdout"] == "up\n"
        for b in boxes:
            assert client.delete(b.path).status == 204
            assert not processes_of(b)
    finally:
        server.stop()
        remove(server.data)


@pytest.mark.limit(120)
@pytest.mark.skipif(BOUNDARY != "process", reason="of the warden's groups")
def test_a_delete_that_cannot_be_done_says_so_and_is_done_later(own):
    _, client = own
    box = create(client)
    with held() as h:
        move(h.pid, [g for g in pathlib.Path("/sys/fs/cgroup").glob(f"**/caisson/*/{box.id}")])
        answer = client.delete(box.path, timeout=60)
        assert answer.status == 503 and "its processes do not end" in answer.json["error"]["message"], answer
        now = client.get(box.path).json
        assert now["state"] == "deleting" and now["error"] == "its processes do not end"
        assert h.process.poll() is None
        h.answer()
    wait_for(lambda: client.get(box.path).status == 404, 30)
    assert not processes_of(box)


@pytest.mark.skipif(BOUNDARY != "process", reason="of the warden's records")
def test_nothing_lives_on_in_groups_whose_records_are_gone(own):
    """A sandbox with a disk is a stopped one then, and really is: it can be started anew, and a delete leaves no process."""
    server, client = own
    box, passing = create(client), create(client, ephemeral=True)
    box.sh("echo kept > ~/kept; sync")
    for b in (box, passing):
        b.start({"shell": "sleep 100000"})
        assert processes_of(b)
    server.kill()
    records = [p for p in pathlib.Path("/run/caisson").glob("*/state/*") if p.name.startswith((box.id, passing.id))]
    assert len(records) >= 2
    for p in records:
        p.unlink()
    client = server.start()
    wait_for(lambda: not processes_of(box) and not processes_of(passing))
    box.client = client
    assert client.get(box.path).json["state"] in ("stopped", "error")
    wait_for(lambda: client.post(box.path + "/stop").status == 200)
    wait_for(lambda: client.post(box.path + "/start").status == 200)
    assert box.sh("cat ~/kept")["stdout"] == "kept\n"
    assert client.delete(box.path).status == 204 and client.delete(passing.path).status in (204, 404)
    assert not processes_of(box) and not processes_of(passing)
