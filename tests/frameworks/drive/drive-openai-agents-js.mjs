import { ScriptedModel, assistantMessage, functionCall } from '@openai/agents/testing'
import { main } from './agent.mjs'
import { COMMAND, report } from './driver.mjs'

const model = new ScriptedModel([[functionCall('exec_command', { cmd: COMMAND }, { callId: 'c1' })], [assistantMessage('done')]])
const result = await main(model, 'go')
model.assertComplete()
const outputs = result.newItems.filter((i) => i.type === 'tool_call_output_item').map((i) => i.output)
report(outputs[0], result.finalOutput)
