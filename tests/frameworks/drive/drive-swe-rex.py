import asyncio
import glob
import os

import agent
from daytona import Daytona, DaytonaNotFoundError
from driver import COMMAND, report


def prepare():
    """What the agent would build with a network, from the wheels that the row has brought."""
    daytona = Daytona()
    try:
        daytona.snapshot.get("swe-rex")
        return
    except DaytonaNotFoundError:
        pass
    box = daytona.create()
    try:
        for wheel in glob.glob(os.environ["WHEELS"] + "/*.whl"):
            box.fs.upload_file(wheel, "wheels/" + os.path.basename(wheel))
        r = box.process.exec("sudo python3 -m pip install -q --break-system-packages --no-index --find-links wheels swe-rex 2>&1; rm -r wheels", timeout=170)
        if r.exit_code or "rror" in r.result:
            raise SystemExit(r.result)
        box.create_snapshot("swe-rex")
    finally:
        daytona.delete(box)


prepare()
result = asyncio.run(agent.main(COMMAND))
report(result.output, "done" if result.exit_code == 0 else f"exit {result.exit_code}")
