import asyncio

from agent import main
from driver import COMMAND, report

result = asyncio.run(main(COMMAND))
report(result.output, "done" if result.exit_code == 0 else f"exit {result.exit_code}")
