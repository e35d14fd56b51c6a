from langchain_core.messages import AIMessage

from agent import main
from driver import CODE, report
from scripted_langchain import Scripted

messages = main(Scripted(script=[AIMessage("", tool_calls=[{"id": "c1", "name": "python", "args": {"code": CODE}}]), AIMessage("done")]), "go")
report(messages[-2].content, messages[-1].content)
