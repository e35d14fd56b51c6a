// Inside a sandbox by the TypeScript SDK: interpreter, terminals, a language server.
//   node toolbox.js FOLDER PACKAGE     Prints "ok NAME" or "not ok NAME: reason" a check.
'use strict'
const crypto = require('crypto')
const { check, equal, fails, sh, daytona } = require('./sdkcheck.js')

const sleep = (ms) => new Promise((r) => setTimeout(r, ms))

async function interpreter(box) {
  const ci = box.codeInterpreter
  await check('interpreter: state', async () => {
    equal((await ci.runCode('x = 1')).stdout, '')
    const r = await ci.runCode("print(x)\nimport sys\nprint('é', file=sys.stderr)")
    equal([r.stdout, r.stderr, r.error ?? null], ['1\n', 'é\n', null])
  })
  await check('interpreter: contexts', async () => {
    const a = await ci.createContext('/tmp'), b = await ci.createContext()
    equal([a.cwd, b.language], ['/tmp', 'python'])
    equal((await ci.listContexts()).map((c) => c.id).sort(), [a.id, b.id].sort())
    await ci.runCode("x = 'of a'", { context: a })
    equal((await ci.runCode('import os; print(x, os.getcwd())', { context: a })).stdout, 'of a /tmp\n')
    equal((await ci.runCode('print(x)', { context: b })).error.name, 'NameError')
    equal((await ci.runCode('print(x)')).stdout, '1\n')
    await ci.deleteContext(a)
    await ci.deleteContext(b)
    await fails(() => ci.deleteContext(a), 'NotFound')
  })
  await check('interpreter: errors and callbacks', async () => {
    const got = []
    const r = await ci.runCode("print('one')\nimport sys; sys.stderr.write('two')\n1/0", {
      onStdout: (m) => got.push('out ' + m.output), onStderr: (m) => got.push('err ' + m.output), onError: (e) => got.push('error ' + e.name) })
    equal([got.filter((g) => !g.startsWith('out')), r.error.name, r.error.value], [['err two', 'error ZeroDivisionError'], 'ZeroDivisionError', 'division by zero'])
    equal(got.filter((g) => g.startsWith('out')).map((g) => g.slice(4)).join(''), 'one\n')
  })
  await check('interpreter: limit', async () => {
    await ci.runCode('kept = 42')
    await fails(() => ci.runCode('while True: pass', { timeout: 1 }), 'Timeout')
    equal((await ci.runCode('print(kept)')).stdout, '42\n')
    equal((await ci.runCode("import os; print(os.environ.get('A'))", { envs: { A: "b 'é" } })).stdout, "b 'é\n")
  })
}

// A terminal and what has come of it.
async function open(box, id, more = {}) {
  const screen = { data: Buffer.alloc(0), chunks: [] }
  screen.handle = await box.process.createPty({ id, cols: 80, rows: 24, ...more, onData: (d) => screen.chunks.push(Buffer.from(d)) })
  await screen.handle.waitForConnection()
  screen.all = () => {
    screen.data = Buffer.concat([screen.data, ...screen.chunks.splice(0)])
    return screen.data
  }
  screen.until = async (what, from = 0) => {
    for (let i = 0; i < 400; i++) {
      if (screen.all().indexOf(what, from) >= 0) return
      await sleep(50)
    }
    throw new Error(`${JSON.stringify(what)} does not come: ...${JSON.stringify(screen.data.subarray(-300).toString())}`)
  }
  screen.type = async (text) => {
    const at = screen.all().length
    await screen.handle.sendInput(text)
    return at
  }
  return screen
}

async function terminals(box) {
  await check('terminal: life', async () => {
    const s = await open(box, 'j1', { cwd: '/tmp', envs: { FOO: "b 'ä" }, cols: 100, rows: 30 })
    await s.until('$ ')
    await s.type('echo "[$FOO|$TERM|$PWD]"; stty size\n')
    await s.until("[b 'ä|xterm-256color|/tmp]\r\n30 100\r\n")
    const info = await s.handle.resize(132, 41)
    equal([info.cols, info.rows], [132, 41])
    await s.type('stty size\n')
    await s.until('41 132\r\n')
    await s.type('exit 7\n')
    equal((await s.handle.wait()).exitCode, 7)
  })
  await check('terminal: python3, Ctrl-C', async () => {
    const s = await open(box, 'j2')
    await s.type('exec python3 -q\n')
    await s.until('>>> ')
    await s.type('6*7\n')
    await s.until('42\r\n>>> ')
    await s.type('while True: pass\n\n')
    await sleep(500)
    await s.type('\x03')
    await s.until('KeyboardInterrupt\r\n>>> ')
    await s.type('exit(5)\n')
    equal((await s.handle.wait()).exitCode, 5)
  })
  await check('terminal: top', async () => {
    const s = await open(box, 'j3', { rows: 20, cols: 90 })
    await s.until('$ ')
    const at = await s.type('top -d 1\n')
    await s.until('PID', at)
    const drawn = s.all().length
    await s.until('\x1b[H', drawn) // and draws again
    const left = await s.type('q')
    await s.until('$ ', left)
    await s.type('exit\n')
    equal((await s.handle.wait()).exitCode, 0)
  })
  await check('terminal: kill', async () => {
    const s = await open(box, 'j4')
    await s.until('$ ')
    await s.type('sleep 1000\n')
    await s.handle.kill()
    equal((await s.handle.wait()).exitCode, 137)
    equal(await box.process.listPtySessions(), [])
  })
  await check('terminal: 10 MB and no byte lost', async () => {
    const block = Buffer.from(Array.from({ length: 65521 }, (_, i) => (i * 131 + (i >> 8) * 17) & 255))
    const program = 'import sys\nb = bytes((i * 131 + (i >> 8) * 17) & 255 for i in range(65521)); n = 10_000_000\n' +
      'while n: k = min(n, len(b)); sys.stdout.buffer.write(b[:k]); n -= k\n'
    await box.fs.uploadFile(Buffer.from(program), '/tmp/much.py')
    const s = await open(box, 'j5')
    await s.until('$ ')
    const at = await s.type('stty raw -echo; echo go; python3 -u /tmp/much.py; sleep 0.2; exec true\n')
    await s.until('go\n', at + 20)
    equal((await s.handle.wait()).exitCode, 0)
    const all = s.all(), got = all.subarray(all.subarray(0, 3000).lastIndexOf('go\n') + 3), want = Buffer.alloc(10000000)
    for (let i = 0; i < want.length; i += block.length) block.copy(want, i)
    const hash = (b) => crypto.createHash('sha256').update(b).digest('hex')
    equal([got.length, hash(got)], [want.length, hash(want)])
  })
}

async function languages(box) {
  await check('language server', async () => {
    await box.fs.createFolder('web/src', '755')
    await box.fs.uploadFile(Buffer.from('export class Shape {\n  move(by: number): Shape { return this }\n}\nexport function area(s: Shape): number { return 1 }\nconst s = new Shape()\ns.\n'),
      'web/src/a.ts')
    const lsp = await box.createLspServer('typescript', 'web')
    await fails(() => lsp.documentSymbols('web/src/a.ts'), 'start it first')
    await lsp.start()
    await lsp.didOpen('web/src/a.ts')
    const names = (await lsp.documentSymbols('web/src/a.ts')).map((x) => x.name)
    for (const one of ['Shape', 'move', 'area', 's']) if (!names.includes(one)) throw new Error(`${one} is not in ${names}`)
    equal((await lsp.completions('web/src/a.ts', { line: 5, character: 2 })).items.map((i) => i.label), ['move'])
    equal((await lsp.sandboxSymbols('area')).map((x) => x.name), ['area'])
    await lsp.didClose('web/src/a.ts')
    await lsp.stop()
    await fails(() => lsp.documentSymbols('web/src/a.ts'), 'start it first')
  })
}

async function main() {
  const box = await daytona.create()
  try {
    await interpreter(box)
    await terminals(box)
    await languages(box)
  } finally {
    await daytona.delete(box)
  }
}
main()
