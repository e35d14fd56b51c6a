"""The platform side by the newest Python SDK: snapshots, forks, builds, archive.

images.py [part ...]    Prints "ok NAME", "skip NAME: reason" or "not ok NAME: reason" a check.
"""
import os, threading, time, uuid

from sdkcheck import Skip, check, d, equal, fails, sh, sys
from daytona import CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, CreateSnapshotParams, Image, Resources

tag = uuid.uuid4().hex[:8]
parts = {}


def part(f):
    parts[f.__name__] = f
    return f


def wait(f):
    for _ in range(600):
        if f():
            return
        time.sleep(0.1)
    raise AssertionError("did not come to be")


def value(state):
    return str(getattr(state, "value", state))


def outcome(f):
    try:
        return repr(f())
    except Exception as e:
        return type(e).__name__


def names():
    return {s.name for s in d.snapshot.list().items}


@part
def snapshots():
    name = "snap-" + tag
    box = d.create(CreateSandboxFromSnapshotParams(env_vars={"A": "1"}))
    try:
        sh(box, "echo one > ~/f")
        box.create_snapshot(name)
        equal(box.state, "started")
        s = d.snapshot.get(name)
        equal((s.name, s.state, s.general, s.source_sandbox_id), (name, "active", False, box.id))
        assert s.size > 0 and s.cpu == box.cpu and s.mem == box.memory and s.disk == box.disk, s
        equal(d.snapshot.get(s.id).name, name)
        assert name in names() and "default" in names()
        equal([x.name for x in d.snapshot.list(source_sandbox_id=box.id).items], [name])
        fails(lambda: box.create_snapshot(name), "already")
        sh(box, "echo two > ~/f")
        child = d.create(CreateSandboxFromSnapshotParams(snapshot=name, env_vars={"B": "2"}))
        try:
            equal(sh(child, "cat ~/f; echo $A$B"), "one\n12\n")
            equal((child.snapshot, child.state), (name, "started"))
        finally:
            child.delete()
        equal(sh(box, "cat ~/f"), "two\n")
        d.snapshot.delete(s)
        assert name not in names()
        fails(lambda: d.snapshot.get(name), "NotFound")
        fails(lambda: d.create(CreateSandboxFromSnapshotParams(snapshot=name)), name)
    finally:
        box.delete()


@part
def forks():
    box = d.create(CreateSandboxFromSnapshotParams(labels={"k": "v"}))
    child = None
    try:
        sh(box, "echo parent > ~/f")
        child = box.fork(name="fork-" + tag)
        equal((child.name, child.state, child.labels["k"]), ("fork-" + tag, "started", "v"))
        assert child.id != box.id
        equal(sh(child, "cat ~/f; echo child > ~/f"), "parent\n")
        equal(sh(box, "cat ~/f"), "parent\n")
        equal(child.process.code_run("print(6*7)").result, "42\n")
    finally:
        if child:
            child.delete()
        box.delete()


@part
def pause_archive():
    box = d.create()
    try:
        sh(box, "echo here > ~/f")
        box.pause()
        equal(box.state, "paused")
        box.start()
        equal((box.state, sh(box, "cat ~/f")), ("started", "here\n"))
        fails(box.archive, "stopped")
        box.stop()
        box.archive()
        equal(box.state, "archived")
        box.start()
        equal((box.state, sh(box, "cat ~/f")), ("started", "here\n"))
        fails(box.recover, "recover")
    finally:
        box.delete()


@part
def image_create():
    image = (Image.base("default").env({"GREETING": "hello world", "BOTH": "$GREETING!"}).workdir("/srv/app")
             .run_commands("echo built by $(id -un) in $(pwd) > made", "test \"$GREETING\" = 'hello world'", ["sh", "-c", "echo exec form >> made"]))
    log = []
    box = d.create(CreateSandboxFromImageParams(image=image, resources=Resources(cpu=1, memory=1, disk=1), env_vars={"MINE": "x"}),
                   on_snapshot_create_logs=log.append, timeout=120)
    try:
        equal(box.state, "started")
        equal(sh(box, "pwd; cat made; echo $GREETING $MINE"), "/srv/app\nbuilt by root in /srv/app\nexec form\nhello world x\n")
        equal(box.disk, 1)
        assert "RUN echo built" in box.build_info.dockerfile_content
        text = "\n".join(log)
        assert "Step 1/" in text and "RUN echo built by" in text, text
    finally:
        box.delete()


@part
def image_fails():
    log = []
    image = Image.base("default").run_commands("echo before; echo oops >&2; exit 3")
    fails(lambda: d.create(CreateSandboxFromImageParams(image=image), on_snapshot_create_logs=log.append, timeout=120), "ended with 3")
    text = "\n".join(log)
    assert "before" in text and "oops" in text, text
    for s in d.list():
        if s.state == "build_failed":
            s.delete()


@part
def snapshot_build():
    name = "built-" + tag
    image = Image.base("default").run_commands("mkdir -p /opt/x && echo data > /opt/x/f").env({"E": "1"}).workdir("/opt/x").entrypoint(["sleep", "infinity"])
    log = []
    s = d.snapshot.create(CreateSnapshotParams(name=name, image=image, resources=Resources(cpu=1, memory=1, disk=1)), on_logs=log.append, timeout=120)
    try:
        equal((s.name, s.state, s.disk, s.mem), (name, "active", 1, 1))
        text = "\n".join(log)
        assert "RUN mkdir -p /opt/x" in text and name in text, text
        box = d.create(CreateSandboxFromSnapshotParams(snapshot=name))
        try:
            equal(sh(box, "pwd; cat f; echo $E"), "/opt/x\ndata\n1\n")
        finally:
            box.delete()
        # the next one begins from it
        s2 = d.snapshot.create(CreateSnapshotParams(name=name + "-2", image=Image.base(name).run_commands("cat f f > g")), timeout=120)
        box = d.create(CreateSandboxFromSnapshotParams(snapshot=name + "-2"))
        try:
            equal(sh(box, "cat /opt/x/g; echo $E; pwd"), "data\ndata\n1\n/opt/x\n")
        finally:
            box.delete()
        d.snapshot.delete(s2)
        equal({x.labels.get("caisson.build") for x in d.list() if x.labels.get("caisson.build", "").startswith(name)}, set())
        from_image = d.snapshot.create(CreateSnapshotParams(name=name + "-3", image="default"), timeout=120)
        equal((from_image.state, from_image.image_name), ("active", "default"))
        d.snapshot.delete(from_image)
    finally:
        d.snapshot.delete(s)


@part
def building_is_told():
    """What the events say of a sandbox in which an image is built, from its first moment on."""
    import json, websocket
    s = websocket.create_connection(os.environ["TEST_URL"].replace("http", "ws", 1) + "/socket.io/?EIO=4&transport=websocket", timeout=60)
    s.recv()
    s.send('40{"token":"%s"}' % os.environ["TEST_KEY"])
    assert s.recv().startswith("40")
    for _ in range(2):  # the second one finds its layers
        states = []
        box = d.create(CreateSandboxFromImageParams(image=Image.base("default").run_commands("echo %s >/srv/told" % tag)), timeout=120)
        box.delete()
        while states[-1:] != ["destroyed"]:
            text = s.recv()
            if text == "2":
                s.send("3")
            event, data = json.loads(text[2:]) if text.startswith("42") else (None, {})
            about = data.get("sandbox", data)
            if about.get("id") == box.id:
                states.append(about["state"])
        assert "building_snapshot" in states and "build_failed" not in states, states
    s.close()


@part
def command():
    """What an image runs by itself, in each way that a sandbox of it begins."""
    program = "echo up; echo x >>/var/tmp/starts; exec python3 -m http.server 8100 -d /srv"
    image = Image.base("default").run_commands("echo page >/srv/f").entrypoint(["sh", "-c"]).cmd([program])
    name = "serves-" + tag

    def runs(box, starts):
        wait(lambda: box.process.exec("curl -s localhost:8100/f; wc -l </var/tmp/starts").result == "page\n%d\n" % starts)
        entry = box.process.get_entrypoint_session()
        equal([(c.command, c.exit_code) for c in entry.commands], [("sh -c '%s'" % program, None)])
        equal(box.process.get_entrypoint_logs().stdout, "up\n")

    s = d.snapshot.create(CreateSnapshotParams(name=name, image=image), timeout=120)
    made, boxes = [s], []
    try:
        boxes.append(d.create(CreateSandboxFromImageParams(image=image), timeout=120))
        runs(boxes[0], 1)
        boxes[0].stop()
        boxes[0].start()
        runs(boxes[0], 2)
        boxes[0].create_snapshot(name + "-of")
        made.append(d.snapshot.get(name + "-of"))
        for snapshot in (name, name + "-of"):
            boxes.append(d.create(CreateSandboxFromSnapshotParams(snapshot=snapshot)))
            runs(boxes[-1], 1 if snapshot == name else 3)
        boxes.append(d.create(CreateSandboxFromImageParams(image=Image.base(name).env({"A": "1"})), timeout=120))
        runs(boxes[-1], 1)
    finally:
        for box in boxes:
            box.delete()
        for s in made:
            d.snapshot.delete(s)


@part
def snapshot_canceled():
    name = "canceled-" + tag
    ended = []
    image = Image.base("default").run_commands("echo begun; sleep 1000")
    thread = threading.Thread(target=lambda: ended.append(outcome(lambda: d.snapshot.create(CreateSnapshotParams(name=name, image=image), timeout=120))))
    thread.start()
    wait(lambda: name in names() and value(d.snapshot.get(name).state) == "building")
    d.snapshot.delete(d.snapshot.get(name))
    fails(lambda: d.snapshot.get(name), "NotFound")
    thread.join(60)
    assert len(ended) == 1 and "NotFound" in ended[0], ended
    equal([x.labels.get("caisson.build") for x in d.list() if x.labels.get("caisson.build") == name], [])


@part
def snapshot_fails():
    name = "broken-" + tag
    fails(lambda: d.snapshot.create(CreateSnapshotParams(name=name, image=Image.base("default").run_commands("false")), timeout=120), "ended with 1")
    equal(d.snapshot.get(name).state, "build_failed")
    d.snapshot.delete(d.snapshot.get(name))
    fails(lambda: d.snapshot.get(name), "NotFound")
    fails(lambda: d.snapshot.create(CreateSnapshotParams(name=name, image="no-such-image:1"), timeout=120), "no-such-image")


@part
def pip_without_network():
    """Without a network the installer's own words are in the log."""
    log = []
    image = Image.base("default").pip_install("definitely-not-here-" + tag)
    fails(lambda: d.create(CreateSandboxFromImageParams(image=image, network_block_all=True), on_snapshot_create_logs=log.append, timeout=180), "ended with")
    text = "\n".join(log)
    assert "No matching distribution found for definitely-not-here-" + tag in text, text[-2000:]
    for s in d.list():
        if s.state == "build_failed":
            s.delete()


@part
def context():
    """Files of this machine in an image: they come by the object storage."""
    os.makedirs("tree/sub", exist_ok=True)
    open("one.txt", "w").write("file\n")
    open("tree/a", "w").write("A\n")
    open("tree/sub/b", "w").write("B\n")
    open("big", "wb").write(os.urandom(6 << 20))
    image = (Image.base("default").add_local_file("one.txt", "/data/two.txt").add_local_dir("tree", "/data/tree").add_local_file("big", "/data/big")
             .run_commands("cat /data/two.txt"))
    log = []
    try:
        box = d.create(CreateSandboxFromImageParams(image=image), on_snapshot_create_logs=log.append, timeout=180)
    except Exception as e:
        if "BadScheme" in str(e):
            raise Skip("this client talks to object storage by https only")
        raise
    try:
        equal(sh(box, "cat /data/two.txt /data/tree/a /data/tree/sub/b; wc -c < /data/big; ls -A /tmp | grep -c caisson-build || true"),
              "file\nA\nB\n%d\n0\n" % (6 << 20))
    finally:
        box.delete()


for name in sys.argv[1:] or parts:
    check(name, parts[name])
