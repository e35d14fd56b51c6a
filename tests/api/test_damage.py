"""Files of machines that somebody or a disk has changed: nobody gets a sandbox out of them, and the damage is told as itself. Emulated, which every host can."""
import os
import pathlib
import random

from conftest import create, wait_for
from test_machines import PATIENCE
from test_suspend import KIND, folder, resume, server, start_anew, state, suspend  # noqa: F401 (server: a fixture)


def change_a_few_bytes(path):
    """Of a part that has something in it, so that nothing else is wrong with it."""
    with open(path, "r+b") as f:
        at = os.lseek(f.fileno(), 0, os.SEEK_DATA) + 100
        was = os.pread(f.fileno(), 4, at)
        os.pwrite(f.fileno(), bytes(b ^ 0x55 for b in was), at)


def overwrite(path):
    """In place, as much of it as has something in it, within a few MiB."""
    with open(path, "r+b") as f:
        at = os.lseek(f.fileno(), 0, os.SEEK_DATA)
        f.seek(at)
        f.write(random.randbytes(min(os.stat(path).st_size - at, 4 << 20)))


def keeps_its_disk(box):
    box.sh("echo kept > ~/kept")
    return starts_from_its_disk(box)


def starts_from_its_disk(box):
    assert box.client.post(box.path + "/stop").json["state"] == "stopped"
    r = box.client.post(box.path + "/start")
    assert r.status == 200 and r.json["state"] == "running", r
    return box.sh("cat ~/kept")["stdout"] == "kept\n" and box.client.delete(box.path).status == 204


def test_a_template_s_files_changed_in_place_reach_no_sandbox(server):
    """Those that begin while this server runs have it from what it holds; the next one sees the damage, and makes another."""
    kind = {**KIND, "resources": {**KIND["resources"], "disk_mib": 64}}
    before = create(server.client, **kind)
    templates = pathlib.Path(server.data, "d/vm/templates")
    wait_for(lambda: not list(templates.glob(".new-*")), PATIENCE)
    for path in templates.glob("*/[rsd]*"):
        overwrite(path)
    for _ in range(2):
        assert keeps_its_disk(create(server.client, **kind))
    server.kill()
    start_anew(server, before)
    assert keeps_its_disk(create(server.client, **kind)) and keeps_its_disk(before)
    assert not [p for p in folder(server, before).parent.iterdir() if len(p.name) == 36]


def is_told(server, r, *words):
    lines = [line for line in server.read_log().splitlines() if all(w in line for w in words)]
    return r.status == 503 and all(w in r.json["error"]["message"] for w in words) and len(lines) == 1


def test_a_damaged_snapshot_is_told_as_that(server):
    """A few bytes of its disk, its memory or what it was taken of; another one of the same sandbox is none the worse."""
    box = create(server.client, **KIND)
    box.sh("echo kept > ~/kept")
    for harm in ("disk", "state", "meta", None):
        name = f"of-{harm}"
        snapshot = box.client.post("/v1/snapshots", {"sandbox": box.id, "name": name, "memory": True}).json
        at = folder(server, box).parent / "snapshots" / snapshot["id"]
        if harm == "meta":
            (at / "meta").write_text("3 256")
        elif harm:
            change_a_few_bytes(at / harm)
        r = box.client.post("/v1/sandboxes", {"from_snapshot": name, **KIND})
        if harm:
            what = {"disk": "its disk is not", "state": "its memory is not", "meta": "cannot be read"}[harm]
            assert is_told(server, r, f"snapshot {snapshot['id']} is damaged", what), r
        else:
            child = f"/v1/sandboxes/{r.json['id']}"
            assert r.status == 201 and box.client.post(child + "/runs", {"shell": "cat ~/kept"}).json["stdout"] == "kept\n", r
            assert box.client.delete(child).status == 204
        assert box.client.delete(f"/v1/snapshots/{snapshot['id']}").status == 204
    assert box.client.delete(box.path).status == 204


def test_damaged_memory_of_a_suspended_one_is_told_as_that(server):
    box = create(server.client, **KIND)
    box.sh("echo kept > ~/kept")
    suspend(box)
    memory = folder(server, box) / "memory"
    change_a_few_bytes(memory)
    r = box.client.post(box.path + "/resume")
    assert is_told(server, r, "what it was suspended as is damaged", "its memory") and state(box) == "suspended", r
    change_a_few_bytes(memory)  # as it was
    resume(box)
    suspend(box)
    change_a_few_bytes(memory)
    assert box.client.post(box.path + "/resume").status == 503
    assert starts_from_its_disk(box)
    assert not folder(server, box).exists()
