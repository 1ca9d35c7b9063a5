// The region on a map: draw a box or a polygon with mouse, finger or keys, pick MODIS tiles, see a place.
// The fields of the form are the truth; this widget writes them and follows them.
"use strict";
(() => {
  const root = document.querySelector("[data-region-map]");
  if (!root) return;
  const form = root.closest("form");
  const note = root.querySelector("[data-note]");
  const target = document.getElementById("region-map");
  const overlay = form.querySelector("[data-tiles]");
  const field = (name) => form.elements.namedItem(name);
  const tool = (name) => form.querySelector(`[data-tool="${name}"]`);
  const EDGES = ["west", "south", "east", "north"];
  const kind = () => form.querySelector('input[name="region_kind"]:checked').value;
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const wrap = (lon) => ((((lon + 180) % 360) + 360) % 360) - 180;
  const changed = (name) => field(name).dispatchEvent(new Event("change", { bubbles: true }));

  // --- The fields ---
  const readBox = () => {
    if (EDGES.some((edge) => field(edge).value.trim() === "")) return null;
    const [west, south, east, north] = EDGES.map((edge) => Number(field(edge).value));
    if (![west, south, east, north].every(Number.isFinite) || south >= north || west === east) return null;
    return [west, south, east < west ? east + 360 : east, north];
  };
  const chosenTiles = () => field("tiles").value.toLowerCase().match(/h\d\dv\d\d/g) ?? [];

  // --- MODIS tiles: bands of 10 degrees of latitude, sides that slant with its cosine ---
  const tileName = (h, v) => `h${String(h).padStart(2, "0")}v${String(v).padStart(2, "0")}`;
  const side = (h, lat) => clamp((10 * (h - 18)) / Math.max(Math.cos((lat * Math.PI) / 180), 1e-9), -180, 180);
  const tileAt = ([lon, lat]) => tileName(Math.floor(18 + (wrap(lon) * Math.cos((lat * Math.PI) / 180)) / 10), clamp(Math.floor((90 - lat) / 10), 0, 17));
  const tileRing = (h, v) => {
    const lats = Array.from({ length: 21 }, (_, step) => 90 - 10 * v - step / 2).filter((lat) => side(h + 1, lat) - side(h, lat) > 1e-6);
    if (lats.length < 2) return null;
    const ring = [...lats.map((lat) => [side(h, lat), lat]), ...lats.reverse().map((lat) => [side(h + 1, lat), lat])];
    return [...ring, ring[0]];
  };
  const touches = (h, v, [west, south, east, north]) => {
    const [low, high] = [Math.max(south, 80 - 10 * v), Math.min(north, 90 - 10 * v)];
    if (low >= high) return false;
    for (let step = 0; step <= 20; step += 1) {
      const lat = low + ((high - low) * step) / 20;
      const [left, right] = [side(h, lat), side(h + 1, lat)];
      if (right > left && [0, 360].some((turn) => left + turn < east && right + turn > west)) return true;
    }
    return false;
  };

  const begin = () => {
    const { Feature, geom, style, interaction } = ol;
    const globe = maps.globe(root, target, note);
    const { map, view, vector, stroke, fill } = globe;

    // --- Layers, in the colours of the page ---
    const tiles = vector(3, null);
    const shape = vector(4, null);
    for (let v = 0; v < 18; v += 1) {
      for (let h = 0; h < 36; h += 1) {
        const ring = tileRing(h, v);
        if (ring) tiles.getSource().addFeature(new Feature({ geometry: new geom.Polygon([ring]), name: tileName(h, v), h, v }));
      }
    }
    const look = {};
    const box = new interaction.Extent({
      condition: ({ originalEvent }) => originalEvent.isPrimary && originalEvent.button <= 0, wrapX: true,
      boxStyle: () => look.box, pointerStyle: () => (box.getActive() ? look.pointer : null),
    });
    map.addLayer(tiles);
    map.addLayer(shape);
    map.addInteraction(box);

    let touched = new Set();
    const paint = () => {
      const [ink, card, accent, bad] = ["--ink", "--card", "--accent", "--bad"].map(maps.colour);
      globe.paint();
      const [plain, marked] = [["73", "00"], ["e6", "2e"]].map(([line, area]) => new style.Style({ stroke: stroke(accent + line, 1), fill: fill(accent + area) }));
      tiles.setStyle((feature, resolution) => {
        const made = touched.has(feature.get("name")) ? marked : plain;
        return 10 / resolution > 48 ? [made, new style.Style({ text: maps.label(feature.get("name"), ink, card) })] : made;
      });
      const red = [stroke(bad, 2), fill(`${bad}${root.dataset.seen ? "00" : "24"}`)]; // nothing lies over data that is seen
      const handle = new style.Circle({ radius: 5, stroke: red[0], fill: fill(card) });
      const area = new style.Style({ stroke: red[0], fill: red[1], image: handle });
      const corners = new style.Style({ image: handle, geometry: (feature) => feature.getGeometry() && new geom.MultiPoint(feature.getGeometry().getCoordinates()[0]) });
      shape.setStyle(area);
      look.box = [area, corners];
      look.pointer = new style.Style({ image: new style.Circle({ radius: 7, stroke: red[0], fill: fill(bad) }) });
    };

    // --- What the map shows of the fields ---
    const drawing = () => tool("polygon").getAttribute("aria-pressed") === "true";
    const mode = () => (kind() === "bbox" ? form.querySelector('input[name="map_mode"]:checked').value : kind());
    const near = (lon) => lon + 360 * Math.round((view.getCenter()[0] - lon) / 360);
    let writing = false;
    const placeBox = () => {
      if (writing) return;
      const now = kind() === "bbox" ? readBox() : null;
      const by = now ? near((now[0] + now[2]) / 2) - (now[0] + now[2]) / 2 : 0;
      writing = true;
      box.setExtent(now ? [now[0] + by, now[1], now[2] + by, now[3]] : null);
      writing = false;
    };
    const say = () => {
      const [now, count] = [readBox(), chosenTiles().length];
      const degrees = (value, plus, minus) => maps.degrees(value, plus, minus, 2);
      const found = shape.getSource().getFeatures().length;
      note.textContent = {
        bbox: () => (now ? `${degrees(now[0], "E", "W")} to ${degrees(wrap(now[2]), "E", "W")}, ${degrees(now[1], "N", "S")} to ${degrees(now[3], "N", "S")}` : "Drag to draw a box"),
        tiles: () => (count ? `${count} tile${count > 1 ? "s" : ""} chosen` : "Click tiles to choose them"),
        geojson: () => (drawing() ? "Click each corner; click the first one again to finish" : found ? "Drag the outline to change it" : "Draw a polygon, paste one, or choose a file"),
        place: () => (found ? field("place").value : "Name a place"),
        sites: () => (found ? `${found} site${found > 1 ? "s" : ""}` : "Paste a table of sites, or choose a file"),
      }[kind()]();
    };
    const follow = () => {
      const region = kind();
      const now = region === "bbox" ? readBox() : null;
      touched = new Set(region === "tiles" ? chosenTiles() : []);
      if (now) for (const tile of tiles.getSource().getFeatures()) if (touches(tile.get("h"), tile.get("v"), now)) touched.add(tile.get("name"));
      tiles.setVisible(region === "tiles" || overlay.checked);
      tiles.changed();
      box.setActive(mode() === "draw");
      if (region !== "geojson") draw(false);
      modify.setActive(region === "geojson" && !drawing());
      map.getViewport().style.touchAction = mode() === "draw" || drawing() ? "none" : "pan-y";
      root.dataset.mode = drawing() ? "polygon" : mode();
      placeBox();
      say();
    };

    // The outline of a polygon, a place or sites comes from the server, which reads all notations.
    let asked = "";
    const outline = async () => {
      const region = kind();
      const text = ["geojson", "place", "sites"].includes(region) ? field(region).value.trim() : "";
      const now = `${region} ${text}`;
      if (now === asked) return;
      asked = now;
      const features = text ? (await maps.readJson("/new/outline", { method: "POST", body: new URLSearchParams({ region_kind: region, [region]: text }) })).features : [];
      if (now !== asked) return;
      shape.getSource().clear();
      shape.getSource().addFeatures(new ol.format.GeoJSON().readFeatures({ type: "FeatureCollection", features }));
      root.dataset.shape = String(features.length);
      say();
      if (features.length && !sent) fit();
      sent = false;
    };
    const outlined = () => outline().catch((error) => { asked = ""; console.warn(error); note.textContent = "The outline could not be loaded."; });

    // --- Writing a box ---
    const rounded = (value) => Number(value.toFixed(clamp(Math.ceil(-Math.log10(view.getResolution())), 0, 4)));
    const writeBox = ([west, south, east, north]) => {
      const values = [wrap(west), clamp(south, -90, 90), east - west >= 360 ? wrap(west) + 359.99 : wrap(east), clamp(north, -90, 90)];
      values.forEach((value, index) => { field(EDGES[index]).value = String(index === 2 && value === -180 ? 180 : rounded(value)); });
      say();
    };
    let drawn = false;
    box.on("extentchanged", ({ extent }) => {
      if (writing || !extent || ol.extent.isEmpty(extent)) return;
      drawn = true;
      writeBox(extent);
    });
    window.addEventListener("pointerup", () => setTimeout(() => {
      if (drawn) { drawn = false; changed("west"); } else if (kind() === "bbox") placeBox(); // a click clears it
    }));

    // --- Polygons: corner by corner, by mouse, finger or keys ---
    const modify = new interaction.Modify({ source: shape.getSource() });
    map.addInteraction(modify);
    let pen = null;
    let sent = false;
    const send = (geometries) => {
      sent = true;
      const coordinates = geometries.flatMap((one) => (one.getType() === "Polygon" ? [one.getCoordinates()] : one.getCoordinates()));
      const text = JSON.stringify({ type: "MultiPolygon", coordinates }, (_, value) => (typeof value === "number" ? Number(value.toFixed(5)) : value));
      field("drawn").value = text;
      field("drawn").dispatchEvent(new Event("change"));
    };
    const draw = (on) => {
      if (pen) map.removeInteraction(pen);
      pen = null;
      tool("polygon").setAttribute("aria-pressed", String(on));
      for (const node of form.querySelectorAll("[data-drawing]")) node.hidden = !on;
      if (!on) return;
      pen = new interaction.Draw({ type: "Polygon", stopClick: true });
      pen.on("drawend", ({ feature }) => {
        const before = shape.getSource().getFeatures().map((one) => one.getGeometry());
        setTimeout(() => { draw(false); follow(); send([...before, feature.getGeometry()]); });
      });
      map.addInteraction(pen);
    };
    modify.on("modifyend", () => send(shape.getSource().getFeatures().map((one) => one.getGeometry())));

    map.on("click", ({ coordinate }) => {
      if (kind() !== "tiles") return;
      const chosen = chosenTiles();
      const name = tileAt(coordinate);
      field("tiles").value = (chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name]).join(", ");
      changed("tiles");
    });

    // --- Keys: arrows move the box (or the map), with Shift they size it, + and - zoom ---
    target.addEventListener("keydown", (event) => {
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "+" || event.key === "=") zoom(0.7);
      else if (event.key === "-") zoom(1.4);
      else if (event.key === "0") fit();
      else if (event.key === "Enter" && pen) pen.appendCoordinates([view.getCenter()]);
      else if (event.key === "Backspace" && pen) pen.removeLastPoint();
      else if (event.key === "Escape" && pen) { draw(false); follow(); }
      else if (event.key in arrows) {
        const [dx, dy] = arrows[event.key];
        const digits = clamp(Math.ceil(-Math.log10(view.getResolution())), 0, 4);
        const step = Math.max(rounded(10 * view.getResolution()), 10 ** -digits);
        const now = mode() === "draw" ? readBox() : null;
        if (!now) {
          globe.move(dx * 40, dy * 40);
        } else {
          const [west, south, east, north] = now;
          const up = clamp(dy * step, -90 - south, 90 - north);
          if (event.shiftKey) writeBox([west, south, Math.max(east + dx * step, west + step), Math.max(north + dy * step, south + step)]);
          else writeBox([west + dx * step, south + up, east + dx * step, north + up]);
          changed("west");
        }
      } else return;
      event.preventDefault();
    });

    // --- Tools ---
    const { zoom, whole } = globe;
    const fit = () => {
      const extent = ol.extent.createEmpty();
      const chosen = new Set(kind() === "tiles" ? chosenTiles() : []);
      for (const tile of tiles.getSource().getFeatures()) if (chosen.has(tile.get("name"))) ol.extent.extend(extent, tile.getGeometry().getExtent());
      for (const one of shape.getSource().getFeatures()) ol.extent.extend(extent, one.getGeometry().getExtent());
      const now = kind() === "bbox" ? readBox() : null;
      if (now) ol.extent.extend(extent, now);
      globe.fit(extent);
    };
    const tools = {
      in: () => zoom(0.6), out: () => zoom(1 / 0.6), fit, whole,
      polygon: () => { draw(!drawing()); follow(); target.focus({ preventScroll: true }); },
      undo: () => pen.removeLastPoint(),
      finish: () => pen.finishDrawing(),
      clear: () => { draw(false); field("geojson").value = ""; changed("geojson"); },
    };
    for (const [name, act] of Object.entries(tools)) tool(name).addEventListener("click", act);

    const REGION = [...EDGES, "tiles", "geojson", "place", "sites", "region_kind", "map_mode"];
    let typed = null;
    const heed = (event) => {
      if (!REGION.includes(event.target.name) && event.target !== overlay && event.target !== form) return;
      follow();
      clearTimeout(typed);
      typed = setTimeout(outlined, event.type === "input" ? 400 : 0);
    };
    form.addEventListener("input", heed);
    form.addEventListener("change", heed);
    map.on("moveend", placeBox);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
    if (matchMedia("(pointer: coarse)").matches) form.querySelector('input[name="map_mode"][value="move"]').checked = true;

    paint();
    whole();
    follow();
    fit();
    outlined();
    root.dataset.ready = "yes";
    // For what else is shown on this map: the map, and the region's box or what is in view.
    const region = () => {
      const [west, south, east, north] = shape.getSource().getFeatures().length ? shape.getSource().getExtent() : readBox() ?? view.calculateExtent();
      return [west, clamp(south, -90, 90), east, clamp(north, -90, 90)];
    };
    root.regionMap = { map, region, paint, fit };
    root.dispatchEvent(new Event("ready"));
  };
  if (window.ol) begin();
  else document.getElementById("map-library").addEventListener("load", begin);
})();
