"""A CrewAI crew of one whose tools run in Caisson sandboxes: a fresh one for each call, deleted afterwards.

pip install crewai "crewai-tools[daytona]"
DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... python agent.py "what is 6*7? use python"
"""
import sys

from crewai import Agent, Crew, Task
from crewai_tools import DaytonaExecTool, DaytonaPythonTool


def main(llm, task):
    programmer = Agent(role="Programmer", goal="Solve tasks by running code", backstory="You work in a sandbox.", llm=llm,
                       tools=[DaytonaExecTool(), DaytonaPythonTool()])
    return Crew(agents=[programmer], tasks=[Task(description=task, expected_output="The answer", agent=programmer)]).kickoff()


if __name__ == "__main__":
    print(main("anthropic/claude-sonnet-4-5", sys.argv[1]))
