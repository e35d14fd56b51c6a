"""The matrix: one row a framework. The packages are what a user installs today, so they carry no versions; the table says which were
tested. The agent is in examples/NAME, its scripted model in drive/; `suite` is a conformance suite that the framework ships, `leaves` names
ways in which its client never says that it has ended, so that a sandbox stays until its own time is over; `patience` is how many seconds
its own retries take before it gives up; `wheels` is what a sandbox of the row installs."""

ROWS = {
    "deepagents-py": dict(
        title="LangChain deepagents (Python)", kind="py", packages="deepagents langchain-daytona langchain-tests pytest pytest-asyncio",
        shown="deepagents langchain-daytona daytona", change="environment; `DaytonaSandbox` as backend", suite="SandboxIntegrationTests"),
    "langgraph-py": dict(
        title="LangGraph, LangChain (Python)", kind="py", packages="langgraph langchain daytona", shown="langgraph langchain daytona",
        change="environment; a tool over the SDK"),
    "deepagents-js": dict(
        title="LangChain deepagents (JS)", kind="js", packages="deepagents @langchain/daytona @langchain/core langchain",
        shown="deepagents @langchain/daytona @daytonaio/sdk", change="environment; `DaytonaSandbox` as backend"),
    "langgraph-js": dict(
        title="LangGraph, LangChain (JS)", kind="js", packages="@langchain/langgraph @langchain/core langchain @daytona/sdk zod",
        shown="@langchain/langgraph langchain @daytona/sdk", change="environment; a tool over the SDK"),
    "crewai": dict(
        title="CrewAI", kind="py", packages="crewai crewai-tools[daytona]", shown="crewai crewai-tools daytona",
        change="environment; `DaytonaExecTool`"),
    "openai-agents-py": dict(
        title="OpenAI Agents SDK (Python)", kind="py", packages="openai-agents[daytona]", shown="openai-agents daytona",
        change="environment; `DaytonaSandboxClient` for a `SandboxAgent`"),
    "openai-agents-js": dict(
        title="OpenAI Agents SDK (JS)", kind="js", packages="@openai/agents @openai/agents-extensions @daytonaio/sdk zod",
        shown="@openai/agents @openai/agents-extensions @daytonaio/sdk", change="environment; `DaytonaSandboxClient` for a `SandboxAgent`"),
    "claude-agent-sdk-py": dict(
        title="Claude Agent SDK (Python)", kind="py", packages="claude-agent-sdk", shown="claude-agent-sdk", leaves=("http",),
        change="MCP server, HTTP and stdio; built-in tools off"),
    "claude-agent-sdk-ts": dict(
        title="Claude Agent SDK (TypeScript)", kind="js", packages="@anthropic-ai/claude-agent-sdk @anthropic-ai/sdk @modelcontextprotocol/sdk zod",
        shown="@anthropic-ai/claude-agent-sdk", leaves=("http",), change="MCP server, HTTP and stdio; built-in tools off"),
    "mastra": dict(
        title="Mastra", kind="js", packages="@mastra/core @mastra/daytona zod", shown="@mastra/core @mastra/daytona @daytonaio/sdk",
        change="environment; `DaytonaSandbox` in the workspace"),
    "ag2": dict(
        title="AG2", kind="py", packages="ag2 daytona", shown="ag2 daytona", change="environment; `DaytonaEnvironment`"),
    "google-adk": dict(
        title="Google ADK, environment", kind="py", packages="google-adk[daytona]", shown="google-adk daytona",
        change="environment; `DaytonaEnvironment`"),
    "google-adk-plugin": dict(
        title="Google ADK, plugin", kind="py", packages="google-adk daytona-adk", shown="google-adk daytona-adk daytona",
        change="environment; `DaytonaPlugin`"),
    "pydantic-ai": dict(
        title="Pydantic AI", kind="py", packages="pydantic-ai-daytona pydantic-ai-slim pytest anyio", shown="pydantic-ai-slim pydantic-ai-daytona daytona",
        change="environment; `DaytonaSandbox` capability", suite="WorkspaceBackendSuite"),
    "inspect-ai": dict(
        # inspect-sandboxes 0.6 cannot be loaded beside modal 1.6, another of its providers.
        title="inspect-ai", kind="py3.12", packages="inspect-ai inspect-sandboxes modal<1.6 pytest pytest-asyncio", shown="inspect-ai inspect-sandboxes daytona",
        change="environment; `sandbox=\"daytona\"`", patience=1200, suite="self_check"),
    "swe-rex": dict(
        title="SWE-ReX", kind="py", packages="swe-rex[daytona]", wheels="swe-rex", shown="swe-rex daytona",
        change="its server in a sandbox, `RemoteDeployment` by the preview link"),
    "computesdk": dict(
        title="ComputeSDK", kind="js", packages="computesdk @computesdk/daytona", shown="computesdk @computesdk/daytona @daytonaio/sdk",
        change="environment; provider `daytona`"),
    "vercel-ai": dict(
        title="Vercel AI SDK", kind="js", packages="ai @ai-sdk/mcp zod", shown="ai @ai-sdk/mcp", change="MCP server"),
    "agno": dict(
        title="agno", kind="py", packages="agno daytona", shown="agno daytona", change="environment; `DaytonaTools`"),
}
