"""An agno agent with the Daytona tools, in a Caisson sandbox. The tools leave the sandbox to the caller: it is deleted here.

pip install agno daytona anthropic
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import sys

from agno.agent import Agent
from agno.tools.daytona import DaytonaTools
from daytona import Daytona


def main(model, task):
    daytona = Daytona()
    sandbox = daytona.create()
    try:
        return Agent(model=model, tools=[DaytonaTools(sandbox_id=sandbox.id)], telemetry=False).run(task)
    finally:
        daytona.delete(sandbox)


if __name__ == "__main__":
    from agno.models.anthropic import Claude
    print(main(Claude(id="claude-sonnet-4-5"), sys.argv[1]).content)
