#!/usr/bin/env bash
# lint.sh [--tidy]: style and structure checks; `./run lint` calls it. Runs every check and
# exits 1 if any failed. --tidy adds clang-tidy on the files that differ from LINT_BASE (HEAD).
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $# -eq 0 || $* == --tidy ]] || { echo "usage: lint.sh [--tidy]" >&2; exit 2; }

max_lines=800
failed=0

# check WORDS COMMAND...: runs the command, remembers a failure and goes on.
check() {
  local words=$1
  shift
  if "$@"; then
    echo "lint: $words: ok"
  else
    echo "lint: $words: FAILED"
    failed=1
  fi
}

# cpp_files FOLDER...: the C++ files in those of the folders that exist, NUL-terminated.
cpp_files() {
  local folder
  for folder in "$@"; do
    [[ ! -d $folder ]] || find "$folder" \( -name '*.h' -o -name '*.cc' \) -type f -print0
  done | sort -z
}

formatting() {
  cpp_files src tests bench fuzz | xargs -0 -r clang-format --dry-run -Werror
}

file_lengths() {
  local long
  long=$({
    cpp_files src tests bench fuzz
    find scripts run CMakeLists.txt -type f -print0
  } | xargs -0 -n 1 awk -v max=$max_lines \
    'END { if (NR > max) print FILENAME ": " NR " lines; at most " max }')
  [[ -z $long ]] || { echo "$long"; return 1; }
}

# Headers that no .cc file of the same name proves: it includes its own header first.
headers_without_source() {
  local header first
  while IFS= read -r -d '' header; do
    first=$(grep -m 1 '^#include' "${header%.h}.cc" 2>/dev/null) || true
    [[ $first == "#include \"${header#src/}\"" ]] || printf '%s\0' "$header"
  done < <(cpp_files src tests bench fuzz | { grep -z '\.h$' || true; })
}

header_alone() {
  printf '#include "%s"\n' "${1#src/}" |
    g++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Isrc -I. $toml_flags -x c++ - ||
    { echo "$1: does not compile alone"; return 1; }
}
export -f header_alone
toml_flags=$(pkg-config --cflags tomlplusplus)
export toml_flags

headers_alone() {
  local open  # x-inl.h is included once for each instruction set, under Highway's own guard
  open=$(cpp_files src tests bench fuzz | { grep -z '\.h$' | grep -zv -e '-inl\.h$' || true; } |
    xargs -0 -r grep -L '^#pragma once$') || true
  [[ -z $open ]] || { echo "$open: no #pragma once"; return 1; }
  headers_without_source | xargs -0 -r -P 2 -n 1 bash -c 'header_alone "$1"' _
}

changed_files() {
  { git diff --name-only --diff-filter=d "${LINT_BASE:-HEAD}" -- 2>/dev/null || git ls-files
    git ls-files --others --exclude-standard; } |
    { grep -E '^(src|tests|bench)/.*\.cc$' || true; } | sort -u
}

tidy() {
  cmake --preset release >/dev/null && changed_files | xargs -r -d '\n' -P 2 -n 1 \
    clang-tidy --quiet -p build/release --extra-arg=-Wno-unknown-warning-option
}

check "clang-format" formatting
check "include direction" python3 scripts/check_layers.py
check "type names" python3 scripts/check_names.py
check "files of at most $max_lines lines" file_lengths
check "docs links" python3 scripts/check_docs.py
check "coverage table" python3 scripts/check_coverage.py
check "every header alone" headers_alone
if [[ ${1:-} == --tidy ]]; then
  check "clang-tidy" tidy
fi
exit $failed
