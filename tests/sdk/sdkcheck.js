// A client of the TypeScript SDK that the arguments name (FOLDER PACKAGE), and how a check is said.
'use strict'
const fs = require('fs'), os = require('os'), path = require('path'), crypto = require('crypto')
const [folder, name] = process.argv.slice(2)
const empty = fs.mkdtempSync(path.join(os.tmpdir(), 'sdk-'))
process.chdir(empty) // the SDK reads .env of its directory
process.on('exit', () => fs.rmSync(empty, { recursive: true, force: true }))
const sdk = require(require.resolve(name, { paths: [folder] }))

async function check(what, f) {
  try {
    await f()
    console.log('ok ' + what)
  } catch (e) {
    console.log(`${e && e.skip ? 'skip' : 'not ok'} ${what}: ${String((e && (e.skip || e.stack)) || e).replace(/\n/g, ' | ').slice(0, 900)}`)
  }
}
function equal(a, b) {
  if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(`${JSON.stringify(a)} is not ${JSON.stringify(b)}`)
}
async function fails(f, word) {
  try {
    await f()
  } catch (e) {
    if (!`${e.name} ${e.message}`.includes(word)) throw e
    return
  }
  throw new Error('no error; expected one with: ' + word)
}
async function sh(box, command) {
  const r = await box.process.executeCommand(command)
  equal(r.exitCode, 0)
  return r.result
}
module.exports = {
  sdk, check, equal, fails, sh,
  skip: (reason) => { throw { skip: reason } },
  daytona: new sdk.Daytona({ apiKey: process.env.TEST_KEY, apiUrl: process.env.TEST_URL }),
  tag: crypto.randomBytes(4).toString('hex'),
}
