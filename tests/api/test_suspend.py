"""Pause to the disk: what runs in a machine outlives its QEMU, and servers that are killed on the way there and back. Emulated, which every host can."""
import os
import pathlib
import random
import threading
import time

import pytest

from conftest import create, wait_for
from test_machines import PATIENCE, served

KIND = {"boundary": "vm", "resources": {"memory_mib": 256}}


@pytest.fixture(scope="module")
def server():
    with served() as server:
        yield server


def start_anew(server, *boxes):
    server.client = server.start()
    for b in boxes:
        b.client = server.client


def state(box):
    return box.client.get(box.path).json["state"]


def suspend(box):
    r = box.client.post(box.path + "/suspend")
    assert r.status == 200 and r.json["state"] == "suspended", r


def resume(box):
    r = box.client.post(box.path + "/resume")
    assert r.status == 200 and r.json["state"] == "running", r


def folder(server, box):
    return pathlib.Path(server.data, "d/vm", box.id)


def runs(server, box):
    """Its QEMU: by the warden's control groups, which have the sandbox's id in their names."""
    groups = pathlib.Path("/proc").glob("[0-9]*/cgroup")
    return sum(box.id in text and "qemu" in comm for text, comm in map(of_process, groups))


def of_process(group):
    try:
        return group.read_text(), (group.parent / "comm").read_text()
    except OSError:
        return "", ""


def said(box, run):
    return box.client.get(f"{box.path}/runs/{run}/output", {"stream": "stdout"}).body.decode().split("\n")[:-1]


def assert_right_time(box):
    before = time.time()
    inside = float(box.sh("date +%s.%N")["stdout"])
    assert before - 0.1 < inside < time.time() + 0.1, inside - before


def test_what_runs_goes_on_where_it_was(server):
    """Commands that are attached to, that read, sessions, interpreters; names and clock are right; the memory is gone from the disk when it runs again."""
    box = create(server.client, **KIND)
    client = box.client
    counts = "i=0; while [ ! -e /tmp/stop ]; do echo $i; i=$((i+1)); sleep 0.2; done; cat; exit 5"
    run = client.post(box.path + "/runs", {"shell": counts, "detach": True, "stdin_open": True}).json["id"]
    assert client.post(box.path + "/sessions", {"id": "s"}).status == 201
    assert client.post(box.path + "/runs", {"shell": "x=kept", "session": "s"}).json["exit_code"] == 0
    names = box.sh("hostname; cat /etc/machine-id")["stdout"]
    execute = box.path + "/interpreters/default/execute"
    assert client.post(execute, {"code": "y = 41"}).status == 200
    wait_for(lambda: len(said(box, run)) > 3, PATIENCE)
    for paused_first in (False, True):
        if paused_first:
            assert client.post(box.path + "/pause").json["state"] == "paused"
        suspend(box)
        assert client.post(box.path + "/suspend").json["state"] == "suspended", "again is no fault"
        assert not runs(server, box) and (folder(server, box) / "memory").exists()
        r = client.post(box.path + "/runs", {"shell": "true"})
        assert r.status == 409 and "suspended" in r.json["error"]["message"], r
        assert client.post(box.path + "/start").status == 409 and client.post(box.path + "/fork", {"count": 1}).status == 409
        assert [s["id"] for s in client.get("/v1/sandboxes", {"state": "suspended"}).json["items"]] == [box.id]
        n = len(said(box, run))
        time.sleep(2)
        assert len(said(box, run)) == n
        resume(box)
        assert not (folder(server, box) / "memory").exists() and runs(server, box) == 1
        assert_right_time(box)
        wait_for(lambda: len(said(box, run)) > n + 2, PATIENCE)
    assert box.sh("hostname; cat /etc/machine-id")["stdout"] == names
    assert client.post(box.path + "/runs", {"shell": "echo $x", "session": "s"}).json["stdout"] == "kept\n"
    assert client.post(execute, {"code": "print(y + 1)"}).json["stdout"] == "42\n"
    box.sh("touch /tmp/stop")
    client.call("POST", f"{box.path}/runs/{run}/stdin", body=b"the end", query={"close": "true"})
    end = wait_for(lambda: (r := client.get(f"{box.path}/runs/{run}").json)["state"] == "exited" and r, PATIENCE)
    assert end["exit_code"] == 5
    numbers = [int(line) for line in said(box, run)[:-1] if line.isdigit()]
    assert numbers == list(range(len(numbers))), "nothing is lost, nothing comes twice"
    assert client.delete(box.path).status == 204


def test_a_stop_forgets_what_ran(server):
    box = create(server.client, **KIND)
    box.sh("echo disk > ~/kept")
    run = box.client.post(box.path + "/runs", {"shell": "sleep 100000", "detach": True}).json["id"]
    suspend(box)
    assert box.client.post(box.path + "/stop").json["state"] == "stopped"
    assert not (folder(server, box) / "memory").exists()
    assert box.client.get(f"{box.path}/runs/{run}").json["state"] == "lost"
    assert box.client.post(box.path + "/start").json["state"] == "running"
    assert box.sh("cat ~/kept; pgrep -x sleep || echo none")["stdout"].split() == ["disk", "none"]
    suspend(box)
    assert box.client.delete(box.path).status == 204, "as it is"
    assert not folder(server, box).exists()


def test_memory_that_is_gone_or_broken_is_told(server):
    box = create(server.client, **KIND)
    memory = folder(server, box) / "memory"
    suspend(box)
    kept = memory.read_bytes()
    memory.write_bytes(b"broken" * 1000)
    r = box.client.post(box.path + "/resume")
    assert r.status >= 500 and state(box) == "suspended", r
    os.unlink(memory)
    os.mkfifo(memory)  # which an open would wait for
    r = box.client.post(box.path + "/resume")
    assert r.status == 410 and "memory is not there" in r.json["error"]["message"], r
    assert state(box) == "error"
    assert box.client.post(box.path + "/stop").status == 200 and box.client.post(box.path + "/start").status == 200
    assert box.sh("echo up")["stdout"] == "up\n" and len(kept) > 1 << 20
    assert box.client.delete(box.path).status == 204


def test_what_cannot_be_is_refused(server):
    for kind, why in (({"boundary": "process"}, "cannot keep what runs on the disk"), ({**KIND, "ephemeral": True}, "ephemeral")):
        box = create(server.client, **kind)
        r = box.client.post(box.path + "/suspend")
        assert r.status == 422 and why in r.json["error"]["message"], r
        assert state(box) == "running" and box.sh("echo on")["stdout"] == "on\n"
        assert box.client.delete(box.path).status == 204


def test_servers_that_are_killed_on_the_way(server):
    """At any moment of a suspend and of a resume: it is running or suspended then, and what runs in it has never ended."""
    box = create(server.client, **KIND)
    run = box.client.post(box.path + "/runs", {"shell": "i=0; while :; do echo $i; i=$((i+1)); sleep 0.1; done", "detach": True}).json["id"]
    seed = random.randrange(1 << 32)
    pick = random.Random(seed)
    for verb in ("suspend", "resume") * 4:
        if state(box) == ("suspended" if verb == "suspend" else "running"):
            (resume if verb == "suspend" else suspend)(box)

        def ask():
            try:
                box.client.post(f"{box.path}/{verb}")
            except OSError:
                pass
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(pick.random() * 1.2)
        server.kill()
        asking.join(60)
        start_anew(server, box)
        assert state(box) in ("running", "suspended"), (seed, verb, state(box))
    if state(box) == "suspended":
        resume(box)
    n = len(said(box, run))
    wait_for(lambda: len(said(box, run)) > n + 3, PATIENCE)
    numbers = [int(x) for x in said(box, run)]
    assert numbers == list(range(len(numbers))), seed
    wait_for(lambda: runs(server, box) == 1)  # those of before may be ending
    assert box.client.delete(box.path).status == 204
    assert not folder(server, box).exists() and not [p for p in (folder(server, box).parent / "snapshots").iterdir()]


def test_the_clock_after_a_pause_that_a_restart_was_in(server):
    boxes = [create(server.client, **KIND) for _ in range(2)]
    for b in boxes:
        assert b.client.post(b.path + "/pause").status == 200
    server.kill()
    start_anew(server, *boxes)
    time.sleep(5)
    for b in boxes:
        resume(b)
        assert_right_time(b)
        assert b.client.delete(b.path).status == 204
