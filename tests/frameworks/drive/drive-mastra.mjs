import { MastraLanguageModelV2Mock } from '@mastra/core/test-utils/llm-mock'
import { main } from './agent.mjs'
import { COMMAND, report } from './driver.mjs'

const usage = { inputTokens: 1, outputTokens: 1, totalTokens: 2 }
let seen = ''
function next({ prompt }) {
  const results = prompt.filter((m) => m.role === 'tool')
  if (results.length) seen = JSON.stringify(results)
  return results.length
    ? { content: [{ type: 'text', text: 'done' }], finishReason: 'stop', usage, warnings: [] }
    : { content: [{ type: 'tool-call', toolCallId: 'c1', toolName: 'mastra_workspace_execute_command', input: JSON.stringify({ command: COMMAND }) }],
        finishReason: 'tool-calls', usage, warnings: [] }
}
function stream(options) {
  const { content: [c], finishReason } = next(options)
  const parts = [{ type: 'stream-start', warnings: [] }]
  if (c.type === 'text') parts.push({ type: 'text-start', id: 't' }, { type: 'text-delta', id: 't', delta: c.text }, { type: 'text-end', id: 't' })
  else parts.push(c)
  parts.push({ type: 'finish', finishReason, usage })
  return { stream: new ReadableStream({ start(s) { parts.forEach((p) => s.enqueue(p)); s.close() } }) }
}
const model = new MastraLanguageModelV2Mock({ doGenerate: async (o) => next(o), doStream: async (o) => stream(o) })
const result = await main(model, 'go')
report(seen, result.text)
