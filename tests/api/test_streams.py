"""Output as it comes: NDJSON, raw bytes, WebSocket; stdin; leaving and coming back."""
import hashlib
import json
import os
import socket
import threading
import time

import pytest

from client import WebSocket, event_bytes
from conftest import wait_for


def collect(events):
    """(stdout, stderr, result) with the order and the offsets checked."""
    out = {"stdout": bytearray(), "stderr": bytearray()}
    events = list(events)
    assert events[0]["event"] == "started" and events[0]["run"]["id"]
    assert events[-1]["event"] == "end", events[-1]
    for e in events[1:-1]:
        assert e["event"] == "output"
        assert e["offset"] == len(out[e["stream"]])
        out[e["stream"]] += event_bytes(e)
    return out["stdout"], out["stderr"], events[-1]["result"]


def test_events_in_order_to_the_end(shared_box):
    out, err, result = collect(shared_box.events({"shell": "printf a; sleep 0.2; printf b >&2; sleep 0.2; printf c; exit 9"}))
    assert (out, err) == (b"ac", b"b")
    assert result["exit_code"] == 9 and result["state"] == "exited" and "stdout" not in result


def test_accept_asks_for_a_stream_too(client, shared_box):
    c, r = client.open("POST", shared_box.path + "/runs", {"shell": "echo x"}, headers={"Accept": "application/x-ndjson"})
    events = [json.loads(line) for line in r.read().splitlines()]
    c.close()
    assert [e["event"] for e in events] == ["started", "output", "end"]


def test_output_comes_while_it_runs(client, shared_box):
    """The command waits until each line has been seen."""
    seen = 0
    for e in shared_box.events({"shell": "for i in 1 2 3; do echo $i; until [ -e /tmp/seen$i ]; do sleep 0.05; done; done; rm /tmp/seen?"}):
        if e["event"] == "output":
            seen += 1
            assert e["data"] == f"{seen}\n"
            assert client.put(shared_box.path + "/files", b"", {"path": f"/tmp/seen{seen}"}).status == 204
    assert seen == 3


def test_twenty_megabytes_streamed(shared_box):
    out, err, result = collect(shared_box.events({"shell": "head -c 20000000 /dev/urandom | tee /tmp/r; sha256sum < /tmp/r >&2; rm /tmp/r"}, timeout=120))
    assert len(out) == 20000000 == result["stdout_bytes"]
    assert err.split()[0].decode() == hashlib.sha256(out).hexdigest()


def test_a_character_is_never_cut(shared_box):
    for e in shared_box.events({"shell": r"printf '\303'; sleep 0.3; printf '\251'; sleep 0.3; printf '\342\202'; sleep 0.3; printf '\254'"}):
        if e["event"] == "output":
            assert e["data"] in ("é", "€", "é€")


def test_leaving_does_not_end_the_run(client, shared_box):
    c, r = client.open("POST", shared_box.path + "/runs", {"shell": "echo one; sleep 1; echo two"}, {"stream": 1})
    run = json.loads(r.readline())["run"]
    c.sock and c.sock.shutdown(socket.SHUT_RDWR)
    r.close()
    c.close()
    got = client.get(shared_box.runpath(run), {"wait": True, "output": True}).json
    assert got["exit_code"] == 0 and got["stdout"] == "one\ntwo\n"


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_ends_it_when_asked(client, shared_box, stream):
    mark = str(700000 + int.from_bytes(os.urandom(2), "big"))
    head = json.dumps({"shell": f"sleep {mark}", "kill_on_disconnect": True}).encode()
    s = socket.create_connection((client.host, client.port), 20)
    path = shared_box.path + "/runs" + ("?stream=1" if stream else "")
    s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.key}\r\nContent-Length: {len(head)}\r\n\r\n".encode() + head)
    run = wait_for(lambda: [r for r in client.get(shared_box.path + "/runs").json["items"] if mark in r["command"]])[0]
    s.close()
    got = client.get(shared_box.runpath(run), {"wait": True}).json
    assert got["canceled"] is True and got["signal"] == 9


def test_coming_back_at_an_offset(client, shared_box):
    run = shared_box.start({"shell": "printf 0123456789; printf abcdef >&2; sleep 1; printf XYZ"})
    wait_for(lambda: client.get(shared_box.runpath(run)).json["stdout_bytes"] == 10)
    r = client.get(shared_box.runpath(run, "/output"), {"offset": 4})
    assert r.status == 200 and r.body == b"456789"
    assert r.headers["X-Caisson-Offset"] == "4" and r.headers["X-Caisson-Total"] == "10"
    assert r.headers["X-Caisson-Run-State"] == "running" and r.headers["X-Caisson-Truncated"] == "false"
    assert r.headers["Content-Type"] == "application/octet-stream"
    assert client.get(shared_box.runpath(run, "/output"), {"offset": 2, "limit": 3}).body == b"234"
    assert client.get(shared_box.runpath(run, "/output"), {"stream": "stderr", "offset": 6}).body == b""
    assert client.get(shared_box.runpath(run, "/output"), {"offset": 8, "follow": True}).body == b"89XYZ"
    assert client.get(shared_box.runpath(run, "/output"), {"offset": 11, "follow": True}).body == b"YZ"
    c, resp = client.open("GET", shared_box.runpath(run, "/events"), None, {"stdout_offset": 12, "stderr_offset": 3})
    events = [json.loads(line) for line in resp.read().splitlines()]
    c.close()
    got = {e["stream"]: (e["offset"], e["data"]) for e in events if e["event"] == "output"}
    assert got == {"stdout": (12, "Z"), "stderr": (3, "def")}


def test_raw_output_of_any_size(client, shared_box):
    run = shared_box.start({"shell": "head -c 9000000 /dev/urandom | tee /tmp/q; sha256sum < /tmp/q >&2; rm /tmp/q"})
    followed = client.get(shared_box.runpath(run, "/output"), {"follow": True}).body
    whole = client.get(shared_box.runpath(run, "/output")).body
    digest = client.get(shared_box.runpath(run, "/output"), {"stream": "stderr"}).body.split()[0].decode()
    assert len(whole) == 9000000 and whole == followed
    assert hashlib.sha256(whole).hexdigest() == digest


def test_a_slow_reader_loses_nothing_and_holds_up_nobody(client, shared_box):
    c, r = client.open("POST", shared_box.path + "/runs", {"shell": "head -c 30000000 /dev/zero"}, {"stream": 1}, timeout=100)
    time.sleep(1)
    t = time.monotonic()
    assert shared_box.sh("echo other")["stdout"] == "other\n"
    assert time.monotonic() - t < 5
    n, last = 0, None
    for line in r:
        e = json.loads(line)
        if e["event"] == "output":
            n += len(event_bytes(e))
        last = e
    c.close()
    assert n == 30000000 and last["event"] == "end"


# --- stdin ---

def test_stdin_in_pieces(client, shared_box):
    run = shared_box.start({"argv": ["cat"], "stdin_open": True})
    assert client.post(shared_box.runpath(run, "/stdin"), b"one\n").status == 204
    wait_for(lambda: client.get(shared_box.runpath(run, "/output")).body == b"one\n")
    assert client.post(shared_box.runpath(run, "/stdin"), iter([b"two", b"\n"])).status == 204, "chunked"
    assert client.post(shared_box.runpath(run, "/stdin?close=true"), b"three").status == 204
    got = client.get(shared_box.runpath(run), {"wait": True, "output": True}).json
    assert got["stdout"] == "one\ntwo\nthree" and got["exit_code"] == 0
    late = client.post(shared_box.runpath(run, "/stdin"), b"x")
    assert late.status == 410 and late.error["kind"] == "gone"


def test_much_stdin_through_a_slow_command(client, shared_box):
    data = os.urandom(5_000_000)
    run = shared_box.start({"shell": "sleep 1; sha256sum", "stdin_open": True})
    assert client.post(shared_box.runpath(run, "/stdin?close=1"), data).status == 204
    got = client.get(shared_box.runpath(run), {"wait": True, "output": True}).json
    assert got["stdout"].split()[0] == hashlib.sha256(data).hexdigest()


def test_stdin_that_is_not_open(client, shared_box):
    run = shared_box.start({"shell": "sleep 3"})
    r = client.post(shared_box.runpath(run, "/stdin"), b"x")
    assert r.status in (409, 410), r
    client.delete(shared_box.runpath(run))


def test_stdin_of_a_command_that_ends(client, shared_box):
    run = shared_box.start({"shell": "head -c 3 > /dev/null; sleep 0.5", "stdin_open": True})
    r = client.post(shared_box.runpath(run, "/stdin"), b"x" * 3_000_000)
    assert r.status == 410, r


# --- WebSocket ---

def attach(client, box, run, query=None):
    ws = WebSocket(client, box.runpath(run, "/attach"), query)
    assert ws.status == 101, ws.head
    started = json.loads(ws.receive()[1])
    assert started["type"] == "started" and started["run"]["id"] == run["id"]
    return ws, started


def test_attach_both_ways(client, shared_box):
    run = shared_box.start({"shell": "while read l; do echo \"got $l\"; echo \"err $l\" >&2; done; exit 4", "stdin_open": True})
    ws, started = attach(client, shared_box, run)
    assert started["stdout_offset"] == 0
    ws.stdin(b"a\nb\n")
    ws.stdin(b"c\n")
    ws.send({"type": "eof"})
    out, err, end = ws.until_end()
    assert out == b"got a\ngot b\ngot c\n" and err == b"err a\nerr b\nerr c\n"
    assert end["exit_code"] == 4 and ws.code == 1000
    ws.close()


def test_attach_leave_and_come_back(client, shared_box):
    run = shared_box.start({"shell": "printf 12345; sleep 1.5; printf 6789; exit 2"})
    ws, _ = attach(client, shared_box, run)
    op, m = ws.receive()
    assert (op, m) == (2, b"\x0112345")
    ws.close()  # without a word
    ws, started = attach(client, shared_box, run, {"stdout_offset": 3})
    assert started["stdout_offset"] == 3
    out, err, end = ws.until_end()
    assert out == b"456789" and end["exit_code"] == 2
    ws.close()
    ws, _ = attach(client, shared_box, run, {"stdout_offset": 5})
    assert ws.until_end()[0] == b"6789", "also after the end"
    ws.close()


def test_attach_a_terminal(client, shared_box):
    run = shared_box.start({"argv": ["sh", "-c", "stty -echo; printf 'ready\\n'; read x; stty size; exec cat"], "pty": True})
    ws, _ = attach(client, shared_box, run)
    seen = b""
    while b"ready\r\n" not in seen:
        seen += ws.receive()[1][1:]
    ws.send({"type": "resize", "rows": 21, "cols": 77})
    ws.stdin(b"\n")
    seen = b""
    while b"\n" not in seen:
        seen += ws.receive()[1][1:]
    assert seen == b"21 77\r\n"
    ws.send({"type": "signal", "signal": "INT"})
    out, err, end = ws.until_end()
    assert end["signal"] == 2 and end["signal_name"] == "SIGINT"
    ws.close()


def test_attach_refuses_nonsense_and_goes_on(client, shared_box):
    run = shared_box.start({"argv": ["cat"], "stdin_open": True})
    ws, _ = attach(client, shared_box, run)
    for nonsense in ("{", "[]", '{"type":"dance"}', '{"type":"resize"}', '{"type":"signal","signal":"NO"}', '{"type":"eof","x":1}', b"", b"\x07abc"):
        ws.send(nonsense, 1 if isinstance(nonsense, str) else 2)
        op, m = ws.receive()
        assert op == 1 and json.loads(m)["type"] == "error" and json.loads(m)["error"]["message"]
    ws.stdin(b"fine")
    assert ws.receive() == (2, b"\x01fine")
    ws.send({"type": "cancel"})
    assert ws.until_end()[2]["canceled"] is True
    ws.close()


def test_attach_kill_on_disconnect(client, shared_box):
    run = shared_box.start({"shell": "sleep 100"})
    ws, _ = attach(client, shared_box, run, {"kill_on_disconnect": True})
    ws.close()
    assert client.get(shared_box.runpath(run), {"wait": True}).json["canceled"] is True


def test_attach_much_in_both_directions(client, shared_box):
    data = os.urandom(8_000_000)
    run = shared_box.start({"argv": ["cat"], "stdin_open": True})
    ws, _ = attach(client, shared_box, run)

    def feed():
        for i in range(0, len(data), 500_000):
            ws.stdin(data[i:i + 500_000])
        ws.send({"type": "eof"})

    t = threading.Thread(target=feed)
    t.start()
    out, err, end = ws.until_end()
    t.join()
    assert out == data and end["exit_code"] == 0
    ws.close()


def test_attach_is_a_websocket(client, shared_box):
    run = shared_box.start({"shell": "true"})
    r = client.get(shared_box.runpath(run, "/attach"))
    assert r.status in (400, 426) and "WebSocket" in r.error["message"]
    ws = WebSocket(client.with_key(None), shared_box.runpath(run, "/attach"))
    assert ws.status == 401
    ws.close()
    ws = WebSocket(client, shared_box.path + "/runs/run_99999/attach")
    assert ws.status == 404
    ws.close()


# --- events ---

def test_server_sent_events(client):
    c, r = client.open("GET", "/v1/events", headers={"Last-Event-ID": "17"})
    assert r.status == 200 and r.headers["Content-Type"] == "text/event-stream"
    made = client.post("/v1/sandboxes", {"labels": {"seen": "é"}}).json
    client.post(f"/v1/sandboxes/{made['id']}/runs", {"shell": "exit 3"})
    client.delete(f"/v1/sandboxes/{made['id']}")
    seen, event, ids = [], None, []
    while "sandbox.deleted" not in [s[0] for s in seen]:
        line = r.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("id: "):
            ids.append(int(line[4:]))
        elif line.startswith("data: "):
            data = json.loads(line[6:])
            if event == "reset" or data["sandbox"]["id"] == made["id"]:
                seen.append((event, data))
    c.close()
    names = [s[0] for s in seen]
    assert names[0] == "reset" and seen[0][1] == {"last_event_id": "17"}
    for name in ("sandbox.created", "run.started", "run.ended", "sandbox.deleted"):
        assert name in names, names
    ended = dict(seen)["run.ended"]
    assert ended["run"]["exit_code"] == 3 and ended["sandbox"]["labels"] == {"seen": "é"}
    assert ids == sorted(set(ids))
