"""Snapshots and forks by the command line."""
import json
import os

from harness import box, caisson, contains, equal, path
import harness


def sh(id, script):
    r = caisson("exec", id, "sh", "-c", script)
    equal((r.code, r.errors), (0, ""), f"exec: {r}")
    return r.text


def test_snapshot_create_ls_rm():
    with box("-n", "kept", "-e", "A=1") as id:
        sh(id, "echo one > ~/f")
        r = caisson("snapshot", "create", "-n", "first", "kept")
        equal(r.code, 0, f"snapshot create: {r}")
        snapshot = r.text.strip()
        sh(id, "echo two > ~/f")
        listed = caisson("snapshot", "ls").text
        contains(listed, snapshot)
        contains(listed, "first")
        contains(listed, "ready")
        items = json.loads(caisson("snapshot", "ls", "--json").out)["items"]
        equal([(x["id"], x["name"], x["sandbox"]) for x in items], [(snapshot, "first", id)], "snapshot ls --json")
        with box("--from-snapshot", "first", "-e", "B=2") as child:
            equal(sh(child, "cat ~/f; echo $A$B"), "one\n12\n", "the child")
            equal(caisson("snapshot", "rm", "first").text, "first\n", "snapshot rm")
            equal(sh(child, "cat ~/f"), "one\n", "the child goes on")
        equal(sh(id, "cat ~/f"), "two\n", "the parent")
        equal(json.loads(caisson("snapshot", "ls", "--json").out)["items"], [], "nothing is left")
    r = caisson("create", "--from-snapshot", "first")
    equal(r.code, 125, "create from what is gone")
    contains(r.errors, "first")
    r = caisson("snapshot", "create", "nobody")
    equal(r.code, 125, "of a sandbox that is not there")
    contains(r.errors, "nobody")
    equal(caisson("snapshot", "create").code, 2, "usage")


def test_fork():
    with box() as id:
        sh(id, "echo parent > ~/f")
        r = caisson("fork", "-n", "3", id)
        equal(r.code, 0, f"fork: {r}")
        children = r.text.split()
        try:
            equal(len(set(children) | {id}), 4, "ids")
            for child in children:
                equal(sh(child, f"cat ~/f; echo {child} > ~/f"), "parent\n", "a child")
            equal([sh(child, "cat ~/f").strip() for child in children], children, "apart")
            equal(sh(id, "cat ~/f"), "parent\n", "the parent")
        finally:
            caisson("rm", "-f", *children)
        r = caisson("fork", "--json", "--name", "only-child", id)
        equal([x["name"] for x in json.loads(r.out)["items"]], ["only-child"], "fork --json")
        caisson("rm", "-f", "only-child")
        equal(caisson("fork", "-n", "0", id).code, 2, "usage")
        equal(caisson("fork", "-n", "2", "--name", "x", id).code, 125, "a name for two")


def test_pause_resume():
    with box() as id:
        equal(caisson("pause", id).text, id + "\n", "pause")
        equal(json.loads(caisson("ls", "--json").out)["items"][0]["state"], "paused", "state")
        equal(caisson("resume", id).text, id + "\n", "resume")
        equal(sh(id, "echo on"), "on\n", "goes on")


def test_an_ephemeral_server_leaves_no_snapshot():
    """What it kept goes with it."""
    data = path("ephemeral")
    server = harness.Server(data, "--ephemeral")
    try:
        r = caisson("create", "--data", data)
        equal(r.code, 0, f"create: {r}")
        equal(caisson("snapshot", "create", "--data", data, "-n", "x", r.text.strip()).code, 0, "snapshot")
    finally:
        server.stop()
    equal(os.path.exists(data), False, f"left: {os.listdir(data) if os.path.exists(data) else None}")
