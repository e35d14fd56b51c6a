import json

from agno.models.base import Model
from agno.models.response import ModelResponse

from agent import main
from driver import CODE, COMMAND, report

seen = []


class Scripted(Model):
    turn = 0

    def invoke(self, messages, *args, **kwargs):
        script = [("run_code", {"code": CODE}), ("run_shell_command", {"command": COMMAND})]
        seen[:] = [m for m in messages if m.role == "tool"]
        if self.turn < len(script):
            name, arguments = script[self.turn]
            self.turn += 1
            return ModelResponse(role="assistant", tool_calls=[{"id": f"c{self.turn}", "type": "function", "function": {
                "name": name, "arguments": json.dumps(arguments)}}])
        return ModelResponse(role="assistant", content="done")

    async def ainvoke(self, *args, **kwargs):
        return self.invoke(*args, **kwargs)

    def invoke_stream(self, *args, **kwargs):
        yield self.invoke(*args, **kwargs)

    async def ainvoke_stream(self, *args, **kwargs):
        yield self.invoke(*args, **kwargs)

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response):
        return response


result = main(Scripted(id="scripted"), "go")
assert len(seen) == 2 and "42" in str(seen[1].content), seen
report(str(seen[0].content), result.content)
