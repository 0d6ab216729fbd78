#!/usr/bin/env python3
"""Checks docs/coverage.tsv: check_coverage.py [ROOT].

Columns n, name, state, where, proof, separated by tabs; n unique, positive and rising; state
planned, begun or works. `where` holds paths from the root, separated by spaces, then, after a
semicolon, words. `proof` holds names separated by spaces: tests as Suite.Name, and `harness`.
A row that is not planned needs both; a planned one has neither. Every path must exist and every
test must stand in the sources. Prints one line for each fault and exits 1 if there is any.
"""
import re
import sys
from pathlib import Path

COLUMNS = ["n", "name", "state", "where", "proof"]
STATES = {"planned", "begun", "works"}
TEST = re.compile(r"^\s*TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


def tests_in(root):
    """All tests of the sources as Suite.Name."""
    names = set()
    for folder in ("src", "tests"):
        for path in sorted((root / folder).rglob("*_test.cc")):
            names.update(".".join(m) for m in TEST.findall(path.read_text(encoding="utf-8")))
    return names


def faults_of(row, root, tests):
    """Yields what is wrong with one row of five cells."""
    n, name, state, where, proof = row
    if not re.fullmatch(r"[1-9][0-9]*", n):
        yield f"n is '{n}', expected a positive number"
    if not name.strip():
        yield "the name is empty"
    if state not in STATES:
        yield f"state '{state}', expected one of {', '.join(sorted(STATES))}"
    paths, proofs = where.split(";")[0].split(), proof.split()
    if state == "planned" and (where or proof):
        yield "it is planned, and yet says where or by what proof"
    if state != "planned" and not (paths and proofs):
        yield f"state '{state}' needs a path in where, and a proof"
    for path in paths:
        if path.startswith("/") or ".." in path.split("/") or not (root / path).exists():
            yield f"where: '{path}' does not exist"
    for test in proofs:
        if test == "harness":
            if not (root / "tests" / "harness_main.cc").exists():
                yield "proof: there is no harness"
        elif test not in tests:
            yield f"proof: no test '{test}' in the sources"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    file = root / "docs" / "coverage.tsv"
    lines = file.read_text(encoding="utf-8").splitlines()
    tests = tests_in(root)
    failed = False

    def report(number, words):
        nonlocal failed
        failed = True
        print(f"docs/coverage.tsv:{number}: {words}")

    if not lines or lines[0].split("\t") != COLUMNS:
        report(1, f"the first line must name the columns {', '.join(COLUMNS)}")
    last = 0
    for number, line in enumerate(lines[1:], 2):
        row = line.split("\t")
        if len(row) != len(COLUMNS):
            report(number, f"row '{row[0]}': {len(row)} columns, expected {len(COLUMNS)}")
            continue
        for words in faults_of(row, root, tests):
            report(number, f"row {row[0]} ({row[1]}): {words}")
        if row[0].isdigit():
            if int(row[0]) <= last:
                report(number, f"row {row[0]} ({row[1]}): n stands after {last}")
            last = max(last, int(row[0]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
