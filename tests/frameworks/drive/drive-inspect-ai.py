from inspect_ai.model import ModelAPI, ModelOutput, get_model, modelapi

from agent import main
from driver import CODE, COMMAND, report


@modelapi(name="scripted")
class Scripted(ModelAPI):
    """As mockllm, but it counts tokens without fetching a tokenizer."""

    turn = 0

    async def generate(self, input, tools, tool_choice, config):
        script = [ModelOutput.for_tool_call("scripted", "bash", {"command": COMMAND}), ModelOutput.for_tool_call("scripted", "python", {"code": CODE}),
                  ModelOutput.from_content("scripted", "done")]
        self.turn += 1
        return script[self.turn - 1]

    async def count_text_tokens(self, text):
        return len(text) // 4


log = main(get_model("scripted/model"))
assert log.status == "success", log.error
messages = log.samples[0].messages
results = [m.text for m in messages if m.role == "tool"]
assert len(results) == 2 and "42" in results[1], results
report(results[0], messages[-1].text)
