"""-t: a terminal inside, joined to the one outside."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

from harness import CAISSON, PATIENCE, contains, env, equal


class Terminal:
    """The program on a new pseudo-terminal, as its foreground."""

    def __init__(self, *args, rows=30, cols=100, term="vt100"):
        self.master, self.slave = pty.openpty()
        self.size(rows, cols)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([CAISSON, *args], stdin=self.slave, stdout=self.slave, stderr=self.slave, env=env(TERM=term),
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.text = b""

    def size(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.master, data)

    def until(self, part, seconds=15):
        end = time.monotonic() + seconds * PATIENCE
        while part not in self.text:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{part!r} did not come, only {self.text!r}"
            try:
                self.text += os.read(self.master, 65536)
            except OSError:
                break
        contains(self.text, part)

    def drain(self):
        while select.select([self.master], [], [], 0.1)[0]:
            try:
                got = os.read(self.master, 65536)
            except OSError:
                return
            if not got:
                return
            self.text += got

    def end(self, seconds=15):
        until = time.monotonic() + seconds * PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < until, f"it did not end; so far {self.text!r}"
            self.drain()
        self.drain()
        return self.process.returncode

    def is_restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class terminal:
    def __init__(self, *args, **options):
        self.args, self.options = args, options

    def __enter__(self):
        self.t = Terminal(*self.args, **self.options)
        return self.t

    def __exit__(self, *_):
        self.t.close()


def test_a_terminal_inside():
    with terminal("run", "-t", "sh", "-c", "tty; stty size; echo $TERM; exit 6") as t:
        equal(t.end(), 6, f"exit code; {t.text!r}")
        contains(t.text, b"/dev/pts/")
        contains(t.text, b"30 100")
        contains(t.text, b"vt100")
        assert t.is_restored(), "the terminal is not as it was"


def test_typing_and_control_characters():
    with terminal("run", "-t", "sh") as t:
        t.send(b"echo $((6*7))\r")
        t.until(b"42")
        assert not t.is_restored(), "it is not raw while the command runs"
        t.send(b"sleep 100\r")
        time.sleep(0.5)
        t.send(b"\x03")  # for sleep, not for us
        t.send(b"echo after-$((1+1))\r")
        t.until(b"after-2")
        t.send(b"\x04")
        equal(t.end() in (0, 130), True, f"ended by ^D; {t.text!r}")
        assert t.is_restored()


def test_resize():
    with terminal("run", "-t", "sh", "-c", "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep .1; done") as t:
        t.until(b"ready")
        t.size(50, 132)
        t.process.send_signal(signal.SIGWINCH)
        t.until(b"50 132")
        equal(t.end(), 0)


def test_restored_when_terminated():
    for signo in (signal.SIGTERM, signal.SIGHUP):
        with terminal("run", "-t", "sh", "-c", "echo ready; exec sleep 100") as t:
            t.until(b"ready")
            t.process.send_signal(signo)
            equal(t.end(), 128 + signo)
            assert t.is_restored(), f"after {signo} the terminal is not as it was"


def test_restored_when_the_command_cannot_start():
    with terminal("run", "-t", "-w", "/nonexistent", "sh") as t:
        equal(t.end(), 125)
        assert t.is_restored()


def test_without_t_ctrl_c_is_passed_on():
    with terminal("run", "sh", "-c", "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep .1; done") as t:
        t.until(b"ready")
        t.send(b"\x03")
        t.until(b"interrupted")
        equal(t.end(), 9)


def test_interactive_without_terminal_inside():
    with terminal("run", "-i", "sh", "-c", "read -r x; echo got-$x; [ -t 0 ] || echo no-tty") as t:
        t.send(b"line\n")
        t.until(b"no-tty")
        contains(t.text, b"got-line")
        equal(t.end(), 0)
