#!/usr/bin/env python3
"""Checks that no two files define a type of one name in one namespace: check_names.py [ROOT].

The linker merges the inline functions of such types without a word, and one of them then runs
with the other's layout. Types in unnamed namespaces of .cc files are their file's own. Relies on
clang-format's comments at the end of namespaces. Prints a line per name and exits 1 if any.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

OPEN = re.compile(r"^(?:inline )?namespace(?: ([\w:]+))? \{")
CLOSE = re.compile(r"^\}  // namespace")
TYPE = re.compile(r"^(?:struct|class|enum class|enum|union) ([\w:]+)(?!.*;\s*(?://.*)?$)")


def types(path):
    """Yields (line number, qualified name) of each type defined at namespace level."""
    namespaces = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := OPEN.match(line):
            namespaces.append(match.group(1))
        elif CLOSE.match(line):
            if not namespaces:
                raise SystemExit(f"{path}:{number}: a namespace ends that did not begin")
            namespaces.pop()
        elif (match := TYPE.match(line)) and (None not in namespaces or path.suffix == ".h"):
            yield number, "::".join([n or "(unnamed)" for n in namespaces] + [match.group(1)])


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    places = defaultdict(list)
    for folder in ("src", "tests", "fuzz", "bench"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in (".h", ".cc")):
            for number, name in types(path):
                places[name].append(f"{path.relative_to(root)}:{number}")
    failed = False
    for name, found in sorted(places.items()):
        if len(found) > 1:
            print(f"{name} is defined in {' and in '.join(found)}; rename one")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
