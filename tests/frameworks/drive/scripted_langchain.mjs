// A LangChain chat model that says what it is told to.
import { BaseChatModel } from '@langchain/core/language_models/chat_models'
import { AIMessage } from '@langchain/core/messages'

export const call = (name, args) => new AIMessage({ content: '', tool_calls: [{ id: name, name, args, type: 'tool_call' }] })
export const say = (text) => new AIMessage(text)

export class Scripted extends BaseChatModel {
  constructor(script) {
    super({})
    this.script = script
    this.at = 0
  }
  _llmType() { return 'scripted' }
  bindTools() { return this }
  async _generate() {
    const message = this.script[this.at++]
    return { generations: [{ text: String(message.content), message }] }
  }
}
