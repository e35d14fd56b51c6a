"""`caisson run` where no server runs: it brings its own, and leaves nothing."""
import os
import signal
import subprocess
import time

from harness import CAISSON, IMAGES, PATIENCE, caisson, contains, equal, eventually, folder, path, read_line, start
import harness


def alone():
    """No server is to be found with this."""
    return {**harness.environment, "CAISSON_DATA": path("no-server-here"), "CAISSON_IMAGES": IMAGES}


def private_folders():
    return [n for n in os.listdir(harness.folder) if n.startswith("caisson-") and n != "caisson-cli-test"]


def servers():
    return [line for _, line in harness.leftovers() if b"--ephemeral" in line]


def all_gone():
    return not private_folders() and not servers()


def test_it_prints_42():
    r = caisson("run", "--", "python3", "-c", "print(6*7)", with_env=alone())
    equal((r.code, r.out, r.err), (0, b"42\n", b""))
    assert all_gone(), f"left: {private_folders()} {servers()}"
    equal(caisson("run", "sh", "-c", "exit 7", with_env=alone()).code, 7)


def test_streams():
    data = os.urandom(4 << 20)
    equal(caisson("run", "cat", stdin=data, with_env=alone()).out, data)


def test_host_files_are_not_seen():
    canary = path("canary")
    with open(canary, "w") as f:
        f.write("secret")
    r = caisson("run", "cat", canary, with_env=alone())
    equal(r.code, 1)
    assert b"secret" not in r.out


def test_killed_it_leaves_nothing():
    p = start("run", "sh", "-c", "echo ready; sleep 1000", with_env=alone())
    equal(read_line(p.stdout, 30), "ready")
    assert servers(), "no server of its own is seen"
    p.kill()
    p.communicate()
    eventually(all_gone, 15, f"after kill -9 something is left")


def test_interrupted_it_leaves_nothing():
    p = start("run", "sleep", "1000", with_env=alone())
    eventually(servers, 15, "its server starts")
    for _ in range(100):  # at a moment of its start that is as it comes
        p.send_signal(signal.SIGINT)
        if p.poll() is not None:
            break
        time.sleep(0.2)
    p.communicate(timeout=30 * PATIENCE)
    eventually(all_gone, 15, "after an interrupt something is left")


def test_server_killed():
    p = start("run", "sh", "-c", "echo ready; sleep 1000", with_env=alone())
    equal(read_line(p.stdout, 30), "ready")
    for pid, line in harness.leftovers():
        if b"--ephemeral" in line:
            os.kill(int(pid), signal.SIGKILL)
    out, err = p.communicate(timeout=60 * PATIENCE)
    equal(p.returncode, 125, f"its server was killed: {err!r}")
    eventually(lambda: not servers(), 15, "nothing runs any more")


def test_keep_needs_a_server():
    r = caisson("run", "--keep", "true", with_env=alone())
    equal(r.code, 2)
    contains(r.errors, "caisson serve")


def test_no_image():
    os.mkdir(path("no-images"))
    if os.path.exists(os.path.join(IMAGES, "vm")):  # machines have a kernel, but no image either
        os.symlink(os.path.join(IMAGES, "vm"), path("no-images", "vm"))
    r = caisson("run", "--image", "other:1", "true", with_env={**alone(), "CAISSON_IMAGES": path("no-images")})
    equal(r.code, 125)
    contains(r.errors, "other:1")
    assert all_gone(), f"left: {private_folders()} {servers()}"


def test_without_root():
    # As somebody else, from a place that this user can read.
    binary = path("caisson-for-all")
    with open(CAISSON, "rb") as a, open(binary, "wb") as b:
        b.write(a.read())
    os.chmod(binary, 0o755)
    p = subprocess.run([binary, "run", "true"], capture_output=True, timeout=60 * PATIENCE, user=65534, group=65534, extra_groups=[], cwd="/",
                       env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"}, stdin=subprocess.DEVNULL)
    equal(p.returncode, 125, f"{p.stderr!r}")
    contains(p.stderr.decode(), "sudo caisson run")
