#!/bin/sh
# Print the Pythons of this machine that Swathmill can be installed with, oldest first: one line "3.11.2 /path"
# for each minor version, of several the oldest. Looked for on PATH, in /usr/bin and among pyenv's.
set -eu

candidates() {
    IFS=:
    for folder in $PATH /usr/bin; do
        ls -d "$folder"/python3 "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9] 2>/dev/null || true
    done
    ls -d "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3 2>/dev/null || true
}

candidates | while read -r candidate; do
    # One that cannot make virtual environments is of no use; one of pyenv's names may lead to nothing.
    "$candidate" -c '
import sys, ensurepip, venv
if sys.version_info >= (3, 11) and sys.prefix == sys.base_prefix:
    print("%d.%d.%d" % sys.version_info[:3], sys.executable)
' 2>/dev/null || true
done | sort -u -t. -k1,1n -k2,2n -k3,3n | awk '{ split($1, v, "."); if (!seen[v[1] "." v[2]]++) print }'
