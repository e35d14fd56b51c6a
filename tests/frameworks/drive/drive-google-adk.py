import asyncio

from agent import main
from driver import COMMAND, report
from scripted_adk import Scripted, results

calls = [("Execute", {"command": COMMAND}), ("WriteFile", {"path": "notes/f.txt", "content": "six\nseven\n"}), ("ReadFile", {"path": "notes/f.txt"}),
         ("ReadFile", {"path": "notes/none.txt"})]
events = asyncio.run(main(Scripted(model="scripted", calls=calls), "go"))
r = results(events)
assert len(r) == 4 and "seven" in str(r[2]), r
report(str(r[0].get("stdout", r[0])), events[-1].content.parts[0].text)
