"""deepagents' own conformance suite for sandbox backends, SandboxIntegrationTests, over a sandbox of ours."""
from collections.abc import Iterator

import pytest
from daytona import Daytona
from langchain_daytona import DaytonaSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests

from suite_report import run_pytest

# deepagents 0.7 overwrites files and lists absolute paths, langchain-tests 1.1 still expects the contrary: these fail over any backend,
# also over one that runs commands on the host. Should they pass one day, this list is to go.
DISAGREED = {"test_write_existing_file_fails", "test_glob", "test_glob_basic_pattern", "test_glob_with_directories", "test_glob_hidden_files_explicitly",
             "test_glob_with_character_class", "test_glob_with_question_mark"}


@pytest.fixture(autouse=True)
def known(request):
    if request.node.originalname in DISAGREED:
        request.applymarker(pytest.mark.xfail(strict=True, reason="the framework and its suite disagree"))


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
