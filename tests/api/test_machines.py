"""Virtual machines that are ready before anybody asks. Emulated, which every host can; making the first takes a boot."""
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import time

import pytest

from conftest import Server, delete_all, remove, wait_for

PATIENCE = 300
KIND = {"boundary": "vm", "resources": {"memory_mib": 256}, "ephemeral": True}
FACTS = "cat /proc/sys/kernel/random/uuid /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1; hostname"
IMAGES = os.environ.get("CAISSON_IMAGES", "/var/lib/caisson/images")


class Machines(Server):
    def command(self):
        return super().command() + ["--accelerator", "emulated", "--pool", "0"]


@contextlib.contextmanager
def served():
    """A server of machines with its client, which a test may leave dead, or replace."""
    if not (os.path.exists("/usr/bin/qemu-system-x86_64") and pathlib.Path(IMAGES, "vm/current").exists()):
        pytest.skip("no machines on this host")
    server = Machines()
    try:
        server.client = server.start()
        yield server
        if server.process.poll() is None:
            delete_all(server.client)
    finally:
        server.stop()
        remove(server.data)


@pytest.fixture(scope="module")
def client():
    with served() as server:
        yield server.client


def pool(client):
    return next(p for p in client.get("/v1/pools").json["items"] if p["boundary"] == "vm")


def set_size(client, n):
    assert client.put("/v1/pools", {**KIND, "size": n}).status == 200
    wait_for(lambda: n == 0 or pool(client)["ready"] == n, PATIENCE)


def new(client, **more):
    r = client.post("/v1/sandboxes", {**KIND, **more})
    assert r.status == 201 and r.json["state"] == "running", r
    return r.json


def sh(client, sandbox, text, background=lambda: None):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        beside = pool.submit(background)
        r = client.post(f"/v1/sandboxes/{sandbox['id']}/runs", {"shell": text}).json
        beside.result()
    assert r["exit_code"] == 0, r
    return r["stdout"].split("\n")[:-1]


def test_children_of_a_fork_know_what_goes_on_in_them(client):
    """Commands and sessions of the parent: listed, followed from the start of their output, ended, in each child by itself."""
    box = new(client)
    url = f"/v1/sandboxes/{box['id']}"
    script = "echo before; while [ ! -e /tmp/go ]; do sleep 0.1; done; echo after; cat; exit 5"
    talks = client.post(url + "/runs", {"shell": script, "detach": True, "stdin_open": True}).json["id"]
    stays = client.post(url + "/runs", {"shell": "exec sleep 100000", "detach": True}).json["id"]
    assert client.post(url + "/sessions", {"id": "s"}).status == 201
    assert client.post(url + "/runs", {"shell": "x=kept", "session": "s"}).json["exit_code"] == 0

    def out(sandbox, run):
        r = client.get(f"/v1/sandboxes/{sandbox['id']}/runs/{run}/output", {"stream": "stdout"})
        return r.body.decode()

    def state(sandbox, run):
        return client.get(f"/v1/sandboxes/{sandbox['id']}/runs/{run}").json

    wait_for(lambda: out(box, talks) == "before\n", PATIENCE)
    r = client.post(url + "/fork", {"count": 2})
    assert r.status == 201, r
    children = r.json["items"]
    for child in children:
        at = f"/v1/sandboxes/{child['id']}"
        wait_for(lambda: client.get(at).json["state"] == "running", PATIENCE)
        live = {x["id"] for x in client.get(at + "/runs").json["items"] if x["state"] == "running"}
        assert {talks, stays} <= live
        assert out(child, talks) == "before\n"
        assert client.post(at + "/runs", {"shell": "echo $x", "session": "s"}).json["stdout"] == "kept\n"
    first, second = children
    sh(client, first, "touch /tmp/go")
    wait_for(lambda: out(first, talks) == "before\nafter\n", PATIENCE)
    assert client.call("POST", f"/v1/sandboxes/{first['id']}/runs/{talks}/stdin", body=b"typed", query={"close": "true"}).status in (200, 204)
    wait_for(lambda: state(first, talks)["state"] == "exited", PATIENCE)
    assert state(first, talks)["exit_code"] == 5 and out(first, talks) == "before\nafter\ntyped"
    assert client.delete(f"/v1/sandboxes/{second['id']}/runs/{stays}").status in (200, 202, 204)
    wait_for(lambda: state(second, stays)["state"] == "exited", PATIENCE)
    assert state(second, stays)["canceled"]
    assert sh(client, second, "pgrep -x sleep -a | grep -c 100000 || true") == ["0"]
    assert state(first, stays)["state"] == state(box, stays)["state"] == "running"
    assert state(second, talks)["state"] == "running" and out(second, talks) == out(box, talks) == "before\n"


def test_what_is_too_small_for_a_machine_is_the_request_s_fault(client):
    for resources in ({"memory_mib": 127}, {"disk_mib": 15}, {"disk_mib": 4}, {"disk_mib": 1}):
        r = client.post("/v1/sandboxes", {**KIND, "resources": resources})
        assert r.status == 422 and "128 MiB of memory and a disk of 16 MiB" in r.error["message"], (resources, r)


def test_out_of_memory_is_told_as_that(client):
    box = new(client)
    url = f"/v1/sandboxes/{box['id']}/runs"
    r = client.post(url, {"argv": ["python3", "-c", "x = []\nwhile True: x.append(b'x' * (1 << 22))"]}, timeout=PATIENCE).json
    assert r["oom"] and r["signal"] in (9, "SIGKILL"), r
    r = client.post(url, {"shell": "kill -9 $$"}).json
    assert not r["oom"] and r["signal"] in (9, "SIGKILL"), r


def test_interpreters_and_long_outputs_in_children_of_a_fork(client):
    """Each child goes on with a copy of the variables, from the same offsets, by itself; what is random is not the same in two of them."""
    box = new(client)
    url = f"/v1/sandboxes/{box['id']}"

    def execute(sandbox, code, name="default"):
        r = client.post(f"/v1/sandboxes/{sandbox['id']}/interpreters/{name}/execute", {"code": code})
        assert r.status == 200 and r.json["state"] == "done" and not r.json["error"], r
        return r.json["stdout"]

    def out(sandbox, run, offset):
        return client.get(f"/v1/sandboxes/{sandbox['id']}/runs/{run}/output", {"stream": "stdout", "offset": offset}, timeout=PATIENCE)

    def ended(sandbox, run):
        r = client.get(f"/v1/sandboxes/{sandbox['id']}/runs/{run}").json
        return r if r["state"] == "exited" else None

    named = client.post(url + "/interpreters", {"cwd": "/tmp"}).json["id"]
    execute(box, "import random; x = 41; f = open('/tmp/f', 'w+'); print(f.write('kept'))")
    execute(box, "x = 1", named)
    script = "yes | head -c %d; touch /tmp/%s; until [ -e /tmp/go ]; do sleep 0.1; done; echo end"
    sizes = {"some": 600 << 10, "much": 9 << 20}  # more than is held in memory; more than is copied
    runs = {name: client.post(url + "/runs", {"shell": script % (n, name), "detach": True}).json["id"] for name, n in sizes.items()}
    for name, n in sizes.items():
        wait_for(lambda: client.get(url + "/runs/" + runs[name]).json["stdout_bytes"] == n, PATIENCE)
    r = client.post(url + "/fork", {"count": 2})
    assert r.status == 201, r
    first, second = r.json["items"]
    for child in r.json["items"]:
        wait_for(lambda: client.get(f"/v1/sandboxes/{child['id']}").json["state"] == "running", PATIENCE)
        assert {i["id"] for i in client.get(f"/v1/sandboxes/{child['id']}/interpreters").json["items"]} == {"default", named}
        assert execute(child, "x += 1; f.seek(0); print(x, f.read())") == "42 kept\n"
        assert execute(child, "import os; print(x, os.getcwd())", named) == "1 /tmp\n"
    said = [execute(s, "import os; print(random.random(), os.urandom(8).hex())").split() for s in (box, first, second)]
    assert all(len(set(of_one)) == 3 for of_one in zip(*said)), said
    assert execute(box, "print(x)") == "41\n"
    assert client.delete(f"/v1/sandboxes/{second['id']}/interpreters/{named}").status == 204
    assert execute(first, "print(x)", named) == "1\n"
    sh(client, first, "touch /tmp/go")
    for name, n in sizes.items():
        r = wait_for(lambda: ended(first, runs[name]), PATIENCE)
        assert r["exit_code"] == 0 and r["stdout_bytes"] == n + 4 and r["truncated"] == (name == "much"), r
        assert out(first, runs[name], n - 2).body == b"y\nend\n"
        assert not ended(second, runs[name])
    assert out(first, runs["some"], 0).body == b"y\n" * (sizes["some"] // 2) + b"end\n"
    assert out(first, runs["much"], 0).status == 410


def assert_right_time(client, sandbox):
    before = time.time()
    there = float(sh(client, sandbox, "date +%s.%N")[0])
    assert before - 0.1 < there < time.time() + 0.1


def test_ready_machines_are_as_cold_ones_and_differ(client):
    set_size(client, 2)
    boxes = [new(client), new(client, name="by-name")]
    assert pool(client)["ready"] == 0, "both were ready"
    set_size(client, 0)
    boxes.append(new(client, name="cold"))
    facts = [sh(client, s, FACTS) for s in boxes]
    for of_one in zip(*facts):
        assert len(set(of_one)) == len(boxes), facts
    for s, (_, machine, _, host) in zip(boxes, facts):
        assert machine == s["id"].replace("-", "")
        assert host == s["name"]
        assert_right_time(client, s)


def test_the_clock_is_right_again_after_a_pause(client):
    s = new(client)
    base = f"/v1/sandboxes/{s['id']}"
    assert client.post(base + "/pause").status == 200
    time.sleep(2)
    assert client.post(base + "/resume").status == 200
    assert_right_time(client, s)


def server_of_volumes(sandbox):
    """The process on this host that answers for a machine's volumes: it is in that machine's groups."""
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (p / "cmdline").read_bytes().startswith(b"caisson-volumes\0") and sandbox["id"] in (p / "cgroup").read_text():
                return int(p.name)
        except OSError:
            pass
    return None


def test_volumes_between_boundaries_in_forks_and_without_their_server(client):
    volume = client.post("/v1/volumes", {"size_mib": 64}).json["id"]
    at = {"volumes": [{"volume": volume, "path": "/data"}]}
    at["user"] = "root"
    box = new(client, **at)
    plain = client.post("/v1/sandboxes", {"boundary": "process", "ephemeral": True, **at}).json
    # owners, modes and locks are the same on both sides; a link leads where its reader is
    sh(client, box, "cd /data && echo one > f && chown 1000:1001 f && chmod 640 f && ln -s /etc/hostname l && mkfifo p && umask 0 && mkdir d")
    assert sh(client, plain, "cd /data && stat -c '%u:%g %a %F' f d p && cat f") == ["1000:1001 640 regular file", "0:0 777 directory", "0:0 644 fifo", "one"]
    assert sh(client, box, "cat /data/l") != sh(client, plain, "cat /data/l")
    client.post(f"/v1/sandboxes/{plain['id']}/runs", {"shell": "flock /data/f sh -c 'touch /data/held; sleep 1000'", "detach": True})
    assert sh(client, box, "until [ -e /data/held ]; do sleep 0.1; done; flock -n /data/f true || echo held") == ["held"]
    # what one appends is behind what the other has appended, and is seen at once by who has it open
    assert sh(client, box, "exec 3<>/data/g; exec 4>>/data/g; echo 1 >&4; cat <&3; touch /data/ready; until [ -e /data/more ]; do sleep 0.1; done; "
              "echo 3 >&4; cat <&3", background=lambda: sh(client, plain, "until [ -e /data/ready ]; do sleep 0.1; done; echo 2 >> /data/g; touch /data/more")) \
        == ["1", "2", "3"]
    # a child of a fork has a server of its own, and the same files
    child = client.post(f"/v1/sandboxes/{box['id']}/fork", {}).json["items"][0]
    wait_for(lambda: client.get(f"/v1/sandboxes/{child['id']}").json["state"] == "running", PATIENCE)
    sh(client, child, "echo child > /data/c")
    assert sh(client, box, "cat /data/c /data/f") == ["child", "one"] and server_of_volumes(child) != server_of_volumes(box)
    # without its server: an error at once, nobody waits, and the end is as quick as ever
    os.kill(server_of_volumes(child), signal.SIGKILL)
    assert sh(client, child, "until ! cat /data/f 2>/dev/null; do sleep 0.1; done; ls /data 2>&1 | grep -c 'not connected'; timeout 60 sync; echo $?") == ["1", "0"]
    assert sh(client, box, "cat /data/f") == ["one"]
    for one in (child, box, plain):
        assert client.delete(f"/v1/sandboxes/{one['id']}").status == 204
    assert server_of_volumes(box) is None and client.delete("/v1/volumes/" + volume).status == 204


def test_machines_that_end_or_stand_still_say_so(client):
    """Whatever root inside does to its machine: the sandbox is in error before long, says why, whoever waits is answered, and it can be deleted."""
    reboot = "import ctypes; ctypes.CDLL(None).reboot(%d)"
    unbind = "cd /sys/bus/virtio/drivers/virtio_console && echo $(basename $(ls -d virtio*)) >unbind; sleep 1000"
    ends = {
        "halted": ({"argv": ["python3", "-c", reboot % 0xCDEF0123]}, "did not answer"),
        "cut off": ({"shell": unbind}, "did not answer"),
        "off": ({"argv": ["python3", "-c", reboot % 0x4321FEDC]}, "its guest switched it off"),
        "restarted": ({"argv": ["python3", "-c", reboot % 0x01234567]}, "its guest restarted it, or its kernel crashed"),
    }
    boxes = {name: new(client) for name in ends}

    runs = {name: client.post(f"/v1/sandboxes/{boxes[name]['id']}/runs", {**how, "user": "root", "detach": True}).json["id"] for name, (how, _) in ends.items()}
    for name, (_, why) in ends.items():
        url = f"/v1/sandboxes/{boxes[name]['id']}"
        wait_for(lambda: client.get(url).json["state"] == "error", PATIENCE)
        box, run = client.get(url).json, client.get(f"{url}/runs/{runs[name]}").json
        assert why in box["error"], (name, box)
        assert run["state"] == "lost" and why in run["message"], (name, run)
    for box in boxes.values():
        assert client.delete(f"/v1/sandboxes/{box['id']}").status == 204
