"""stdin, stdout, stderr and signals of `run` and `exec`."""
import os
import signal
import socket
import subprocess
import time

from harness import CAISSON, PATIENCE, box, caisson, contains, env, equal, eventually, read_line, sha, start
import harness


def test_no_stdin_is_end_of_file():
    equal(caisson("run", "cat").out, b"", "cat of nothing")
    with box() as id:
        equal(caisson("exec", id, "cat").out, b"")


def test_stdin_from_a_pipe_and_a_file():
    equal(caisson("run", "cat", stdin=b"hello").out, b"hello", "a pipe, and no newline added")
    name = harness.path("in.bin")
    with open(name, "wb") as f:
        f.write(os.urandom(3 << 20))
    with open(name, "rb") as f:
        p = subprocess.run([CAISSON, "run", "sha256sum"], stdin=f, capture_output=True, env=env(), timeout=60 * PATIENCE)
    equal(p.stdout.split()[0].decode(), sha(open(name, "rb").read()), "a file")
    a, b = socket.socketpair()
    b.sendall(b"by socket")
    b.close()
    p = subprocess.run([CAISSON, "run", "cat"], stdin=a, capture_output=True, env=env(), timeout=60 * PATIENCE)
    equal(p.stdout, b"by socket")


def test_fifty_megabytes_there_and_back():
    data = os.urandom(50 << 20)
    r = caisson("run", "cat", stdin=data)
    equal((r.code, sha(r.out), len(r.out)), (0, sha(data), len(data)), "50 MB through cat")


def test_streams_are_apart_and_exact():
    r = caisson("run", "sh", "-c", "printf 'a\\000\\377\\r\\n'; printf 'e\\n\\377' >&2")
    equal((r.out, r.err), (b"a\0\xff\r\n", b"e\n\xff"))


def test_a_command_that_does_not_read_its_stdin():
    r, w = os.pipe()  # never closed by us: an endless stdin
    began = time.monotonic()
    p = subprocess.run([CAISSON, "run", "echo", "done"], stdin=r, capture_output=True, env=env(), timeout=60 * PATIENCE)
    os.close(r)
    os.close(w)
    equal((p.returncode, p.stdout), (0, b"done\n"))
    assert time.monotonic() - began < 15 * PATIENCE, "an open stdin held it up"
    r = caisson("run", "true", stdin=b"x" * (8 << 20))
    equal((r.code, r.err), (0, b""), "much input for a command that takes none")


def test_interactive_pipe():
    p = start("run", "-i", "sh", "-c", "while read -r line; do echo \"got $line\"; done; echo end", stdin=subprocess.PIPE)
    for word in ("one", "two"):
        p.stdin.write(word.encode() + b"\n")
        p.stdin.flush()
        equal(read_line(p.stdout, 15), f"got {word}", "an answer before the next line")
    out, err = p.communicate(timeout=15 * PATIENCE)
    equal((p.returncode, out), (0, b"end\n"), f"at the end of input: {err!r}")


def test_signals_reach_the_command():
    script = "trap 'echo got-int; exit 41' INT; trap 'echo got-term; exit 42' TERM; trap 'echo got-hup; exit 43' HUP; trap 'echo got-quit; exit 44' QUIT; echo ready; while :; do sleep .1; done"
    for signo, name, code in ((signal.SIGINT, "int", 41), (signal.SIGTERM, "term", 42), (signal.SIGHUP, "hup", 43), (signal.SIGQUIT, "quit", 44)):
        p = start("run", "sh", "-c", script)
        equal(read_line(p.stdout, 15), "ready")
        p.send_signal(signo)
        out, err = p.communicate(timeout=15 * PATIENCE)
        equal((p.returncode, out), (code, f"got-{name}\n".encode()), f"signal {signo}: {err!r}")
    p = start("run", "sleep", "100")
    time.sleep(1)
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=15 * PATIENCE)
    equal(p.returncode, 143, "not caught: 128 + 15")


def test_third_interrupt_kills():
    p = start("run", "sh", "-c", "trap '' INT TERM; echo ready; while :; do sleep .1; done")
    equal(read_line(p.stdout, 15), "ready")
    for _ in range(3):
        p.send_signal(signal.SIGINT)
        time.sleep(0.3)
    p.communicate(timeout=15 * PATIENCE)
    equal(p.returncode, 137)


def test_a_reader_that_leaves():
    began = time.monotonic()
    p = subprocess.run(["bash", "-c", f"set -o pipefail; '{CAISSON}' run yes | head -n 2"], capture_output=True, env=env(), timeout=60 * PATIENCE, stdin=subprocess.DEVNULL)
    equal((p.stdout, p.returncode, p.stderr), (b"y\ny\n", 141, b""), "yes | head")
    assert time.monotonic() - began < 30 * PATIENCE
    eventually(lambda: caisson("ls", "-q").out == b"", 10, "the sandbox of `yes` is gone")


def test_killed_client():
    """kill -9 of an exec ends its command; a detached one goes on."""
    with box() as id:
        p = start("exec", id, "sleep", "7654")
        eventually(lambda: b"7654" in caisson("exec", id, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").out, 10, "sleep runs")
        p.kill()
        p.communicate()
        eventually(lambda: b"sleep 7654" not in caisson("exec", id, "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").out, 10, "sleep is gone")


def test_background_child_does_not_hold_the_end():
    began = time.monotonic()
    r = caisson("run", "sh", "-c", "sleep 50 & echo started")
    equal((r.code, r.out), (0, b"started\n"))
    assert time.monotonic() - began < 15 * PATIENCE, "waited for the background child"


def test_slow_reader_gets_all():
    p = start("run", "sh", "-c", "head -c 8000000 /dev/zero; echo end")
    time.sleep(1.5)
    out, _ = p.communicate(timeout=60 * PATIENCE)
    equal((len(out), out[-4:]), (8000004, b"end\n"))


def test_hostile_names_are_inert():
    r = caisson("create", "-l", "x=\x1b[31mred")
    equal(r.code, 125, "a label with an escape sequence")
    assert b"\x1b" not in r.err
    with box("-l", "x=\u202e\u200bgpj") as id:
        r = caisson("ls")
        assert "\u202e" not in r.text and "\u200b" not in r.text, f"{r}"
        contains(r.text, "\\u{202e}")
    with box() as id:
        caisson("exec", id, "sh", "-c", "echo", "\x1b]0;owned\x07", "\u202etxt.exe")
        r = caisson("logs", "--runs", id)
        for bad in (b"\x1b", b"\x07", "\u202e".encode()):
            assert bad not in r.out, f"{bad!r} reached the terminal: {r}"
        r = caisson("rm", "\x1b[2Jnosuch")
        assert b"\x1b" not in r.err, f"an escape sequence reached the terminal: {r}"
