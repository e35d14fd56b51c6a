"""The official Python clients against /mcp and `caisson mcp`: flow.py http|stdio"""
import asyncio
import json
import os
import sys
import urllib.request

how = sys.argv[1]
URL, KEY = os.environ["MCP_URL"], os.environ["MCP_KEY"]
HEADERS = {"Authorization": "Bearer " + KEY}


def check(name, condition, shown=""):
    print(f"ok {name}" if condition else f"not ok {name}: {shown!r}", flush=True)


def sandboxes():
    request = urllib.request.Request(URL.replace("/mcp", "/v1/sandboxes"), headers=HEADERS)
    return [s["id"] for s in json.load(urllib.request.urlopen(request))["items"]]


def structured(result):
    return getattr(result, "structured_content", None) or result.structuredContent


def is_error(result):
    return result.is_error if hasattr(result, "is_error") else result.isError


def text(result):
    return "".join(getattr(c, "text", "") for c in result.content)


async def flow(call, tools, server):
    check("tools", {t.name for t in tools} >= {"create_sandbox", "run", "run_code", "delete_sandbox"}, tools)
    check("server", server.name == "caisson", server)
    # Two calls of one turn and no sandbox yet: they share one.
    a, b = await asyncio.gather(call("run", {"command": "cat /proc/sys/kernel/hostname"}), call("run_code", {"code": "print(open('/proc/sys/kernel/hostname').read(), end='')"}))
    check("a sandbox is made at the first use", structured(a)["sandbox"] == structured(b)["sandbox"] and structured(a)["stdout"] == structured(b)["stdout"], (a, b))
    sandbox = structured(a)["sandbox"]
    check("it is there", sandbox in sandboxes())
    r = await call("run", {"command": "exit 7"})
    check("exit code", structured(r)["exit_code"] == 7 and not is_error(r), r)
    r = await call("run", {"command": "cat; echo $X", "stdin": "in\n", "env": {"X": "y"}, "cwd": "/tmp"})
    check("stdin, env", structured(r)["stdout"] == "in\ny\n", r)
    r = await call("run_code", {"code": "const n: number = 6 * 7; console.log(n)", "language": "typescript"})
    check("typescript", structured(r)["stdout"] == "42\n", r)
    await call("run_code", {"code": "x = 41"})
    r = await call("run_code", {"code": "x + 1"})
    check("variables stay", structured(r)["result"] == "42", r)
    await call("write_file", {"path": "/tmp/run.sh", "text": "#!/bin/sh\necho hi\n", "executable": True})
    check("executable", structured(await call("run", {"command": "/tmp/run.sh"}))["stdout"] == "hi\n")
    big = "line of text\n" * 100000
    await call("write_file", {"path": "/tmp/big", "text": big})
    r = await call("read_file", {"path": "/tmp/big", "offset": 13 * 5, "length": 26})
    check("a part of a large file", structured(r)["text"] == "line of text\n" * 2 and structured(r)["more"] and structured(r)["size"] == len(big), r)
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    await call("write_file", {"path": "p.png", "base64": png})
    r = await call("read_file", {"path": "p.png"})
    check("a picture", r.content[0].type == "image" and r.content[0].data == png, r)
    r = await call("run", {"command": "printf '\\377\\376ok'"})
    check("bytes that are no text", structured(r)["stdout"].endswith("ok"), r)
    r = await call("run", {"command": "x", "sandbox": 5})
    check("a bad argument is the tool's error", is_error(r) and "sandbox" in text(r), r)
    both = await asyncio.gather(*(call("run", {"command": f"sleep 0.2; echo {i}"}) for i in range(20)))
    check("twenty at once", [structured(r)["stdout"] for r in both] == [f"{i}\n" for i in range(20)], both)
    return sandbox


def http_client():
    import mcp.client.streamable_http as s
    if hasattr(s, "create_mcp_http_client"):
        from mcp.client.streamable_http import streamable_http_client
        return streamable_http_client(URL, http_client=s.create_mcp_http_client(headers=HEADERS))
    return s.streamablehttp_client(URL, headers=HEADERS)


def stdio_client():
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client as client
    return client(StdioServerParameters(command=os.environ["CAISSON"], args=["mcp"], env=dict(os.environ)))


async def main():
    try:
        from mcp import Client
    except ImportError:
        Client = None
    transport = http_client() if how == "http" else stdio_client()
    if Client:
        async with Client(transport) as client:
            tools = (await client.list_tools()).tools
            sandbox = await flow(client.call_tool, tools, client.server_info)
    else:
        from mcp import ClientSession
        async with transport as streams, ClientSession(streams[0], streams[1]) as session:
            info = (await session.initialize()).serverInfo
            sandbox = await flow(session.call_tool, (await session.list_tools()).tools, info)
    for _ in range(100):
        if sandbox not in sandboxes():
            break
        await asyncio.sleep(0.05)
    check("the end of the session deletes its sandbox", sandbox not in sandboxes())


asyncio.run(main())
