#!/bin/sh
# List the layers of a group: run.sh INPUT_DIR OUTPUT_DIR. `rio` comes with Swathmill's own Python.
set -eu
echo "file,days,columns_and_rows" > "$2/layers.csv"
for file in "$1"/*.tif; do
    size=$(rio info --shape "$file" | tr ' ' 'x')
    echo "$(basename "$file"),$(rio info --count "$file"),$size" >> "$2/layers.csv"
done
cat "$2/layers.csv"
