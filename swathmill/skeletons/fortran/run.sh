#!/bin/sh
# Run the program for each layer: run.sh INPUT_DIR OUTPUT_DIR. The headers say how large a layer is.
set -eu
field() { sed -n "s/^$2 = //p" "$1"; }
[ -x mean_of_days ] || { echo 'There is no program mean_of_days: run make first.'; exit 1; }
for header in "$1"/*.hdr; do
    stem=$(basename "$header" .hdr)
    case $stem in
        *.codes | *.count | *.source | *.reason) continue ;; # further bands of a layer
    esac
    ./mean_of_days "$1/$stem.bin" "$2/${stem}_mean.bin" \
        "$(field "$header" samples)" "$(field "$header" lines)" "$(field "$header" bands)"
done
