// The region on a map: draw a box with mouse or finger, move it by keys, pick MODIS tiles.
// The fields of the form are the truth; this widget writes them and follows them.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const root = document.querySelector("[data-map]");
  if (!root) return;
  const form = root.closest("form");
  const svg = root.querySelector(":scope > svg");
  const note = root.querySelector("[data-note]");
  const field = (name) => form.elements.namedItem(name);
  const edges = ["west", "south", "east", "north"].map(field);
  const kind = () => form.querySelector('input[name="region_kind"]:checked').value;
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const wrap = (lon) => ((((lon + 180) % 360) + 360) % 360) - 180;

  const make = (name, attributes, parent) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (parent) parent.append(node);
    return node;
  };

  // Everything is drawn in degrees, y downwards, once; copies to the east and west join at 180.
  const world = make("g", { id: "map-world" }, svg);
  const graticule = make("path", { class: "graticule" }, world);
  const land = make("path", { class: "land" }, world);
  const borders = make("path", { class: "borders" }, world);
  const tiles = make("g", {}, world);
  const shape = make("path", { class: "shape" }, world);
  for (const x of [-360, 360]) make("use", { href: "#map-world", x }, svg);
  const boxes = [-360, 0, 360].map(() => make("rect", { class: "box", width: 0, height: 0 }, svg));
  const handles = [0, 1, 2, 3].map(() => make("circle", { class: "handle" }, svg));

  // --- The view: a centre and the degrees one CSS pixel spans ---
  const view = { lon: 0, lat: 10, scale: 1 };
  let size = { width: 640, height: 320 };

  const worldScale = () => Math.max(360 / size.width, 180 / size.height);
  const draw = () => {
    view.scale = clamp(view.scale, 0.002, worldScale());
    const width = size.width * view.scale;
    const height = size.height * view.scale;
    const room = Math.max(0, 90 - height / 2);
    view.lat = clamp(view.lat, -room, room);
    view.lon = wrap(view.lon);
    svg.setAttribute("viewBox", `${view.lon - width / 2} ${-view.lat - height / 2} ${width} ${height}`);
    for (const handle of handles) handle.setAttribute("r", 5 * view.scale);
    drawTiles();
    drawBox();
    if (view.scale < worldScale() / 5) loadFine();
  };
  const zoom = (factor, lon = view.lon, lat = view.lat) => {
    const before = view.scale;
    view.scale = clamp(view.scale * factor, 0.002, worldScale());
    const kept = view.scale / before;
    view.lon = lon + (view.lon - lon) * kept;
    view.lat = lat + (view.lat - lat) * kept;
    draw();
  };
  const place = (event) => {
    const frame = svg.getBoundingClientRect();
    return {
      lon: view.lon + (event.clientX - frame.left - frame.width / 2) * view.scale,
      lat: clamp(view.lat - (event.clientY - frame.top - frame.height / 2) * view.scale, -90, 90),
    };
  };

  // --- Land ---
  const ring = (points) => "M" + points.map(([x, y]) => `${x.toFixed(3)} ${(-y).toFixed(3)}`).join("L");
  // A ring that crosses the antimeridian is drawn whole, about where its middle is: the world's copies
  // show the other end. One that goes round a pole is closed along it.
  const area = (points) => {
    let turns = 0;
    const whole = points.map(([x, y], i) => {
      const step = i ? x - points[i - 1][0] : 0;
      turns += step > 180 ? -360 : step < -180 ? 360 : 0;
      return [x + turns, y];
    });
    const [first, last] = [whole[0], whole[whole.length - 1]];
    if (Math.abs(last[0] - first[0]) > 180) {
      const pole = first[1] < 0 ? -90 : 90;
      whole.push([last[0], pole], [first[0], pole]);
    }
    const xs = whole.map(([x]) => x);
    const by = -360 * Math.round((Math.min(...xs) + Math.max(...xs)) / 720);
    return ring(whole.map(([x, y]) => [x + by, y])) + "Z";
  };
  const outline = (geometry) => {
    switch (geometry.type) {
      case "FeatureCollection": return geometry.features.map(outline).join("");
      case "Feature": return outline(geometry.geometry);
      case "GeometryCollection": return geometry.geometries.map(outline).join("");
      case "Polygon": return geometry.coordinates.map(area).join("");
      case "MultiPolygon": return geometry.coordinates.flat().map(area).join("");
      case "MultiLineString": return geometry.coordinates.map(ring).join("");
      default: return "";
    }
  };
  const fetchJson = async (address) => {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
    return answer.json();
  };
  const missing = (error) => {
    console.error(error);
    note.textContent = "Land outlines could not be loaded; the map works without them.";
  };
  fetchJson(root.dataset.world).then((topology) => {
    land.setAttribute("d", outline(topojson.feature(topology, topology.objects.land)));
    const inner = topojson.mesh(topology, topology.objects.countries, (a, b) => a !== b);
    borders.setAttribute("d", outline(inner));
  }).catch(missing);
  let fine = false;
  const loadFine = () => {
    if (fine) return;
    fine = true;
    fetchJson(root.dataset.fine).then((topology) => {
      land.setAttribute("d", outline(topojson.feature(topology, topology.objects.land)));
    }).catch(missing);
  };
  let lines = "";
  for (let lon = -180; lon < 180; lon += 30) lines += `M${lon} -90V90`;
  for (let lat = -60; lat <= 60; lat += 30) lines += `M-180 ${lat}H180`;
  graticule.setAttribute("d", lines);

  // --- MODIS tiles: bands of 10 degrees of latitude, sides that slant with its cosine ---
  const tileName = (h, v) => `h${String(h).padStart(2, "0")}v${String(v).padStart(2, "0")}`;
  const side = (h, lat) => (10 * (h - 18)) / Math.max(Math.cos((lat * Math.PI) / 180), 1e-9);
  const tilePath = (h, v) => {
    const left = [];
    const right = [];
    for (let step = 0; step <= 20; step += 1) {
      const lat = 90 - 10 * v - step / 2;
      const west = clamp(side(h, lat), -180, 180);
      const east = clamp(side(h + 1, lat), -180, 180);
      if (east - west < 1e-6) continue;
      left.push([west, lat]);
      right.unshift([east, lat]);
    }
    return left.length > 1 ? { path: ring([...left, ...right]) + "Z", at: left[left.length >> 1], to: right[right.length >> 1] } : null;
  };
  const drawn = new Map();
  for (let v = 0; v < 18; v += 1) {
    for (let h = 0; h < 36; h += 1) {
      const made = tilePath(h, v);
      if (!made) continue;
      const node = make("path", { class: "tile", d: made.path, "data-tile": tileName(h, v) }, tiles);
      const name = make("text", { class: "tile-name", x: (made.at[0] + made.to[0]) / 2, y: -made.at[1] }, tiles);
      name.textContent = tileName(h, v);
      drawn.set(tileName(h, v), { node, name, h, v });
    }
  }
  const overlay = form.querySelector("[data-tiles]");
  const chosenTiles = () => field("tiles").value.toLowerCase().match(/h\d\dv\d\d/g) ?? [];
  const touches = (h, v, box) => {
    const low = Math.max(box.south, 80 - 10 * v);
    const high = Math.min(box.north, 90 - 10 * v);
    if (low >= high) return false;
    for (let step = 0; step <= 20; step += 1) {
      const lat = low + ((high - low) * step) / 20;
      const west = clamp(side(h, lat), -180, 180);
      const east = clamp(side(h + 1, lat), -180, 180);
      for (const turn of [0, 360]) {
        if (west + turn < box.east && east + turn > box.west && east > west) return true;
      }
    }
    return false;
  };
  const drawTiles = () => {
    const picking = kind() === "tiles";
    const shown = picking || overlay.checked;
    tiles.toggleAttribute("hidden", !shown);
    tiles.setAttribute("display", shown ? "inline" : "none");
    if (!shown) return;
    const box = kind() === "bbox" ? readBox() : null;
    const chosen = new Set(picking ? chosenTiles() : []);
    const named = 10 / view.scale > 48;
    for (const [key, tile] of drawn) {
      const touched = picking ? chosen.has(key) : box !== null && touches(tile.h, tile.v, box);
      tile.node.classList.toggle("touched", touched);
      tile.name.setAttribute("display", named ? "inline" : "none");
      if (named) tile.name.setAttribute("transform", textScale(tile.name, 11 * view.scale));
    }
  };
  const textScale = (node, factor) => {
    const x = Number(node.getAttribute("x"));
    const y = Number(node.getAttribute("y"));
    return `translate(${x} ${y}) scale(${factor}) translate(${-x} ${-y})`;
  };

  // --- The box ---
  const readBox = () => {
    if (edges.some((edge) => edge.value.trim() === "")) return null;
    const [west, south, east, north] = edges.map((edge) => Number(edge.value));
    if (![west, south, east, north].every(Number.isFinite) || south >= north || west === east) return null;
    return { west, south, east: east < west ? east + 360 : east, north };
  };
  const drawBox = () => {
    const box = kind() === "bbox" ? readBox() : null;
    boxes.forEach((node, index) => {
      node.setAttribute("display", box ? "inline" : "none");
      if (!box) return;
      node.setAttribute("x", box.west + 360 * (index - 1));
      node.setAttribute("y", -box.north);
      node.setAttribute("width", box.east - box.west);
      node.setAttribute("height", box.north - box.south);
    });
    const corners = box ? [[box.west, box.south], [box.east, box.south], [box.east, box.north], [box.west, box.north]] : [];
    handles.forEach((node, index) => {
      node.setAttribute("display", box ? "inline" : "none");
      if (!box) return;
      node.setAttribute("cx", nearView(corners[index][0]));
      node.setAttribute("cy", -corners[index][1]);
    });
    say(box);
  };
  const nearView = (lon) => lon + 360 * Math.round((view.lon - lon) / 360);
  const degrees = (value, plus, minus) => `${Math.abs(value).toFixed(2).replace(/\.?0+$/, "")}° ${value < 0 ? minus : plus}`;
  const say = (box) => {
    if (kind() === "tiles") {
      const count = chosenTiles().length;
      note.textContent = count ? `${count} tile${count > 1 ? "s" : ""} chosen` : "Click tiles to choose them";
    } else if (kind() === "geojson") note.textContent = "The polygon below";
    else if (kind() === "place") note.textContent = "The place below";
    else if (kind() === "sites") note.textContent = "The sites below";
    else if (!box) note.textContent = "Drag to draw a box";
    else note.textContent = `${degrees(box.west, "E", "W")} to ${degrees(wrap(box.east), "E", "W")}, ${degrees(box.south, "N", "S")} to ${degrees(box.north, "N", "S")}`;
  };
  const rounded = (value) => {
    const digits = clamp(Math.ceil(-Math.log10(view.scale)), 0, 4);
    return String(Number(value.toFixed(digits)));
  };
  const writeBox = (box, done) => {
    const west = wrap(box.west);
    const east = box.east - box.west >= 360 ? west + 359.99 : wrap(box.east);
    const values = [west, clamp(box.south, -90, 90), east, clamp(box.north, -90, 90)];
    values.forEach((value, index) => { edges[index].value = rounded(index === 2 && value === -180 ? 180 : value); });
    drawBox();
    drawTiles();
    if (done) edges[0].dispatchEvent(new Event("change", { bubbles: true }));
  };

  // --- Pointer: draw, move a corner, pan, pick a tile ---
  let held = null;
  const corner = (event) => {
    const box = kind() === "bbox" ? readBox() : null;
    if (!box) return null;
    const at = place(event);
    const reach = 12 * view.scale;
    for (const [lon, lat, otherLon, otherLat] of [
      [box.west, box.south, box.east, box.north], [box.east, box.south, box.west, box.north],
      [box.east, box.north, box.west, box.south], [box.west, box.north, box.east, box.south],
    ]) {
      const near = nearView(lon);
      if (Math.hypot(near - at.lon, lat - at.lat) < reach) return { lon: otherLon + near - lon, lat: otherLat };
    }
    return null;
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    const at = place(event);
    const mode = root.dataset.mode;
    if (mode === "tiles") {
      const tile = event.target.closest?.("[data-tile]") ?? document.elementFromPoint(event.clientX, event.clientY);
      if (tile?.dataset?.tile) toggleTile(tile.dataset.tile);
      return;
    }
    const anchor = mode === "draw" ? corner(event) ?? at : null;
    held = { from: at, anchor, x: event.clientX, y: event.clientY, lon: view.lon, lat: view.lat, moved: false };
    svg.setPointerCapture(event.pointerId);
    if (mode === "draw") event.preventDefault();
    svg.focus({ preventScroll: true });
  });
  svg.addEventListener("pointermove", (event) => {
    if (!held) return;
    if (!held.moved && Math.hypot(event.clientX - held.x, event.clientY - held.y) < 4) return;
    held.moved = true;
    if (held.anchor === null) {
      view.lon = held.lon - (event.clientX - held.x) * view.scale;
      view.lat = held.lat + (event.clientY - held.y) * view.scale;
      draw();
      return;
    }
    writeBox(between(held.anchor, place(event)), false);
  });
  const between = (a, b) => ({
    west: Math.min(a.lon, b.lon), east: Math.max(a.lon, b.lon),
    south: Math.min(a.lat, b.lat), north: Math.max(a.lat, b.lat),
  });
  svg.addEventListener("pointerup", (event) => {
    const was = held;
    held = null;
    if (was?.moved && was.anchor !== null) writeBox(between(was.anchor, place(event)), true);
  });
  svg.addEventListener("pointercancel", () => { held = null; });
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== svg) return;
    event.preventDefault();
    const at = place(event);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at.lon, at.lat);
  }, { passive: false });
  const toggleTile = (name) => {
    const chosen = chosenTiles();
    const at = chosen.indexOf(name);
    if (at >= 0) chosen.splice(at, 1);
    else chosen.push(name);
    field("tiles").value = chosen.join(", ");
    field("tiles").dispatchEvent(new Event("change", { bubbles: true }));
  };

  // --- Keyboard: arrows move the box (or the map), with Shift they size it, + and - zoom ---
  svg.addEventListener("keydown", (event) => {
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") zoom(0.7);
    else if (event.key === "-") zoom(1.4);
    else if (event.key === "0") fit();
    else if (event.key in arrows) {
      const [dx, dy] = arrows[event.key];
      const step = Math.max(Number(rounded(10 * view.scale)), 10 ** -clamp(Math.ceil(-Math.log10(view.scale)), 0, 4));
      const box = root.dataset.mode === "draw" && kind() === "bbox" ? readBox() : null;
      if (!box) {
        view.lon += dx * step * 4;
        view.lat += dy * step * 4;
        draw();
      } else if (event.shiftKey) {
        const east = Math.max(box.east + dx * step, box.west + step);
        const north = Math.max(box.north + dy * step, box.south + step);
        writeBox({ ...box, east, north }, true);
      } else {
        const up = clamp(dy * step, -90 - box.south, 90 - box.north);
        writeBox({ west: box.west + dx * step, east: box.east + dx * step, south: box.south + up, north: box.north + up }, true);
      }
    } else return;
    event.preventDefault();
  });

  // --- Tools and the form's own fields ---
  const fit = () => {
    const chosen = kind() === "tiles" ? chosenTiles().map((name) => drawn.get(name)?.node.getBBox()).filter(Boolean) : [];
    const polygon = kind() === "geojson" && shape.getAttribute("d") ? shape.getBBox() : null;
    if (polygon) chosen.push(polygon);
    const box = kind() === "bbox" ? readBox() : chosen.length ? {
      west: Math.min(...chosen.map((b) => b.x)), east: Math.max(...chosen.map((b) => b.x + b.width)),
      south: Math.min(...chosen.map((b) => -b.y - b.height)), north: Math.max(...chosen.map((b) => -b.y)),
    } : null;
    if (!box) { Object.assign(view, { lon: 0, lat: 10, scale: worldScale() }); draw(); return; }
    view.lon = (box.west + box.east) / 2;
    view.lat = (box.south + box.north) / 2;
    view.scale = Math.max((box.east - box.west) / size.width, (box.north - box.south) / size.height) * 2;
    draw();
  };
  const whole = () => { Object.assign(view, { lon: 0, lat: 10, scale: worldScale() }); draw(); };
  const tools = { in: () => zoom(0.6), out: () => zoom(1 / 0.6), fit, whole };
  for (const [name, act] of Object.entries(tools)) root.querySelector(`[data-tool="${name}"]`).addEventListener("click", act);

  const pointerMode = () => form.querySelector('input[name="map_mode"]:checked')?.value ?? "draw";
  const follow = () => {
    const region = kind();
    root.dataset.mode = region === "tiles" ? "tiles" : ["geojson", "place", "sites"].includes(region) ? "move" : pointerMode();
    for (const part of form.querySelectorAll("[data-region]")) part.hidden = !part.dataset.region.split(" ").includes(region);
    drawShape();
    draw();
  };
  const drawShape = () => {
    let path = "";
    if (kind() === "geojson") {
      try { path = outline(JSON.parse(field("geojson").value)); } catch { path = ""; }
    }
    shape.setAttribute("d", path);
  };
  form.addEventListener("input", (event) => {
    if (["west", "south", "east", "north", "tiles", "geojson"].includes(event.target.name)) { drawShape(); drawBox(); drawTiles(); }
  });
  form.addEventListener("change", (event) => {
    if (["region_kind", "map_mode"].includes(event.target.name)) follow();
    else if (["west", "south", "east", "north", "tiles", "geojson"].includes(event.target.name) || event.target === overlay) { drawShape(); draw(); }
  });
  if (matchMedia("(pointer: coarse)").matches) {
    const move = form.querySelector('input[name="map_mode"][value="move"]');
    if (move) move.checked = true;
  }
  const measure = () => {
    const frame = svg.getBoundingClientRect();
    if (frame.width > 0) size = { width: frame.width, height: frame.height };
  };
  new ResizeObserver(() => { measure(); draw(); }).observe(svg);
  measure();
  view.scale = worldScale();
  follow();
  if (readBox() || chosenTiles().length || shape.getAttribute("d")) fit();
})();
