"""What programs may use inside: rules that are kept below the program, however it is started."""

import os

import pytest

pytestmark = pytest.mark.skipif(os.environ.get("CAISSON_TEST_BOUNDARY") == "vm", reason="a machine's guest is not asked to keep rules yet")


def run(client, box, shell, **more):
    r = client.post(f"/v1/sandboxes/{box['id']}/runs", {"shell": shell, **more})
    assert r.status == 200, r
    return r.json


def new(client, *rules, **more):
    r = client.post("/v1/sandboxes", {"ephemeral": True, "permissions": list(rules), **more})
    assert r.status == 201, r
    return r.json


SHELL = ("allow program:/bin/bash", "allow program:/bin/sh")


def test_only_named_programs_are_executed(client):
    box = new(client, *SHELL, "allow program:/usr/bin/id")
    assert box["permissions"] == [*SHELL, "allow program:/usr/bin/id"]
    assert run(client, box, "id -u")["exit_code"] == 0
    for line in ("ls /", "bash -c 'ls /'", "echo >/tmp/id; /bin/ls /", "exec -a id ls /"):
        done = run(client, box, line)
        assert done["exit_code"] == 126 and "ermission denied" in done["stderr"], (line, done)
    done = client.post(f"/v1/sandboxes/{box['id']}/runs", {"argv": ["ls", "/"]}).json
    assert done["state"] == "exited" and done["exit_code"] == 126 and "ermission denied" in done["stderr"]


def test_a_program_under_another_name_is_what_it_is(client):
    box = new(client, *SHELL, "allow program:/usr/bin/id", "allow program:/usr/bin/ln")
    assert run(client, box, "ln -s /usr/bin/ls /tmp/id; /tmp/id /")["exit_code"] == 126
    assert run(client, box, "ln -s /usr/bin/id /tmp/ls; /tmp/ls -u")["exit_code"] == 0


def test_root_inside_is_bound_too(client):
    box = new(client, *SHELL, "allow program:/usr/bin/sudo", "allow write:/tmp")
    assert run(client, box, "ls /", user="root")["exit_code"] == 126
    assert run(client, box, "echo x >/etc/caught", user="root")["exit_code"] != 0
    assert run(client, box, "sudo sh -c 'echo x >/etc/caught || exit 9'")["exit_code"] != 0


def test_a_session_is_bound(client):
    box = new(client, *SHELL)
    assert client.post(f"/v1/sandboxes/{box['id']}/sessions", {"id": "s"}).status == 201
    assert run(client, box, "echo here", session="s")["stdout"] == "here\n"
    assert run(client, box, "ls /", session="s")["exit_code"] == 126


def test_only_named_places_are_written(client):
    box = new(client, "allow write:/tmp")
    done = run(client, box, "mkdir /tmp/d && echo a >/tmp/d/a && mv /tmp/d/a /tmp/b && cat /tmp/b && rm -r /tmp/d /tmp/b")
    assert done["exit_code"] == 0 and done["stdout"] == "a\n", done
    assert run(client, box, "echo x >/dev/null")["exit_code"] == 0
    home = run(client, box, "echo ~")["stdout"].strip()
    for line in (f"echo x >{home}/x", f"mkdir {home}/d", f"echo a >/tmp/a; mv /tmp/a {home}/a", f"ln /tmp/a {home}/a", f"truncate -s 0 {home}/.profile"):
        assert run(client, box, line, user="root")["exit_code"] != 0, line
    # what its owner does by the API is no program's doing
    assert client.post(f"/v1/sandboxes/{box['id']}/files/mkdir", {"path": f"{home}/by-api"}).status < 300


def test_only_named_places_are_read(client):
    box = new(client, "allow read:/usr", "allow read:/bin", "allow read:/lib", "allow read:/lib64", "allow read:/etc/hostname")
    assert run(client, box, "cat /etc/hostname")["exit_code"] == 0
    for line in ("cat /etc/passwd", "ls /etc", "ls /", "cat /tmp/../etc/passwd", "ln -s /etc/passwd /tmp/p; cat /tmp/p"):
        assert run(client, box, line)["exit_code"] != 0, line


def test_a_kind_without_a_rule_is_left_alone(client):
    box = new(client, *SHELL, "allow program:/usr/bin/mv")
    assert run(client, box, "mkdir() { :; }; echo x >/tmp/a; mv /tmp/a ~/a && read x <~/a && echo $x")["stdout"] == "x\n"


def test_rules_hold_over_stop_and_start_and_in_snapshots(client):
    box = new(client, *SHELL, ephemeral=False)
    for verb in ("stop", "start"):
        assert client.post(f"/v1/sandboxes/{box['id']}/{verb}", {}).status == 200
    assert run(client, box, "ls /")["exit_code"] == 126
    snapshot = client.post("/v1/snapshots", {"sandbox": box["id"]}).json
    r = client.post("/v1/sandboxes", {"from_snapshot": snapshot["id"]})
    assert r.status == 201 and r.json["permissions"] == list(SHELL)
    assert run(client, r.json, "ls /")["exit_code"] == 126
    r = client.post("/v1/sandboxes", {"from_snapshot": snapshot["id"], "permissions": ["allow program:/"]})
    assert run(client, r.json, "ls /")["exit_code"] == 0


@pytest.mark.parametrize(
    "rules, status, word",
    [
        ([], 400, "no rule"),
        (["allow program:bin"], 400, "absolute"),
        (["permit program:/bin"], 400, "allow"),
        (["allow read:/x"] * 65, 400, "64"),
        (["deny program:/bin/ls"], 422, "allow"),
        (["ask program:/bin/ls"], 422, "enforced"),
        (["allow host:example.org"], 422, "network"),
        (["allow method:GET"], 422, "methods"),
        ("allow read:/x", 400, "permissions"),
    ],
)
def test_what_nothing_would_keep_is_refused(client, rules, status, word):
    r = client.post("/v1/sandboxes", {"permissions": rules})
    assert r.status == status and word in r.json["error"]["message"], r


def test_without_rules_nothing_changes(client):
    r = client.post("/v1/sandboxes", {"ephemeral": True})
    assert r.json["permissions"] == []
    assert run(client, r.json, "ls / >/dev/null && echo x >~/x")["exit_code"] == 0
