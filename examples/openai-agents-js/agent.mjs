// A sandbox agent of the OpenAI Agents SDK whose workspace is a Caisson sandbox.
//
// npm install --legacy-peer-deps @openai/agents @openai/agents-extensions @daytonaio/sdk zod
// DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... node agent.mjs "what is 6*7? use python"
import { Runner } from '@openai/agents'
import { SandboxAgent } from '@openai/agents/sandbox'
import { DaytonaSandboxClient } from '@openai/agents-extensions/sandbox/daytona'

export async function main(model, task) {
  const { DAYTONA_API_URL: apiUrl, DAYTONA_API_KEY: apiKey } = process.env
  const agent = new SandboxAgent({ name: 'Programmer', model, instructions: 'Solve tasks by running commands in the sandbox.' })
  return new Runner().run(agent, task, { sandbox: { client: new DaytonaSandboxClient({ apiKey, apiUrl }) } })
}

if (process.argv[1].endsWith('agent.mjs')) console.log((await main('gpt-5', process.argv[2])).finalOutput)
