// A deep agent whose shell and file tools work in a Caisson sandbox.
//
// npm install deepagents @langchain/daytona @langchain/core langchain @langchain/anthropic
// DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... node agent.mjs "what is 6*7? use python"
import { DaytonaSandbox } from '@langchain/daytona'
import { createDeepAgent } from 'deepagents'

export async function main(model, task) {
  const backend = await DaytonaSandbox.create({ language: 'python' })
  try {
    const agent = createDeepAgent({ model, backend })
    return (await agent.invoke({ messages: [{ role: 'user', content: task }] })).messages
  } finally {
    await backend.close()
  }
}

if (process.argv[1].endsWith('agent.mjs')) console.log((await main('anthropic:claude-sonnet-4-5', process.argv[2])).at(-1).content)
