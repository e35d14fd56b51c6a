"""A LangChain chat model that says what it is told to."""
from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGeneration, ChatResult


class Scripted(BaseChatModel):
    script: list = []
    at: int = 0

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        message = self.script[self.at]
        self.at += 1
        return ChatResult(generations=[ChatGeneration(message=message)])
