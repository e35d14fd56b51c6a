"""A sandbox agent of the OpenAI Agents SDK whose workspace is a Caisson sandbox.

pip install "openai-agents[daytona]"
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import asyncio
import sys

from agents import Runner
from agents.extensions.sandbox.daytona import DaytonaSandboxClient, DaytonaSandboxClientOptions
from agents.run import RunConfig
from agents.sandbox import SandboxAgent, SandboxRunConfig


async def main(model, task):
    agent = SandboxAgent(name="Programmer", instructions="Solve tasks by running commands in the sandbox.", model=model)
    sandbox = SandboxRunConfig(client=DaytonaSandboxClient(), options=DaytonaSandboxClientOptions())
    return await Runner.run(agent, task, run_config=RunConfig(sandbox=sandbox))


if __name__ == "__main__":
    print(asyncio.run(main("gpt-5", sys.argv[1])).final_output)
