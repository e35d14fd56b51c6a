"""A Claude agent whose only tools are those of Caisson's MCP server: tools=[] switches off the built-in ones, which work on the host.

pip install claude-agent-sdk
CAISSON_URL=http://127.0.0.1:4780 CAISSON_API_KEY=e2b_... ANTHROPIC_API_KEY=... python agent.py "what is 6*7? use python"
"""
import asyncio
import os
import sys

from claude_agent_sdk import ClaudeAgentOptions, query

where = {name: os.environ[name] for name in ("CAISSON_URL", "CAISSON_API_KEY")}
SERVERS = {
    "http": {"type": "http", "url": where["CAISSON_URL"] + "/mcp", "headers": {"Authorization": "Bearer " + where["CAISSON_API_KEY"]}},
    "stdio": {"type": "stdio", "command": os.environ.get("CAISSON", "caisson"), "args": ["mcp"], "env": where},
}


async def main(task, how="http", **more):
    options = ClaudeAgentOptions(tools=[], mcp_servers={"caisson": SERVERS[how]}, allowed_tools=["mcp__caisson__*"], strict_mcp_config=True,
                                 setting_sources=[], **more)
    return [message async for message in query(prompt=task, options=options)]


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1]))[-1].result)
