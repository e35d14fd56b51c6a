"""What programs may use inside: rules that are kept below the program, however it is started."""

import base64
import os
import time

import pytest

VM = os.environ.get("CAISSON_TEST_BOUNDARY") == "vm"


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
    # a machine's root could otherwise have its kernel start a program, or go to its disk
    for file in ("/etc/caught", "/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper", "/dev/vda", "/proc/1/mem"):
        assert run(client, box, f"echo x >{file}", user="root")["exit_code"] != 0, file
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


def test_what_is_denied_within_what_is_allowed(client):
    box = new(client, "deny program:/usr/bin/id", "deny read:/etc/passwd", "allow write:/tmp", "deny write:/tmp/kept")
    for line in ("id", "cp /usr/bin/id /usr/bin/x", "/bin/id", "/usr/bin/../bin/id", "ln -s /usr/bin/id /tmp/x; /tmp/x"):
        assert run(client, box, line, user="root")["exit_code"] != 0, line
    assert run(client, box, "ls /etc /usr/bin >/dev/null", user="root")["exit_code"] == 0
    for line in ("cat /etc/passwd", "cat /tmp/../etc/passwd", "ln -s /etc/passwd /dev/shm/p; cat /dev/shm/p", "cat /proc/self/root/etc/passwd", "chroot /etc cat /passwd"):
        assert run(client, box, line, user="root")["exit_code"] != 0, line
    assert run(client, box, "cat /etc/hostname")["exit_code"] == 0
    # also what is made there later
    for line in ("mkdir /tmp/kept", "echo x >/tmp/kept", "mkdir /dev/shm/d; mv /dev/shm/d /tmp/kept"):
        assert run(client, box, line, user="root")["exit_code"] != 0, line


def test_the_longest_path_counts(client):
    box = new(client, "allow read:/", "deny read:/etc", "allow read:/etc/hostname", "allow read:/etc/ld.so.cache")
    assert run(client, box, "cat /etc/hostname")["exit_code"] == 0
    assert run(client, box, "cat /etc/passwd")["exit_code"] != 0


def test_a_link_or_a_move_gives_nothing_more(client):
    box = new(client, "deny read:/srv/secret/key", ephemeral=True)
    up = client.put(f"/v1/sandboxes/{box['id']}/files", b"top", {"path": "/srv/secret/key", "parents": True, "user": "root"})
    assert up.status == 204, up
    for line in ("cat /srv/secret/key", "ln /srv/secret/key /tmp/k; cat /tmp/k", "mv /srv/secret /tmp/open; cat /tmp/open/key || { mv /tmp/open /srv/secret; false; }"):
        done = run(client, box, line, user="root")
        assert done["exit_code"] != 0 and "top" not in done["stdout"], (line, done)


MEMORY = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.memfd_create("x", 0) if len(sys.argv) < 2 else os.open(sys.argv[1], os.O_RDWR)
os.write(fd, open("/usr/bin/id", "rb").read())
os.execve(fd, ["id"], {})
"""


def test_no_program_comes_from_memory_or_another_interface(client):
    box = new(client, *SHELL, "allow program:/usr/bin/python3")
    done = run(client, box, f"python3 -c '{MEMORY}'")
    assert done["exit_code"] != 0 and "uid=" not in done["stdout"] and "ermission denied" in done["stderr"], done
    # the script that a run is given, which is in memory too
    r = client.post(f"/v1/sandboxes/{box['id']}/runs", {"code": "import os\nfd = os.open('/dev/fd/63', os.O_RDONLY)\ntry:\n os.fchmod(fd, 0o777)\nexcept OSError: pass\nopen('/dev/fd/63', 'r+b').write(open('/usr/bin/id', 'rb').read())\nos.execve(fd, ['id'], {})", "language": "python"})
    assert r.status == 200 and r.json["exit_code"] != 0 and "uid=" not in r.json["stdout"], r
    # io_uring, and another architecture's entry
    done = run(client, box, "python3 -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.syscall(425, 1, 0), ctypes.get_errno())'")
    assert done["stdout"] == "-1 1\n", done


def verdicts(client, box, n):
    """Lines of its programs, when there are n."""
    end = time.monotonic() + 30
    while True:
        items = client.get("/v1/audit", {"sandbox": box["id"], "limit": 1000}).json["items"]
        found = [(l["type"].split(".")[1], l["path"], l.get("rule"), l.get("reason"), l.get("run")) for l in items if l["type"].startswith("permission.")]
        if len(found) >= n or time.monotonic() > end:
            return found
        time.sleep(0.05)


def test_each_program_is_a_line_of_the_audit_log(client):
    box = new(client, "allow program:/usr/bin", "deny program:/usr/bin/id")
    done = run(client, box, "id; /usr/bin/true; ln -s /usr/bin/id /tmp/x; /tmp/x; cp /usr/bin/true /tmp/t; /tmp/t; (cd /usr/bin; ./true); nothing-here")
    run_id, user = done["id"], "allow program:/usr/bin"
    shell = "/usr/bin/bash"
    assert [(v[0], v[1], v[2], v[3]) for v in verdicts(client, box, 8)] == [
        ("allowed", shell, user, None),
        ("denied", "/usr/bin/id", "deny program:/usr/bin/id", None),
        ("allowed", "/usr/bin/true", user, None),
        ("allowed", "/usr/bin/ln", user, None),
        ("denied", "/usr/bin/id", "deny program:/usr/bin/id", None),
        ("allowed", "/usr/bin/cp", user, None),
        ("denied", "/tmp/t", None, "no rule allows it"),
        ("allowed", "/usr/bin/true", user, None),
    ]
    assert {v[4] for v in verdicts(client, box, 8)} == {run_id}
    # a run's own program, and the loader, which the kernel would let through for any that can be read
    assert client.post(f"/v1/sandboxes/{box['id']}/runs", {"argv": ["id"]}).json["exit_code"] == 126
    done = run(client, box, "/lib64/ld-linux-x86-64.so.2 /usr/bin/id || /lib/ld-linux-aarch64.so.1 /usr/bin/id")
    assert done["exit_code"] != 0 and "uid=" not in done["stdout"]
    assert "denied" in [v[0] for v in verdicts(client, box, 10)[8:] if v[1] == "/usr/bin/id"]


def test_a_loader_runs_no_other_program(client):
    """It is executed with every program; by its own name it would run whatever it can read."""
    box = new(client, "deny program:/usr/bin/id")
    done = run(client, box, "for l in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do [ -e $l ] && $l /usr/bin/true && $l /usr/bin/id; done; uname")
    assert done["stdout"] == "Linux\n", done


def test_links_of_proc_do_not_hide_a_program(client):
    box = new(client, "allow program:/usr/bin")
    for line in ("/proc/self/root/usr/bin/true", "cd /usr/bin; exec /proc/self/cwd/true", "exec 7</usr/bin/true; /proc/self/fd/7", "exec 7</usr/bin/true; /dev/fd/7"):
        assert run(client, box, line)["exit_code"] == 0, line
    found = [v[1] for v in verdicts(client, box, 8)]
    assert found == ["/usr/bin/bash", "/usr/bin/true"] * 4, found
    # where nothing can be seen, that is what the line says: no line would be to hide it
    done = run(client, box, "ln -s /proc/self/root /tmp/r; /tmp/r/usr/bin/true")
    assert done["exit_code"] == 0
    last = verdicts(client, box, 11)[-1]
    assert last[0] == "allowed" and last[1] == "/tmp/r/usr/bin/true" and "could not be seen" in last[3], last


def race(other, rounds):
    """A program whose path is written over all the time by another process while it is executed: now true, now the other one."""
    return f"""
import ctypes, mmap, os
libc, m = ctypes.CDLL(None), mmap.mmap(-1, 4096)
at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)))
good, bad = b"/usr/bin/true\\0", b"{other}\\0"
flip = os.fork()
if flip == 0:
    while True:
        m[:len(good)] = good
        m[:len(bad)] = bad
argv, seen = (ctypes.c_char_p * 2)(b"x", None), set()
for i in range({rounds}):
    pid = os.fork()
    if pid == 0:
        libc.execve(at, argv, argv)
        os._exit(7)
    seen.add(os.waitpid(pid, 0)[1])
os.kill(flip, 9)
os.waitpid(flip, 0)
print("done", 0 in seen)
"""


def test_a_path_that_changes_while_it_is_judged_gains_nothing(client):
    box = new(client, "allow program:/usr/bin", "deny program:/usr/bin/uname")
    done = run(client, box, f"python3 -c '{race('/usr/bin/uname', 150)}'")
    assert done["stdout"] in ("done True\n", "done False\n"), done


def test_sftp_is_bound_as_a_run_is(client):
    box = new(client, *SHELL, "deny read:/etc/passwd")
    hello = bytes([0, 0, 0, 5, 1, 0, 0, 0, 3])

    def opened(path):
        body = bytes([3]) + (7).to_bytes(4, "big") + len(path).to_bytes(4, "big") + path + (1).to_bytes(4, "big") + bytes(4)
        r = client.post(f"/v1/sandboxes/{box['id']}/runs", {"argv": ["caisson:sftp"], "stdin_base64": base64.b64encode(hello + len(body).to_bytes(4, "big") + body).decode()})
        out = base64.b64decode(r.json["stdout_base64"]) if "stdout_base64" in r.json else r.json["stdout"].encode()
        return out[4 + int.from_bytes(out[:4], "big") + 4]

    assert opened(b"/etc/hostname") == 102
    assert opened(b"/etc/passwd") == 101


@pytest.mark.parametrize(
    "rules, status, word",
    [
        ([], 400, "no rule"),
        (["allow program:bin"], 400, "absolute"),
        (["permit program:/bin"], 400, "allow, ask or deny"),
        (["allow read:/x"] * 65, 400, "64"),
        (["ask read:/etc"], 422, "only programs"),
        (["allow host:example.org"], 400, "network"),
        (["ask host:10.0.0.1"], 422, "names"),
        (["allow method:GET"], 400, "VERDICT method:METHODS HOST"),
        (["ask method:GET 10.0.0.0/8"], 422, "give a name"),
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
