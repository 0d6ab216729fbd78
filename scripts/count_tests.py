#!/usr/bin/env python3
"""count_tests.py REPORT.json EXIT_CODE: prints "PASSED FAILED" for one GoogleTest run.

A run that died (no readable report), that ended badly without a failed test (a sanitizer at
exit) or that ran no test at all counts as one failure. Skipped tests count as neither.
"""
import json
import sys


def count(report):
    passed = failed = 0
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            if "failures" in test:
                failed += 1
            elif test["status"] == "RUN" and test["result"] == "COMPLETED":
                passed += 1
    return passed, failed


try:
    with open(sys.argv[1], encoding="utf-8") as file:
        passed, failed = count(json.load(file))
except (OSError, ValueError, KeyError):
    passed, failed = 0, 1
if failed == 0 and (passed == 0 or sys.argv[2] != "0"):
    failed = 1
print(passed, failed)
