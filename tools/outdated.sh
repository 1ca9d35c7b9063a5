#!/bin/sh
# List what is locked in an older version than the registries have: a line for each package and lock. Nothing changes.
set -eu
cd "$(dirname "$0")/.."
work=build/outdated
rm -rf "$work"
mkdir -p "$work"
cp pyproject.toml requirements*.lock "$work/"
make --silent --directory "$work" --makefile "$PWD/Makefile" lock UPGRADE=yes >/dev/null
for lock in requirements*.lock; do
    for side in "$lock" "$work/$lock"; do
        grep -oE '^[A-Za-z0-9._-]+==[^ ;\]+' "$side" | sort >"$work/$(dirname "$side" | tr '/' '_').pins"
    done
    diff "$work/..pins" "$work/build_outdated.pins" | sed -n "s/^< \(.*\)/$lock: \1 is older/p; s/^> \(.*\)/$lock: \1 is the newest that fits/p"
done
# It ends with 1 when something is older.
sh tools/npm.sh outdated || [ $? -eq 1 ]
