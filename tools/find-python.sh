#!/bin/sh
# Print a Python that Swathmill can be installed with, or say what is missing and how to get it.
# A name given as first argument is the only candidate.
set -eu

fail() {
    printf 'make setup: %s\n' "$@" >&2
    exit 1
}

seen=""
found=""
for candidate in ${1:-python3 python3.14 python3.13 python3.12 python3.11}; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        found=$candidate
        break
    fi
    seen="$seen $candidate is $version."
done

[ -n "$found" ] || fail "Python 3.11 or newer is needed.${seen:- None was found.}" \
    "Install one (Debian, Ubuntu: apt install python3 python3-venv), or name it: make setup PYTHON=/path/to/python3"

"$found" -c 'import ensurepip, venv' 2>/dev/null || fail \
    "$found ($version) cannot make virtual environments: its module venv or ensurepip is missing." \
    "Install it (Debian, Ubuntu: apt install python$version-venv) and run make setup again."

command -v "${CC:-cc}" >/dev/null 2>&1 || fail \
    "no C compiler was found (looked for ${CC:-cc}): the reprojection kernels are compiled here." \
    "Install one (Debian, Ubuntu: apt install gcc libc6-dev) or name it: make setup CC=clang"

command -v "$found"
