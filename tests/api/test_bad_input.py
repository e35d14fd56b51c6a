"""Whatever is wrong is refused with a 4xx that says which and why; nothing hangs, breaks, or is half made."""
import json

import pytest

from client import WebSocket

SANDBOX_CASES = [
    ({"imgae": "x"}, "imgae"),
    ({"resources": {"cpu": 1}}, "resources.cpu"),
    ({"resources": {"cpus": "1"}}, "resources.cpus"),
    ({"resources": {"cpus": 0}}, "resources.cpus"),
    ({"resources": {"cpus": 5000}}, "resources.cpus"),
    ({"resources": {"memory_mib": 1}}, "resources.memory_mib"),
    ({"resources": {"memory_mib": 2**40}}, "resources.memory_mib"),
    ({"resources": {"pids": 1}}, "resources.pids"),
    ({"resources": {"disk_mib": -1}}, "resources.disk_mib"),
    ({"resources": []}, "resources"),
    ({"name": None}, "name"),
    ({"name": ""}, "name"),
    ({"name": "-x"}, "name"),
    ({"name": "x" * 65}, "name"),
    ({"name": "a/b"}, "name"),
    ({"image": ""}, "image"),
    ({"image": "--option"}, "image"),
    ({"boundary": "cloud"}, "boundary"),
    ({"boundary": 1}, "boundary"),
    ({"env": {"A B": "x"}}, "env"),
    ({"env": {"A": None}}, "env"),
    ({"env": {"A": "x" * 200000}}, "env"),
    ({"env": {f"A{i}": "" for i in range(600)}}, "env"),
    ({"labels": {"": "x"}}, "labels"),
    ({"labels": {"a": "x" * 2000}}, "labels"),
    ({"labels": {str(i): "" for i in range(65)}}, "labels"),
    ({"labels": {"a": "\n"}}, "labels"),
    ({"workdir": "relative"}, "workdir"),
    ({"user": "a b"}, "user"),
    ({"hostname": "-"}, "hostname"),
    ({"network": {"mode": "host"}}, "network.mode"),
    ({"network": {"mode": "public", "allow": ["a b"]}}, "network.allow"),
    ({"network": {"mode": "allow", "deny": ["127.0.0.1"]}}, "network.deny"),
    ({"network": {"allow": ["example.org"]}}, "network"),
    ({"lifetime": {"idle_s": -1}}, "lifetime.idle_s"),
    ({"lifetime": {"max_s": 1.5}}, "lifetime.max_s"),
    ({"lifetime": {"delete_after_s": -2}}, "lifetime.delete_after_s"),
    ({"ephemeral": "yes"}, "ephemeral"),
    ({"idempotency_key": ""}, "idempotency_key"),
]


def refused(r, part=None, statuses=(400, 413, 422)):
    assert r.status in statuses, r
    assert r.headers["Content-Type"] == "application/json"
    assert set(r.error) == {"kind", "message"} and r.error["message"]
    if part:
        assert part in r.error["message"], r.error


@pytest.mark.parametrize("body,part", SANDBOX_CASES, ids=lambda v: str(v)[:50])
def test_create(client, body, part):
    before = client.get("/v1/sandboxes").json["total"]
    refused(client.post("/v1/sandboxes", body), part)
    assert client.get("/v1/sandboxes").json["total"] == before, "nothing half made"


RUN_CASES = [
    ({}, "argv"),
    ({"argv": []}, "argv"),
    ({"argv": [""]}, "argv"),
    ({"argv": "ls"}, "argv"),
    ({"argv": ["a", 1]}, "argv"),
    ({"argv": ["x" * 200000]}, "argv"),
    ({"argv": ["true"], "shell": "true"}, "argv"),
    ({"shell": 1}, "shell"),
    ({"code": "x"}, "language"),
    ({"code": "x", "language": "cobol"}, "language"),
    ({"shell": "x", "language": "python"}, "language"),
    ({"shell": "x", "cwd": ""}, "cwd"),
    ({"shell": "x", "cwd": "x" * 5000}, "cwd"),
    ({"shell": "x", "user": "a b"}, "user"),
    ({"shell": "x", "env": {"1": "x"}}, "env"),
    ({"shell": "x", "timeout_ms": 0}, "timeout_ms"),
    ({"shell": "x", "timeout_ms": -5}, "timeout_ms"),
    ({"shell": "x", "timeout_ms": "5"}, "timeout_ms"),
    ({"shell": "x", "timeout": 5}, "timeout"),
    ({"shell": "x", "output_max": 0}, "output_max"),
    ({"shell": "x", "rows": 5}, "rows"),
    ({"shell": "x", "pty": True, "rows": 0}, "rows"),
    ({"shell": "x", "pty": 1}, "pty"),
    ({"shell": "x", "stdin": 5}, "stdin"),
    ({"shell": "x", "stdin_base64": "%"}, "stdin_base64"),
    ({"shell": "x", "stdin": "a", "stdin_base64": "YQ=="}, "stdin"),
    ({"argv": ["true"], "session": "s"}, "session"),
    ({"shell": "x", "session": "a/b"}, "session"),
]


@pytest.mark.parametrize("body,part", RUN_CASES, ids=lambda v: str(v)[:50])
def test_run(client, shared_box, body, part):
    before = len(client.get(shared_box.path + "/runs").json["items"])
    refused(client.post(shared_box.path + "/runs", body), part)
    assert len(client.get(shared_box.path + "/runs").json["items"]) == before


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"nul", b'{"name":"\xff"}', b'{"name":"a\\u0000b"}', b'{"name":"a","name":"b"}', b"{}x", b"\xef\xbb\xbf{}",
                                  b"[" * 5000, b'{"resources":{"pids":1e999}}', b'{"resources":{"pids":99999999999999999999999}}'], ids=lambda b: repr(b[:20]))
def test_bodies_that_are_not_json_objects(client, shared_box, body):
    refused(client.post("/v1/sandboxes", body))
    refused(client.post(shared_box.path + "/runs", body))
    refused(client.patch(shared_box.path, body))


def test_huge_bodies(client, shared_box):
    refused(client.post("/v1/sandboxes", b"x" * (5 << 20)), statuses=(413,))
    r = client.post(shared_box.path + "/files/mkdir", b"x" * (2 << 20))
    refused(r, statuses=(413,))
    assert r.error["kind"] == "too_large"
    # announced, and never sent: the answer comes without waiting for it
    head = f"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.key}\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n"
    assert client.raw(head.encode())[:12] == b"HTTP/1.1 413"
    refused(client.post(shared_box.path + "/runs", {"shell": "x" * (17 << 20)}), "shell", statuses=(413,))


QUERY_CASES = [
    ("/v1/sandboxes", "limit=0", "limit"),
    ("/v1/sandboxes", "limit=1001", "limit"),
    ("/v1/sandboxes", "limit=x", "limit"),
    ("/v1/sandboxes", "limit=1&limit=2", "limit"),
    ("/v1/sandboxes", "lable=a:b", "lable"),
    ("/v1/sandboxes", "label=a", "label"),
    ("/v1/sandboxes", "state=asleep", "state"),
    ("/v1/sandboxes", "cursor=nonsense", "cursor"),
    ("/v1/sandboxes", "order=up", "order"),
    ("/v1/sandboxes", "name_prefix=a%20b", "name_prefix"),
    ("/v1/sandboxes", "id_prefix=xyz", "id_prefix"),
    ("/v1/sandboxes", "cursor=" + "1" * 300, "cursor"),
    ("/v1/sandboxes", "name_prefix=%ff", "UTF-8"),
    ("/v1/info", "x=1", "x"),
    ("{box}", "verbose=1", "verbose"),
    ("{box}/files", "", "path"),
    ("{box}/files", "path=", "path"),
    ("{box}/files", "path=%ff", "UTF-8"),
    ("{box}/files", "path=" + "x" * 5000, "path"),
    ("{box}/files", "path=a&path_base64=YQ==", "path"),
    ("{box}/files", "path_base64=YQBi", "NUL"),
    ("{box}/files", "path=a&offset=-1", "offset"),
    ("{box}/files", "path=a&length=0", "length"),
    ("{box}/files/list", "path=/&depth=0", "depth"),
    ("{box}/files/find", "path=/", "text"),
    ("{box}/files/find", "path=/&text=", "text"),
    ("{box}/files/search", "path=/", "pattern"),
    ("{box}/files/stat", "path=/&user=a%20b", "user"),
    ("{box}/runs", "session=a%2Fb", "session"),
    ("{box}/runs/{run}", "wait=maybe", "wait"),
    ("{box}/runs/{run}/output", "stream=both", "stream"),
    ("{box}/runs/{run}/output", "follow=1&limit=5", "follow"),
    ("{box}/runs/{run}/events", "stdout_offset=x", "stdout_offset"),
]


@pytest.fixture(scope="module")
def run(shared_box):
    return shared_box.start({"shell": "true"})


@pytest.mark.parametrize("path,query,part", QUERY_CASES)
def test_query(client, shared_box, run, path, query, part):
    refused(client.get(path.format(box=shared_box.path, run=run["id"]) + "?" + query), part, statuses=(400,))


def test_nul_in_a_path(client, shared_box):
    r = client.get(shared_box.path + "/files?path=/a%00b")
    refused(r, statuses=(400,))
    refused(client.post(shared_box.path + "/files/mkdir", b'{"path":"/a\\u0000b"}'), statuses=(400,))


BODY_CASES = [
    ("/files/mkdir", {"path": ""}, "path"),
    ("/files/mkdir", {"path": "/a", "mode": "9"}, "mode"),
    ("/files/mkdir", {"path": "/a", "mode": 493}, "mode"),
    ("/files/mkdir", {}, "path"),
    ("/files/move", {"from": "/a"}, "to"),
    ("/files/move", {"from": "/a", "to": ""}, "to"),
    ("/files/chmod", {"path": "/a"}, "mode"),
    ("/files/replace", {"path": "/a", "old": "", "new": ""}, "old"),
    ("/files/replace", {"path": "/a", "old": "x"}, "new"),
    ("/sessions", {"id": ""}, "id"),
    ("/sessions", {"id": ".."}, "id"),
    ("/sessions", {"id": "x" * 129}, "id"),
    ("/sessions", {"name": "x"}, "name"),
    ("/runs/{run}/signal", {}, "signal"),
    ("/runs/{run}/signal", {"signal": "FOO"}, "signal"),
    ("/runs/{run}/signal", {"signal": 0}, "signal"),
    ("/runs/{run}/resize", {"rows": 1}, "cols"),
    ("/runs/{run}/resize", {"rows": 1, "cols": 70000}, "cols"),
]


@pytest.mark.parametrize("path,body,part", BODY_CASES)
def test_body(client, shared_box, run, path, body, part):
    refused(client.post(shared_box.path + path.format(run=run["id"]), body), part, statuses=(400,))


def test_keys(client):
    bare = client.with_key(None)
    for r, part in ((bare.get("/v1/sandboxes"), "Authorization: Bearer"), (bare.get("/v1/sandboxes?api_key=" + client.key), "query"),
                    (client.get("/v1/sandboxes?key=" + client.key), "query"), (client.with_key("nonsense").get("/v1/info"), ""),
                    (bare.get("/v1/info", headers={"Authorization": "Basic " + client.key}), "Bearer")):
        assert r.status == 401 and r.error["kind"] == "unauthenticated" and part in r.error["message"], r
        assert r.headers["WWW-Authenticate"] == 'Bearer realm="caisson"'
    assert bare.get("/v1/info", headers={"X-API-Key": client.key}).status == 200
    assert bare.get("/v1/info", headers={"Authorization": "bearer   " + client.key}).status == 200
    one = f"Authorization: Bearer {client.key}\r\n"
    for fields, status in ((one, 200), (one + one, 401), (one + "Authorization: Bearer x\r\n", 401), ("Authorization: Bearer x\r\n" + one, 401)):
        assert client.raw(f"GET /v1/info HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n".encode())[9:12] == b"%d" % status, fields
    # refused before the body is read
    head = b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n"
    assert client.raw(head)[:12] == b"HTTP/1.1 401"


def test_routes_and_methods(client):
    r = client.get("/v1/nothing")
    assert r.status == 404 and r.error["kind"] == "not_found"
    r = client.call("PUT", "/v1/sandboxes", b"{}")
    assert r.status == 405 and r.error["message"]
    assert client.get("/v1/sandboxes/" + "x" * 300).status == 404
    assert client.get("/v1/sandboxes/%ff").status in (400, 404)
    assert client.get("/v1/sandboxes/a%00b").status in (400, 404)


def test_idempotency_header_and_field(client, shared_box):
    r = client.post(shared_box.path + "/runs", {"shell": "true", "idempotency_key": "a"}, headers={"Idempotency-Key": "b"})
    refused(r, "Idempotency-Key", statuses=(400,))


def test_unknown_things(client, shared_box):
    for path in ("/v1/sandboxes/none", "/v1/sandboxes/none/runs", "/v1/sandboxes/none/sessions", "/v1/sandboxes/none/usage", "/v1/sandboxes/none/ports",
                 "/v1/sandboxes/none/files?path=/", shared_box.path + "/sessions/none", shared_box.path + "/runs/none", shared_box.path + "/runs/run_0/output"):
        r = client.get(path)
        assert r.status == 404 and r.error["kind"] == "not_found", (path, r)
    ws = WebSocket(client, "/v1/sandboxes/none/runs/run_1/attach")
    assert ws.status == 404
    ws.close()


def test_it_still_works(client, shared_box):
    r = shared_box.sh("echo yes")
    assert r["stdout"] == "yes\n", r


def test_a_variable_has_one_value(client):
    """A secret's placeholder or a plain text: never both, nor either by chance."""
    assert client.post("/v1/secrets", {"name": "one-value", "value": "v-of-one", "hosts": ["a.test"]}).status == 201
    secrets = {"env": {"X": "one-value"}}
    try:
        r = client.post("/v1/sandboxes", {"env": {"X": "x"}, "secrets": secrets, "network": {"mode": "public"}})
        assert r.status == 400 and 'secrets.env: "X" is in env, too' in r.error["message"], r
        r = client.post("/v1/sandboxes", {"env": {"X": "x"}, "network": {"mode": "public"}})
        assert r.status == 201, r
        path = "/v1/sandboxes/" + r.json["id"]
        r = client.patch(path, {"secrets": secrets})
        assert r.status == 400 and '"X" is in env, too' in r.error["message"], r
        assert client.patch(path, {"env": {"X": None}}).status == 200
        assert client.patch(path, {"secrets": secrets}).status == 200
        r = client.patch(path, {"env": {"X": "y"}})
        assert r.status == 400 and '"X" is in env, too' in r.error["message"], r
        client.delete(path)
    finally:
        client.delete("/v1/secrets/one-value")


@pytest.mark.parametrize("rule,says", [("localhost", "the sandbox itself"), ("127.0.0.1", "no sandbox ever reaches"), ("[fe80::1]", "no sandbox ever reaches"),
                                       ("169.254.169.254:80", "no sandbox ever reaches"), ("224.0.0.0/4", "no sandbox ever reaches")])
def test_what_can_never_be_reached_is_refused(client, box, rule, says):
    for mode in ("allow", "public"):
        network = {"mode": mode, "allow": ["a.test", rule]}
        for r in (client.post("/v1/sandboxes", {"network": network}), client.patch(box.path, {"network": network})):
            assert r.status == 400 and says in r.error["message"] and "leave the rule out" in r.error["message"], r
