"""kill -9 of the warden: the daemon ends, whatever it waits for, and the next one takes up what is left. Emulated, which every host can."""
import contextlib
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest

from conftest import create, wait_for
from test_machines import PATIENCE, served

KIND = {"boundary": "vm", "resources": {"memory_mib": 256}}


@pytest.fixture
def server():
    with served() as server:
        yield server


def warden(server):
    out = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True, check=True).stdout
    return next(int(p) for p in out.split() if b"warden" in pathlib.Path("/proc", p, "cmdline").read_bytes())


def ready(client):
    return sum(p["ready"] for p in client.get("/v1/pools").json["items"])


def machines(server):
    """Folders of machines, whether anybody knows them or not."""
    return [p for p in pathlib.Path(server.data, "d/vm").iterdir() if len(p.name) == 36]


def set_size(client, n):
    assert client.put("/v1/pools", {**KIND, "size": n}).status == 200


@pytest.mark.limit(300)
@pytest.mark.parametrize("wait", [0.1, 0.25, 0.4])
def test_while_a_ready_one_is_made(server, wait):
    box = create(server.client, **KIND)  # there is a template from now on
    before = set(machines(server))
    set_size(server.client, 1)
    wait_for(lambda: set(machines(server)) - before, PATIENCE)
    time.sleep(wait)
    os.kill(warden(server), signal.SIGKILL)
    assert server.process.wait(5) == 1
    box.client = server.client = server.start()
    assert box.sh("echo up")["stdout"] == "up\n"
    set_size(server.client, 0)
    wait_for(lambda: [p.name for p in machines(server)] == [box.id], PATIENCE)


@pytest.mark.limit(300)
def test_at_any_moment_of_what_takes_long(server):
    box = create(server.client, **KIND)
    assert server.client.post("/v1/snapshots", {"sandbox": box.id, "name": "s", "memory": True}).status == 201
    set_size(server.client, 1)
    wait_for(lambda: ready(server.client) == 1, PATIENCE)
    asked = [("POST", "/v1/sandboxes", {"from_snapshot": "s"}), ("POST", box.path + "/fork", {"count": 2}),
             ("POST", "/v1/snapshots", {"sandbox": box.id, "memory": True})]
    for n, call in enumerate(asked * 2):
        def ask():
            with contextlib.suppress(OSError):
                server.client.call(*call)
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.05 + 0.2 * (n // 3))
        os.kill(warden(server), signal.SIGKILL)
        assert server.process.wait(5) == 1
        asking.join(60)
        box.client = server.client = server.start()
    set_size(server.client, 0)
    assert box.sh("echo up")["stdout"] == "up\n"


def test_in_the_middle_of_an_end(server):
    """What was asked before is answered by nobody: there is a time after which that is waited for no more."""
    create(server.client, **KIND)
    set_size(server.client, 1)
    wait_for(lambda: ready(server.client) == 1, PATIENCE)
    pid = warden(server)
    os.kill(pid, signal.SIGSTOP)
    server.process.terminate()
    time.sleep(4)
    assert server.process.poll() is None
    os.kill(pid, signal.SIGKILL)
    assert server.process.wait(20) == 1
    server.client = server.start()
