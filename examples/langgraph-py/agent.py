"""A LangGraph agent with one tool: Python in a Caisson sandbox.

pip install langgraph langchain langchain-anthropic daytona
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import sys

from daytona import Daytona
from langchain.agents import create_agent
from langchain_core.tools import tool


def main(model, task):
    daytona = Daytona()
    sandbox = daytona.create()

    @tool
    def python(code: str) -> str:
        """Runs Python code in a sandbox and returns what it prints."""
        return sandbox.process.code_run(code).result

    try:
        return create_agent(model, tools=[python]).invoke({"messages": [("user", task)]})["messages"]
    finally:
        daytona.delete(sandbox)


if __name__ == "__main__":
    print(main("anthropic:claude-sonnet-4-5", sys.argv[1])[-1].content)
