"""SWE-ReX over Caisson: its server in a sandbox, and its RemoteDeployment by a link to the server's port.

pip install swe-rex daytona
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "python3 -c 'print(6*7)'"

Its DaytonaDeployment (1.4.0) starts with no server: it hands on the whole object of the link where the link's text is wanted.
"""
import asyncio
import sys
import uuid

from daytona import CreateSandboxFromSnapshotParams, CreateSnapshotParams, Daytona, DaytonaNotFoundError, Image, SessionExecuteRequest
from swerex.deployment.remote import RemoteDeployment
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest


def prepare(daytona):
    """Once: a snapshot with SWE-ReX's server in it."""
    try:
        daytona.snapshot.get("swe-rex")
    except DaytonaNotFoundError:
        daytona.snapshot.create(CreateSnapshotParams(name="swe-rex", image=Image.base("default").pip_install("swe-rex")))


async def main(command):
    daytona = Daytona()
    prepare(daytona)
    sandbox, token = daytona.create(CreateSandboxFromSnapshotParams(snapshot="swe-rex")), uuid.uuid4().hex
    try:
        sandbox.process.create_session("swe-rex")
        sandbox.process.execute_session_command("swe-rex", SessionExecuteRequest(command=f"swerex-remote --port 8000 --auth-token {token}", run_async=True))
        link = sandbox.create_signed_preview_url(8000, 3600).url
        deployment = RemoteDeployment(host=link, auth_token=token, timeout=10)
        await deployment.start()
        await deployment.runtime.wait_until_alive(timeout=60)
        await deployment.runtime.create_session(CreateBashSessionRequest())
        return await deployment.runtime.run_in_session(BashAction(command=command))
    finally:
        daytona.delete(sandbox)


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])).output)
