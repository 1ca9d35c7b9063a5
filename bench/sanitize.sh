#!/bin/sh
# Run the kernels' tests on a library built with the address and undefined-behaviour sanitizers.
#
#     sh bench/sanitize.sh [pytest arguments]
#
# Vectors are those of the baseline here: the same sources, one instruction set.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc=${CC:-gcc}
for source in reprojection/csrc/*.c; do
    "$cc" -std=gnu11 -O1 -g -fPIC -fwrapv -ffp-contract=off -fno-omit-frame-pointer \
        -fsanitize=address,undefined -fno-sanitize-recover=undefined -DSWATHMILL_NO_CLONES \
        -Wno-psabi -c "$source" -o "$folder/$(basename "$source" .c).o" &
done
wait
"$cc" -shared -fsanitize=address,undefined "$folder"/*.o -lm -o "$folder/kernels.so"
runtime=$("$cc" -print-file-name=libasan.so)
tests=${*:-tests/reprojection/test_warp.py tests/reprojection/test_swath.py tests/reprojection/test_targets.py
    tests/reprojection/test_geolocation.py tests/reprojection/test_write.py
    tests/reprojection/test_tile_streams.py}
# Python itself never frees all it allocates, so leaks are not looked for.
SWATHMILL_KERNELS="$folder/kernels.so" ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$runtime" \
    "$python" -m pytest -q -p no:cacheprovider $tests
