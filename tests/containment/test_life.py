"""create, stop, start, pause, destroy: in order, twice, at the wrong moment."""
import os
import signal
import subprocess
import time

from harness import TOOLS, refused, sandboxes
from held import held, move
from test_adoption import first_process


def life(**options):
    with sandboxes(**options) as d:
        id = d.create(ephemeral=False, disk=64)
        d.run(id, "echo kept > /root/file; chown 1000:1000 /root/file; ln -s x /root/link; mv /etc/apt /etc/apt2; rm /etc/hosts; mkdir -p /opt/a/b")
        for _ in range(3):
            d.ask(f"stop {id}")
            d.ask(f"stop {id}")
            assert d.listed() == {id: False}
            refused("unavailable", d.run, id, "true")
            d.start(id)
            out, _ = d.run(id, "cat /root/file; stat -c %u /root/file; readlink /root/link; ls -d /etc/apt2; ls /etc/hosts 2>&1; ls -d /opt/a/b; id -u")
            assert out.split("\n")[:4] == ["kept", "1000", "x", "/etc/apt2"] and "No such file" in out, out
        refused("conflict", d.start, id)
        refused("conflict", d.create, id=id)
        d.destroy(id)
        d.destroy(id)
        refused("not_found", d.ask, f"stop {id}")
        refused("not_found", d.start, id)


def test_life():
    life()


def test_life_as_on_an_old_kernel():
    life(env={"OLD_KERNEL": "1"})


def test_ephemeral_as_on_an_old_kernel():
    with sandboxes(env={"OLD_KERNEL": "1"}) as d:
        assert d.run(d.create(), "mv /etc/apt /etc/apt2 && id -u")[0] == "0"
        assert d.run(d.create(disk=300), "mv /etc/apt /etc/apt2 && id -u")[0] == "0"


def test_ephemeral_ends_with_its_stop():
    for disk in (32, 300):
        with sandboxes() as d:
            id = d.create(disk=disk)
            d.ask(f"stop {id}")
            refused("gone", d.start, id)


def test_pause():
    with sandboxes() as d:
        id = d.create()
        d.run(id, "(while :; do date +%s%N > /tmp/now; sleep 0.01; done > /dev/null 2>&1 < /dev/null &)")
        for _ in range(3):
            d.ask(f"pause {id}")
            before = int(d.usage(id)["cpu_usec"][0])
            time.sleep(0.3)
            assert int(d.usage(id)["cpu_usec"][0]) - before < 20000 # the kernel may still count the last moments; awake it would be far more
            d.ask(f"resume {id}")
        first = d.run(id, "cat /tmp/now")[0]
        deadline = time.monotonic() + 10
        while d.run(id, "cat /tmp/now")[0] in (first, ""): # it goes on; the file is empty for a moment between two lines
            assert time.monotonic() < deadline
        d.ask(f"pause {id}")
        d.destroy(id) # frozen
        id = d.create(ephemeral=False)
        d.ask(f"pause {id}")
        d.ask(f"stop {id}")
        d.start(id)
        assert d.run(id, "echo up")[0] == "up"


def test_own_end_is_told_once():
    with sandboxes() as d:
        id = d.create(ephemeral=False)
        d.say(f"run {id} 0 - kill -9 -1")
        while d.line() != "done":
            pass
        # PID 1 cannot be killed from inside; from outside, as a crash of the guest would look:
        with open([g for g in d.groups() if "pids" in g or "unified" in g or "cgroup.procs" in g][0] + "/cgroup.procs") as f:
            pid = min(int(p) for p in f.read().split())
        import os
        import signal
        os.kill(pid, signal.SIGKILL)
        for _ in range(100):
            if any(e[0] == "event" for e in d.events):
                break
            d.ask("wait 100")
        d.ask("wait 300") # for a second one
        assert [e for e in d.events if e[0] == "event"] == [["event", id, "ended"]], d.events
        assert d.listed() == {id: False}
        d.start(id)
        assert d.run(id, "echo up")[0] == "up"
        d.ask("wait 100")
        assert len(d.events) == 1


def test_destroy_of_what_was_never_there():
    with sandboxes() as d:
        d.destroy("12345678-1234-4234-8234-123456789abc")
        assert d.listed() == {}


def names_left(d, id):
    """What carries the sandbox's name, and the processes of its groups."""
    left = [g for g in d.groups() if g.endswith(id)]
    paths = [f"{d.run_folder()}/s/{id}.sock", f"{d.run_folder()}/state/{id}", f"{d.data}/disks/{id}.img"]
    return left + [p for p in paths if os.path.lexists(p)]


def test_nothing_of_it_lives_when_destroy_answers():
    with sandboxes() as d:
        for ephemeral, disk in ((True, 64), (True, 200), (False, 64)):
            id = d.create(ephemeral=ephemeral, disk=disk, memory=256)
            d.run(id, "head -c 20M /dev/zero > /root/big; (while :; do sleep 0.01; done > /dev/null 2>&1 < /dev/null &)")
            assert names_left(d, id)
            d.destroy(id)
            assert names_left(d, id) == []
            with open("/proc/self/mountinfo") as f:
                assert id not in f.read()


def uids(d, id):
    return d.run(id, "cat /proc/self/uid_map")[0]


def does_not_end(d, ask):
    assert "its processes do not end" in refused("unavailable", d.ask, ask)


def test_what_does_not_end_is_not_told_as_ended():
    """Its uids, its group and its record are its own for as long as a process of it lives; a later warden knows that, too."""
    with sandboxes() as d:
        id = d.create(ephemeral=False)
        its, others = uids(d, id), []
        with held() as h:
            move(h.pid, [g for g in d.groups() if g.endswith(id)])
            for ask in (f"stop {id}", f"destroy {id}", "kill", f"destroy {id}"):
                if ask == "kill":
                    d.ask(ask)
                else:
                    does_not_end(d, ask)
                assert d.listed()[id] is False and names_left(d, id)
                others.append(d.create(memory=64, disk=16))
                assert h.process.poll() is None and its not in [uids(d, other) for other in others]
            refused("conflict", d.start, id)
            h.answer()
            d.destroy(id)
        assert names_left(d, id) == [] and id not in d.listed()


def test_what_does_not_end_holds_its_first_process():
    """PID 1 of a namespace ends after all the others."""
    with sandboxes() as d:
        id = d.create()
        with held("nsenter", "-t", str(first_process(d, id)), "-p") as h:
            for _ in range(2):
                does_not_end(d, f"destroy {id}")
                assert names_left(d, id) and id in d.listed()
            h.answer()
            d.destroy(id)
        assert names_left(d, id) == [] and d.listed() == {}


def test_own_end_is_told_though_something_does_not_end():
    with sandboxes() as d:
        id = d.create(ephemeral=False)
        with held() as h:
            move(h.pid, [g for g in d.groups() if g.endswith(id)])
            os.kill(first_process(d, id), signal.SIGKILL)
            d.ask("wait 12000")
            assert d.events == [["event", id, "ended"]]
            h.answer()
            d.start(id)
        assert d.run(id, "echo up")[0] == "up"
        d.ask("wait 100")
        assert len(d.events) == 1


def test_a_warden_that_ends_all_does_not_wait_for_ever():
    with sandboxes(env={"END_ALL": "1"}) as d:
        id, other = d.create(ephemeral=False), d.create()
        with held() as h:
            move(h.pid, [g for g in d.groups() if g.endswith(id)])
            since = time.monotonic()
            d.ask("restart")
            assert 15 < time.monotonic() - since < 30
            assert d.listed() == {id: False} and names_left(d, id) and names_left(d, other) == []
            h.answer()


def test_one_warden_for_a_folder():
    with sandboxes() as d:
        assert d.listed() == {}
        with open("/proc/mounts") as f:
            in_memory = any(line.split()[1] in (d.run_folder(), "/run") and line.split()[2] == "tmpfs" for line in f)
        assert in_memory
        second = subprocess.run([os.path.join(TOOLS, "drive"), d.images, d.data, os.path.join(TOOLS, "tiny-guest")], input=b"list\n", capture_output=True)
        assert b"another warden serves" in second.stderr, second
        id = d.create()  # the second one has taken nothing away
        assert d.run(id, "echo up")[0] == "up"


def children(pid):
    found = []
    for stat in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(stat)}/stat") as f:
                if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                    found.append(int(stat))
        except (ValueError, OSError):
            pass
    return found


def test_without_its_helpers():
    """They only save waiting: everything works when they are killed, and the next warden has new ones."""
    with sandboxes() as d:
        assert d.listed() == {}
        (warden,) = children(d.process.pid)
        helpers = children(warden)
        assert len(helpers) == 2
        for pid in helpers:
            os.kill(pid, signal.SIGKILL)
        for ephemeral in (True, False, True, False):
            id = d.create(ephemeral=ephemeral, disk=64)
            assert d.run(id, "echo up")[0] == "up"
            d.destroy(id)
            assert names_left(d, id) == []
        d.ask("restart")


def test_many():
    with sandboxes() as d:
        ids = [d.create(memory=64, disk=16) for _ in range(100)]
        assert all(d.listed().values()) and len(d.listed()) == 100
        assert d.run(ids[37], "echo fine")[0] == "fine"


def test_contents():
    with sandboxes() as d:
        id = d.create()
        assert d.run(id, "cat /etc/hostname; hostname; cat /etc/machine-id; touch /tmp/a /run/a /dev/shm/a; getent hosts localhost | head -1")[0].split("\n")[:3] == [
            "drive-test", "drive-test", id.replace("-", "")]
        # what a package manager and its scripts do
        d.run(id, "groupadd -f extra && useradd -m someone && su someone -c 'touch ~/x' && mkdir /opt/y && chown someone:extra /opt/y && chmod 2770 /opt/y")
        d.run(id, "mv /usr/share/doc /usr/share/doc2 && cp -a /etc /etc2 && rm -rf /etc2")
