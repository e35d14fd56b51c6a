"""The warden dies at any moment; the next one finds everything."""
import glob
import os
import random
import signal
import time

from harness import Refused, sandboxes


def test_restart_and_kill():
    with sandboxes() as d:
        a, b, c = d.create(), d.create(ephemeral=False), d.create(ephemeral=False)
        d.run(a, "echo a > /tmp/x; (while :; do sleep 1; done > /dev/null 2>&1 < /dev/null &)")
        d.run(b, "echo b > /tmp/x")
        d.ask(f"stop {c}")
        for how in ("restart", "kill", "kill", "restart"):
            d.ask(how)
            assert d.listed() == {a: True, b: True, c: False}
            assert d.run(a, "cat /tmp/x; pgrep -c sleep")[0].split() == ["a", "1"]
            assert d.run(b, "cat /tmp/x")[0] == "b"
            assert d.usage(a)["memory"][0] > 0
            new = d.create()
            maps = [d.run(id, "cat /proc/self/uid_map")[0] for id, up in d.listed().items() if up]
            assert len(maps) == 3 and len(set(maps)) == 3, maps
            d.destroy(new)
        d.start(c)
        d.ask("kill")
        d.ask(f"pause {a}")
        d.ask("kill")
        d.ask(f"resume {a}")
        assert d.run(a, "cat /tmp/x")[0] == "a"


def first_process(d, id):
    for g in d.groups():
        if g.endswith(id):
            with open(g + "/cgroup.procs") as f:
                pids = [int(p) for p in f.read().split()]
            if pids:
                return min(pids)
    raise AssertionError("no process")


def test_death_while_nobody_looks():
    with sandboxes() as d:
        a, b = d.create(), d.create(ephemeral=False)
        pids = [first_process(d, a), first_process(d, b)]
        d.process.kill()
        d.process.wait()
        time.sleep(0.2)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        d.open()
        assert d.listed() == {a: False, b: False}
        d.start(b)
        assert d.run(b, "echo up")[0] == "up"


def test_another_process_with_the_pid_is_not_adopted():
    with sandboxes() as d:
        a = d.create()
        pid = first_process(d, a)
        d.process.kill()
        d.process.wait()
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        # the record now names a pid that is somebody else's: ours, for the test
        path = f"{d.run_folder()}/state/{a}"
        with open(path, "r+b") as f:
            bytes_ = f.read()
            at = bytes_.index(pid.to_bytes(4, "little"))
            f.seek(at)
            f.write(os.getpid().to_bytes(4, "little"))
        d.open()
        assert d.listed() == {a: False}


def test_records_of_before_a_reboot():
    with sandboxes() as d:
        a = d.create(ephemeral=False)
        d.run(a, "echo kept > /root/x; sync")
        d.ask(f"stop {a}")
        d.process.kill()
        d.process.wait()
        time.sleep(0.2)
        for f in glob.glob(d.run_folder() + "/state/*"):
            os.unlink(f)
        d.open()
        assert d.listed() == {a: False}
        d.start(a)
        assert d.run(a, "cat /root/x")[0] == "kept"


def test_record_of_a_later_version():
    """Neither lost nor half understood: the warden says so and leaves everything as it is."""
    with sandboxes() as d:
        a = d.create()
        d.process.kill()
        d.process.wait()
        time.sleep(0.2)
        path = f"{d.run_folder()}/state/{a}"
        with open(path, "rb") as f:
            record = f.read()
        assert int.from_bytes(record[4:8], "little") == len(record)

        def extended(tail):
            with open(path, "wb") as f:
                f.write(record[:4] + (len(record) + len(tail)).to_bytes(4, "little") + record[8:] + tail)

        extended(b"\0\0\0\0\0\0\0\1")
        d.open()
        try:
            d.listed()
        except (Refused, AssertionError):
            pass
        else:
            raise AssertionError("was read")
        d.process.stdin.close()
        d.process.wait(30)
        extended(b"\0" * 8)
        d.open()
        assert d.listed() == {a: True}
        assert d.run(a, "echo up")[0] == "up"


def test_kill_at_random_moments():
    """Between a request and its answer: nothing half-made is left that a destroy would not take away."""
    with sandboxes() as d:
        for i in range(12):
            id = f"{i:08x}-0000-4000-8000-000000000000"
            d.ids.append(id)
            d.say(f"create {id} {d.image} 64 {16 if i % 2 else 64} 50 1000 {i % 2}")
            time.sleep(0.0007 * i)
            d.process.kill()
            d.process.wait()
            d.open()
            listed = d.listed()
            if listed.get(id):
                assert d.run(id, "echo up")[0] == "up"
            d.destroy(id)
            assert id not in d.listed()


def test_two_data_folders():
    with sandboxes() as d, sandboxes() as other:
        a, b = d.create(), other.create()
        assert d.run(a, "cat /proc/self/uid_map")[0] != other.run(b, "cat /proc/self/uid_map")[0]
        other.destroy(b)
        assert d.run(a, "echo fine")[0] == "fine"


def warden_of(d):
    with open(f"/proc/{d.process.pid}/task/{d.process.pid}/children") as f:
        return int(f.read().split()[0])


def test_warden_and_daemon_killed_at_random_moments():
    """Both at once, in the middle of creating, stopping, destroying: the next warden finds or ends what there is."""
    with sandboxes() as d:
        for i in range(40):
            id = f"{i:08x}-0000-4000-8000-000000000001"
            d.ids.append(id)
            d.listed() # the warden is up
            warden = warden_of(d)
            d.say(f"create {id} {d.image} 64 {16 if i % 2 else 64} 50 1000 {i % 2}")
            if i % 4 > 1:
                d.line()
                d.say(f"{'stop' if i % 8 > 3 else 'destroy'} {id}")
            time.sleep(random.random() * 0.012)
            for pid in random.sample([warden, d.process.pid], 2):
                os.kill(pid, signal.SIGKILL)
            d.process.wait()
            d.open()
            if d.listed().get(id):
                try:
                    up = d.run(id, "echo up", check=False) == ("up", 0)
                except Refused:
                    up = False
                if not up:  # it had been told to die, and does so now
                    assert i % 4 > 1, i
                    for _ in range(100):
                        d.ask("wait 50")
                        if ["event", id, "ended"] in d.events:
                            break
                    assert ["event", id, "ended"] in d.events and not d.listed()[id]
            if i % 3:
                d.destroy(id)
                assert id not in d.listed()


def test_nothing_is_done_for_the_dead():
    """Requests that a daemon left in the socket when it died are not carried out."""
    with sandboxes() as d:
        for i in range(10):
            d.say(f"create {i:08x}-0000-4000-8000-000000000002 {d.image} 64 16 50 1000 1")
        d.process.kill()
        d.process.wait()
        d.open()
        for id in d.listed():
            d.ids.append(id)
