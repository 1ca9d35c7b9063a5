#!/bin/sh
# Run the kernels' tests on a library built with the address and undefined-behaviour sanitizers.
#
#     sh bench/sanitize.sh [pytest arguments]
#
# Twice: with the vectors of this CPU, and with those of any. What the compiler clones for wider
# vectors is compiled once, for any.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cc=${CC:-gcc}
runtime=$("$cc" -print-file-name=libasan.so)
tests=${*:-tests/reprojection/warp/test_warp.py tests/reprojection/test_warp_rows.py
    tests/reprojection/warp/test_swath.py tests/reprojection/grid/test_targets.py
    tests/reprojection/read/test_geolocation.py tests/reprojection/write/test_write.py
    tests/reprojection/write/test_tile_streams.py tests/reprojection/warp/test_footprint_statistics.py}
for vectors in -DSWATHMILL_NO_CLONES -DSWATHMILL_FOR=0; do
    for source in reprojection/kernels/csrc/*.c; do
        "$cc" -std=gnu11 -O1 -g -fPIC -fwrapv -ffp-contract=off -fno-omit-frame-pointer \
            -fsanitize=address,undefined -fno-sanitize-recover=undefined "$vectors" \
            -Wno-psabi -c "$source" -o "$folder/$(basename "$source" .c).o" &
    done
    wait
    "$cc" -shared -fsanitize=address,undefined "$folder"/*.o -lm -o "$folder/kernels.so"
    # Python itself never frees all it allocates, so leaks are not looked for.
    SWATHMILL_KERNELS="$folder/kernels.so" ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$runtime" \
        "$python" -m pytest -q -p no:cacheprovider $tests
done
