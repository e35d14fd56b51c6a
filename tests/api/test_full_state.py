"""The file system of the server's own records is full: what was not written down is not said to be done."""
import os
import pathlib
import subprocess

import pytest

from conftest import Server, create, delete_all, remove, wait_for


@pytest.fixture
def small():
    server = Server()
    state = server.data + "/d/state"
    os.makedirs(state)
    os.chmod(server.data + "/d", 0o711)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "apitest", state], check=True)
    try:
        yield server, server.start()
    finally:
        server.stop()
        subprocess.run(["umount", state], check=True)
        remove(server.data)


def fill(folder):
    file = pathlib.Path(folder, "fill")
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(fd, bytes(4096)):
            pass
    except OSError:
        pass
    os.close(fd)
    return file


def test_a_delete_that_is_not_written_down_is_none_yet(small):
    server, client = small
    box = create(client)
    file = fill(server.data + "/d/state")
    r = client.delete(box.path)
    assert r.status == 503 and "record could not be removed" in r.error["message"], r
    assert client.get(box.path).json["state"] == "deleting"
    file.unlink()
    wait_for(lambda: client.get(box.path).status == 404)
    server.kill()
    client = server.start()
    assert client.get(box.path).status == 404
    delete_all(client)
