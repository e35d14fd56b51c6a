// What the drivers share: the scripted tool call, and the report for tests/frameworks/run.
export const { COMMAND, CODE } = process.env

// seen: the tool's result as the model was given it.
export function report(seen, final) {
  console.log('\nREPORT ' + JSON.stringify({ seen: typeof seen === 'string' ? seen : JSON.stringify(seen), final: String(final) }))
}
