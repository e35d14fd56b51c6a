"""Ports of sandboxes at ports of this host."""
import contextlib
import hashlib
import os
import socket
import threading

import pytest

from client import PATIENCE
from conftest import create, wait_for

SERVER = """
import socket, threading
def talk(c):
    while data := c.recv(65536):
        c.sendall(data)
    c.sendall(b"end")
    c.close()
s = socket.create_server(("127.0.0.1", 8000), backlog=64)
print("up", flush=True)
while True:
    threading.Thread(target=talk, args=(s.accept()[0],), daemon=True).start()
"""


def echo(box):
    run = box.start({"code": SERVER, "language": "python"})
    wait_for(lambda: "up" in box.client.get(box.runpath(run), {"output": True}).json.get("stdout", ""), 30)


def connect(port, host="127.0.0.1"):
    return socket.create_connection((host, port), 20 * PATIENCE)


def ask(port, data=b"hello", host="127.0.0.1"):
    with connect(port, host) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        out = b""
        while more := s.recv(65536):
            out += more
        return out


def answers(port):
    with contextlib.suppress(OSError):
        return ask(port) == b"helloend"


def refused(port):
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def publish(box, **fields):
    return box.client.post(box.path + "/publish", fields)


def audit(client, box, kind):
    items = client.get("/v1/audit", {"sandbox": box.id, "type": kind, "limit": 1000}).json["items"]
    return [(x["address"], x["host_port"], x["port"]) for x in items]


def test_published_while_it_lives(client, box):
    echo(box)
    r = publish(box, port=8000)
    assert r.status == 201, r
    port = r.json["host_port"]
    assert r.json == {"address": "127.0.0.1", "host_port": port, "port": 8000, "lost": False}
    assert r.headers["Location"].endswith(f"/publish/{port}")
    assert client.get(box.path).json["publish"] == [r.json]
    assert ask(port) == b"helloend"  # half closed: what comes after our end arrives, too
    assert audit(client, box, "port.published") == [("127.0.0.1", port, 8000)]
    # many at once, one of which does not read
    with connect(port) as deaf:
        deaf.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            for _ in range(400):
                deaf.sendall(b"x" * 65536)
        got = []
        threads = [threading.Thread(target=lambda: got.append(ask(port))) for _ in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert got == [b"helloend"] * 20
    assert client.delete(f"{box.path}/publish/{port}").status == 204
    assert refused(port) and client.get(box.path).json["publish"] == []
    assert audit(client, box, "port.unpublished") == [("127.0.0.1", port, 8000)]
    assert client.delete(f"{box.path}/publish/{port}").status == 404


def test_bytes_are_the_same_both_ways(client, box):
    echo(box)
    port = publish(box, port=8000).json["host_port"]
    data = os.urandom(8 << 20)
    with connect(port) as s:
        def send():
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        t = threading.Thread(target=send)
        t.start()
        out = bytearray()
        while more := s.recv(1 << 20):
            out += more
        t.join()
    assert hashlib.sha256(out).digest() == hashlib.sha256(data + b"end").digest()


def test_from_the_create_to_the_delete(client):
    port = free_port()
    box = create(client, publish=[{"port": 8000, "host_port": port}, {"port": 8000, "address": "127.0.0.2"}])
    other = box.view["publish"][1]["host_port"]
    assert box.view["publish"][0] == {"address": "127.0.0.1", "host_port": port, "port": 8000, "lost": False} and other > 0
    with pytest.raises(ConnectionResetError):  # nobody listens inside yet: told as a reset, not held
        with connect(port) as s:
            s.recv(1)
    echo(box)
    assert ask(port) == b"helloend" and ask(other, host="127.0.0.2") == b"helloend"
    # a second one cannot have it, and leaves nothing
    r = client.post("/v1/sandboxes", {"name": "late", "publish": [{"port": 1}, {"port": 80, "host_port": port}]})
    assert (r.status, r.error["kind"]) == (409, "conflict") and str(port) in r.error["message"] and "taken" in r.error["message"], r
    assert client.get("/v1/sandboxes/late").status == 404
    child = client.post(box.path + "/fork", {}).json["items"][0] if client.get("/v1/info").json["capabilities"]["snapshot_disk"] else None
    if child:
        assert child["publish"] == []
        client.delete("/v1/sandboxes/" + child["id"])
    open_one = connect(port)
    assert client.delete(box.path).status == 204
    with contextlib.suppress(ConnectionResetError):
        open_one.settimeout(20 * PATIENCE)
        assert open_one.recv(1) == b""
    open_one.close()
    assert refused(port)


def test_stopped_and_started(client, box):
    port = publish(box, port=8000).json["host_port"]
    assert client.post(box.path + "/stop").status == 200
    with pytest.raises(ConnectionResetError):
        with connect(port) as s:
            s.recv(1)
    with pytest.raises(OSError):  # and it is still ours
        socket.create_server(("127.0.0.1", port)).close()
    assert client.post(box.path + "/start").status == 200
    echo(box)
    assert ask(port) == b"helloend"


@pytest.mark.parametrize("wish,status,word", [
    ({"port": 0}, 400, "port"), ({}, 400, "port"), ({"port": 80, "host_port": 70000}, 400, "host_port"), ({"port": 80, "address": "here"}, 400, "address"),
    ({"port": 80, "address": "0.0.0.0"}, 403, "operator"), ({"port": 80, "address": "::"}, 403, "operator"),
    ({"port": 80, "address": "::ffff:127.0.0.1"}, 403, "operator"), ({"port": 80, "protocol": "udp"}, 400, "protocol"),
])
def test_refused(client, box, wish, status, word):
    r = publish(box, **wish)
    assert r.status == status and word in r.error["message"], r
    r = client.post("/v1/sandboxes", {"publish": [wish]})
    assert r.status == status and word in r.error["message"], r
    assert client.get(box.path).json["publish"] == []


def test_a_privileged_port(client, box):
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as f:
        if int(f.read()) <= 1:
            pytest.skip("there are none on this host")
    r = publish(box, port=80, host_port=1)
    assert (r.status, r.error["kind"]) == (403, "denied") and "privileged" in r.error["message"], r


def test_not_more_than_there_may_be(client, box):
    for _ in range(32):
        assert publish(box, port=1).status == 201
    r = publish(box, port=1)
    assert (r.status, r.error["kind"]) == (413, "too_large"), r


def test_taken_again_after_a_restart(own):
    server, client = own
    box = create(client)
    echo(box)
    ours, lost = publish(box, port=8000).json["host_port"], publish(box, port=8000).json["host_port"]
    server.kill()
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", lost))
        thief.listen()
        client = box.client = server.start()
        wait_for(lambda: answers(ours))
        assert [(p["host_port"], p["lost"]) for p in client.get(box.path).json["publish"]] == [(ours, False), (lost, True)]
        assert audit(client, box, "port.lost") == [("127.0.0.1", lost, 8000)]
    wait_for(lambda: answers(lost), 30)
    assert [p["lost"] for p in client.get(box.path).json["publish"]] == [False, False]
