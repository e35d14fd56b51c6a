// A LangGraph agent with one tool: Python in a Caisson sandbox.
//
// npm install @langchain/langgraph @langchain/core langchain @langchain/anthropic @daytona/sdk zod
// DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... node agent.mjs "what is 6*7? use python"
import { Daytona } from '@daytona/sdk'
import { createAgent, tool } from 'langchain'
import { z } from 'zod'

export async function main(model, task) {
  const daytona = new Daytona()
  const sandbox = await daytona.create({ language: 'python' })
  const python = tool(async ({ code }) => (await sandbox.process.codeRun(code)).result, {
    name: 'python', description: 'Runs Python code in a sandbox and returns what it prints.', schema: z.object({ code: z.string() }),
  })
  try {
    return (await createAgent({ model, tools: [python] }).invoke({ messages: [{ role: 'user', content: task }] })).messages
  } finally {
    await daytona.delete(sandbox)
  }
}

if (process.argv[1].endsWith('agent.mjs')) console.log((await main('anthropic:claude-sonnet-4-5', process.argv[2])).at(-1).content)
