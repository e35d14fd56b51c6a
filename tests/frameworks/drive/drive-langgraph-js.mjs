import { main } from './agent.mjs'
import { CODE, report } from './driver.mjs'
import { Scripted, call, say } from './scripted_langchain.mjs'

const messages = await main(new Scripted([call('python', { code: CODE }), say('done')]), 'go')
report(messages.at(-2).content, messages.at(-1).content)
