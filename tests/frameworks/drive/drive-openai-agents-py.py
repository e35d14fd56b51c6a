import asyncio

from agents.testing import ScriptedModel, assistant_message, function_call

from agent import main
from driver import COMMAND, report

model = ScriptedModel([[function_call("exec_command", {"cmd": COMMAND}, call_id="c1")], [assistant_message("done")]])
result = asyncio.run(main(model, "go"))
model.assert_complete()
outputs = [i.output for i in result.new_items if i.type == "tool_call_output_item"]
report(str(outputs[0]), result.final_output)
