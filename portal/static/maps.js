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
  // Outlines fit for the zoom: what is called gets degrees per pixel, loads what they need, and has it shown.
  outlines: (root, show) => {
    const scales = [["finest", 0.025], ["fine", 0.1], ["world", Infinity]].filter(([name]) => root.dataset[name]);
    let shown = scales.length;
    return async (resolution) => {
      const found = scales.findIndex(([, least]) => resolution <= least);
      const wanted = found < 0 ? scales.length - 1 : found;
      if (wanted >= shown) return; // what is there is as fine
      shown = wanted;
      const topology = await maps.readJson(root.dataset[scales[wanted][0]]);
      if (shown === wanted) show(topology, scales[wanted][0]);
    };
  },
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
  // The Earth in degrees below what a page adds: land (coarse at once, fine when one looks closer), borders, a graticule.
  globe: (root, target, note) => {
    const { Feature, geom, layer, source, style, interaction } = ol;
    const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
    const vector = (zIndex, made, more) => new layer.Vector({ zIndex, style: made, source: new source.Vector(more), updateWhileInteracting: true });
    const stroke = (color, width) => new style.Stroke({ color, width });
    const fill = (color) => new style.Fill({ color });
    const land = vector(1, null);
    const borders = vector(2, null);
    const graticule = vector(2, null);
    const lines = [];
    for (let lon = -180; lon < 180; lon += 30) lines.push([[lon, -90], [lon, 90]]);
    for (let lat = -60; lat <= 60; lat += 30) lines.push([[-180, lat], [180, lat]]);
    graticule.getSource().addFeature(new Feature({ geometry: new geom.MultiLineString(lines) }));
    const map = new ol.Map({
      target,
      controls: [],
      layers: [land, borders, graticule],
      interactions: interaction.defaults.defaults({ dragPan: false, keyboard: false, mouseWheelZoom: false, altShiftDragRotate: false, pinchRotate: false, doubleClickZoom: false, shiftDragZoom: false }),
      view: new ol.View({ projection: "EPSG:4326", center: [0, 10], resolution: 1, minResolution: 0.0005, enableRotation: false }),
    });
    const view = map.getView();
    map.addInteraction(new interaction.MouseWheelZoom({ condition: ({ originalEvent }) => originalEvent.ctrlKey || document.activeElement === target }));
    map.addInteraction(new interaction.DragPan()); // without a glide, which would go on under the next drawing
    const paint = () => {
      const border = maps.colour("--border-line");
      land.setStyle(new style.Style({ fill: fill(maps.colour("--land")) }));
      borders.setStyle(new style.Style({ stroke: stroke(border, 1) }));
      graticule.setStyle(new style.Style({ stroke: stroke(`${border}66`, 1) }));
    };
    const missing = (error) => {
      console.warn(error);
      note.textContent = "Land outlines could not be loaded; the map works without them.";
    };
    const showLand = (topology) => {
      const found = [];
      for (const rings of maps.land(topology)) {
        const made = new geom.Polygon(rings);
        found.push(made);
        const [west, , east] = made.getExtent();
        if (west < -180 || east > 180) { // the other end belongs to this world, too
          const copy = made.clone();
          copy.translate(east > 180 ? -360 : 360, 0);
          found.push(copy);
        }
      }
      land.getSource().clear();
      land.getSource().addFeatures(found.map((geometry) => new Feature({ geometry })));
      borders.getSource().clear();
      borders.getSource().addFeature(new Feature({ geometry: new geom.MultiLineString(maps.borders(topology)) }));
      root.dataset.land = String(found.length);
    };
    const outlines = maps.outlines(root, showLand);
    outlines(Infinity).catch(missing);
    map.on("moveend", () => {
      root.dataset.resolution = String(view.getResolution());
      outlines(view.getResolution()).catch(missing);
    });
    const zoom = (factor) => view.setResolution(view.getConstrainedResolution(view.getResolution() * factor));
    const whole = () => { view.setCenter([0, 10]); view.setResolution(view.getConstrainedResolution(1)); };
    const move = (dx, dy) => { // in pixels
      const [[lon, lat], step] = [view.getCenter(), view.getResolution()];
      view.setCenter([lon + dx * step, clamp(lat + dy * step, -90, 90)]);
    };
    const fit = (extent) => {
      if (extent.every(Number.isFinite)) view.fit(extent, { padding: [40, 60, 40, 60], minResolution: 0.005 });
      else whole();
    };
    return { map, view, clamp, vector, stroke, fill, paint, zoom, whole, move, fit };
  },
};
