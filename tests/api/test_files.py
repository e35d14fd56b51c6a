"""Files, sessions, ports."""
import hashlib
import os
import socket
import time

import pytest

from client import WebSocket
from conftest import create, wait_for


def url(box, rest=""):
    return box.path + "/files" + rest


def test_write_read_stat(client, box):
    data = bytes(range(256)) * 1000
    assert client.put(url(box), data, {"path": "/tmp/f", "mode": "0640"}).status == 204
    r = client.get(url(box), {"path": "/tmp/f"})
    assert r.status == 200 and r.body == data
    assert r.headers["X-Caisson-Size"] == str(len(data)) and r.headers["X-Caisson-Mode"] == "0640"
    s = client.get(url(box, "/stat"), {"path": "/tmp/f"}).json
    assert (s["type"], s["is_dir"], s["size"], s["mode"], s["name"], s["path"]) == ("file", False, len(data), "0640", "f", "/tmp/f")
    assert abs(s["mtime_ms"] / 1000 - time.time()) < 100
    assert box.sh("sha256sum < /tmp/f")["stdout"].split()[0] == hashlib.sha256(data).hexdigest()
    assert client.get(url(box), {"path": "/tmp/f", "offset": 254, "length": 4}).body == b"\xfe\xff\x00\x01"
    assert client.get(url(box), {"path": "/tmp/f", "offset": len(data)}).body == b""
    assert client.get(url(box), {"path": "/tmp/f", "offset": len(data) - 1}).body == b"\xff"


def test_empty_and_large(client, box):
    assert client.put(url(box), b"", {"path": "/tmp/empty"}).status == 204
    r = client.get(url(box), {"path": "/tmp/empty"})
    assert r.status == 200 and r.body == b""
    data = os.urandom(30_000_000)
    pieces = (data[i:i + 1_000_000] for i in range(0, len(data), 1_000_000))
    assert client.put(url(box), pieces, {"path": "/tmp/large"}).status == 204, "chunked"
    r = client.get(url(box), {"path": "/tmp/large"})
    assert hashlib.sha256(r.body).digest() == hashlib.sha256(data).digest()


def test_relative_paths_begin_at_the_working_directory(client, box):
    assert client.put(url(box), b"here", {"path": "rel.txt"}).status == 204
    assert box.sh("cat rel.txt")["stdout"] == "here"
    assert client.get(url(box), {"path": "./rel.txt"}).body == b"here"


def test_parents_append_exclusive(client, box):
    r = client.put(url(box), b"x", {"path": "/tmp/a/b/c"})
    assert r.status == 404 and r.error["kind"] == "file_not_found", r
    assert client.put(url(box), b"x", {"path": "/tmp/a/b/c", "parents": True}).status == 204
    assert client.put(url(box), b"y", {"path": "/tmp/a/b/c", "append": True}).status == 204
    assert client.get(url(box), {"path": "/tmp/a/b/c"}).body == b"xy"
    r = client.put(url(box), b"z", {"path": "/tmp/a/b/c", "exclusive": True})
    assert r.status == 409 and r.error["kind"] == "conflict"
    assert client.get(url(box), {"path": "/tmp/a/b/c"}).body == b"xy"


def test_a_broken_upload_leaves_the_old_file(client, box):
    client.put(url(box), b"old", {"path": "/tmp/keep"})
    s = socket.create_connection((client.host, client.port), 20)
    s.sendall(f"PUT {box.path}/files?path=/tmp/keep HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.key}\r\nContent-Length: 1000000\r\n\r\n".encode())
    s.sendall(b"n" * 300000)
    time.sleep(0.3)
    s.close()
    time.sleep(0.5)
    assert client.get(url(box), {"path": "/tmp/keep"}).body == b"old"
    assert box.sh("ls -A /tmp")["stdout"].split() == ["keep"], "no half file beside it"


def test_errors_name_the_path(client, box):
    r = client.get(url(box), {"path": "/no/such"})
    assert r.status == 404 and r.error["kind"] == "file_not_found" and "/no/such" in r.error["message"]
    r = client.get(url(box), {"path": "/tmp"})
    assert r.status == 400 and r.error["kind"] == "invalid"
    box.run({"shell": "umask 077; echo secret > /tmp/secret", "user": "0"})
    r = client.get(url(box), {"path": "/tmp/secret", "user": "nobody"})
    assert r.status == 403 and r.error["kind"] == "file_denied"
    r = client.get(url(box), {"path": "/tmp/secret", "user": "nosuchuser"})
    assert 400 <= r.status < 500, r
    for rest, q in (("/stat", {}), ("/list", {}), ("/find", {"text": "x"}), ("/search", {"pattern": "x"})):
        r = client.get(url(box, rest), {"path": "/no/such", **q})
        assert r.status == 404 and r.error["kind"] == "file_not_found", (rest, r)
    assert client.delete(url(box), {"path": "/no/such"}).error["kind"] == "file_not_found"


def test_list(client, box):
    box.sh("mkdir -p /tmp/d/sub/deep; echo 1 > /tmp/d/a; ln -s a /tmp/d/link; ln -s sub /tmp/d/dirlink; mkfifo /tmp/d/pipe; echo 2 > /tmp/d/sub/b")
    items = {i["path"]: i for i in client.get(url(box, "/list"), {"path": "/tmp/d"}).json["items"]}
    assert set(items) == {"a", "link", "dirlink", "pipe", "sub"}
    assert (items["a"]["type"], items["link"]["type"], items["link"]["target"], items["pipe"]["type"]) == ("file", "symlink", "a", "fifo")
    assert items["sub"]["is_dir"] and items["dirlink"]["is_dir"] and not items["link"]["is_dir"]
    deep = {i["path"] for i in client.get(url(box, "/list"), {"path": "/tmp/d", "depth": 3}).json["items"]}
    assert deep == set(items) | {"sub/b", "sub/deep"}
    assert client.get(url(box, "/list"), {"path": "/tmp/d/sub/deep"}).json["items"] == []


def test_names_that_are_not_text(client, box):
    import base64
    name = b"/tmp/odd/\xff\xfe\n\"x"
    assert client.post(url(box, "/mkdir"), {"path": "/tmp/odd"}).status == 204
    b64 = base64.b64encode(name).decode()
    assert client.put(url(box), b"odd", {"path_base64": b64}).status == 204
    item, = client.get(url(box, "/list"), {"path": "/tmp/odd"}).json["items"]
    assert base64.b64decode(item["name_base64"]) == b"\xff\xfe\n\"x" and "\ufffd\ufffd" in item["name"]
    assert client.get(url(box), {"path_base64": b64}).body == b"odd"


def test_mkdir_move_chmod_remove(client, box):
    assert client.post(url(box, "/mkdir"), {"path": "/tmp/m/n", "parents": True, "mode": "0700"}).status == 204
    assert client.get(url(box, "/stat"), {"path": "/tmp/m/n"}).json["mode"] == "0700"
    assert client.post(url(box, "/mkdir"), {"path": "/tmp/m/n", "parents": True}).status == 204
    assert client.post(url(box, "/mkdir"), {"path": "/tmp/m/n"}).status == 409
    client.put(url(box), b"1", {"path": "/tmp/m/1"})
    client.put(url(box), b"2", {"path": "/tmp/m/2"})
    assert client.post(url(box, "/move"), {"from": "/tmp/m/1", "to": "/tmp/m/2", "overwrite": False}).status == 409
    assert client.post(url(box, "/move"), {"from": "/tmp/m/1", "to": "/tmp/m/2"}).status == 204
    assert client.get(url(box), {"path": "/tmp/m/2"}).body == b"1"
    assert client.get(url(box), {"path": "/tmp/m/1"}).status == 404
    assert client.post(url(box, "/chmod"), {"path": "/tmp/m/2", "mode": "4711"}).status == 204
    assert client.get(url(box, "/stat"), {"path": "/tmp/m/2"}).json["mode"] == "4711"
    assert client.post(url(box, "/chmod"), {"path": "/tmp/m/2", "owner": "nobody", "user": "0"}).status == 204
    assert client.get(url(box, "/stat"), {"path": "/tmp/m/2"}).json["owner"] == "nobody"
    r = client.delete(url(box), {"path": "/tmp/m"})
    assert r.status == 409 and r.error["kind"] == "conflict", r
    assert client.delete(url(box), {"path": "/tmp/m", "recursive": True}).status == 204
    assert client.get(url(box, "/stat"), {"path": "/tmp/m"}).status == 404


def test_find_search_replace(client, box):
    box.sh("mkdir -p /tmp/s/x; printf 'one\\ntwo needle\\n' > /tmp/s/a.txt; printf 'needle\\n' > /tmp/s/x/b.py; printf 'none' > /tmp/s/c.py")
    found = client.get(url(box, "/find"), {"path": "/tmp/s", "text": "needle"}).json["items"]
    assert sorted((f["path"].split("/tmp/s/")[-1], f["line"], f["text"]) for f in found) == [("a.txt", 2, "two needle"), ("x/b.py", 1, "needle")]
    names = client.get(url(box, "/search"), {"path": "/tmp/s", "pattern": "*.py"}).json["items"]
    assert sorted(n["path"].split("/tmp/s/")[-1] for n in names) == ["c.py", "x/b.py"]
    assert client.post(url(box, "/replace"), {"path": "/tmp/s/a.txt", "old": "needle", "new": "pin $& \\1"}).status == 204
    assert client.get(url(box), {"path": "/tmp/s/a.txt"}).body == b"one\ntwo pin $& \\1\n"


def test_a_full_disk_is_a_limit(client):
    box = create(client, resources={"disk_mib": 16})
    r = client.put(url(box), b"x" * 40_000_000, {"path": "big"})
    assert r.status == 422 and r.error["kind"] == "limit", r
    assert client.put(url(box), b"small", {"path": "small"}).status == 204, "nothing of the large one is left"
    client.delete(box.path)


def test_no_path_leads_out(client, box):
    for path in ("../../../../../../etc/hostname", "/proc/1/root/etc/hostname", "/proc/self/root/etc/hostname"):
        r = client.get(url(box), {"path": path})
        assert r.status in (200, 403, 404)
        if r.status == 200:
            assert r.body.decode().strip() != socket.gethostname()


# --- sessions ---

def test_a_session_keeps_its_state(client, box):
    r = client.post(box.path + "/sessions", {"id": "s 1", "cwd": "/tmp", "env": {"A": "1"}})
    assert r.status == 201 and r.json["id"] == "s 1" and r.json["alive"] is True, r
    assert client.post(box.path + "/sessions", {"id": "s 1"}).status == 409
    run = lambda script: box.run({"shell": script, "session": "s 1"})
    assert run('echo "$A $PWD"')["stdout"] == "1 /tmp\n"
    assert run("B=2; cd /; f() { echo f$B; }")["exit_code"] == 0
    r = run("f; pwd; (exit 6)")
    assert (r["stdout"], r["exit_code"], r["session"]) == ("f2\n/\n", 6, "s 1")
    assert [s["id"] for s in client.get(box.path + "/sessions").json["items"]] == ["s 1"]
    assert client.get(box.path + "/sessions/s%201").json["alive"] is True
    ids = [r["id"] for r in client.get(box.path + "/runs", {"session": "s 1"}).json["items"]]
    assert len(ids) == 3
    assert client.delete(box.path + "/sessions/s%201").status == 204
    assert client.get(box.path + "/sessions/s%201").status == 404
    r = client.post(box.path + "/runs", {"shell": "true", "session": "s 1"})
    assert r.status in (404, 410), r


def test_a_session_that_exits_is_dead(client, box):
    made = client.post(box.path + "/sessions").json
    assert box.run({"shell": "exit 3", "session": made["id"]})["exit_code"] == 3
    wait_for(lambda: client.get(f"{box.path}/sessions/{made['id']}").json.get("alive") is False, 5)
    r = client.post(box.path + "/runs", {"shell": "true", "session": made["id"]})
    assert r.status == 410 and r.error["kind"] == "gone"


def test_session_commands_wait_for_each_other(client, box):
    client.post(box.path + "/sessions", {"id": "q"})
    a = box.start({"shell": "sleep 0.7; echo a >> /tmp/order", "session": "q"})
    b = box.start({"shell": "echo b >> /tmp/order", "session": "q"})
    client.get(box.runpath(b), {"wait": True})
    assert client.get(box.runpath(a)).json["state"] == "exited"
    assert box.sh("cat /tmp/order")["stdout"] == "a\nb\n"


# --- ports ---

SERVER = r'''
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        n = int(self.headers.get("Content-Length") or 0)
        body = ("%s %s %s|%s|%s|" % (self.command, self.path, self.headers.get("Authorization"), self.headers.get("X-API-Key"), self.headers.get("Host"))).encode() + self.rfile.read(n)
        self.send_response(207)
        self.send_header("X-Inner", "yes")
        self.send_header("Set-Cookie", "a=b; Domain=localhost; Path=/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8765), H).serve_forever()
'''


def test_ports_and_proxy(client, box):
    if box.sh("command -v python3")["exit_code"]:
        pytest.skip("no python3 in this image")
    assert client.get(box.path + "/ports").json == {"items": []}
    client.put(url(box), SERVER.encode(), {"path": "/tmp/server.py"})
    box.start({"argv": ["python3", "/tmp/server.py"]})
    wait_for(lambda: {"port": 8765} in client.get(box.path + "/ports").json["items"])
    base = box.path + "/ports/8765/proxy"
    r = client.get(base + "/a%2Fb/c?x=1&key=mine")
    assert r.status == 207 and r.headers["X-Inner"] == "yes", r
    method, path, rest = r.body.decode().split(" ", 2)
    assert (method, path) == ("GET", "/a%2Fb/c?x=1&key=mine")
    assert rest.startswith("None|None|"), "our key does not reach the program"
    assert client.get(base).body.startswith(b"GET / ")
    body = os.urandom(300_000)
    r = client.call("POST", base + "/up", body)
    assert r.body.endswith(body) and r.body.startswith(b"POST /up ")
    own = client.with_key(None).get(base + "/x", headers={"X-API-Key": client.key, "Authorization": "Bearer theirs"})
    assert b"Bearer theirs|None|" in own.body, own
    both = client.with_key(None).get(base + "/x", headers={"X-API-Key": client.key, "Authorization": "Bearer " + client.key})
    assert b"None|None|" in both.body, "no key of ours in any header"
    theirs = client.with_key(None)
    for ours, own in (({"Authorization": "Bearer " + client.key}, {"X-API-Key": "theirs"}), ({"X-API-Key": client.key}, {"Authorization": "Basic dTpw"}),
                      ({"Authorization": "bearer  " + client.key}, {"X-API-Key": ""})):
        got = theirs.get(base + "/x", headers={**ours, **own})
        assert got.status == 207, (ours, own, got)
        line = got.body.decode().split(" ", 2)[2]
        assert line.startswith(f"{own.get('Authorization')}|{own.get('X-API-Key')}|"), "the program's own, and nothing of ours"
        assert theirs.get(base + "/x", headers=own).status == 401, "and it opens nothing"
    assert theirs.get(base + "/x", headers={"Authorization": "Bearer " + client.key[:-1] + ("1" if client.key[-1] == "0" else "0"), "X-API-Key": "theirs"}).status == 401
    assert r.headers.get("Set-Cookie") == f"a=b; Path={base}", r.headers
    r = client.get(box.path + "/ports/1/proxy/")
    assert r.status == 502 and r.error["kind"] == "bad_gateway", r
    for bad in ("0", "65536", "x", "-1"):
        assert client.get(f"{box.path}/ports/{bad}/proxy/").status == 400
    assert client.with_key(None).get(base).status == 401


WEBSOCKET = r'''
import socket, hashlib, base64
s = socket.create_server(("127.0.0.1", 8766))
while True:
    c, _ = s.accept()
    head = b""
    while b"\r\n\r\n" not in head:
        head += c.recv(4096)
    key = [l.split(b": ")[1] for l in head.split(b"\r\n") if l.lower().startswith(b"sec-websocket-key")][0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05hello")
    data = c.recv(4096)
    mask, n = data[2:6], data[1] & 127
    text = bytes(b ^ mask[i % 4] for i, b in enumerate(data[6:6 + n]))
    c.sendall(b"\x81" + bytes([n]) + text.upper() + b"\x88\x02\x03\xe8")
    c.close()
'''


def test_proxy_of_a_websocket(client, box):
    if box.sh("command -v python3")["exit_code"]:
        pytest.skip("no python3 in this image")
    client.put(url(box), WEBSOCKET.encode(), {"path": "/tmp/ws.py"})
    box.start({"argv": ["python3", "/tmp/ws.py"]})
    wait_for(lambda: {"port": 8766} in client.get(box.path + "/ports").json["items"])
    ws = WebSocket(client, box.path + "/ports/8766/proxy/ws")
    assert ws.status == 101
    assert ws.receive() == (1, b"hello")
    ws.send("shout")
    assert ws.receive() == (1, b"SHOUT")
    assert ws.receive() is None and ws.code == 1000
    ws.close()
