"""Ways out by way of the whole program: `caisson run`, with the real guest. Over vm a probe of its own: root may do there what a process is refused."""
import base64
import os
import subprocess
import tempfile

from harness import BOUNDARY, BUILD, PROBE, TOP
from test_escape import host, image_state, probed
import harness

CAISSON = os.path.join(BUILD, "src/bin/caisson")
LIMIT = 120 if BOUNDARY == "process" else 1200


def run(user, argv, stdin):
    done = subprocess.run([CAISSON, "run", "--boundary", BOUNDARY, "--user", user, "--", *argv], input=stdin, capture_output=True, timeout=LIMIT)
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def in_a_process(user):
    with host() as h, open(PROBE, "rb") as f:
        script = f"base64 -d > /tmp/probe && chmod 755 /tmp/probe && exec /tmp/probe {h.port} {h.abstract} 2>&1 < /dev/null"
        probed("".join(run(user, ["sh", "-c", script], base64.b64encode(f.read()))))


def in_a_machine(user):
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    image = f"{harness.IMAGES}/{harness.default_image().replace(':', '-')}"
    with host() as h, tempfile.NamedTemporaryFile(dir="/etc", prefix="caisson-canary-") as f, open(f"{TOP}/tests/containment/inside_machine.py", "rb") as probe:
        before = image_state(f"{image}/rootfs"), os.stat(f"{image}/root.erofs").st_mtime_ns
        out, errors = run(user, ["python3", "-", str(h.port), h.abstract, f.name, *[a for a in addresses if ":" not in a]], probe.read())
        lines = out.splitlines()
        bad = [line for line in lines if not line.startswith("ok ")]
        assert not bad and len(lines) > 30, (bad, len(lines), errors[-2000:])
        assert before == (image_state(f"{image}/rootfs"), os.stat(f"{image}/root.erofs").st_mtime_ns), "the image has changed"


through = in_a_process if BOUNDARY == "process" else in_a_machine


def test_through_server_as_root():
    through("root")


def test_through_server_as_user():
    through("daytona")


def test_through_server_the_kernel_is_whose_it_should_be():
    out, errors = run("root", ["uname", "-rv"], b"")
    same = out.strip() == " ".join([os.uname().release, os.uname().version])
    assert same == (BOUNDARY == "process"), (out, errors)
