"""What a platform has beside its sandboxes, by the newest Python SDK: volumes, and the calls about the organisation.

shared.py [part ...]    Prints "ok NAME", "skip NAME: reason" or "not ok NAME: reason" a check.
"""
import uuid

from sdkcheck import check, d, equal, fails, sh, sys
from daytona import CreateSandboxFromSnapshotParams, VolumeMount

tag = uuid.uuid4().hex[:8]
parts = {}


def part(f):
    parts[f.__name__] = f
    return f


@part
def volumes():
    name = "py-" + tag
    fails(lambda: d.volume.get(name), "not found")
    v = d.volume.get(name, create=True)
    equal((v.name, str(getattr(v.state, "value", v.state))), (name, "ready"))
    equal(d.volume.get(name).id, v.id)
    assert v.id in {x.id for x in d.volume.list()}
    fails(lambda: d.volume.create(name), "already")
    one = d.create(CreateSandboxFromSnapshotParams(volumes=[VolumeMount(volume_id=v.id, mount_path="/home/daytona/shared")]))
    two = d.create(CreateSandboxFromSnapshotParams(volumes=[VolumeMount(volume_id=name, mount_path="/data/", subpath="users/alice")]))
    try:
        equal([(m.volume_id, m.mount_path) for m in one.volumes], [(v.id, "/home/daytona/shared")])
        two.fs.upload_file(b"hello", "/data/f")
        equal(one.fs.download_file("/home/daytona/shared/users/alice/f"), b"hello")
        equal(sh(two, "ls -a /data"), ".\n..\nf\n")
        fails(lambda: d.volume.delete(v), "in use")
    finally:
        two.delete()
        one.stop()
        fails(lambda: d.volume.delete(v), "in use")
        one.delete()
    three = d.create(CreateSandboxFromSnapshotParams(volumes=[VolumeMount(volume_id=v.id, mount_path="/v")]))
    try:
        equal(sh(three, "cat /v/users/alice/f"), "hello")
        assert d.volume.get(name).last_used_at
    finally:
        three.delete()
    d.volume.delete(v)
    fails(lambda: d.volume.get(name), "not found")
    fails(lambda: d.create(CreateSandboxFromSnapshotParams(volumes=[VolumeMount(volume_id=v.id, mount_path="/v")])), "no volume")
    fails(lambda: d.create(CreateSandboxFromSnapshotParams(volumes=[VolumeMount(volume_id=v.id, mount_path="/proc/v")])), "mounted on")


for name in sys.argv[1:] or parts:
    check(name, parts[name])
