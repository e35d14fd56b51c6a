"""docs/openapi.yaml against the server: schemathesis makes requests from it and holds the answers against it."""
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest
import yaml

from client import PATIENCE
from conftest import create

SPEC = pathlib.Path(__file__).resolve().parents[2] / "docs/openapi.yaml"

# Not for a generator: endless replies, a hundred sandboxes at a time, or requests that would take away what the others, or this host, need.
EXCLUDED = ["events", "attachRun", "proxyPort", "deleteImage", "streamAudit", "createWebhook", "createKey", "revokeKey", "forkSandbox", "publishPort"]


def test_every_route_of_the_server_is_described():
    spec = yaml.safe_load(SPEC.read_text())
    described = {(m.upper(), p) for p, item in spec["paths"].items() for m in item if m not in ("parameters",)}
    source = (SPEC.parents[1] / "src/dialect/native/native.c").read_text()
    import re
    macros = {}
    for name, base, rest in re.findall(r'^#define ([A-Z]+)\s+([A-Z]*)\s*"([^"]*)"', source, re.M):
        macros[name] = macros.get(base, "") + rest
    routes = set()
    for method, macro, rest in re.findall(r'\.method = "([A-Z*]+)", \.pattern = ([A-Z]*)\s*(?:"([^"]*)")?', source):
        path = macros.get(macro, "") + rest
        if method == "*":
            if path.endswith("*}"):
                routes.add(("GET", path.replace("*}", "}")))
        else:
            routes.add((method, path.replace("*}", "}")))
    assert routes == described


@pytest.fixture
def tmp_folder():
    with tempfile.TemporaryDirectory(prefix="apitest-") as folder:  # pytest's own would stay behind
        yield pathlib.Path(folder)


@pytest.mark.limit(400)
def test_schemathesis(client, tmp_folder):
    box = create(client, name="schema-box")
    run = box.start({"shell": "echo out; echo err >&2"})
    client.get(box.runpath(run), {"wait": True})
    client.post(box.path + "/sessions", {"id": "s"})
    config = tmp_folder / "schemathesis.toml"
    config.write_text(f'''
[parameters]
"path.id" = "{box.id}"
"path.run" = "{run["id"]}"

# 413 and 414: what is too long may be refused by its length alone
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 413, 414, 422, 431]

[generation]
max-examples = {os.environ.get("CAISSON_SCHEMA_EXAMPLES", "3")}
''')
    command = [str(pathlib.Path(sys.executable).parent / "schemathesis"), "--config-file", str(config), "run", str(SPEC), "--url", f"http://{client.host}:{client.port}",
               "-H", "X-API-Key: " + client.key, "--phases", "examples,coverage,fuzzing", "--checks",
               "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection",
               "--request-timeout", str(20 * PATIENCE), "--generation-deterministic", "--no-color", "--max-failures", "20"]
    for name in EXCLUDED + ["deleteSandbox", "stopSandbox", "pauseSandbox"]:
        command += ["--exclude-operation-id", name]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_folder, timeout=380 * PATIENCE)
    assert result.returncode == 0, result.stdout[-12000:] + result.stderr[-2000:]
    assert client.get("/healthz").status == 200
