from langchain_core.messages import AIMessage, ToolMessage

from agent import main
from driver import COMMAND, report
from scripted_langchain import Scripted


def call(name, **args):
    return AIMessage("", tool_calls=[{"id": name, "name": name, "args": args}])


script = [call("execute", command=COMMAND), call("write_file", file_path="/tmp/f.txt", content="six\nseven\n"),
          call("read_file", file_path="/tmp/f.txt"), AIMessage("done")]
messages = main(Scripted(script=script), "go")
results = {m.name: str(m.content) for m in messages if isinstance(m, ToolMessage)}
assert "seven" in results["read_file"], results
report(results["execute"], messages[-1].content)
