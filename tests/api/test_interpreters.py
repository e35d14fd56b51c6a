"""Kernels that keep their variables, over the native API; and over a kill -9 of the daemon."""
import json
import threading
import time

import pytest

from client import PATIENCE
from conftest import create, wait_for


def execute(box, code, name="default", **more):
    r = box.client.post("%s/interpreters/%s/execute" % (box.path, name), dict(code=code, **more))
    assert r.status == 200, r
    return r.json


def test_a_value_stays(box):
    assert execute(box, "x = 20") == {"state": "done", "message": None, "stdout": "", "stderr": "", "truncated": False, "results": [], "error": None}
    got = execute(box, "import sys\nprint('hi')\nprint('é\\0', file=sys.stderr)\nx + 1")
    assert got == {"state": "done", "message": None, "stdout": "hi\n", "stderr": "é\0\n", "truncated": False, "error": None,
                   "results": [{"main": True, "forms": [{"type": "text/plain", "data": "21"}]}]}
    got = execute(box, "class P:\n def _repr_png_(self): return b'\\x89PNG'\n def __repr__(self): return 'P'\ndisplay(P(), 1)\nP()")
    png = {"main": False, "forms": [{"type": "image/png", "data": "iVBORw=="}, {"type": "text/plain", "data": "P"}]}
    assert got["results"] == [png, {"main": False, "forms": [{"type": "text/plain", "data": "1"}]}, dict(png, main=True)]


def test_several(box):
    c, path = box.client, box.path + "/interpreters"
    assert c.get(path).json == {"items": []}
    a = c.post(path, {"cwd": "/tmp"})
    assert a.status == 201 and (a.json["cwd"], a.json["language"], a.json["alive"], a.json["busy"]) == ("/tmp", "python", True, False)
    b = c.post(path).json
    execute(box, "x = 1", a.json["id"])
    assert execute(box, "x", b["id"])["error"]["name"] == "NameError"
    assert execute(box, "import os; (x, os.getcwd())", a.json["id"])["results"][0]["forms"][0]["data"] == "(1, '/tmp')"
    assert [i["id"] for i in c.get(path).json["items"]] == [a.json["id"], b["id"]]
    assert c.delete(path + "/" + b["id"]).status == 204
    assert c.delete(path + "/" + b["id"]).status == 404
    assert c.get(path + "/" + b["id"]).status == 404
    assert c.post("%s/%s/execute" % (path, b["id"]), {"code": "1"}).status == 404
    assert c.get(path + "/" + a.json["id"]).json == a.json


def test_bad_requests(box):
    c, path = box.client, box.path + "/interpreters"
    for body in ({}, {"code": 1}, {"code": "1", "timeout_ms": -1}, {"code": "1", "timeout_ms": 1 << 60}, {"code": "1", "env": {"A=": "b"}}, {"code": "1", "more": 1}):
        assert c.post(path + "/default/execute", body).status == 400, body
    assert c.post(path, {"language": "cobol"}).status == 422
    assert c.post(path, {"cwd": ""}).status == 400
    r = c.post(path, {"cwd": "/nowhere"})
    assert r.status == 400 and "/nowhere" in r.error["message"]
    assert c.post(path + "/nobody/interrupt").status == 404
    assert c.get(path).json == {"items": []}, "none is left of those that failed"
    execute(box, "1")
    assert c.post(path + "/default/interrupt").status == 409


def test_limits_and_interrupts(box):
    c, path = box.client, box.path + "/interpreters"
    execute(box, "x = 1")
    got = execute(box, "print('before', flush=True)\nwhile True: pass", timeout_ms=1500 * PATIENCE)
    assert (got["state"], got["stdout"], got["error"]) == ("timed_out", "before\n", None)
    thread, got = None, []
    thread = threading.Thread(target=lambda: got.append(execute(box, "import time; time.sleep(1000)")))
    thread.start()
    wait_for(lambda: c.get(path + "/default").json["busy"])
    assert c.post(path + "/default/interrupt").status == 204
    thread.join(20 * PATIENCE)
    assert (got[0]["state"], got[0]["error"]["name"]) == ("interrupted", "KeyboardInterrupt")
    assert execute(box, "x")["results"][0]["forms"][0]["data"] == "1"
    got = execute(box, "import os; os.kill(os.getpid(), 11)")
    assert got["state"] == "lost" and "signal 11" in got["message"]
    assert c.get(path + "/default").json["alive"] is False
    assert execute(box, "'x' in globals()")["results"][0]["forms"][0]["data"] == "False"


def test_an_interrupt_before_the_code_has_begun(box):
    c, path = box.client, box.path + "/interpreters"
    # A thread that gives up the interpreter's lock every half a second only: so long the next piece needs to begin.
    execute(box, "import sys, threading, time\nstop = []\ndef spin():\n    while not stop: pass\n"
                 "sys.setswitchinterval(0.5)\nthreading.Thread(target=spin, daemon=True).start()")
    got = []
    thread = threading.Thread(target=lambda: got.append(execute(box, "time.sleep(1000)")))
    thread.start()
    wait_for(lambda: c.get(path + "/default").json["busy"])
    assert c.post(path + "/default/interrupt").status == 204
    thread.join(30 * PATIENCE)
    assert got and (got[0]["state"], got[0]["error"]["name"]) == ("interrupted", "KeyboardInterrupt")
    execute(box, "sys.setswitchinterval(0.005)")
    for i in range(40):  # at any moment: about to wait, too
        got = []
        thread = threading.Thread(target=lambda: got.append(execute(box, "time.sleep(1000)")))
        thread.start()
        wait_for(lambda: c.get(path + "/default").json["busy"])
        time.sleep(i / 1000)
        assert c.post(path + "/default/interrupt").status == 204
        thread.join(30 * PATIENCE)
        assert got and (got[0]["state"], got[0]["error"]["name"]) == ("interrupted", "KeyboardInterrupt")
    assert execute(box, "stop.append(1); 7")["results"][0]["forms"][0]["data"] == "7"


def test_a_stream(box):
    conn, r = box.client.open("POST", box.path + "/interpreters/default/execute", {"code": "for i in range(20000): print(i)\n1/0"}, query={"stream": True})
    assert r.status == 200
    events = [json.loads(line) for line in r.read().decode().splitlines()]
    conn.close()
    assert "".join(e["data"] for e in events if e["event"] == "output") == "".join("%d\n" % i for i in range(20000))
    assert [e["event"] for e in events if e["event"] != "output"] == ["error", "end"]
    assert events[-1] == {"event": "end", "state": "done", "message": None}


def test_no_python(box):
    assert box.sh("sudo mv /usr/bin/python3 /usr/bin/python3.gone && sudo mv /usr/bin/python3.11 /usr/bin/python3.11.gone || true")["exit_code"] == 0
    if box.sh("command -v python3")["exit_code"] == 0:
        pytest.skip("python3 can't be taken away here")
    r = box.client.post(box.path + "/interpreters")
    assert r.status == 422 and "python3" in r.error["message"]
    got = execute(box, "1")
    assert got["state"] == "lost" and "python3" in got["message"]


def test_an_idle_kernel_keeps_no_sandbox_awake(client):
    box = create(client, lifetime={"idle_s": 1})
    execute(box, "1")
    wait_for(lambda: client.get(box.path).json["state"] == "stopped")
    client.delete(box.path)


@pytest.mark.limit(300)
def test_kill_nine(own):
    server, client = own
    box = create(client)
    other = client.post(box.path + "/interpreters").json["id"]
    execute(box, "x = 42")
    execute(box, "y = 'z' * 5_000_000; print(y); y = 7", other)
    caught = []

    def go():  # its server dies under it; it has a limit
        try:
            execute(box, "import time\nt = time.time()\nwhile True: print(t, 'o' * 500)", other, timeout_ms=8000)
        except Exception as e:
            caught.append(e)
    thread = threading.Thread(target=go)
    thread.start()
    wait_for(lambda: client.get("%s/interpreters/%s" % (box.path, other)).json["busy"])
    time.sleep(1)
    server.kill()
    thread.join(20 * PATIENCE)
    assert caught
    box.client = client = server.start()
    assert execute(box, "x")["results"][0]["forms"][0]["data"] == "42"
    assert {i["id"]: i["alive"] for i in client.get(box.path + "/interpreters").json["items"]} == {"default": True, other: True}
    def cwd(interpreter):
        return client.get("%s/interpreters/%s" % (box.path, interpreter)).json["cwd"]
    wait_for(lambda: cwd(other) == cwd("default") != "")  # each says so itself, when it has been asked again
    got = execute(box, "(y, time.time() - t > 7)", other)  # waits for the one before
    assert got["results"][0]["forms"][0]["data"] == "(7, True)", got
    client.delete(box.path)
