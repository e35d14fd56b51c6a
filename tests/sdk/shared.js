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

async function network() {
  const reach = `python3 -c "import socket; s = socket.socket(); s.settimeout(20); print(s.connect_ex(('203.0.113.1', 9)))"`
  const settings = (box) => [box.networkBlockAll, box.networkAllowList, box.domainAllowList]
  const box = await daytona.create({ networkAllowList: '192.168.1.0/16,10.0.0.0/24', domainAllowList: 'example.com,*.daytona.io' })
  try {
    equal(settings(box), [false, '192.168.0.0/16,10.0.0.0/24', 'example.com,*.daytona.io'])
    await box.updateNetworkSettings({ networkBlockAll: true })
    equal(settings(box), [true, undefined, 'example.com,*.daytona.io'])
    equal((await sh(box, reach)).trim(), '101') // ENETUNREACH
    await box.updateNetworkSettings({ networkBlockAll: false })
    equal([settings(box), (await sh(box, reach)).trim() !== '101'], [[false, undefined, 'example.com,*.daytona.io'], true])
    await box.updateNetworkSettings({ domainAllowList: '' })
    equal(settings(box), [false, undefined, undefined])
    await fails(() => box.updateNetworkSettings({ domainAllowList: '10.0.0.0/8' }), 'not a name')
    await fails(() => box.updateNetworkSettings({ networkAllowList: 'example.com' }), 'not an address range')
    const name = 'js-' + tag
    const secret = await daytona.secret.create({ name, value: 'a-value-' + tag, hosts: ['api.example.com'] })
    try {
      await box.updateSecrets({ TOKEN: name })
      equal((await sh(box, 'echo $TOKEN')).trim(), secret.placeholder)
      await box.updateSecrets({})
      equal((await sh(box, 'echo ${TOKEN:-none}')).trim(), 'none')
    } finally {
      await daytona.secret.delete(secret.id)
    }
    await fails(() => box.updateSecrets({ TOKEN: name }), name)
  } finally {
    await daytona.delete(box)
  }
}

async function main() {
  await check('network', network)
  await check('ssh', ssh)
  await check('volumes', volumes)
}
main()
