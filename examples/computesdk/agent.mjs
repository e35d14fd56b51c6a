// ComputeSDK over Caisson: its provider `daytona`, with DAYTONA_API_URL in the environment.
//
// npm install computesdk @computesdk/daytona
// DAYTONA_API_URL=http://127.0.0.1:4780/daytona DAYTONA_API_KEY=e2b_... node agent.mjs "python3 -c 'print(6*7)'"
import { daytona } from '@computesdk/daytona'

export async function main(command) {
  const compute = daytona({ apiKey: process.env.DAYTONA_API_KEY })
  const sandbox = await compute.sandbox.create()
  try {
    const result = await sandbox.runCommand(command)
    await sandbox.filesystem.writeFile('/tmp/notes.txt', 'seven')
    return { ...result, notes: await sandbox.filesystem.readFile('/tmp/notes.txt') }
  } finally {
    await sandbox.destroy()
  }
}

if (process.argv[1].endsWith('agent.mjs')) console.log((await main(process.argv[2])).stdout)
