import assert from 'node:assert'
import { main } from './agent.mjs'
import { COMMAND, report } from './driver.mjs'

const result = await main(COMMAND)
assert.equal(result.notes.trim(), 'seven')
report(result.stdout, result.exitCode === 0 ? 'done' : `exit ${result.exitCode}`)
