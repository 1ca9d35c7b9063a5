#!/bin/sh
# Leaf area: two layers of two tiles onto one grid, a raster for each date, then monthly means.
# sh leaf_area.sh ARCHIVE OUT DEFLATE-LEVEL CORES
set -eu
archive=$1 out=$2 level=$3 cores=$4
here=$(dirname "$0")
for first in "$archive"/MCD15A2.A2012*.h17v03.*.hdf; do
    day=$(basename "$first" | cut -d. -f2)
    second=$(echo "$archive/MCD15A2.$day.h18v03."*.hdf)
    for layer in Lai_1km Fpar_1km; do
        grid="MOD_Grid_MOD15A2:$layer"
        echo "HDF4_EOS:EOS_GRID:$first:$grid HDF4_EOS:EOS_GRID:$second:$grid $out/$layer.$day.tif"
    done
done | xargs -P "$cores" -L 1 gdalwarp -q -r near -wm 512 \
    -s_srs "+proj=sinu +R=6371007.181 +nadgrids=@null +units=m +wktext" -t_srs EPSG:4326 \
    -te -8 50.5 6 58.5 -tr 0.01 0.01 -srcnodata 255 -dstnodata 255 \
    -of COG -co COMPRESS=DEFLATE -co LEVEL="$level" -co OVERVIEW_RESAMPLING=AVERAGE
"${PYTHON:-python3}" "$here/leaf_area_means.py" "$out" "$level"
