"""An AG2 agent whose code tool runs in a Caisson sandbox.

pip install "ag2[openai]" daytona
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import asyncio
import sys

from ag2 import Agent
from ag2.extensions.daytona import DaytonaEnvironment
from ag2.tools import SandboxCodeTool


async def main(config, task):
    environment = DaytonaEnvironment()
    try:
        agent = Agent("programmer", config=config, tools=[SandboxCodeTool(environment, languages=("python", "bash"))])
        return await agent.ask(task)
    finally:
        await environment.aclose()


if __name__ == "__main__":
    from ag2.config import OpenAIConfig
    print(asyncio.run(main(OpenAIConfig(model="gpt-5"), sys.argv[1])).body)
