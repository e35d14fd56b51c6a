// The platform side by the TypeScript SDK: builds with files of this machine, their log, snapshots, forks, and an exit without delay.
//   node images.js FOLDER PACKAGE     Prints "ok NAME" or "not ok NAME: reason" a check.
'use strict'
const fs = require('fs'), crypto = require('crypto')
const { sdk, check, equal, sh, daytona, tag } = require('./sdkcheck.js')
const { Image } = sdk

async function main() {
  await check('context', async () => {
    fs.mkdirSync('tree/sub', { recursive: true })
    fs.writeFileSync('one.txt', 'file\n')
    fs.writeFileSync('tree/a', 'A\n')
    fs.writeFileSync('tree/sub/b', 'B\n')
    const big = crypto.randomBytes(12 << 20)
    fs.writeFileSync('big', big)
    const image = Image.base('default').addLocalFile('one.txt', '/data/two.txt').addLocalDir('tree', '/data/tree').addLocalFile('big', '/data/big')
      .workdir('/data').runCommands('cat two.txt')
    const sum = crypto.createHash('sha256').update(big).digest('hex')
    for (let i = 0; i < 2; i++) { // the second time the archives are there already
      let log = ''
      const box = await daytona.create({ image }, { timeout: 200, onSnapshotCreateLogs: (s) => (log += s + '\n') })
      try {
        equal(await sh(box, 'cat two.txt tree/a tree/sub/b; sha256sum < big'), `file\nA\nB\n${sum}  -\n`)
        if (!/Step \d+\/\d+ : RUN cat two.txt/.test(log)) throw new Error('log: ' + log)
      } finally {
        await daytona.delete(box)
      }
    }
  })
  await check('snapshot build', async () => {
    let log = ''
    const made = await daytona.snapshot.create({ name: 'js-' + tag, image: Image.base('default').runCommands('echo js > /made').env({ E: '1' }) },
      { timeout: 120, onLogs: (s) => (log += s + '\n') })
    equal([made.name, made.state], ['js-' + tag, 'active'])
    if (!log.includes('RUN echo js > /made')) throw new Error('log: ' + log)
    const box = await daytona.create({ snapshot: made.name })
    try {
      equal(await sh(box, 'cat /made; echo $E'), 'js\n1\n')
    } finally {
      await daytona.delete(box)
      await daytona.snapshot.delete(made)
    }
  })
  await check('fork and snapshot of a sandbox', async () => {
    const box = await daytona.create()
    await sh(box, 'echo p > ~/f')
    const fork = box.fork ? box.fork.bind(box) : box._experimental_fork.bind(box)
    const snapshot = box.createSnapshot ? box.createSnapshot.bind(box) : box._experimental_createSnapshot.bind(box)
    const child = await fork({ name: 'js-fork-' + tag })
    try {
      equal([child.name, await sh(child, 'cat ~/f')], ['js-fork-' + tag, 'p\n'])
      await snapshot('js-of-' + tag)
      const s = await daytona.snapshot.get('js-of-' + tag)
      equal([s.state, s.sourceSandboxId], ['active', box.id])
      await daytona.snapshot.deactivate?.(s)
      await daytona.snapshot.delete(s)
    } finally {
      await daytona.delete(child)
      await daytona.delete(box)
    }
  })
  const box = await daytona.create()
  const began = Date.now()
  process.on('exit', () => {
    // a sandbox that is not deleted keeps its subscription; the process must not wait for it
    const took = Date.now() - began
    console.log(took < 20000 ? 'ok exit without delay' : `not ok exit without delay: ${took} ms`)
  })
  await fetch(process.env.TEST_URL + '/sandbox/' + box.id, { method: 'DELETE', headers: { Authorization: 'Bearer ' + process.env.TEST_KEY } })
}
main()
