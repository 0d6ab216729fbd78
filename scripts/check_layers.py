#!/usr/bin/env python3
"""Checks the direction of includes: check_layers.py [ROOT].

A folder under src/plait/ includes itself, folders on lower floors, and on its own floor only
what SAME_FLOOR lists. Prints one line per violation and exits 1 if there is any.
"""
import re
import sys
from pathlib import Path

FLOORS = [
    ["base"],
    ["ir", "ops", "io", "tokens"],
    ["model"],
    ["plan", "schedule", "optim"],
    ["program"],
    ["search", "sim", "cost"],
    ["exec", "kernels", "comm"],
    ["train", "infer", "serve", "data"],
    ["report"],
    ["cli"],
]
SAME_FLOOR = {
    ("ops", "ir"),
    ("io", "ir"),
    ("tokens", "io"),
    ("schedule", "plan"),
    ("search", "cost"),
    ("exec", "kernels"),
    ("exec", "comm"),
    ("train", "data"),
    ("train", "infer"),
}
FLOOR = {folder: floor for floor, folders in enumerate(FLOORS) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def violations(path, src):
    """Yields (line number, words) for each include of `path` that points the wrong way."""
    parts = path.relative_to(src).parts
    folder = parts[0] if len(parts) > 1 else ""
    if folder not in FLOOR:
        yield 1, f"{folder or 'file'}: not in a known folder; add the folder to check_layers.py"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1)
        if ".." in target.split("/") or (path.parent / target).is_file():
            yield number, f'includes "{target}"; write the whole path, "plait/..."'
            continue
        if not target.startswith("plait/"):
            continue
        other = target.split("/")[1]
        if other not in FLOOR:
            yield number, f"includes {target}, which is in no known folder"
        elif other != folder and (folder, other) not in SAME_FLOOR \
                and FLOOR[other] >= FLOOR[folder]:
            yield number, (f"{folder}/ (floor {FLOOR[folder]}) includes {target} "
                           f"(floor {FLOOR[other]}); only lower floors are allowed")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    src = root / "src" / "plait"
    failed = False
    for path in sorted(p for p in src.rglob("*") if p.suffix in (".h", ".cc")):
        for number, words in violations(path, src):
            print(f"{path.relative_to(root)}:{number}: {words}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
