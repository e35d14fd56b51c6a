"""An ADK model that makes one tool call and says "done"."""
from google.adk.models import BaseLlm, LlmResponse
from google.genai import types


class Scripted(BaseLlm):
    calls: list = []
    turn: int = 0

    async def generate_content_async(self, llm_request, stream=False):
        name, args = self.calls[self.turn] if self.turn < len(self.calls) else (None, None)
        self.turn += 1
        part = types.Part(function_call=types.FunctionCall(name=name, args=args)) if name else types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def results(events):
    return [p.function_response.response for e in events for p in (e.content.parts if e.content else []) or [] if p.function_response]
