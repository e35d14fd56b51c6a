import assert from 'node:assert'
import { main } from './agent.mjs'
import { COMMAND, report } from './driver.mjs'
import { Scripted, call, say } from './scripted_langchain.mjs'

const model = new Scripted([call('execute', { command: COMMAND }), call('write_file', { file_path: '/tmp/f.txt', content: 'six\nseven\n' }),
  call('read_file', { file_path: '/tmp/f.txt' }), say('done')])
const messages = await main(model, 'go')
const results = Object.fromEntries(messages.filter((m) => m.getType() === 'tool').map((m) => [m.name, JSON.stringify(m.content)]))
assert(results.read_file.includes('seven'), JSON.stringify(results))
report(results.execute, messages.at(-1).content)
