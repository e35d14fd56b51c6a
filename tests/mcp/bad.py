"""What no client sends, byte by byte: each is answered, with the right status, and the server goes on."""
import concurrent.futures
import http.client
import json
import os
import subprocess
import urllib.parse

where = urllib.parse.urlparse(os.environ["MCP_URL"])
KEY = os.environ["MCP_KEY"]
PATIENCE = int(os.environ.get("TEST_PATIENCE", 1))


def check(name, condition, shown=""):
    print(f"ok {name}" if condition else f"not ok {name}: {shown!r}", flush=True)


def ask(body, method="POST", path="/mcp", session=None, key=KEY, version=None):
    c = http.client.HTTPConnection(where.hostname, where.port, timeout=30 * PATIENCE)
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    if session:
        headers["Mcp-Session-Id"] = session
    if version:
        headers["MCP-Protocol-Version"] = version
    c.request(method, path, body if isinstance(body, (bytes, str, type(None))) else json.dumps(body), headers)
    r = c.getresponse()
    text = r.read()
    c.close()
    return r.status, (json.loads(text) if text else None), r


def message(method, params=None, id=1):
    return {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params is not None else {})}


def begin(**more):
    status, body, r = ask(message("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}), **more)
    assert status == 200, body
    return r.getheader("Mcp-Session-Id"), body


def code(answer):
    return answer[0], answer[1]["error"]["code"]


session, body = begin()
check("the revision asked for", body["result"]["protocolVersion"] == "2025-06-18", body)
status, body, _ = ask(message("initialize", {"protocolVersion": "1999-01-01"}))
check("an unknown revision gets the newest", body["result"]["protocolVersion"] == "2025-11-25", body)
check("no key", ask(message("ping"), key=None)[0] == 401)
check("a wrong key", ask(message("ping"), key="e2b_" + "0" * 40)[0] == 401)
check("GET", ask(None, method="GET")[0] == 405)
check("no session", code(ask(message("ping"))) == (400, -32600))
check("an unknown session", code(ask(message("ping"), session="f" * 32)) == (404, -32600))
check("ping", ask(message("ping"), session=session)[1] == {"jsonrpc": "2.0", "id": 1, "result": {}})
check("ids come back as they came", ask(message("ping", id="a\u00e9"), session=session)[1]["id"] == "a\u00e9")
check("no JSON", code(ask(b"{", session=session)) == (400, -32700))
check("no body", code(ask(b"", session=session)) == (400, -32700))
check("no UTF-8", code(ask(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', session=session)) == (400, -32700))
check("a batch", code(ask([message("ping")], session=session)) == (400, -32600))
check("an unknown method", code(ask(message("resources/list"), session=session)) == (200, -32601))
check("the probe for the revision without sessions", code(ask(message("server/discover"), version="2026-07-28")) == (200, -32601))
status, body, _ = ask(message("tools/list"), session=session, version="2026-07-28")
check("that revision", (status, body["error"]["code"]) == (400, -32022) and "2025-11-25" in body["error"]["data"]["supported"], body)
check("a notification", ask({"jsonrpc": "2.0", "method": "notifications/initialized"}, session=session)[:2] == (202, None))
check("a response", ask({"jsonrpc": "2.0", "id": 5, "result": {}}, session=session)[0] == 202)
check("an unknown tool", code(ask(message("tools/call", {"name": "x"}), session=session)) == (200, -32602))
check("no tool", code(ask(message("tools/call", {}), session=session)) == (200, -32602))
check("arguments of another type", code(ask(message("tools/call", {"name": "run", "arguments": [1]}), session=session)) == (200, -32602))
check("nested beyond reason", ask(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 5000 + b"1" + b"}" * 5001, session=session)[0] == 400)
check("a body over the bound", ask(b" " * (17 << 20), session=session)[0] == 413)
check("cancelling what is not there", ask({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}, session=session)[0] == 202)
check("a session id of one's own must be random", code(ask(message("initialize", {"protocolVersion": "2025-06-18"}), path="/mcp/sessions/abc")) == (400, -32600))
own = os.urandom(16).hex()
begin(path="/mcp/sessions/" + own)
check("and new", ask(message("initialize", {"protocolVersion": "2025-06-18"}), path="/mcp/sessions/" + own)[0] == 400)
check("it works by path", ask(message("ping"), path="/mcp/sessions/" + own)[0] == 200)
check("it ends by path", ask(None, method="DELETE", path="/mcp/sessions/" + own)[0] == 204)
check("and then is gone", ask(message("ping"), path="/mcp/sessions/" + own)[0] == 404)

# A key of another tenant sees neither session nor sandbox.
c = http.client.HTTPConnection(where.hostname, where.port, timeout=30 * PATIENCE)
c.request("POST", "/v1/keys", json.dumps({"name": "other", "tenant": "other"}), {"Authorization": "Bearer " + KEY})
other = json.loads(c.getresponse().read())["key"]
status, body, _ = ask(message("tools/call", {"name": "create_sandbox", "arguments": {}}), session=session)
sandbox = body["result"]["structuredContent"]["sandbox"]
check("another tenant's session", ask(message("ping"), session=session, key=other)[0] == 404)
theirs, _ = begin(key=other)
status, body, _ = ask(message("tools/call", {"name": "run", "arguments": {"command": "id", "sandbox": sandbox}}), session=theirs, key=other)
check("another tenant's sandbox", body["result"]["isError"] and "not_found" in body["result"]["content"][0]["text"], body)

# The session ends while a command runs: the call is answered, and nothing is left.
with concurrent.futures.ThreadPoolExecutor() as pool:
    slow = pool.submit(ask, message("tools/call", {"name": "run", "arguments": {"command": "echo begun > /tmp/begun; sleep 50"}}), session=session)
    for _ in range(100):
        r = ask(message("tools/call", {"name": "read_file", "arguments": {"path": "/tmp/begun"}}), session=session)[1]
        if not r["result"]["isError"]:
            break
    check("delete during a call", ask(None, method="DELETE", session=session)[0] == 204)
    body = slow.result(30 * PATIENCE)[1]
    check("the call is told", body["result"]["isError"], body)
check("the session is gone", ask(message("ping"), session=session)[0] == 404)

# Sessions are bounded: the one that was not used for the longest time goes, with what it made.
first, _ = begin()
made = ask(message("tools/call", {"name": "create_sandbox", "arguments": {}}), session=first)[1]["result"]["structuredContent"]["sandbox"]
last = [begin()[0] for _ in range(256)]
check("the oldest session ends", ask(message("ping"), session=first)[0] == 404)
check("the newest is there", ask(message("ping"), session=last[-1])[0] == 200)
for s in last + [theirs]:
    ask(None, method="DELETE", session=s, key=other if s == theirs else KEY)

# stdio: what is no message is answered in the same form.
p = subprocess.run([os.environ["CAISSON"], "mcp"], input=b'{\n\n[]\n{"jsonrpc":"2.0","id":4,"method":"ping"}\n' + b"x" * (17 << 20) + b"\n" + b'{"jsonrpc":"2.0","id":5,"method":"ping"}\n',
                   capture_output=True, timeout=60 * PATIENCE)
lines = [json.loads(line) for line in p.stdout.splitlines()]
check("stdio: bad lines", p.returncode == 0 and sorted(m["error"]["code"] for m in lines if m["id"] is None) == [-32700, -32700, -32600], (p, lines))
check("stdio: no session yet", {m["id"] for m in lines if m["id"]} == {4, 5} and all("initialize" in m["error"]["message"] or "session" in m["error"]["message"] for m in lines if m["id"]), lines)
