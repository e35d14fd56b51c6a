"""A pytest plug-in: the last line says what every suite of this project says, and a hanging test ends."""
import faulthandler
import os
import signal

import pytest

LIMIT_S = 150
PATIENCE = 1 if os.environ.get("CAISSON_TEST_BOUNDARY", "process") == "process" else 10  # machines may be emulated


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    marker = item.get_closest_marker("limit")
    limit = marker.args[0] if marker else LIMIT_S

    def expired(signum, frame):
        faulthandler.dump_traceback()
        raise TimeoutError(f"test took over {limit * PATIENCE} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(limit * PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_configure(config):
    config.addinivalue_line("markers", "limit(seconds): how long the test may take")


def pytest_unconfigure(config):
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter:
        stats = reporter.stats
        for report in stats.get("skipped", []):  # (file, line, "Skipped: why")
            print(f"skip {report.nodeid}: {report.longrepr[2].removeprefix('Skipped: ')}")
        failed = len(stats.get("failed", [])) + len(stats.get("error", []))
        print(f"{len(stats.get('passed', []))} passed, {failed} failed")
