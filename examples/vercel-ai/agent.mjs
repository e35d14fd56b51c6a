// The AI SDK with the tools of Caisson's MCP server. The sandboxes go with the session.
//
// npm install ai @ai-sdk/mcp
// CAISSON_URL=http://127.0.0.1:4780 CAISSON_API_KEY=e2b_... AI_GATEWAY_API_KEY=... node agent.mjs "what is 6*7? use python"
import { createMCPClient } from '@ai-sdk/mcp'
import { generateText, stepCountIs } from 'ai'

export async function main(model, task) {
  const { CAISSON_URL, CAISSON_API_KEY } = process.env
  const headers = { Authorization: `Bearer ${CAISSON_API_KEY}` }
  const mcp = await createMCPClient({ transport: { type: 'http', url: CAISSON_URL + '/mcp', headers } })
  try {
    return await generateText({ model, prompt: task, tools: await mcp.tools(), stopWhen: stepCountIs(10) })
  } finally {
    await mcp.close()
  }
}

if (process.argv[1].endsWith('agent.mjs')) console.log((await main('anthropic/claude-sonnet-4.5', process.argv[2])).text)
