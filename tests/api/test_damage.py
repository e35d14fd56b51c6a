"""Files of machines that somebody or a disk has changed: nobody gets a sandbox out of them, and the damage is told as itself. Emulated, which every host can."""
import os
import pathlib
import random

from conftest import create, wait_for
from test_machines import PATIENCE
from test_suspend import KIND, folder, server, start_anew  # noqa: F401 (server: a fixture)


def overwrite(path):
    """In place, as much of it as has something in it, within a few MiB."""
    with open(path, "r+b") as f:
        at = os.lseek(f.fileno(), 0, os.SEEK_DATA)
        f.seek(at)
        f.write(random.randbytes(min(os.stat(path).st_size - at, 4 << 20)))


def keeps_its_disk(box):
    box.sh("echo kept > ~/kept")
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
