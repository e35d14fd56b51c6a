from pydantic_ai import models
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from agent import main
from driver import COMMAND, report

models.ALLOW_MODEL_REQUESTS = False
SCRIPT = [("run_command", {"command": COMMAND}), ("write_file", {"path": "f.txt", "content": "seven\n"}), ("read_file", {"path": "f.txt"}),
          ("read_file", {"path": "none.txt"})]
seen = []


def model(messages, info):
    seen[:] = [p for m in messages for p in m.parts if p.part_kind in ("tool-return", "retry-prompt")]
    if len(seen) < len(SCRIPT):
        return ModelResponse([ToolCallPart(*SCRIPT[len(seen)])])
    return ModelResponse([TextPart("done")])


result = main(FunctionModel(model), "go")
assert "seven" in str(seen[2].content), seen
report(str(seen[0].content), result.output)
