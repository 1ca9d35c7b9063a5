#!/bin/sh
# One layer of one tile on one date: sh smallest.sh ARCHIVE OUT DEFLATE-LEVEL CORES
set -eu
archive=$1 out=$2 level=$3
file=$(echo "$archive"/MCD15A2.A2012001.h18v03.*.hdf)
gdalwarp -q -r near -wm 512 \
    -s_srs "+proj=sinu +R=6371007.181 +nadgrids=@null +units=m +wktext" -t_srs EPSG:4326 \
    -te 0.5 51 12 59 -tr 0.01 0.01 -srcnodata 255 -dstnodata 255 \
    -of COG -co COMPRESS=DEFLATE -co LEVEL="$level" -co OVERVIEW_RESAMPLING=AVERAGE \
    "HDF4_EOS:EOS_GRID:$file:MOD_Grid_MOD15A2:Lai_1km" "$out/Lai_1km.A2012001.tif"
