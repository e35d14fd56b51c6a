"""An inspect-ai evaluation whose samples each have a Caisson sandbox, by the provider "daytona" of inspect-sandboxes.

pip install inspect-ai inspect-sandboxes anthropic
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py
"""
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, python


def main(model):
    task = Task(dataset=[Sample("What is 6*7? Use a tool.", target="42")], solver=[use_tools(bash(timeout=60), python(timeout=60)), generate()],
                scorer=includes(), sandbox="daytona")
    return eval(task, model=model, display="none", log_format="json")[0]


if __name__ == "__main__":
    print(main("anthropic/claude-sonnet-4-5").results)
