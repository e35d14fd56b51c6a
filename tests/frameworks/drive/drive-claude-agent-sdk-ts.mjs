import http from 'node:http'
import { COMMAND, report } from './driver.mjs'

// A model behind the Messages API: one call of the tool `run`, then "done".
let seen = []
const stub = http.createServer((request, response) => {
  let text = ''
  request.on('data', (d) => (text += d)).on('end', () => {
    const body = text ? JSON.parse(text) : {}
    if (request.method !== 'POST') return response.end()
    if (request.url.includes('count_tokens')) return response.end('{"input_tokens": 1}')
    const results = (body.messages ?? []).flatMap((m) => (Array.isArray(m.content) ? m.content : [])).filter((c) => c.type === 'tool_result')
    const tool = (body.tools ?? []).find((t) => t.name.endsWith('__run'))?.name
    if (results.length) seen = results
    const [block, delta, stop] = results.length || !tool
      ? [{ type: 'text', text: '' }, { type: 'text_delta', text: 'done' }, 'end_turn']
      : [{ type: 'tool_use', id: 'toolu_1', name: tool, input: {} }, { type: 'input_json_delta', partial_json: JSON.stringify({ command: COMMAND }) }, 'tool_use']
    response.setHeader('Content-Type', 'text/event-stream')
    for (const e of [
      { type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', model: 'stub', content: [], stop_reason: null, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } } },
      { type: 'content_block_start', index: 0, content_block: block }, { type: 'content_block_delta', index: 0, delta },
      { type: 'content_block_stop', index: 0 }, { type: 'message_delta', delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: 1 } },
      { type: 'message_stop' },
    ]) response.write(`event: ${e.type}\ndata: ${JSON.stringify(e)}\n\n`)
    response.end()
  })
})
await new Promise((r) => stub.listen(0, '127.0.0.1', r))
process.env.ANTHROPIC_BASE_URL = `http://127.0.0.1:${stub.address().port}`
const { main } = await import('./agent.mjs')
const messages = await main('go', process.argv[2], { model: 'stub', maxTurns: 4, persistSession: false })
report(seen, messages.at(-1).result)
stub.closeAllConnections()
stub.close()
