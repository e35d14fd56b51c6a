// What a user of the TypeScript SDK waits for: create -> codeRun -> delete one after the other, then a burst of creates at once.
// daytona.mjs PACKAGE-FOLDER; DAYTONA_API_URL and DAYTONA_API_KEY in the environment. Prints a table in Markdown.
import { createRequire } from 'node:module'

const { Daytona } = createRequire(process.argv[2] + '/package.json')('@daytona/sdk')
const ROUNDS = 100, BURST = 100
const daytona = new Daytona()
const now = () => performance.now()

function row(what, ms) {
  const sorted = [...ms].sort((a, b) => a - b)
  const at = (p) => sorted[Math.min(sorted.length - 1, Math.ceil(p * sorted.length) - 1)].toFixed(1)
  console.log(`| ${what} | ${ms.length} | ${sorted[0].toFixed(1)} | ${at(0.5)} | ${at(0.95)} | ${at(0.99)} |`)
}

const times = { create: [], codeRun: [], delete: [], all: [] }
for (let i = -3; i < ROUNDS; i++) { // the first ones load code on both sides
  const t0 = now()
  const sandbox = await daytona.create({ language: 'python' })
  const t1 = now()
  const { result } = await sandbox.process.codeRun('print(6*7)')
  const t2 = now()
  await daytona.delete(sandbox)
  const t3 = now()
  if (result.trim() !== '42') throw new Error(`codeRun gave ${result}`)
  if (i < 0) continue
  times.create.push(t1 - t0)
  times.codeRun.push(t2 - t1)
  times.delete.push(t3 - t2)
  times.all.push(t3 - t0)
}

console.log('\n### Through the Daytona TypeScript SDK\n\n| what | n | min ms | median | p95 | p99 |\n|---|---|---|---|---|---|')
row('create + codeRun(python) + delete', times.all)
row('... create', times.create)
row('... codeRun', times.codeRun)
row('... delete', times.delete)

const begin = now()
const made = await Promise.all(Array.from({ length: BURST }, async () => {
  const t = now()
  const sandbox = await daytona.create({ language: 'python' })
  return { sandbox, ms: now() - t }
}))
const whole = now() - begin
row(`create, ${BURST} at once`, made.map((m) => m.ms))
console.log(`\nThe burst of ${BURST} creates took ${whole.toFixed(0)} ms in all: ${(BURST / whole * 1000).toFixed(0)} a second.`)
await Promise.all(made.map((m) => daytona.delete(m.sandbox)))
process.exit(0)
