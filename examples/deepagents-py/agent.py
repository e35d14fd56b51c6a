"""A deep agent whose shell and file tools work in a Caisson sandbox.

pip install deepagents langchain-daytona langchain-anthropic
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import sys

from daytona import Daytona
from deepagents import create_deep_agent
from langchain_daytona import DaytonaSandbox


def main(model, task):
    daytona = Daytona()
    sandbox = daytona.create()
    try:
        agent = create_deep_agent(model=model, backend=DaytonaSandbox(sandbox=sandbox))
        return agent.invoke({"messages": [("user", task)]})["messages"]
    finally:
        daytona.delete(sandbox)


if __name__ == "__main__":
    print(main("anthropic:claude-sonnet-4-5", sys.argv[1])[-1].content)
