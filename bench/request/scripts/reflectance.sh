#!/bin/sh
# Reflectance: seven layers of four tiles onto one grid, a raster for each layer and date.
# sh reflectance.sh ARCHIVE OUT DEFLATE-LEVEL CORES
set -eu
archive=$1 out=$2 level=$3 cores=$4
for first in "$archive"/MOD09A1.A2012*.h11v08.*.hdf; do
    day=$(basename "$first" | cut -d. -f2)
    for layer in 1 2 3 4 5 6 7; do
        for tile in h11v08 h12v08 h11v09 h12v09; do
            file=$(echo "$archive/MOD09A1.$day.$tile."*.hdf)
            printf '%s ' \
                "HDF4_EOS:EOS_GRID:$file:MOD_Grid_500m_Surface_Reflectance:sur_refl_b0$layer"
        done
        echo "$out/sur_refl_b0$layer.$day.tif"
    done
done | xargs -P "$cores" -L 1 gdalwarp -q -r near -wm 512 \
    -s_srs "+proj=sinu +R=6371007.181 +nadgrids=@null +units=m +wktext" -t_srs EPSG:4326 \
    -te -69.9975 -9.999 -50.805 9.999 -tr 0.0045 0.0045 -srcnodata -28672 -dstnodata -28672 \
    -of COG -co COMPRESS=DEFLATE -co LEVEL="$level" -co PREDICTOR=YES \
    -co OVERVIEW_RESAMPLING=AVERAGE
