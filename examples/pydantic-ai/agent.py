"""A Pydantic AI agent with the Daytona capability, in a Caisson sandbox that lives as long as the run.

pip install pydantic-ai pydantic-ai-daytona
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import sys

from pydantic_ai import Agent
from pydantic_ai_daytona import DaytonaSandbox


def main(model, task):
    return Agent(model, capabilities=[DaytonaSandbox()]).run_sync(task)


if __name__ == "__main__":
    print(main("anthropic:claude-sonnet-4-5", sys.argv[1]).output)
