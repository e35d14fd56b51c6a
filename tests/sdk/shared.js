// What a platform has beside its sandboxes, by the TypeScript SDK: volumes, and the calls about the organisation.
//   node shared.js FOLDER PACKAGE     Prints "ok NAME" or "not ok NAME: reason" a check.
'use strict'
const { spawnSync } = require('child_process')
const { check, equal, fails, sh, skip, daytona, tag } = require('./sdkcheck.js')

async function volumes() {
  const name = 'js-' + tag
  await fails(() => daytona.volume.get(name), 'not found')
  const v = await daytona.volume.get(name, true)
  equal([v.name, v.state], [name, 'ready'])
  equal((await daytona.volume.list()).some((x) => x.id === v.id), true)
  await fails(() => daytona.volume.create(name), 'already')
  const one = await daytona.create({ volumes: [{ volumeId: v.id, mountPath: '/home/daytona/shared' }] })
  const two = await daytona.create({ volumes: [{ volumeId: name, mountPath: '/data', subpath: 'users/bob' }] })
  try {
    equal(one.volumes, [{ volumeId: v.id, mountPath: '/home/daytona/shared' }])
    await two.fs.uploadFile(Buffer.from('hello'), '/data/f')
    equal((await one.fs.downloadFile('/home/daytona/shared/users/bob/f')).toString(), 'hello')
    await fails(() => daytona.volume.delete(v), 'in use')
  } finally {
    await daytona.delete(two)
    await daytona.delete(one)
  }
  const three = await daytona.create({ volumes: [{ volumeId: v.id, mountPath: '/v' }] })
  try {
    equal(await sh(three, 'cat /v/users/bob/f'), 'hello')
  } finally {
    await daytona.delete(three)
  }
  await daytona.volume.delete(v)
  await fails(() => daytona.volume.get(name), 'not found')
}

async function ssh() {
  const box = await daytona.create()
  try {
    const access = await box.createSshAccess(10).catch((e) => (String(e.message).includes('--ssh') ? skip('this server was started without --ssh') : Promise.reject(e)))
    equal([access.sandboxId, (await box.validateSshAccess(access.token)).valid], [box.id, true])
    const words = access.sshCommand.split(' ')
    const options = ['-F', 'none', '-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null', '-o', 'LogLevel=ERROR', '-o', 'BatchMode=yes']
    const run = (command) => spawnSync(words[0], [...options, ...words.slice(1), command], { encoding: 'utf8', timeout: 60000, input: 'in' })
    const r = run('cat; echo out; exit 3')
    equal([r.status, r.stdout], [3, 'inout\n'])
    await box.revokeSshAccess(access.token)
    equal([(await box.validateSshAccess(access.token)).valid, run('true').status], [false, 255])
  } finally {
    await daytona.delete(box)
  }
}

async function main() {
  await check('ssh', ssh)
  await check('volumes', volumes)
}
main()
