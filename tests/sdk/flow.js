// One pass through the Daytona SDK for JavaScript: node flow.js <folder with node_modules> <package> <old|new>
// Prints "ok NAME" or "not ok NAME: reason" a check.
const path = require('path'), fs = require('fs'), os = require('os'), crypto = require('crypto'), assert = require('assert')
const [folder, pkg, generation] = process.argv.slice(2)
const sdk = require(path.join(folder, 'node_modules', pkg))
const WebSocket = require(path.join(folder, 'node_modules', 'ws'))
const old = generation === 'old'
const apiKey = process.env.TEST_KEY, apiUrl = process.env.TEST_URL
const tag = 'sdk-' + crypto.randomBytes(6).toString('hex')
const sleep = ms => new Promise(r => setTimeout(r, ms))
const echoProgram = fs.readFileSync(path.join(__dirname, 'inside', 'ws_echo.py'))

async function check(name, f) {
  try {
    await f()
    console.log('ok ' + name)
  } catch (e) {
    console.log('not ok ' + name + ': ' + String(e && e.stack || e).split('\n').slice(0, 4).join(' | '))
  }
}
async function fails(f, status) {
  try {
    await f()
  } catch (e) {
    if (status !== undefined) assert.strictEqual(e.statusCode !== undefined ? e.statusCode : e.response && e.response.status, status, String(e))
    return e
  }
  assert.fail('no error')
}
async function until(f, what) {
  for (let i = 0; i < 300; i++) {
    const v = await f()
    if (v) return v
    await sleep(50)
  }
  assert.fail('timed out: ' + what)
}

async function processes(sb) {
  const p = sb.process
  await check('execute', async () => {
    const r = await p.executeCommand('echo out; echo err >&2; exit 3')
    assert.deepStrictEqual([r.exitCode, r.result], [3, 'out\nerr\n'])
  })
  await check('execute with cwd and env', async () => {
    const value = old ? 'b' : "b 'c" // old SDKs quote it in a way that breaks it
    const r = await p.executeCommand('pwd; echo "$A|$GREETING"', '/tmp', { A: value })
    assert.deepStrictEqual([r.exitCode, r.result], [0, `/tmp\n${value}|hi\n`])
  })
  await check('execute keeps bytes', async () => {
    const r = await p.executeCommand("printf 'no newline é'")
    assert.strictEqual(r.result, 'no newline é')
  })
  await check('a missing program', async () => {
    const r = await p.executeCommand('no-such-program-here')
    assert.strictEqual(r.exitCode, 127)
    assert.match(r.result, /not found/)
  })
  await check('a time limit', async () => {
    const start = Date.now()
    const e = await fails(() => p.executeCommand('sleep 60', undefined, undefined, 1), 408)
    if (!old) assert.match(e.constructor.name, /Timeout/)
    assert.ok(Date.now() - start < 10000)
  })
  await check('a background child does not hold the reply', async () => {
    const start = Date.now()
    const r = await p.executeCommand('sleep 60 & echo started')
    assert.deepStrictEqual([r.exitCode, r.result], [0, 'started\n'])
    assert.ok(Date.now() - start < 10000)
  })
  await check('codeRun python', async () => {
    const r = await p.codeRun('import sys, os\nprint(6*7, sys.argv[1:], os.environ["X"])\nsys.exit(4)', { argv: ['a', 'b'], env: { X: 'y' } })
    assert.deepStrictEqual([r.exitCode, r.result], [4, "42 ['a', 'b'] y\n"])
  })
  await check('codeRun traceback', async () => {
    const r = await p.codeRun('raise ValueError("bad")')
    assert.strictEqual(r.exitCode, 1)
    assert.match(r.result, /ValueError: bad/)
  })
}

async function sessions(sb) {
  const p = sb.process
  await check('session keeps its state', async () => {
    await p.createSession('s1')
    const a = await p.executeSessionCommand('s1', { command: 'cd /tmp && export V=7' })
    assert.strictEqual(a.exitCode, 0)
    const b = await p.executeSessionCommand('s1', { command: 'pwd; echo $V; echo bad >&2; (exit 9)' })
    assert.deepStrictEqual([b.exitCode, b.stdout, b.stderr], [9, '/tmp\n7\n', 'bad\n'])
  })
  await check('session twice is a conflict', async () => { await fails(() => p.createSession('s1'), 409) })
  await check('session asynchronous, logs by WebSocket', async () => {
    const c = await p.executeSessionCommand('s1', { command: 'for i in 1 2 3; do echo $i; sleep 0.2; done; echo e >&2; (exit 5)', runAsync: true })
    assert.ok(c.cmdId)
    let out = '', err = ''
    await p.getSessionCommandLogs('s1', c.cmdId, s => { out += s }, s => { err += s })
    assert.deepStrictEqual([out, err], ['1\n2\n3\n', 'e\n'])
    const done = await p.getSessionCommand('s1', c.cmdId)
    assert.strictEqual(done.exitCode, 5)
    const logs = await p.getSessionCommandLogs('s1', c.cmdId)
    assert.deepStrictEqual([logs.stdout, logs.stderr], ['1\n2\n3\n', 'e\n'])
  })
  await check('a running command has no exit code', async () => {
    const c = await p.executeSessionCommand('s1', { command: 'sleep 0.7', runAsync: true })
    const first = await p.getSessionCommand('s1', c.cmdId)
    assert.ok(first.exitCode === undefined || first.exitCode === null)
    assert.match(first.command, /sleep 0.7/)
    await until(async () => (await p.getSessionCommand('s1', c.cmdId)).exitCode === 0, 'end of sleep')
  })
  await check('session input', async () => {
    const c = await p.executeSessionCommand('s1', { command: 'read a; read b; echo "got $a $b"', runAsync: true })
    await p.sendSessionCommandInput('s1', c.cmdId, 'x y\n')
    await p.sendSessionCommandInput('s1', c.cmdId, 'z')
    await until(async () => (await p.getSessionCommand('s1', c.cmdId)).exitCode === 0, 'end of read')
    const logs = await p.getSessionCommandLogs('s1', c.cmdId)
    assert.match(logs.stdout, /got x y z\n$/)
    await fails(() => p.sendSessionCommandInput('s1', c.cmdId, 'late'), 410)
  })
  await check('sessions listed and deleted', async () => {
    const one = await p.getSession('s1')
    assert.strictEqual(one.sessionId, 's1')
    assert.ok(one.commands.length >= 4)
    assert.deepStrictEqual((await p.listSessions()).map(s => s.sessionId), ['s1'])
    await p.createSession('s2')
    const c = await p.executeSessionCommand('s2', { command: 'sleep 61', runAsync: true })
    await p.deleteSession('s2')
    await fails(() => p.getSession('s2'), 404)
    await until(async () => (await p.executeCommand("ps ax | grep -c '[s]leep 61'")).result === '0\n', 'death of ' + c.cmdId)
  })
  await check('exit ends a session', async () => {
    await p.createSession('s3')
    const r = await p.executeSessionCommand('s3', { command: 'exit 6' })
    assert.strictEqual(r.exitCode, 6)
    await fails(() => p.executeSessionCommand('s3', { command: 'echo no' }), 410)
    await p.deleteSession('s3')
  })
}

async function files(sb) {
  const f = sb.fs, bytes = crypto.randomBytes(3 << 20)
  await check('upload and download', async () => {
    await f.uploadFile(bytes, '/tmp/a/b/big é.bin')
    const back = await f.downloadFile('/tmp/a/b/big é.bin')
    assert.ok(bytes.equals(Buffer.from(back)))
    const r = await sb.process.executeCommand("sha256sum '/tmp/a/b/big é.bin' | cut -c1-64")
    assert.strictEqual(r.result.trim(), crypto.createHash('sha256').update(bytes).digest('hex'))
  })
  await check('upload several, download several', async () => {
    await f.uploadFiles([{ source: Buffer.from('one'), destination: '/tmp/many/1' }, { source: Buffer.alloc(0), destination: '/tmp/many/2' }])
    const got = await f.downloadFiles([{ source: '/tmp/many/1' }, { source: '/tmp/many/none' }, { source: '/tmp/many/2' }])
    assert.deepStrictEqual(got.map(g => g.source), ['/tmp/many/1', '/tmp/many/none', '/tmp/many/2'])
    assert.deepStrictEqual([got[0].result.toString(), got[2].result.toString()], ['one', ''])
    assert.ok(got[1].error)
  })
  await check('a missing file', async () => {
    const e = await fails(() => f.downloadFile('/tmp/no-such-file'), old ? undefined : 404)
    assert.ok(!/sandbox.*not found/i.test(e.message), e.message)
    await fails(() => f.getFileDetails('/tmp/no-such-file'), 404)
  })
  await check('file information', async () => {
    await f.setFilePermissions('/tmp/many/1', { mode: '640' })
    const i = await f.getFileDetails('/tmp/many/1')
    assert.deepStrictEqual([i.name, i.size, i.isDir, i.mode], ['1', 3, false, '-rw-r-----'])
  })
  await check('folders and lists', async () => {
    await f.createFolder('/tmp/dir/deep', '755')
    await f.createFolder('/tmp/dir/deep', '755')
    await f.uploadFile(Buffer.from('x = needle\n'), '/tmp/dir/deep/a.py')
    await f.uploadFile(Buffer.from('nothing\nneedle twice needle\n'), '/tmp/dir/b.txt')
    assert.deepStrictEqual((await f.listFiles('/tmp/dir')).map(i => [i.name, i.isDir]).sort(), [['b.txt', false], ['deep', true]])
    await fails(() => f.listFiles('/tmp/none'), 404)
  })
  await check('find, search, replace', async () => {
    const found = (await f.findFiles('/tmp/dir', 'needle')).sort((a, b) => a.file < b.file ? -1 : 1)
    assert.deepStrictEqual(found.map(m => [m.file, m.line, m.content.trim()]),
      [['/tmp/dir/b.txt', 2, 'needle twice needle'], ['/tmp/dir/deep/a.py', 1, 'x = needle']])
    assert.deepStrictEqual((await f.searchFiles('/tmp/dir', '*.py')).files, ['/tmp/dir/deep/a.py'])
    const r = await f.replaceInFiles(['/tmp/dir/b.txt', '/tmp/dir/none'], 'needle', 'pin')
    assert.deepStrictEqual(r.map(x => [x.file, x.success]), [['/tmp/dir/b.txt', true], ['/tmp/dir/none', false]])
    assert.strictEqual((await f.downloadFile('/tmp/dir/b.txt')).toString(), 'nothing\npin twice pin\n')
  })
  await check('move and delete', async () => {
    await f.moveFiles('/tmp/dir/b.txt', '/tmp/dir/c.txt')
    await fails(() => f.getFileDetails('/tmp/dir/b.txt'), 404)
    await fails(() => f.moveFiles('/tmp/dir/c.txt', '/tmp/dir/deep/a.py'), 409)
    await fails(() => f.deleteFile('/tmp/dir'), 400)
    await f.deleteFile('/tmp/dir', true)
    await fails(() => f.getFileDetails('/tmp/dir'), 404)
  })
  await check('home and work directory', async () => {
    const home = await sb.getUserHomeDir(), work = await sb.getWorkDir()
    assert.ok(home.startsWith('/') && work.startsWith('/'))
    assert.strictEqual((await sb.process.executeCommand('pwd')).result.trim(), work)
    assert.strictEqual((await sb.process.executeCommand('echo $HOME')).result.trim(), home)
    await f.uploadFile(Buffer.from('r'), 'relative.txt')
    assert.strictEqual((await sb.process.executeCommand('cat ' + work + '/relative.txt')).result, 'r')
  })
}

async function git(sb) {
  const g = sb.git, run = async c => (await sb.process.executeCommand(c)).result.trim()
  const status = async p => {
    const s = await g.status(p)
    return [s.currentBranch, s.fileStatus.map(f => [f.name, f.staging, f.worktree, f.extra]).sort()]
  }
  let first
  await check('git add, status, commit', async () => {
    if (old) await run('git init -q -b main "/tmp/g/a b"')
    else await g.init('/tmp/g/a b', false, 'main')
    assert.deepStrictEqual((await g.branches('/tmp/g/a b')).branches, [])
    await sb.fs.uploadFile(Buffer.from('one\n'), '/tmp/g/a b/é 1.txt')
    await sb.fs.uploadFile(Buffer.from('two\n'), '/tmp/g/a b/sub/-two')
    assert.deepStrictEqual(await status('/tmp/g/a b'), ['main', [['sub/-two', 'Untracked', 'Untracked', ''], ['é 1.txt', 'Untracked', 'Untracked', '']]])
    await g.add('/tmp/g/a b', ['é 1.txt', 'sub/-two'])
    assert.deepStrictEqual(await status('/tmp/g/a b'), ['main', [['sub/-two', 'Added', 'Unmodified', ''], ['é 1.txt', 'Added', 'Unmodified', '']]])
    first = (await g.commit('/tmp/g/a b', '-first é\n\nbody', 'Ann Ö', 'ann@example.org')).sha
    assert.match(first, /^[0-9a-f]{40}$/)
    assert.strictEqual(await run("cd '/tmp/g/a b' && git log -1 --format='%H|%an|%ae|%cn|%s|%b'"), first + '|Ann Ö|ann@example.org|Ann Ö|-first é|body')
    assert.deepStrictEqual(await status('/tmp/g/a b'), ['main', []])
    await run("cd '/tmp/g/a b' && git mv 'é 1.txt' new.txt && echo x >>sub/-two")
    assert.deepStrictEqual(await status('/tmp/g/a b'), ['main', [['new.txt', 'Renamed', 'Unmodified', 'é 1.txt'], ['sub/-two', 'Unmodified', 'Modified', '']]])
    await run("cd '/tmp/g/a b' && git reset -q --hard")
    await fails(() => g.commit('/tmp/g/a b', 'nothing', 'Ann', 'ann@example.org'), 400)
  })
  await check('git branches', async () => {
    await g.createBranch('/tmp/g/a b', 'feature/x')
    await fails(() => g.createBranch('/tmp/g/a b', 'feature/x'), 409)
    await g.checkoutBranch('/tmp/g/a b', 'feature/x')
    assert.deepStrictEqual((await g.branches('/tmp/g/a b')).branches, ['feature/x', 'main'])
    assert.deepStrictEqual(await status('/tmp/g/a b'), ['feature/x', []])
    await fails(() => g.deleteBranch('/tmp/g/a b', 'feature/x'), 409)
    await g.checkoutBranch('/tmp/g/a b', 'main')
    await g.deleteBranch('/tmp/g/a b', 'feature/x')
    assert.deepStrictEqual((await g.branches('/tmp/g/a b')).branches, ['main'])
    await fails(() => g.checkoutBranch('/tmp/g/a b', 'none'), 404)
    await fails(() => g.checkoutBranch('/tmp/g/a b', '--orphan=x'), 400)
  })
  await check('git clone, push, pull', async () => {
    await run("git clone -q --bare '/tmp/g/a b' /tmp/g/hub.git")
    await g.clone('/tmp/g/hub.git', '/tmp/g/c', 'main', undefined, 'user', 'pass')
    await g.clone('/tmp/g/hub.git', '/tmp/g/d', undefined, first)
    assert.strictEqual(await run('cat /tmp/g/c/sub/-two; git -C /tmp/g/d rev-parse HEAD'), 'two\n' + first)
    assert.deepStrictEqual(await status('/tmp/g/d'), ['HEAD', []])
    await sb.fs.uploadFile(Buffer.from('3'), '/tmp/g/c/three')
    await g.add('/tmp/g/c', ['.'])
    const sha = (await g.commit('/tmp/g/c', 'third', 'Bob', 'bob@example.org')).sha
    const s = await g.status('/tmp/g/c')
    assert.deepStrictEqual([s.ahead, s.behind, s.branchPublished], [1, 0, true])
    await g.push('/tmp/g/c', 'user', 'pass')
    assert.strictEqual(await run('git -C /tmp/g/hub.git rev-parse main'), sha)
    await g.checkoutBranch('/tmp/g/d', 'main')
    await g.pull('/tmp/g/d')
    assert.strictEqual(await run('git -C /tmp/g/d rev-parse main'), sha)
    await fails(() => g.clone('/tmp/g/hub.git', '/tmp/g/c'), 409)
    await fails(() => g.clone('/tmp/g/none', '/tmp/g/e'), 404)
    await fails(() => g.clone('--upload-pack=touch /tmp/owned', '/tmp/g/e'), 400)
    await fails(() => g.status('/tmp/g'), 404)
    await fails(() => g.status('/tmp/no-such-folder'), 404)
  })
  if (old) return
  await check('git reset, restore, remotes, settings', async () => {
    await sb.fs.uploadFile(Buffer.from('changed'), '/tmp/g/c/three')
    await g.restore('/tmp/g/c', ['three'])
    assert.strictEqual(await run('cat /tmp/g/c/three'), '3')
    await g.reset('/tmp/g/c', 'hard', 'HEAD~1')
    assert.strictEqual(await run('git -C /tmp/g/c rev-parse HEAD'), first)
    assert.strictEqual((await g.status('/tmp/g/c')).behind, 1)
    await g.remoteAdd('/tmp/g/c', 'other', '/tmp/g/a b', true)
    await fails(() => g.remoteAdd('/tmp/g/c', 'other', '/x'), 409)
    await g.remoteAdd('/tmp/g/c', 'other', '/tmp/g/d', false, true)
    const remotes = (await g.remotes('/tmp/g/c')).remotes
    assert.deepStrictEqual(remotes, [{ name: 'origin', url: '/tmp/g/hub.git' }, { name: 'other', url: '/tmp/g/d' }])
    assert.strictEqual(await g.remoteGet('/tmp/g/c', 'other'), '/tmp/g/d')
    assert.deepStrictEqual((await g.remotes('/tmp/g/a b')).remotes, [])
    await g.configureUser('Cleo', 'cleo@example.org', 'local', '/tmp/g/c')
    assert.strictEqual(await g.getConfig('user.name', 'local', '/tmp/g/c'), 'Cleo')
    assert.ok(!(await g.getConfig('user.name')))
    await g.setConfig('alias.x', '-y z')
    assert.strictEqual(await g.getConfig('alias.x'), '-y z')
    await g.dangerouslyAuthenticate('ann', 'p:w@d', 'git.example.org')
    assert.strictEqual(await run("printf 'protocol=https\\nhost=git.example.org\\n\\n' | git credential fill | tail -2"), 'username=ann\npassword=p:w@d')
  })
}

async function previews(sb) {
  const p = sb.process
  await check('preview by HTTP', async () => {
    await sb.fs.uploadFile(Buffer.from('hello from inside\n'), '/tmp/www/hello.txt')
    await p.createSession('web')
    await p.executeSessionCommand('web', { command: 'cd /tmp/www && python3 -m http.server 8123 --bind 127.0.0.1', runAsync: true })
    const link = await sb.getPreviewLink(8123)
    const get = (url, headers) => fetch(url, { headers })
    const auth = { 'x-daytona-preview-token': link.token }
    const r = await until(async () => { const r = await get(link.url + '/hello.txt', auth); return r.status === 200 && r }, 'http.server')
    assert.strictEqual(await r.text(), 'hello from inside\n')
    assert.strictEqual((await get(link.url + '/hello.txt')).status, 401)
    assert.strictEqual((await get(link.url + '/hello.txt', { 'x-daytona-preview-token': 'wrong' })).status, 401)
    assert.strictEqual((await get(link.url + '/none', auth)).status, 404)
    assert.strictEqual((await get(link.url + '/hello.txt?DAYTONA_SANDBOX_AUTH_KEY=' + link.token)).status, 200)
    assert.strictEqual((await get(link.url + '/hello.txt', { Authorization: 'Bearer ' + apiKey })).status, 200)
    const closed = await sb.getPreviewLink(8999)
    assert.strictEqual((await get(closed.url + '/', { 'x-daytona-preview-token': closed.token })).status, 502)
  })
  await check('signed preview', async () => {
    const link = await sb.getSignedPreviewUrl(8123, 60)
    const r = await fetch(link.url + '/hello.txt')
    assert.deepStrictEqual([r.status, await r.text()], [200, 'hello from inside\n'])
    await sb.expireSignedPreviewUrl(8123, link.token)
    assert.strictEqual((await fetch(link.url + '/hello.txt')).status, 401)
  })
  await check('preview by WebSocket', async () => {
    await sb.fs.uploadFile(echoProgram, '/tmp/ws_echo.py')
    await p.createSession('ws')
    await p.executeSessionCommand('ws', { command: 'python3 /tmp/ws_echo.py 8124', runAsync: true })
    const link = await sb.getPreviewLink(8124)
    const once = () => new Promise((resolve, reject) => {
      const ws = new WebSocket(link.url.replace(/^http/, 'ws') + '/x', { headers: { 'x-daytona-preview-token': link.token, Authorization: 'Bearer ' + apiKey } })
      ws.on('open', () => ws.send('hi there'))
      ws.on('message', m => { resolve(m.toString()); ws.close() })
      ws.on('error', reject)
    })
    assert.strictEqual(await until(() => once().catch(() => null), 'the echo server'), 'HI THERE')
  })
}

async function terminal(sb) {
  await check('terminal', async () => {
    let text = ''
    const pty = await sb.process.createPty({ id: 'p1', cols: 100, rows: 30, envs: { FOO: 'bär' }, onData: d => { text += Buffer.from(d).toString() } })
    await pty.waitForConnection()
    await pty.sendInput('stty size; echo "v=$((6*7)) $FOO $TERM"\n')
    await until(() => /30 100/.test(text) && /v=42 bär xterm-256color/.test(text), 'terminal output in ' + JSON.stringify(text))
    assert.deepStrictEqual((await sb.process.listPtySessions()).map(s => s.id), ['p1'])
    await pty.resize(120, 40)
    text = ''
    await pty.sendInput('stty size\n')
    await until(() => /40 120/.test(text), 'the new size')
    await pty.sendInput('exit 3\n')
    const r = await pty.wait()
    assert.strictEqual(r.exitCode, 3)
    await pty.disconnect()
  })
  await check('terminal killed', async () => {
    const pty = await sb.process.createPty({ id: 'p2', onData: () => {} })
    await pty.waitForConnection()
    await pty.kill()
    const r = await pty.wait()
    assert.strictEqual(r.exitCode, 137)
    await fails(() => sb.process.getPtySessionInfo('p2'), 404)
  })
}

async function control(d, sb) {
  await check('get and list', async () => {
    assert.strictEqual((await d.get(sb.id)).id, sb.id)
    assert.strictEqual((await d.get(tag)).id, sb.id)
    const ids = []
    if (old) {
      const page = await d.list({ tag }, 1, 10)
      assert.strictEqual(page.total, 1)
      ids.push(...page.items.map(s => s.id))
    } else {
      for await (const s of d.list({ labels: { tag } })) ids.push(s.id)
    }
    assert.deepStrictEqual(ids, [sb.id])
  })
  await check('labels and intervals', async () => {
    await sb.setLabels({ tag, more: 'é', 'code-toolbox-language': 'python' })
    await sb.setAutostopInterval(30)
    await sb.setAutoDeleteInterval(60)
    const again = await d.get(sb.id)
    assert.deepStrictEqual([again.labels.more, again.autoStopInterval, again.autoDeleteInterval], ['é', 30, 60])
  })
  await check('stop and start keep the disk', async () => {
    await sb.fs.uploadFile(Buffer.from('kept'), 'kept.txt')
    await sb.stop()
    assert.strictEqual(sb.state, 'stopped')
    const e = await fails(() => sb.process.executeCommand('true'), 409)
    assert.match(e.message, /sandbox is not running/)
    await sb.start()
    assert.strictEqual(sb.state, 'started')
    assert.strictEqual((await sb.fs.downloadFile('kept.txt')).toString(), 'kept')
  })
  await check('errors have their classes', async () => {
    const e = await fails(() => d.get('no-such-sandbox'))
    assert.match(e.message, /sandbox no-such-sandbox not found/)
    assert.strictEqual(e.constructor.name, 'DaytonaNotFoundError')
    const wrong = new sdk.Daytona({ apiKey: 'e2b_' + '0'.repeat(40), apiUrl })
    await fails(() => wrong.get(sb.id), 401)
  })
  await check('an image, other languages', async () => {
    const ts = await d.create({ image: 'default', language: 'typescript' })
    assert.deepStrictEqual(['started', 'typescript'], [ts.state, ts.labels['code-toolbox-language']])
    const r = await ts.process.codeRun('const x: number = 41\nconsole.log(x + 1)')
    assert.deepStrictEqual([r.exitCode, r.result], [0, '42\n'])
    await ts.delete()
    const js = await d.create({ language: 'javascript' })
    const q = await js.process.codeRun('console.log([1, 2].map(x => x * 21)[1]); process.exit(2)')
    assert.deepStrictEqual([q.exitCode, q.result], [old ? 0 : 2, '42\n']) // old SDKs end with a grep, whose code it is
    await js.delete()
  })
  await check('an unknown image is refused', async () => {
    const e = await fails(() => d.create({ image: 'no-such-image:1.2' }))
    assert.match(e.message, /no-such-image/)
  })
}

async function main() {
  process.chdir(fs.mkdtempSync(path.join(os.tmpdir(), 'sdk-'))) // the SDK reads .env of its directory
  const dir = process.cwd(), d = new sdk.Daytona({ apiKey, apiUrl })
  let sb
  await check('create', async () => {
    sb = await d.create({ name: tag, language: 'python', envVars: { GREETING: 'hi' }, labels: { tag } })
    assert.deepStrictEqual([sb.state, sb.name, sb.labels.tag, sb.labels['code-toolbox-language']], ['started', tag, tag, 'python'])
  })
  if (sb) {
    await processes(sb)
    await sessions(sb)
    await files(sb)
    await git(sb)
    await previews(sb)
    await terminal(sb)
    await control(d, sb)
    await check('delete', async () => {
      await sb.delete()
      await fails(() => d.get(sb.id), 404)
    })
  }
  const start = Date.now()
  process.chdir('/')
  fs.rmSync(dir, { recursive: true })
  process.on('exit', () => console.log(Date.now() - start < 8000 ? 'ok the program ends at once' : 'not ok the program ends at once: it lingered'))
}
main().catch(e => { console.log('not ok flow: ' + e.stack); process.exitCode = 1 })
