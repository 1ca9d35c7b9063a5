// What the maps share: outlines of land, how degrees are written, colours of the page.
"use strict";
const maps = {
  readJson: async (address, options) => {
    const answer = await fetch(address, options);
    if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
    return answer.json();
  },
  degrees: (value, plus, minus, digits = 1) => `${Number(Math.abs(value).toFixed(digits))}° ${value < 0 ? minus : plus}`,
  colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
  // The lines and areas of a topology, cut in no way: a ring runs on beyond 180 degrees.
  coast: (topology) => topojson.mesh(topology, topology.objects.land).coordinates,
  borders: (topology) => topojson.mesh(topology, topology.objects.countries, (a, b) => a !== b).coordinates,
  land: (topology) => topojson.feature(topology, topology.objects.land).features
    .flatMap(({ geometry }) => (geometry.type === "Polygon" ? [geometry.coordinates] : geometry.coordinates))
    .map((rings) => rings.map(maps.whole)),
  // A ring that crosses the antimeridian in one piece; one that goes round a pole is closed along it.
  whole: (points) => {
    let turns = 0;
    const ring = points.map(([x, y], i) => {
      const step = i ? x - points[i - 1][0] : 0;
      turns += step > 180 ? -360 : step < -180 ? 360 : 0;
      return [x + turns, y];
    });
    const [first, last] = [ring[0], ring[ring.length - 1]];
    if (Math.abs(last[0] - first[0]) > 180) {
      const pole = first[1] < 0 ? -90 : 90;
      ring.push([last[0], pole], [first[0], pole], first);
    }
    return ring;
  },
  label: (text, ink, halo, more) => new ol.style.Text({
    text, font: "12px sans-serif", fill: new ol.style.Fill({ color: ink }), stroke: new ol.style.Stroke({ color: halo, width: 3 }), ...more,
  }),
};
