"""inspect-ai's own conformance suite for sandbox environments, self_check, over the provider "daytona" of inspect-sandboxes."""
import inspect_sandboxes._registry as registry
import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F401,F403

from suite_report import run_pytest

ENVIRONMENT = registry.DaytonaSandboxEnvironment


# The provider runs a command by a shell, whose "cannot execute" is exit code 126 and no PermissionError.
KNOWN = {"test_exec_permission_error"}


@pytest.fixture
async def sandbox_env(request):
    if request.node.originalname in KNOWN:
        request.applymarker(pytest.mark.xfail(strict=True))
    await ENVIRONMENT.task_init("self_check", None)
    environments = await ENVIRONMENT.sample_init("self_check", None, {})
    try:
        yield environments["default"]
    finally:
        await ENVIRONMENT.sample_cleanup("self_check", None, environments, False)
        await ENVIRONMENT.task_cleanup("self_check", None, True)


if __name__ == "__main__":
    run_pytest(__file__)
