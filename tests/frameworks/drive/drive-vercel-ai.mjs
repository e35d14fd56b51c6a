import * as mocks from 'ai/test'
import { main } from './agent.mjs'
import { COMMAND, report } from './driver.mjs'

const Model = mocks.MockLanguageModelV4 ?? mocks.MockLanguageModelV3
const common = { usage: { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } }, warnings: [] }
let seen = ''
const model = new Model({
  doGenerate: async ({ prompt }) => {
    const results = prompt.filter((m) => m.role === 'tool')
    if (!results.length)
      return { ...common, content: [{ type: 'tool-call', toolCallId: 'c1', toolName: 'run', input: JSON.stringify({ command: COMMAND }) }],
        finishReason: { unified: 'tool-calls', raw: undefined } }
    seen = JSON.stringify(results)
    return { ...common, content: [{ type: 'text', text: 'done' }], finishReason: { unified: 'stop', raw: undefined } }
  },
})
const result = await main(model, 'go')
report(seen, result.text)
