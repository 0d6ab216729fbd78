#!/usr/bin/env python3
"""Checks that relative links in *.md files lead somewhere: check_docs.py [ROOT].

Prints one line per dead link and exits 1 if there is any. Web addresses and the part of a link
after '#' are not checked; code blocks and code spans are skipped.
"""
import os
import re
import sys
from pathlib import Path
from urllib.parse import unquote

SKIPPED = {"build", "out"}
# [text](target "title"), and [label]: target
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+[^)]*)?\)|^\s*\[[^\]]+\]:\s*(\S+)")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
FENCE = re.compile(r"^\s*(```|~~~)")
ELSEWHERE = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*:|//|#)")


def markdown_files(root):
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(s for s in subfolders if s not in SKIPPED and s != ".git")
        yield from (Path(folder) / f for f in sorted(files) if f.endswith(".md"))


def links(path):
    """Yields (line number, target) for each link outside code."""
    fence = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        mark = FENCE.match(line)
        if mark and fence in (None, mark.group(1)):
            fence = None if fence else mark.group(1)
        elif not fence:
            for match in LINK.finditer(CODE_SPAN.sub("", line)):
                yield number, match.group(1) or match.group(2)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    failed = False
    for path in markdown_files(root):
        for number, target in links(path):
            if ELSEWHERE.match(target):
                continue
            name = unquote(target.split("#")[0])
            base = root if name.startswith("/") else path.parent
            found = (base / name.lstrip("/")).resolve()
            if not found.exists() or not found.is_relative_to(root):
                print(f"{path.relative_to(root)}:{number}: link to {target}: no such file")
                failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
