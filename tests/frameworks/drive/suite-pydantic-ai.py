"""Pydantic AI's own conformance suite for workspace backends, WorkspaceBackendSuite, over a thin backend for the native API."""
import asyncio
import base64
import os

import httpx
import pytest
from pydantic_ai.workspaces import CommandResult, WorkspaceRef, WorkspaceTimeoutError, WorkspaceUnavailableError
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from suite_report import run_pytest

URL, HEADERS = os.environ["CAISSON_URL"] + "/v1/sandboxes", {"Authorization": "Bearer " + os.environ["CAISSON_API_KEY"]}


class CaissonBackend:
    """Commands, and what a path means; the file operations are derived from commands by the framework."""

    def __init__(self, ref=None):
        self._ref, self._dir, self._lock = ref, None, asyncio.Lock()

    @property
    def ref(self):
        return self._ref

    async def _ask(self, method, path, body=None):
        async with httpx.AsyncClient(headers=HEADERS, timeout=None, verify=False) as http:  # plain HTTP: no certificates to load each time
            r = await http.request(method, URL + path, json=body)
        if r.status_code in (404, 409, 410):
            raise WorkspaceUnavailableError(r.text)
        r.raise_for_status()
        return r.json() if r.content else None

    async def working_dir(self):
        async with self._lock:
            if self._ref is None:
                self._ref = WorkspaceRef(provider="caisson", id=(await self._ask("POST", "", {}))["id"])
            if self._dir is None:
                self._dir = (await self._ask("POST", f"/{self._ref.id}/runs", {"shell": "pwd -P"}))["stdout"].strip()
        return self._dir

    async def run(self, command, *, shell=False, env=None, timeout=None):
        if isinstance(command, str) != shell:
            raise TypeError("a string needs shell=True, an argv sequence shell=False")
        if timeout is not None and not 0 < timeout < float("inf"):
            raise ValueError("timeout must be a positive finite number")
        body = {"shell": command} if shell else {"argv": list(command)}
        body |= {"cwd": await self.working_dir(), "env": dict(env or {}), "kill_on_disconnect": True}
        if timeout:
            body["timeout_ms"] = max(1, int(timeout * 1000))
        r = await self._ask("POST", f"/{self._ref.id}/runs", body)
        out, err = (r.get(s, base64.b64decode(r.get(s + "_base64", "")).decode(errors="replace")) for s in ("stdout", "stderr"))
        if r["timed_out"]:
            raise WorkspaceTimeoutError(f"no end within {timeout} s", stdout=out, stderr=err)
        if r["state"] == "lost":
            raise WorkspaceUnavailableError(r["message"])
        return CommandResult(exit_code=127 if r["state"] == "failed" else r["exit_code"], stdout=out, stderr=err)

    async def realpath(self, path):
        r = await self.run(["python3", "-c", "import os, sys; sys.stdout.write(os.path.realpath(sys.argv[1]))", path])
        if r.exit_code:
            raise OSError(r.stderr)
        return r.stdout

    async def destroy(self):
        await self._ask("DELETE", f"/{self._ref.id}")


class TestCaisson(WorkspaceBackendSuite):
    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"

    @pytest.fixture
    async def backend(self):
        backend = CaissonBackend()
        yield backend
        if backend.ref:
            await backend.destroy()

    @pytest.fixture
    def fresh_backend(self):
        return CaissonBackend

    @pytest.fixture
    def attach_backend(self):
        return CaissonBackend

    @pytest.fixture
    def destroy_environment(self):
        return lambda backend: backend.destroy()

    @pytest.fixture
    def has_real_posix_shell(self):
        return True


if __name__ == "__main__":
    run_pytest(__file__)
