// The official TypeScript clients against /mcp and `caisson mcp`: flow.mjs PACKAGE-FOLDER http|stdio
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [, , folder, how] = process.argv
const { MCP_URL, MCP_KEY, CAISSON } = process.env
const require = createRequire(folder + '/package.json')
const load = async (name) => import(pathToFileURL(require.resolve(name)))

async function classes() {
  try {
    const { Client } = await load('@modelcontextprotocol/sdk/client/index.js')
    const { StreamableHTTPClientTransport } = await load('@modelcontextprotocol/sdk/client/streamableHttp.js')
    const { StdioClientTransport } = await load('@modelcontextprotocol/sdk/client/stdio.js')
    return { Client, StreamableHTTPClientTransport, StdioClientTransport }
  } catch {
    const all = await load('@modelcontextprotocol/client')
    const { StdioClientTransport } = await load('@modelcontextprotocol/client/stdio')
    return { ...all, StdioClientTransport }
  }
}

const ok = (name) => console.log('ok ' + name)
function check(name, condition, shown) {
  if (condition) ok(name)
  else console.log('not ok ' + name + ': ' + JSON.stringify(shown))
}
const text = (r) => r.content.map((c) => c.text ?? '').join('')
const sandboxes = async () => {
  const r = await fetch(new URL('/v1/sandboxes', MCP_URL), { headers: { Authorization: 'Bearer ' + MCP_KEY } })
  return (await r.json()).items.map((s) => s.id)
}

const { Client, StreamableHTTPClientTransport, StdioClientTransport } = await classes()
const headers = { Authorization: 'Bearer ' + MCP_KEY }
const transport = how === 'http'
  ? new StreamableHTTPClientTransport(new URL(MCP_URL), { requestInit: { headers } })
  : new StdioClientTransport({ command: CAISSON, args: ['mcp'], env: { ...process.env } })
const client = new Client({ name: 'flow', version: '1' })
await client.connect(transport)
const call = (name, args = {}) => client.callTool({ name, arguments: args })

const { tools } = await client.listTools()
check('tools', tools.length === 8 && tools.every((t) => t.description && t.inputSchema && t.outputSchema), tools.map((t) => t.name))
check('server', client.getServerVersion().name === 'caisson' && client.getInstructions().length > 0, client.getServerVersion())

const made = await call('create_sandbox', { env: { WHO: 'world' } })
const id = made.structuredContent.sandbox
check('create', (await sandboxes()).includes(id), made)
const ran = await call('run', { command: 'echo "hello $WHO"; echo oops >&2; exit 7' })
check('run', ran.structuredContent.exit_code === 7 && ran.structuredContent.stdout === 'hello world\n' &&
  ran.structuredContent.stderr === 'oops\n' && !ran.isError && text(ran).includes('[exit code 7]'), ran)
const code = await call('run_code', { code: 'print(6*7)' })
check('run_code', code.structuredContent.stdout === '42\n', code)
await call('run_code', { code: 'import math\nx = 41\ndef f(n): return n + 1' })
const kept = await call('run_code', { code: 'f(x)' })
check('variables stay', kept.structuredContent.result === '42' && text(kept).includes('42') && kept.structuredContent.exit_code === 0, kept)
const fresh = await call('run_code', { code: 'print("x" in globals())', fresh: true })
check('unless it is to be fresh', fresh.structuredContent.stdout === 'False\n', fresh)
const wrong = await call('run_code', { code: 'print("before"); 1/0' })
check('an error', wrong.structuredContent.exit_code === 1 && wrong.structuredContent.stdout === 'before\n' &&
  wrong.structuredContent.stderr.includes('ZeroDivisionError') && !wrong.isError, wrong)
const endless = await call('run_code', { code: 'while True: pass', timeout_s: 1 })
check('a time limit interrupts', endless.structuredContent.timed_out && text(endless).includes('variables are kept'), endless)
check('and keeps', (await call('run_code', { code: 'print(x)' })).structuredContent.stdout === '41\n')
const much = await call('run_code', { code: 'print("y" * 300000); print("END")' })
check('much output is cut in the middle', much.structuredContent.cut && much.structuredContent.stdout.length < 70000 && much.structuredContent.stdout.endsWith('END\n'))
const seen = await call('run_code', { code: 'class P:\n    def _repr_png_(self): return bytes([137, 80, 78, 71])\nP()' })
check('a picture', seen.content.some((c) => c.type === 'image' && c.mimeType === 'image/png' && c.data === 'iVBORw=='), seen)
await call('write_file', { path: 'dir/a.txt', text: 'ä\n' })
await call('write_file', { path: 'dir/a.txt', text: 'b', append: true })
const read = await call('read_file', { path: 'dir/a.txt' })
check('files', read.structuredContent.text === 'ä\nb' && read.structuredContent.size === 4, read)
const bytes = Buffer.from([0, 255, 1])
await call('write_file', { path: 'bin', base64: bytes.toString('base64') })
check('bytes', (await call('read_file', { path: 'bin' })).structuredContent.base64 === bytes.toString('base64'))
const list = await call('list_files', { depth: 2 })
check('list', list.structuredContent.entries.some((e) => e.path === 'dir/a.txt' && e.size === 4), list)
const long = await call('run', { command: 'head -c 300000 /dev/zero | tr "\\0" x; echo; echo END' })
check('a long output is cut in the middle', long.structuredContent.cut && long.structuredContent.stdout.length < 70000 &&
  long.structuredContent.stdout.endsWith('END\n'), long.structuredContent.stdout.length)

const early = await call('expose_port', { port: 8123 })
check('expose_port, before anything listens', early.structuredContent.listening === false && text(early).includes('Nothing listens'), early)
await call('run', { command: 'python3 -m http.server 8123 >/dev/null 2>&1 &' })
let link
for (let i = 0; i < 200 && !(link = await call('expose_port', { port: 8123 })).structuredContent.listening; i++) await new Promise((r) => setTimeout(r, 50))
const page = await fetch(link.structuredContent.url)
check('expose_port', link.structuredContent.listening && page.ok && (await page.text()).includes('dir/'), link)
const elsewhere = await fetch(link.structuredContent.url.replace('/8123/', '/8124/'))
check('the link is good for that port alone', elsewhere.status === 401, elsewhere.status)
const brief = (await call('expose_port', { port: 8123, expires_s: 1 })).structuredContent
let expired = 200
for (let i = 0; i < 100 && (expired = (await fetch(brief.url)).status) === 200; i++) await new Promise((r) => setTimeout(r, 50))
check('and for its time', expired === 401 && new Date(brief.expires_at) > new Date(0), expired)

const slow = await call('run', { command: 'sleep 60', timeout_s: 1 })
check('time limit', slow.structuredContent.timed_out && text(slow).includes('time limit'), slow)
for (const [name, args, word] of [
  ['run', {}, '"command" is required'], ['run', { command: 3 }, 'must be a string'], ['run', { command: 'x', colour: 'red' }, 'colour'],
  ['run_code', { code: '1', language: 'cobol' }, 'must be one of'], ['run', { command: 'x', sandbox: 'nobody' }, 'not found'],
  ['read_file', { path: '/nowhere' }, 'nowhere'], ['expose_port', { port: 70000 }, '65535'], ['write_file', { path: 'x' }, 'either'],
]) {
  const r = await call(name, args)
  check(`refused: ${name} ${JSON.stringify(args)}`, r.isError && text(r).includes(word), r)
}
await call('no_such_tool').then((r) => check('unknown tool', r.isError, r), (e) => check('unknown tool', /no_such_tool/.test(e.message), e.message))

// What is given up ends: the command is gone from the sandbox.
const stop = new AbortController()
const waiting = client.callTool({ name: 'run', arguments: { command: 'exec sleep 54.321', sandbox: id } }, undefined, { signal: stop.signal }).catch(() => 'gone')
const alive = async () => (await call('run', { command: 'cat /proc/[0-9]*/cmdline | tr "\\0" " " | grep -c "[s]leep 54.321"' })).structuredContent.stdout.trim()
for (let i = 0; i < 100 && (await alive()) === '0'; i++);
stop.abort()
await waiting
let left = '?'
for (let i = 0; i < 50 && (left = await alive()) !== '0'; i++);
check('a cancelled call ends its command', left === '0', left)

const other = (await call('create_sandbox', { keep: true, name: 'kept-' + process.pid })).structuredContent
check('delete', (await call('delete_sandbox', { sandbox: id })).structuredContent.deleted && !(await sandboxes()).includes(id))
check('delete again', (await call('delete_sandbox', { sandbox: id })).structuredContent.deleted === false)
const third = (await call('create_sandbox')).structuredContent.sandbox
if (how === 'http') await transport.terminateSession()
await client.close()
let there = []
for (let i = 0; i < 100 && (there = await sandboxes()).includes(third); i++) await new Promise((r) => setTimeout(r, 50))
check('the end of the session deletes its sandboxes, but those to keep', !there.includes(third) && there.includes(other.sandbox), there)
await fetch(new URL('/v1/sandboxes/' + other.sandbox, MCP_URL), { method: 'DELETE', headers })

if (how === 'http') {
  const refused = new Client({ name: 'flow', version: '1' })
  await refused.connect(new StreamableHTTPClientTransport(new URL(MCP_URL))).then(
    () => check('a key is needed', false), (e) => check('a key is needed', /401|key/i.test(String(e.message) + e.code), String(e)))
}
