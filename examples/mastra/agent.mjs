// A Mastra agent whose workspace is a Caisson sandbox.
//
// npm install @mastra/core @mastra/daytona zod
// DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... node agent.mjs "what is 6*7? use python"
import { Agent } from '@mastra/core/agent'
import { Workspace } from '@mastra/core/workspace'
import { DaytonaSandbox } from '@mastra/daytona'

export async function main(model, task) {
  const workspace = new Workspace({ sandbox: new DaytonaSandbox({ language: 'python' }) })
  await workspace.init()
  try {
    const agent = new Agent({ id: 'programmer', name: 'Programmer', instructions: 'Solve tasks by running commands.', model, workspace })
    return await agent.generate(task)
  } finally {
    await workspace.destroy()
  }
}

if (process.argv[1].endsWith('agent.mjs')) console.log((await main('openai/gpt-5', process.argv[2])).text)
