#!/usr/bin/env bash
# demo_text.sh OUT: writes the text that `./run demo` trains on, the King James Bible (public
# domain), one verse per line such as "Ge1:1 In the beginning ...". The text comes from the
# Debian package bible-kjv-text and is unpacked by `bible` from bible-kjv.
set -euo pipefail

out=${1:?usage: demo_text.sh OUT}
min_bytes=3000000

command -v bible >/dev/null ||
  { echo "demo_text.sh: command 'bible' not found; ./run setup installs it" >&2; exit 1; }

mkdir -p "$(dirname "$out")"
tmp=$(mktemp "$out.XXXXXX")
trap 'rm -f "$tmp"' EXIT

# -p: without it a bible.data in the current directory would win. -f: no wrapping to the screen.
bible -p /usr/lib -f Gen1:1-Rev22:21 </dev/null >"$tmp"

bytes=$(stat -c %s "$tmp")
if ((bytes <= min_bytes)); then
  echo "demo_text.sh: text has $bytes bytes, expected more than $min_bytes;" \
    "reinstall bible-kjv-text" >&2
  exit 1
fi
chmod 644 "$tmp"
mv "$tmp" "$out"
