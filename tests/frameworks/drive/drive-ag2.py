import asyncio
import json

from ag2.events import ToolCallEvent, ToolResultEvent
from ag2.testing import TestConfig

from agent import main
from driver import CODE, report


async def drive():
    config = TestConfig(ToolCallEvent(name="run_code", arguments=json.dumps({"code": CODE, "language": "python"})), "done")
    reply = await main(config, "go")
    results = [e for e in await reply.history.get_events() if isinstance(e, ToolResultEvent)]
    report(str(results[0].result), reply.body)


asyncio.run(drive())
