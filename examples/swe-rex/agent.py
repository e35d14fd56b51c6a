"""SWE-ReX over Caisson: its DaytonaDeployment, with DAYTONA_API_URL in the environment.

pip install "swe-rex[daytona]"
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "python3 -c 'print(6*7)'"
"""
import asyncio
import os
import sys

from swerex.deployment.daytona import DaytonaDeployment
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest


async def main(command):
    deployment = DaytonaDeployment(api_key=os.environ["DAYTONA_API_KEY"], target="local")
    await deployment.start()
    try:
        await deployment.runtime.create_session(CreateBashSessionRequest())
        return await deployment.runtime.run_in_session(BashAction(command=command))
    finally:
        await deployment.stop()


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])).output)
