"""The server under test: its own process, port and data folder; nothing of it is left afterwards."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest

from client import BOUNDARY, PATIENCE, Client, Sandbox


def pytest_configure():
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the suite's time is over: what it made still goes


class Server:
    def __init__(self):
        self.data = tempfile.mkdtemp(prefix="apitest-")
        os.chmod(self.data, 0o755)  # the daemon is another user
        self.process = None
        self.port = 0
        self.errors = ""

    def command(self):
        args = [os.environ["CAISSON_BIN"], "serve", "--data", self.data + "/d", "--listen", f"127.0.0.1:{self.port}", "--socket",
                self.data + "/run/socket"]
        for name, value in (("boundary", BOUNDARY), ("images", os.environ.get("CAISSON_IMAGES"))):
            if value:
                args += ["--" + name, value]
        return args

    def start(self):
        self.log = open(self.data + "/log", "ab")
        self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=self.log, start_new_session=True)
        line = []
        reader = threading.Thread(target=lambda: line.append(self.process.stdout.readline().decode()), daemon=True)
        reader.start()
        reader.join(60 * PATIENCE)
        match = re.fullmatch(r"ready http://([0-9.]+):(\d+)\n", line[0] if line else "")
        if not match:
            self.stop()
            raise RuntimeError(f"the server did not start: {line} {self.read_log()}")
        self.port = int(match[2])
        self.key = pathlib.Path(self.data + "/d/api-key").read_text().strip()
        return Client(match[1], self.port, self.key)

    def read_log(self):
        return pathlib.Path(self.data + "/log").read_text(errors="replace")[-4000:]

    def daemon_pid(self):
        """The process that answers: the one that is not the warden. Asked of the kernel: who listens on our port."""
        out = subprocess.run(["ss", "-Hltnp", f"sport = :{self.port}"], capture_output=True, text=True, check=True).stdout
        pids = [int(p) for p in re.findall(r"pid=(\d+)", out)]
        # The parent may hold the socket too; the daemon proper is the unprivileged one, else the only one.
        users = {p: os.stat(f"/proc/{p}").st_uid for p in pids}
        return max(pids, key=lambda p: (users[p] != 0, p))

    def kill(self):
        """kill -9 of the daemon; everything else ends or stays as the design says."""
        os.kill(self.daemon_pid(), signal.SIGKILL)
        self.process.wait(30)
        self.process.stdout.close()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        if self.process and self.process.stdout:
            self.process.stdout.close()
        self.log.close()


def delete_all(client):
    while items := client.get("/v1/sandboxes", {"limit": 1000}).json["items"]:
        for s in items:
            assert client.delete("/v1/sandboxes/" + s["id"]).status == 204


def remove(folder):
    """The warden may still be taking away the last disks."""
    for _ in range(50):
        try:
            shutil.rmtree(folder)
            return
        except OSError:
            time.sleep(0.1)
    shutil.rmtree(folder)


def new_server():
    server = Server()
    try:
        client = server.start()
        yield server, client
        if server.process.poll() is None:
            delete_all(client)
    finally:
        server.stop()
        remove(server.data)


@pytest.fixture(scope="session")
def shared():
    yield from new_server()


@pytest.fixture
def own():
    """(server, client) for one test alone: it may kill it."""
    yield from new_server()


@pytest.fixture(scope="session")
def client(shared):
    return shared[1]


@pytest.fixture(scope="session")
def server(shared):
    return shared[0]


def create(client, **fields):
    r = client.post("/v1/sandboxes", fields)
    assert r.status == 201, r
    return Sandbox(client, r.json)


@pytest.fixture
def box(client):
    """A fresh sandbox."""
    s = create(client)
    yield s
    client.delete(s.path)


@pytest.fixture(scope="module")
def shared_box(client):
    """For tests that leave no trace in it."""
    s = create(client)
    yield s
    client.delete(s.path)


def wait_for(what, seconds=15, every=0.05):
    """Calls until the answer is true; returns it."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        answer = what()
        if answer:
            return answer
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(every)
