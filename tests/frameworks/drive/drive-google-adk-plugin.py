import asyncio

from agent import main
from driver import CODE, COMMAND, report
from scripted_adk import Scripted, results

calls = [("execute_code_in_daytona", {"code": CODE, "language": "python"}), ("execute_command_in_daytona", {"command": COMMAND}),
         ("upload_file_to_daytona", {"file_path": "/tmp/f.txt", "content": "seven"}), ("read_file_from_daytona", {"file_path": "/tmp/f.txt"})]
events = asyncio.run(main(Scripted(model="scripted", calls=calls), "go"))
r = results(events)
assert len(r) == 4 and "42" in str(r[1]) and "seven" in str(r[3]), r
report(str(r[0]), events[-1].content.parts[0].text)
