// A Claude agent whose only tools are those of Caisson's MCP server: `tools: []` switches off the built-in ones, which work on the host.
//
// npm install @anthropic-ai/claude-agent-sdk
// CAISSON_URL=http://127.0.0.1:4780 CAISSON_API_KEY=e2b_... ANTHROPIC_API_KEY=... node agent.mjs "what is 6*7? use python"
import { query } from '@anthropic-ai/claude-agent-sdk'

const { CAISSON = 'caisson', CAISSON_URL, CAISSON_API_KEY } = process.env
const servers = {
  http: { type: 'http', url: CAISSON_URL + '/mcp', headers: { Authorization: `Bearer ${CAISSON_API_KEY}` } },
  stdio: { type: 'stdio', command: CAISSON, args: ['mcp'], env: { CAISSON_URL, CAISSON_API_KEY } },
}

export async function main(task, how = 'http', more = {}) {
  const messages = []
  const options = { tools: [], mcpServers: { caisson: servers[how] }, allowedTools: ['mcp__caisson__*'], strictMcpConfig: true, settingSources: [], ...more }
  for await (const message of query({ prompt: task, options })) messages.push(message)
  return messages
}

if (process.argv[1].endsWith('agent.mjs')) console.log((await main(process.argv[2])).at(-1).result)
