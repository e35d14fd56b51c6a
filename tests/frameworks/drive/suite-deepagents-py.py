"""deepagents' own conformance suite for sandbox backends, SandboxIntegrationTests, over a sandbox of ours."""
from collections.abc import Iterator

import pytest
from daytona import Daytona
from langchain_daytona import DaytonaSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests

from suite_report import run_pytest


class TestDaytonaSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[DaytonaSandbox]:
        daytona = Daytona()
        sandbox = daytona.create()
        try:
            yield DaytonaSandbox(sandbox=sandbox)
        finally:
            daytona.delete(sandbox)


if __name__ == "__main__":
    run_pytest(__file__)
