"""A Google ADK agent with the tools of the Daytona plugin, in a Caisson sandbox.

pip install google-adk daytona-adk
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import asyncio
import os
import sys

from daytona_adk import DaytonaPlugin
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner


async def main(model, task):
    plugin = DaytonaPlugin(api_key=os.environ["DAYTONA_API_KEY"])
    agent = LlmAgent(name="programmer", model=model, tools=plugin.get_tools())
    async with InMemoryRunner(app=App(name="programmer", root_agent=agent, plugins=[plugin])) as runner:  # closes the plugin
        return await runner.run_debug(task, quiet=True)


if __name__ == "__main__":
    print(asyncio.run(main("gemini-2.5-flash", sys.argv[1]))[-1].content.parts[0].text)
