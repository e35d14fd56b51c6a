import json

from crewai import BaseLLM
from pydantic import PrivateAttr

from agent import main
from driver import CODE, COMMAND, report

seen = []


class Scripted(BaseLLM):
    _turn: int = PrivateAttr(default=0)

    def supports_function_calling(self):
        return True

    def call(self, messages, tools=None, callbacks=None, available_functions=None, from_task=None, from_agent=None, response_model=None):
        self._turn += 1
        seen[:] = [m for m in messages if m.get("role") == "tool"] if isinstance(messages, list) else []
        if self._turn == 1:
            return [{"id": "c1", "type": "function", "function": {"name": "daytona_sandbox_exec", "arguments": json.dumps({"command": COMMAND})}}]
        if self._turn == 2:
            return [{"id": "c2", "type": "function", "function": {"name": "daytona_sandbox_python", "arguments": json.dumps({"code": CODE})}}]
        return "done"


result = main(Scripted(model="scripted"), "go")
assert len(seen) == 2, seen
assert "42" in str(seen[0]) and "42" in str(seen[1]), seen
report(str(seen[0]["content"]), result.raw)
