import asyncio
import os
import sys

import anthropic_stub

url, seen = anthropic_stub.serve()
os.environ["ANTHROPIC_BASE_URL"] = url
from agent import main  # noqa: E402
from driver import report  # noqa: E402

messages = asyncio.run(main("go", sys.argv[1], model="stub", max_turns=4))
report(seen, messages[-1].result)
