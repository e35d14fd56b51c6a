"""The probe by way of the whole program: `caisson run`, with the real guest."""
import base64
import os
import subprocess

from harness import BUILD, PROBE
from test_escape import host, probed

CAISSON = os.path.join(BUILD, "src/bin/caisson")


def through(user):
    with host() as h, open(PROBE, "rb") as f:
        script = f"base64 -d > /tmp/probe && chmod 755 /tmp/probe && exec /tmp/probe {h.port} {h.abstract} 2>&1 < /dev/null"
        done = subprocess.run([CAISSON, "run", "--user", user, "--", "sh", "-c", script], input=base64.b64encode(f.read()), capture_output=True, timeout=120)
        probed(done.stdout.decode() + done.stderr.decode())


def test_through_server_as_root():
    through("root")


def test_through_server_as_user():
    through("daytona")
