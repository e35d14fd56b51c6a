"""What the drivers share: the scripted tool call, and the report for tests/frameworks/run."""
import json
import os

COMMAND, CODE = os.environ["COMMAND"], os.environ["CODE"]


def report(seen, final):
    """seen: the tool's result as the model was given it."""
    print("\nREPORT " + json.dumps({"seen": seen if isinstance(seen, str) else json.dumps(seen, default=str), "final": str(final)}), flush=True)
