"""The host's disk is full: what machines do that write to theirs. Emulated, which every host can."""
import os
import pathlib
import subprocess
import time

import pytest

from conftest import create, delete_all, remove, wait_for
from test_machines import IMAGES, PATIENCE, Machines
from test_suspend import said

KIND = {"boundary": "vm", "resources": {"memory_mib": 256, "disk_mib": 200}}
WRITE = "head -c 40000000 /dev/urandom >$HOME/big; sync; wc -c <$HOME/big"
NO_ROOM = "the host had no room for what the virtual machine wrote to its disk"


@pytest.fixture(scope="module")
def server():
    if not (os.path.exists("/usr/bin/qemu-system-x86_64") and pathlib.Path(IMAGES, "vm/current").exists()):
        pytest.skip("no machines on this host")
    server = Machines()
    os.mkdir(server.data + "/d")  # of its own, for the log is to have room
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,size=800m", "apitest", server.data + "/d"], check=True)
    try:
        server.client = server.start()
        first = create(server.client, **KIND)
        wait_for(lambda: list(pathlib.Path(server.data, "d/vm/templates").glob("*/ram")), PATIENCE)  # it is stored behind the create
        server.client.delete(first.path)
        yield server
        delete_all(server.client)
    finally:
        server.stop()
        subprocess.run(["umount", server.data + "/d"], check=True)
        remove(server.data)


@pytest.fixture
def fill(server):
    """Fills the disk but for so many bytes; tells the file."""
    file = pathlib.Path(server.data, "d/fill")

    def to(left):
        with file.open("wb") as f:
            while (free := os.statvfs(server.data + "/d")).f_bavail * free.f_frsize > left:
                f.write(bytes(1 << 20))
                f.flush()
        return file

    yield to
    file.unlink(missing_ok=True)


def held(server):
    return server.read_log().count("the host has no room for what the machine writes")


def test_a_machine_goes_on_when_there_is_room_again(server, fill):
    box = create(server.client, **KIND)
    before = held(server)
    file = fill(8 << 20)
    run = server.client.post(box.path + "/runs", {"shell": WRITE, "detach": True}).json["id"]
    wait_for(lambda: held(server) == before + 1, PATIENCE)
    assert server.client.get(f"{box.path}/runs/{run}").json["state"] == "running"
    file.unlink()
    wait_for(lambda: server.client.get(f"{box.path}/runs/{run}").json["state"] == "exited", PATIENCE)
    r = server.client.get(f"{box.path}/runs/{run}").json
    assert r["exit_code"] == 0, r
    assert said(box, run) == ["40000000"]


def test_one_that_is_paused_stays_so(server, fill):
    box = create(server.client, **KIND)
    before = held(server)
    file = fill(8 << 20)
    run = server.client.post(box.path + "/runs", {"shell": WRITE, "detach": True}).json["id"]
    wait_for(lambda: held(server) == before + 1, PATIENCE)
    assert server.client.post(box.path + "/pause").json["state"] == "paused"
    file.unlink()
    time.sleep(25)  # two beats
    assert server.client.get(f"{box.path}/runs/{run}").json["state"] == "running"
    assert server.client.post(box.path + "/resume").json["state"] == "running"
    wait_for(lambda: server.client.get(f"{box.path}/runs/{run}").json["state"] == "exited", PATIENCE)
    assert server.client.get(f"{box.path}/runs/{run}").json["exit_code"] == 0


def test_a_disk_that_stays_full_is_told_as_that(server, fill):
    box, idle = create(server.client, **KIND), create(server.client, **KIND)
    fill(8 << 20)
    server.client.post(box.path + "/runs", {"shell": WRITE, "detach": True})
    wait_for(lambda: server.client.get(box.path).json["state"] == "error", PATIENCE)
    assert server.client.get(box.path).json["error"] == NO_ROOM
    assert server.client.get(idle.path).json["state"] == "running"
    begin = time.monotonic()
    assert server.client.delete(box.path).status == 204
    assert time.monotonic() - begin < 5
