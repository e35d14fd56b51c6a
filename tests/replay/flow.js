// The core of what programs do, for the recorder: node flow.js <folder with node_modules> <package>
const path = require('path'), fs = require('fs')
const [folder, pkg] = process.argv.slice(2)
const { Daytona } = require(path.join(folder, 'node_modules', pkg))
async function main() {
  const daytona = new Daytona({ apiKey: process.env.TEST_KEY, apiUrl: process.env.TEST_URL })
  const sb = await daytona.create({ language: 'python', envVars: { GREETING: 'hi' }, labels: { made: 'by a recording' } })
  try {
    const p = sb.process
    await daytona.get(sb.id)
    await p.executeCommand('echo out; echo err >&2; exit 3')
    await p.executeCommand('pwd; echo "$A $GREETING"', '/tmp', { A: 'b' })
    await p.codeRun('import sys\nprint(6*7, sys.argv[1:])', { argv: ['a'], env: { X: 'y' } })
    await p.codeRun('raise ValueError("bad")')
    await p.executeCommand('sleep 60', undefined, undefined, 1).catch(() => {})
    await p.createSession('s')
    await p.executeSessionCommand('s', { command: 'cd /tmp; X=1; echo one; echo two >&2' })
    const c = await p.executeSessionCommand('s', { command: 'echo $X; pwd', async: true, runAsync: true })
    await p.executeSessionCommand('s', { command: 'true' }) // then that one has ended
    await p.getSessionCommand('s', c.cmdId)
    await p.getSessionCommandLogs('s', c.cmdId)
    await p.getSessionCommandLogs('s', c.cmdId, () => {}, () => {})
    await p.getSession('s')
    await p.deleteSession('s')
    await sb.fs.createFolder('/tmp/r', '755')
    await sb.fs.uploadFile(Buffer.from('one\ntwo é\n'), '/tmp/r/a b.txt')
    await sb.fs.uploadFiles([{ source: Buffer.from([0, 255, 10]), destination: '/tmp/r/bin' }, { source: Buffer.from('x'), destination: '/tmp/r/deep/er' }])
    await sb.fs.downloadFile('/tmp/r/a b.txt')
    await sb.fs.downloadFile('/tmp/r/none').catch(() => {})
    await sb.fs.findFiles('/tmp/r', 'two')
    await sb.fs.searchFiles('/tmp/r', '*.txt')
    await sb.fs.moveFiles('/tmp/r/bin', '/tmp/r/bin2')
    await sb.fs.deleteFile('/tmp/r/bin2')
    if (sb.codeInterpreter) await sb.codeInterpreter.runCode('x = 1\nprint(x)\n1/0')
  } finally {
    await daytona.delete(sb)
  }
  await daytona.get(sb.id).catch(() => {})
}
main().then(() => process.exit(0), e => { console.error(e); process.exit(1) })
