"""Programs that somebody has to be asked for."""

import time

import pytest

from conftest import wait_for
from test_permissions import VM, new, race, run

ASK = ("allow program:/usr/bin", "ask program:/usr/bin/id")


def questions(client, box):
    return client.get(f"/v1/sandboxes/{box['id']}/permissions").json["items"]


def waiting(client, box, n=1):
    return wait_for(lambda: len(found := questions(client, box)) >= n and found, 60)


def begin(client, box, **what):
    r = client.post(f"/v1/sandboxes/{box['id']}/runs", {"detach": True, **what})
    assert r.status in (200, 201, 202), r
    return r.json["id"]


def state(client, box, run_id):
    return client.get(f"/v1/sandboxes/{box['id']}/runs/{run_id}", {"output": True}).json


def ended(client, box, run_id):
    return wait_for(lambda: (r := state(client, box, run_id))["state"] not in ("queued", "running") and r, 60)


def answer(client, box, item, verdict):
    return client.post(f"/v1/sandboxes/{box['id']}/permissions/{item['id']}", {"verdict": verdict})


def test_what_is_asked_for_waits_for_its_answer(client):
    box = new(client, *ASK)
    assert run(client, box, "true && /bin/true; echo $?")["stdout"] == "0\n"
    number = begin(client, box, shell="id -u; echo $?; cd /usr/bin; ./id -u; echo $?")
    item = waiting(client, box)[0]
    assert (item["run"], item["path"], item["rule"], item["kind"]) == (number, "/usr/bin/id", ASK[1], "program")
    assert state(client, box, number)["state"] == "running"
    assert answer(client, box, {"id": "x"}, "allow").status == 404 and answer(client, box, item, "perhaps").status == 400
    assert answer(client, box, {"id": str(int(item["id"]) + 1)}, "allow").status == 404
    assert answer(client, box, item, "allow").status == 204
    assert answer(client, box, item, "deny").status == 404
    second = waiting(client, box)[0]
    assert second["id"] != item["id"] and answer(client, box, second, "deny").status == 204
    done = ended(client, box, number)
    assert done["stdout"] == "1000\n0\n126\n" and "ermission denied" in done["stderr"], done
    items = [l for l in client.get("/v1/audit", {"sandbox": box["id"], "limit": 1000}).json["items"] if l.get("path") == "/usr/bin/id"]
    assert [l["type"].split(".")[1] for l in items] == ["asked", "answered", "allowed", "asked", "answered", "denied"], items
    assert items[1]["verdict"] == "allow" and items[1]["key"] and items[5]["reason"] == "as it was answered"


def test_the_first_program_of_a_run_is_asked_for_too(client):
    box = new(client, *ASK)
    for verdict, code in (("allow", 0), ("deny", 137)):
        number = begin(client, box, argv=["id", "-u"])
        assert answer(client, box, waiting(client, box)[0], verdict).status == 204
        assert ended(client, box, number)["exit_code"] == code
    done = client.post(f"/v1/sandboxes/{box['id']}/runs", {"argv": ["not-here"]}).json
    assert done["exit_code"] == 127 and "command not found" in done["stderr"], done
    assert client.post(f"/v1/sandboxes/{box['id']}/runs", {"argv": ["true"], "cwd": "/not-here"}).json["state"] == "failed"


def test_an_answer_is_for_the_file_that_was_asked_for(client):
    """Whoever changes the path meanwhile runs nothing that was not allowed anyway."""
    box = new(client, *ASK, "ask program:/usr/bin/uname")
    number = begin(client, box, shell="ln -s /usr/bin/id /tmp/x; /tmp/x -u; echo $?")
    item = waiting(client, box)[0]
    assert item["path"] == "/usr/bin/id"
    run(client, box, "ln -sf /usr/bin/uname /tmp/y; mv -T /tmp/y /tmp/x")
    assert answer(client, box, item, "allow").status == 204
    done = ended(client, box, number)
    assert done["stdout"] == "137\n", done


def test_no_race_gets_past_the_question(client):
    box = new(client, *ASK)
    number = begin(client, box, argv=["python3", "-c", race("/usr/bin/id", 40)])

    def deny_all():
        for item in questions(client, box):
            assert item["path"] == "/usr/bin/id"
            assert answer(client, box, item, "deny").status in (204, 404)
        return state(client, box, number)["state"] not in ("queued", "running")

    wait_for(deny_all, 100, every=0.01)
    done = state(client, box, number)
    assert done["stdout"] == "done True\n", done


def test_no_program_says_that_it_is_another(client):
    """What the kernel calls a process's program is what is judged."""
    box = new(client, *ASK)
    done = run(client, box, "python3 -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.prctl(35, 13, 0, 0, 0), ctypes.get_errno())'")
    assert done["stdout"] == "-1 1\n", done


def test_what_other_programs_start_is_asked_for(client):
    """A child that borrows its parent's memory, one of several threads, a script's interpreter."""
    box = new(client, *ASK)
    code = "import subprocess, threading\nt = threading.Thread(target=lambda: print(subprocess.run(['id', '-u']).returncode))\nt.start()\nt.join()"
    number = begin(client, box, code=code, language="python")
    assert answer(client, box, waiting(client, box)[0], "allow").status == 204
    assert ended(client, box, number)["stdout"] in ("1000\n0\n", "0\n1000\n")
    number = begin(client, box, shell="printf '#!/usr/bin/id -u\\n' >/usr/bin/script; chmod 755 /usr/bin/script; script; echo $?", user="root")
    item = waiting(client, box)[0]
    assert item["path"] == "/usr/bin/id"
    assert answer(client, box, item, "deny").status == 204
    assert ended(client, box, number)["stdout"] == "137\n"


def test_sudo_and_sessions_are_asked_for(client):
    box = new(client, "allow program:/usr", *([] if VM else ["allow program:/dev/.sudo"]), "ask program:/usr/bin/id")
    if not VM:  # whose sudo is a set-id program, and gives nothing; here it is a link
        number = begin(client, box, shell="sudo id -u; echo $?")
        assert answer(client, box, waiting(client, box)[0], "allow").status == 204
        assert ended(client, box, number)["stdout"] == "0\n0\n"
    assert client.post(f"/v1/sandboxes/{box['id']}/sessions", {"id": "s"}).status == 201
    number = begin(client, box, shell="id -u; echo $?", session="s")
    assert answer(client, box, waiting(client, box)[0], "deny").status == 204
    assert ended(client, box, number)["stdout"] == "126\n"
    assert run(client, box, "echo on", session="s")["stdout"] == "on\n"


@pytest.mark.parametrize("what", [{"shell": "id"}, {"argv": ["id"]}])
def test_a_run_that_waits_ends_when_it_must(client, what):
    box = new(client, *ASK)
    number = begin(client, box, **what)
    waiting(client, box)
    assert client.delete(f"/v1/sandboxes/{box['id']}/runs/{number}").status in (200, 202, 204)
    assert ended(client, box, number)["canceled"]
    wait_for(lambda: not questions(client, box), 30)
    number = begin(client, box, **what, timeout_ms=1500)
    item = waiting(client, box)[0]
    assert ended(client, box, number)["timed_out"]
    wait_for(lambda: not questions(client, box), 30)
    assert answer(client, box, item, "allow").status == 404
    begin(client, box, **what)
    waiting(client, box)
    assert client.delete(f"/v1/sandboxes/{box['id']}").status == 204


def test_what_is_left_of_a_run_still_waits(client):
    """A group with somebody held in it is nobody else's."""
    box = new(client, "allow program:/usr/bin", "ask program:/usr/bin/echo")
    run(client, box, "printf '#!/usr/bin/echo\\n' >/usr/bin/script; chmod 755 /usr/bin/script", user="root")
    number = begin(client, box, shell="script >/tmp/said &")
    item = waiting(client, box)[0]
    ended(client, box, number)
    assert run(client, box, "echo over")["stdout"] == "over\n"
    assert questions(client, box)[0]["id"] == item["id"]
    assert answer(client, box, item, "allow").status == 204
    wait_for(lambda: run(client, box, "cat /tmp/said")["stdout"] == "/usr/bin/script\n", 30)


def test_only_so_many_wait(client):
    box = new(client, *ASK)
    number = begin(client, box, shell="for i in $(seq 270); do id & done 2>/tmp/denied; read x </dev/zero", timeout_ms=60000)
    waiting(client, box, 256)
    wait_for(lambda: run(client, box, "grep -c enied /tmp/denied")["stdout"] == "14\n", 30)
    assert len(questions(client, box)) == 256
    assert client.delete(f"/v1/sandboxes/{box['id']}/runs/{number}").status in (200, 202, 204)
    wait_for(lambda: not questions(client, box), 30)
    number = begin(client, box, argv=["id", "-u"])
    assert answer(client, box, waiting(client, box)[0], "allow").status == 204
    assert ended(client, box, number)["stdout"] == "1000\n", "there is room again"


def test_a_paused_sandbox_is_not_answered_for(client):
    box = new(client, *ASK, ephemeral=False)
    number = begin(client, box, argv=["id", "-u"])
    item = waiting(client, box)[0]
    if client.post(f"/v1/sandboxes/{box['id']}/pause").status == 422:
        pytest.skip("this boundary cannot pause")
    assert answer(client, box, item, "allow").status == 409
    assert client.post(f"/v1/sandboxes/{box['id']}/resume").status == 200
    assert answer(client, box, waiting(client, box)[0], "allow").status == 204
    assert ended(client, box, number)["stdout"] == "1000\n"
    client.delete(f"/v1/sandboxes/{box['id']}")


def test_a_daemon_that_is_killed_opens_nothing(own):
    server, client = own
    box = new(client, *ASK, ephemeral=False)
    held = begin(client, box, shell="id -u; echo $?")
    first = begin(client, box, argv=["id", "-u"])
    old = waiting(client, box, 2)
    server.kill()
    client = server.start()
    items = {item["run"]: item for item in waiting(client, box, 2)}
    assert {i["id"] for i in items.values()} == {i["id"] for i in old}
    assert answer(client, box, items[held], "allow").status == 204
    assert answer(client, box, items[first], "deny").status == 204
    assert ended(client, box, held)["stdout"] == "1000\n0\n"
    assert ended(client, box, first)["exit_code"] == 137
    # a start begins with new numbers: an answer that comes late is for nothing
    begin(client, box, argv=["id", "-u"])
    late = waiting(client, box)[0]
    for verb in ("stop", "start"):
        assert client.post(f"/v1/sandboxes/{box['id']}/{verb}").status == 200
    number = begin(client, box, argv=["id", "-u"])
    now = waiting(client, box)[0]
    assert now["id"] != late["id"] and answer(client, box, late, "allow").status == 404
    assert answer(client, box, now, "deny").status == 204
    assert ended(client, box, number)["exit_code"] == 137


def test_the_event_says_that_somebody_waits(client):
    box = new(client, *ASK)
    connection, events = client.open("GET", "/v1/events")
    assert events.status == 200
    begin(client, box, argv=["id"])
    while (line := events.readline()) != b"event: permission.asked\n":
        assert line, "the stream ended"
    connection.close()
    assert answer(client, box, waiting(client, box)[0], "deny").status == 204
