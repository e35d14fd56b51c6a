"""A process that SIGKILL does not end: it has asked a file system of the test's own, which has taken the question and does not answer."""
import contextlib
import ctypes
import os
import struct
import subprocess
import sys
import tempfile

LOOKUP, INIT = 1, 26  # include/uapi/linux/fuse.h
QUESTION_BYTES = 1 << 17
libc = ctypes.CDLL(None, use_errno=True)


class Held:
    """answer() lets go of it; so does the end of the test, however it comes: the kernel gives up a connection whose descriptor is closed."""

    def __init__(self, folder, before):
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0"
        if libc.mount(b"held", folder.encode(), b"fuse", 0, options.encode()) < 0:
            raise OSError(ctypes.get_errno(), "mount a file system of the test's own")
        unique = self.question(INIT)
        body = struct.pack("=IIIIHHII", 7, 31, 0, 0, 0, 0, 4096, 1) + bytes(32)
        os.write(self.fd, struct.pack("=IiQ", 16 + len(body), 0, unique) + body)
        self.process = subprocess.Popen([*before, sys.executable, "-c", "import os, sys; os.stat(sys.argv[1])", folder + "/file"], stderr=subprocess.DEVNULL)
        self.pid = self.process.pid
        self.question(LOOKUP)

    def question(self, wanted):
        while True:
            _, opcode, unique = struct.unpack_from("=IIQ", os.read(self.fd, QUESTION_BYTES))
            if opcode == wanted:
                return unique

    def answer(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.process.wait(10)
        self.fd = -1


@contextlib.contextmanager
def held(*before):
    """with held() as h: h.pid waits. before: the words of a command that starts it somewhere else."""
    folder, h = tempfile.mkdtemp(prefix="caisson-held-"), None
    try:
        h = Held(folder, before)
        yield h
    finally:
        if h:
            h.answer()
        libc.umount2(folder.encode(), 2)
        os.rmdir(folder)


def move(pid, groups):
    for g in groups:
        with open(os.path.join(g, "cgroup.procs"), "w") as f:
            f.write(str(pid))
