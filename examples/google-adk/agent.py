"""A Google ADK agent whose Execute, ReadFile, WriteFile and EditFile tools work in a Caisson sandbox.

pip install "google-adk[daytona]"
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import asyncio
import sys

from google.adk.agents import LlmAgent
from google.adk.integrations.daytona import DaytonaEnvironment
from google.adk.runners import InMemoryRunner
from google.adk.tools.environment import EnvironmentToolset


async def main(model, task):
    environment = DaytonaEnvironment()
    await environment.initialize()
    try:
        agent = LlmAgent(name="programmer", model=model, tools=[EnvironmentToolset(environment=environment)])
        async with InMemoryRunner(agent=agent) as runner:
            return await runner.run_debug(task, quiet=True)
    finally:
        await environment.close()


if __name__ == "__main__":
    print(asyncio.run(main("gemini-2.5-flash", sys.argv[1]))[-1].content.parts[0].text)
