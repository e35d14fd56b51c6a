from inspect_ai.model import ModelOutput, get_model

from agent import main
from driver import CODE, COMMAND, report

script = [ModelOutput.for_tool_call("mockllm/model", "bash", {"command": COMMAND}), ModelOutput.for_tool_call("mockllm/model", "python", {"code": CODE}),
          ModelOutput.from_content("mockllm/model", "done")]
log = main(get_model("mockllm/model", custom_outputs=script))
assert log.status == "success", log.error
messages = log.samples[0].messages
results = [m.text for m in messages if m.role == "tool"]
assert len(results) == 2 and "42" in results[1], results
report(results[0], messages[-1].text)
