"""What a platform has beside its sandboxes, by the newest Python SDK: volumes, and the calls about the organisation.

shared.py [part ...]    Prints "ok NAME", "skip NAME: reason" or "not ok NAME: reason" a check.
"""
import hashlib, os, shutil, subprocess, time, uuid
from concurrent import futures

from sdkcheck import Skip, check, d, equal, fails, sh, sys
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


SETTINGS = ["-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes"]


def client(access, program, *args, data=None, check_code=True):
    """One of OpenSSH's programs, with nothing of this machine's settings; what sshCommand says is what is used."""
    words = access.ssh_command.split()
    assert words[:2] == ["ssh", "-p"] and words[3] == access.token + "@127.0.0.1", words
    port = ["-p", words[2]] if program == "ssh" else ["-P", words[2]]
    where = [words[3]] if program == "ssh" else []
    r = subprocess.run([program, *SETTINGS, *port, *where, *[a.replace("BOX", words[3]) for a in args]], input=data, capture_output=True, timeout=90)
    assert not check_code or r.returncode == 0, r
    return r


def begun(access, command, **kw):
    """The same, going on."""
    return subprocess.Popen(["ssh", *SETTINGS, *access.ssh_command.split()[1:], command], stdin=subprocess.DEVNULL, **kw)


def ssh_access(box, minutes=10):
    try:
        return box.create_ssh_access(expires_in_minutes=minutes)
    except Exception as e:
        if "--ssh" in str(e):
            raise Skip("this server was started without --ssh")
        raise


@part
def ssh():
    if not shutil.which("ssh"):
        raise Skip("there is no ssh program here")
    box = d.create(CreateSandboxFromSnapshotParams(env_vars={"FROM": "create"}))
    try:
        access = ssh_access(box)
        equal((access.sandbox_id, 500 < (access.expires_at - access.created_at).total_seconds() < 700), (box.id, True))
        valid = box.validate_ssh_access(access.token)
        equal((valid.valid, valid.sandbox_id), (True, box.id))
        equal(box.validate_ssh_access("0" * 40).valid, False)
        r = client(access, "ssh", "echo out; echo err >&2; echo $FROM; exit 7", check_code=False)
        equal((r.returncode, r.stdout, r.stderr), (7, b"out\ncreate\n", b"err\n"))
        equal(client(access, "ssh", "wc -c", data=b"x" * 3000000).stdout.strip(), b"3000000")
        equal(client(access, "ssh", "cat", data=bytes(range(256)) * 4000).stdout, bytes(range(256)) * 4000)
        equal(client(access, "ssh", "head -c 3 | wc -c", data=b"y" * 3000000).stdout.strip(), b"3")
        # one that reads slowly is waited for
        slow = "python3 -c 'import sys, time\nn = 0\nwhile c := sys.stdin.buffer.read(131072): n += len(c); time.sleep(0.02)\nprint(n)'"
        equal(client(access, "ssh", slow, data=b"z" * 8000000).stdout.strip(), b"8000000")
        equal(client(access, "ssh", "cat /proc/sys/kernel/hostname").stdout.decode(), sh(box, "cat /proc/sys/kernel/hostname"))
        # a terminal, with what is typed in it
        r = client(access, "ssh", "-tt", data=b"stty size; echo $((6*7)) $TERM; tty; exit 5\n", check_code=False)
        assert r.returncode == 5 and b"42 " in r.stdout and b"/dev/pts/" in r.stdout, r
        # several at once
        running = [begun(access, "sleep 0.2; exit %d" % n) for n in range(1, 9)]
        equal([p.wait(60) for p in running], list(range(1, 9)))
        # who reads no more ends what is said, also by one that does not mind
        for command in ("cat /dev/zero", "trap '' PIPE; while :; do echo 45678 2>/dev/null; done"):
            endless = begun(access, command, stdout=subprocess.PIPE)
            endless.stdout.read(1)
            endless.stdout.close()
            endless.wait(60)
            wait(lambda: sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c -e '[c]at /dev/zero' -e '[e]cho 45678' || true").strip() == "0")
        # a client that leaves takes its command along
        gone = begun(access, "exec sleep 12345.6")
        there = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 12345.6' || true"
        wait(lambda: sh(box, there).strip() == "1")
        gone.kill()
        gone.wait()
        wait(lambda: sh(box, there).strip() == "0")
        box.revoke_ssh_access(access.token)
        equal(box.validate_ssh_access(access.token).valid, False)
        r = client(access, "ssh", "true", check_code=False)
        assert r.returncode == 255 and b"denied" in r.stderr, r
    finally:
        box.delete()


@part
def ssh_ends():
    """A token's end is the end of what it let in."""
    if not shutil.which("ssh"):
        raise Skip("there is no ssh program here")
    box = d.create()
    try:
        other = ssh_access(box)
        stays = begun(other, "exec sleep 23456.7")
        for how in ("revoked", "expired"):
            for minutes in (0.1, 0.5, 3):  # enough for a slow machine to come in
                access = ssh_access(box, minutes if how == "expired" else 10)
                live = begun(access, "echo up; exec sleep 34567.8", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                said = live.stdout.readline()
                if said:
                    break
            equal(said, b"up\n")
            if how == "revoked":
                box.revoke_ssh_access(access.token)
            equal((how, live.wait(240)), (how, 255))
            live.communicate()
            equal(box.validate_ssh_access(access.token).valid, False)
            r = client(access, "ssh", "true", check_code=False)
            assert r.returncode == 255 and b"denied" in r.stderr, (how, r)
            wait(lambda: sh(box, "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 34567.8' || true").strip() == "0")
        equal((stays.poll(), client(other, "ssh", "echo still").stdout), (None, b"still\n"))
        box.revoke_ssh_access(other.token)
        equal(stays.wait(60), 255)
    finally:
        box.delete()


def wait(f):
    for _ in range(200):
        if f():
            return
        time.sleep(0.1)
    raise AssertionError("did not come to be")


@part
def sftp():
    if not shutil.which("sftp"):
        raise Skip("there is no sftp program here")
    box = d.create()
    try:
        access = ssh_access(box)
        content = os.urandom(10 << 20)
        digest = hashlib.sha256(content).hexdigest()
        os.makedirs("tree/sub/empty", exist_ok=True)
        open("tree/big", "wb").write(content)
        open("tree/sub/run", "w").write("#!/bin/sh\necho ran\n")
        os.chmod("tree/sub/run", 0o750)
        client(access, "scp", "-r", "-p", "tree", "BOX:")
        equal(sh(box, "sha256sum < tree/big; tree/sub/run; stat -c %a tree/sub/run; ls -A tree/sub").splitlines()[1:], ["ran", "750", "empty", "run"])
        equal(box.fs.download_file("tree/big"), content)
        client(access, "sftp", "-b", "-", "BOX", data=b"put tree/big by-sftp\nget by-sftp got\n")
        equal(sh(box, "sha256sum < by-sftp; rm by-sftp").split()[0], digest)
        equal(hashlib.sha256(open("got", "rb").read()).hexdigest(), digest)
        with futures.ThreadPoolExecutor(4) as pool:  # requests and answers in each other's way, on both sides
            list(pool.map(lambda n: client(access, "sftp", "-b", "-", "BOX", data=b"put tree/big n%d\nget n%d n%d\n" % (n, n, n)), range(12)))
        equal({hashlib.sha256(open("n%d" % n, "rb").read()).hexdigest() for n in range(12)}, {digest})
        client(access, "scp", "-r", "BOX:tree", "back")
        equal(open("back/big", "rb").read(), content)
        batch = "pwd\nmkdir d\nrename tree/big d/big\n-mkdir d\nls -l d\nsymlink d/big l\nls -l\nchmod 600 d/big\nln d/big hard\n-get nothing\n" \
                "-rename d/big hard\nrm hard\ndf\nput tree/sub/run two\n-reput tree/sub/run two\nrmdir tree/sub/empty\nbye\n"
        r = client(access, "sftp", "-b", "-", "BOX", data=batch.encode(), check_code=False)
        assert b"/home/daytona" in r.stdout and b"big" in r.stdout and r.returncode == 0, r
        equal(sh(box, "stat -c %a d/big; readlink l; ls -A tree/sub; ls hard 2>&1 | grep -c 'No such'; cmp two tree/sub/run && echo same"),
              "600\nd/big\nrun\n1\nsame\n")
        r = client(access, "sftp", "-b", "-", "BOX", data=b"put tree/big /etc/x\n", check_code=False)
        assert r.returncode != 0 and b"ermission denied" in r.stderr + r.stdout, r
    finally:
        box.delete()


@part
def secrets():
    from daytona import CreateSecretParams, UpdateSecretParams
    name = "py-" + tag
    s = d.secret.create(CreateSecretParams(name=name, value="top-secret-value-" + tag, description="d", hosts=["api.example.com"]))
    try:
        assert s.name == name and s.hosts == ["api.example.com:443"] and "top-secret" not in repr(s), s
        fails(lambda: d.secret.create(CreateSecretParams(name=name, value="x", hosts=["a.example.com"])), "name")
        fails(lambda: d.secret.create(CreateSecretParams(name=name + "2", value="x")), "hosts")
        equal(d.secret.get(s.id).placeholder, s.placeholder)
        assert s.id in {x.id for x in d.secret.list(name=name).items}
        equal(d.secret.update(s.id, UpdateSecretParams(description="e", value="another-value-" + tag)).description, "e")
        box = d.create(CreateSandboxFromSnapshotParams(secrets={"TOKEN": name}))
        try:
            equal(sh(box, "echo $TOKEN").strip(), s.placeholder)
            box.update_secrets({"OTHER": name})
            equal(sh(box, "echo ${TOKEN:-none} $OTHER").strip(), "none " + s.placeholder)
        finally:
            box.delete()
    finally:
        d.secret.delete(s.id)
    fails(lambda: d.secret.get(s.id), "not found")


@part
def network():
    reach = "python3 -c \"import socket; s = socket.socket(); s.settimeout(20); print(s.connect_ex(('203.0.113.1', 9)))\""
    settings = lambda box: (box.network_block_all, box.network_allow_list, box.domain_allow_list)
    box = d.create(CreateSandboxFromSnapshotParams(network_block_all=True, outbound_proxy_url="http://proxy.test:3128", env_vars={"http_proxy": "mine"}))
    try:
        equal(settings(box), (True, None, None))
        equal(sh(box, reach).strip(), "101")  # ENETUNREACH
        equal((sh(box, "echo $HTTPS_PROXY $http_proxy").strip(), box.outbound_proxy_url), ("http://proxy.test:3128 mine", "http://proxy.test:3128"))
        box.update_network_settings(network_block_all=False)
        equal(settings(box), (False, None, None))
        assert sh(box, reach).strip() != "101"
        # as Daytona's own example writes ranges, and with blanks
        box.update_network_settings(network_allow_list="192.168.1.0/16, 10.0.0.0/24", domain_allow_list="example.com,*.daytona.io")
        equal(settings(box), (False, "192.168.0.0/16,10.0.0.0/24", "example.com,*.daytona.io"))
        equal(settings(d.get(box.id)), settings(box))
        # a list that is not named stays
        box.update_network_settings(domain_allow_list="example.com")
        equal(settings(box), (False, "192.168.0.0/16,10.0.0.0/24", "example.com"))
        for wrong, word in ((dict(network_allow_list="1.2.3.4/33"), "1.2.3.4/33"), (dict(network_allow_list="example.com"), "range"), (dict(domain_allow_list="10.0.0.0/8"), "name"),
                            (dict(domain_allow_list="a b"), "a b"), (dict(network_allow_list=","), "no entry"), (dict(network_allow_list="::ffff:10.0.0.0/104"), "::ffff:")):
            fails(lambda: box.update_network_settings(**wrong), word)
            fails(lambda: d.create(CreateSandboxFromSnapshotParams(**wrong)), word)
        equal(settings(d.get(box.id)), (False, "192.168.0.0/16,10.0.0.0/24", "example.com"))
        box.update_network_settings(network_block_all=True)
        equal(settings(box), (True, None, "example.com"))
        equal(sh(box, reach).strip(), "101")
        box.update_network_settings(network_block_all=False)
        equal(settings(box), (False, None, "example.com"))
        box.update_network_settings(domain_allow_list="")
        equal(settings(box), (False, None, None))
    finally:
        box.delete()
    fails(lambda: d.create(CreateSandboxFromSnapshotParams(outbound_proxy_url="proxy.test")), "outboundProxyUrl")


@part
def pools():
    equal(list(d.warm_pool.list()), [])
    fails(lambda: d.warm_pool.create("default", 2), "operator")


for name in sys.argv[1:] or parts:
    check(name, parts[name])
