"""Runs a conformance suite that is written for pytest, and counts for tests/frameworks/run."""
import json

import pytest


class Counter:
    def __init__(self):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0, "known": 0}
        self.failures = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            name = "known" if hasattr(report, "wasxfail") else report.outcome
            self.counts[name] += 1
            if name in ("skipped", "known"):
                print(f"{name} {report.nodeid.split('::', 1)[-1]}: {getattr(report, 'wasxfail', None) or str(report.longrepr)[-200:]}", flush=True)
            if name == "failed":
                self.failures.append(f"{report.nodeid.split('::', 1)[-1]}: {str(report.longrepr)[-300:]}")


def run_pytest(path, *args):
    counter = Counter()
    pytest.main(["-q", "-p", "no:cacheprovider", "--tb=short", "-o", "python_files=*.py", "-o", "asyncio_mode=auto", path, *args], plugins=[counter])
    print("\nREPORT " + json.dumps({**counter.counts, "failures": counter.failures}), flush=True)
