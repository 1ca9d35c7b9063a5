// The map of a request's results: rasters by range requests, dates, comparison, values at a place.
"use strict";
(() => {
  const root = document.querySelector("[data-results-map]");
  if (!root) return;
  const get = (id) => document.getElementById(id);
  const base = `/requests/${root.dataset.request}/map`;
  const problem = (text) => { get("map-problem").textContent = text; get("map-problem").hidden = !text; };
  const PROJECTION = "SWATHMILL:GRID";
  const KEPT = 16; // rasters of other dates, so that playing does not read them again
  const APART = 64; // pixels between meridians when the map opens, at least
  const NAMED = 40; // pixels that a place has on the map, at least, to be named
  const CITY = [56, 64]; // pixels to the next larger city: from there its name fades in, and is whole
  const STEP = 900; // ms between dates
  const HANDLE = 44; // pixels, as swathmill.css has it

  const described = new Map();
  const describe = async (id, band) => {
    const key = `${band} ${id}`;
    if (!described.has(key)) {
      const read = maps.readJson(`${base}/layer?${new URLSearchParams({ layer: id, band })}`);
      described.set(key, await read.catch(() => { throw new Error("The layer could not be read. Load the page again."); }));
    }
    return described.get(key);
  };

  // The range that somebody chose, in values, of one band of one layer.
  let range = null;
  const isChosen = (info) => range?.id === info.id && range.band === info.band;
  const ends = (info) => (isChosen(info) ? [range.low, range.high].map((value) => (value - info.offset) / info.scale) : [info.low, info.high]);
  const style = (info) => {
    const clear = [0, 0, 0, 0];
    const value = ["band", 1];
    let colour = clear;
    if (!info.continuous && info.classes.length) {
      colour = ["match", value, ...info.classes.flatMap(([code, rgba]) => [code, `rgb(${rgba.slice(0, 3).join(",")})`]), clear];
    } else if (info.low !== null) {
      const [low, high] = ends(info); // stored numbers
      const colours = get("colormap").selectedOptions[0].dataset.colours.split(" ");
      const stops = colours.flatMap((one, i) => [low + ((high - low) * i) / (colours.length - 1), one]);
      const falling = high < low;
      colour = ["interpolate", ["linear"], falling ? ["*", value, -1] : value, ...(falling ? stops.map((one, i) => (i % 2 ? one : -one)) : stops)];
    }
    return { color: info.nodata === null ? colour : ["case", ["==", ["band", 2], 0], clear, colour] };
  };

  const sources = new Map();
  const source = (info, date) => {
    const address = info.files[date];
    const key = `${info.band} ${address}`;
    let found = sources.get(key);
    sources.delete(key);
    found ??= new ol.source.GeoTIFF({
      sources: [{ url: new URL(address, location.href).href, bands: [info.band + 1], ...(info.nodata === null ? {} : { nodata: info.nodata }) }],
      normalize: false, interpolate: false, wrapX: false, projection: PROJECTION,
      sourceOptions: { credentials: "same-origin" },
    });
    found.on("change", () => { if (found.getState() === "error") problem("A raster could not be read. It may have expired."); });
    sources.set(key, found);
    while (sources.size > KEPT) sources.delete(sources.keys().next().value);
    return found;
  };

  // Two sides: what is shown, and what it is compared with.
  const side = (select, slider, output, z) => {
    const made = { select: get(select), slider: get(slider), output: get(output), layer: null, id: "", info: null, z };
    made.dates = () => Object.keys(made.info?.files ?? {}).sort();
    made.date = () => made.dates()[Number(made.slider.value)] ?? "";
    return made;
  };
  const main = side("layer", "when", "date-shown", 1);
  const other = side("other", "other-when", "other-date-shown", 2);
  let map = null;

  // The share of the map to the left of the handle, whose middle stops half its width before the ends.
  const divided = () => {
    const width = get("result-map").clientWidth;
    return (HANDLE / 2 + (width - HANDLE) * (Number(get("swipe").value) / 100)) / width;
  };
  const divide = () => {
    root.style.setProperty("--divided", `${100 * divided()}%`);
    map?.render();
  };

  const clip = (layer) => {
    let pixels = null;
    layer.on("prerender", (event) => {
      const gl = event.context;
      const canvas = gl.canvas;
      const left = Math.round(canvas.width * divided());
      pixels = gl.getParameter(gl.SCISSOR_BOX);
      gl.enable(gl.SCISSOR_TEST);
      gl.scissor(left, 0, canvas.width - left, canvas.height);
    });
    layer.on("postrender", (event) => {
      const gl = event.context;
      gl.disable(gl.SCISSOR_TEST);
      if (pixels) gl.scissor(...pixels);
    });
  };

  const show = async (one, wanted) => {
    const id = one.select.value;
    if (!id) {
      if (one.layer) map.removeLayer(one.layer);
      one.layer = null;
      one.id = "";
      return;
    }
    const band = one === main ? Number(get("band").value || 0) : 0;
    const info = await describe(id, band);
    if (one.select.value !== id) return;
    one.info = info;
    const dates = one.dates();
    one.slider.max = String(dates.length - 1);
    if (wanted !== undefined) {
      const before = dates.filter((date) => date <= wanted).length - 1;
      one.slider.value = String(Math.max(0, before));
    }
    one.slider.setAttribute("aria-valuetext", one.date() || "without a date");
    one.output.textContent = one.date() || "without a date";
    if (!map) begin(info);
    if (one.id !== `${band} ${id}`) {
      if (one.layer) map.removeLayer(one.layer);
      // A canvas of its own: the comparison is cut without cutting what lies below.
      one.layer = new ol.layer.WebGLTile({ style: style(info), source: source(info, one.date()), zIndex: one.z, className: `ol-layer side-${one.z}` });
      if (one === other) clip(one.layer);
      one.layer.setOpacity(Number(get("opacity").value) / 100);
      map.addLayer(one.layer);
      one.id = `${band} ${id}`;
    } else {
      one.layer.setSource(source(info, one.date()));
    }
  };

  const begin = (info) => {
    proj4.defs(PROJECTION, info.projection);
    ol.proj.proj4.register(proj4);
    const extent = info.extent;
    map = new ol.Map({
      target: "result-map",
      controls: ol.control.defaults.defaults().extend([new ol.control.ScaleLine(), new ol.control.FullScreen({ tipLabel: "Full screen", source: get("result-map").parentElement })]),
      view: new ol.View({ projection: PROJECTION, center: ol.extent.getCenter(extent), resolution: 1, constrainOnlyCenter: true, maxResolution: Math.max(extent[2] - extent[0], extent[3] - extent[1]) / 150, minResolution: info.resolution / 24, extent }),
    });
    map.getView().fit(extent, { padding: [16, 16, 16, 16] });
    for (const button of get("result-map").querySelectorAll(".ol-control button")) button.setAttribute("aria-label", button.title);
    map.on("click", (event) => { if (!root.hasAttribute("data-drawing")) read(event.coordinate); });
    get("result-map").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !root.hasAttribute("data-drawing")) { event.preventDefault(); read(map.getView().getCenter()); }
    });
    surroundings(extent);
    root.dispatchEvent(new CustomEvent("map-ready", { detail: { map, projection: PROJECTION } }));
  };

  // Coasts, borders, names and a graticule inside the results' box, in the results' projection.
  const surroundings = (extent) => {
    const toLonLat = ol.proj.getTransform(PROJECTION, "EPSG:4326");
    const fromLonLat = ol.proj.getTransform("EPSG:4326", PROJECTION);
    const edge = [];
    for (let i = 0; i <= 8; i += 1) {
      for (let k = 0; k <= 8; k += 1) edge.push(toLonLat([extent[0] + ((extent[2] - extent[0]) * i) / 8, extent[1] + ((extent[3] - extent[1]) * k) / 8]));
    }
    const good = edge.filter((at) => at.every(Number.isFinite));
    if (!good.length) return;
    const [lons, lats] = [good.map((at) => at[0]), good.map((at) => at[1])];
    const [west, south, east, north] = [Math.min(...lons), Math.min(...lats), Math.max(...lons), Math.max(...lats)];
    // Lines go on beyond the results, to the edges of a wide map.
    const beyond = Math.max(1, 0.8 * Math.max(east - west, north - south));
    const box = [Math.max(Math.min(-180, west), west - beyond), Math.max(-90, south - beyond), Math.min(Math.max(180, east), east + beyond), Math.min(90, north + beyond)];
    // How many degrees a unit of the projection has in the middle.
    const middle = ol.extent.getCenter(extent);
    const unit = (extent[3] - extent[1]) / 1000;
    const [here, there] = [toLonLat(middle), toLonLat([middle[0], middle[1] + unit])];
    const degrees = Math.hypot((there[0] - here[0]) * Math.cos((here[1] * Math.PI) / 180), there[1] - here[1]) / unit;
    const vector = (zIndex, style, declutter = false) => {
      const layer = new ol.layer.Vector({ zIndex, style, declutter, source: new ol.source.Vector({ wrapX: false }) });
      map.addLayer(layer);
      return layer;
    };
    const line = (points, more) => {
      const placed = points.map((at) => fromLonLat(at)).filter((at) => at.every(Number.isFinite));
      return placed.length > 1 ? [new ol.Feature({ geometry: new ol.geom.LineString(placed), ...more })] : [];
    };
    graticule(extent, box, here[1], map.getView().getResolution() * degrees, line, vector);
    const inside = ([lon, lat]) => lon >= box[0] && lon <= box[2] && lat >= box[1] && lat <= box[3];
    const within = (lines, more) => {
      const found = [];
      for (const points of lines) {
        let run = [];
        for (const at of points) {
          const goesOn = inside(at);
          // Beyond 180 degrees a line begins anew on the other side.
          if (run.length && (!goesOn || Math.abs(at[0] - run.at(-1)[0]) > 180)) { found.push(...line(run, more)); run = []; }
          if (goesOn) run.push(at);
        }
        found.push(...line(run, more));
      }
      return found;
    };
    const stroke = (color, width, lineDash) => new ol.style.Style({ stroke: new ol.style.Stroke({ color, width, lineDash }) });
    const coast = [stroke("rgba(255,255,255,.8)", 2.5), stroke("rgba(20,20,20,.9)", 1)];
    const border = [stroke("rgba(255,255,255,.7)", 2.5), stroke("rgba(20,20,20,.8)", 1, [6, 3])];
    const drawn = vector(9, (feature) => (feature.get("border") ? border : coast));
    const fit = maps.outlines(root, (topology, name) => {
      drawn.getSource().clear();
      drawn.getSource().addFeatures([...within(maps.coast(topology)), ...within(maps.borders(topology), { border: true })]);
      root.dataset.lines = name;
    });
    map.on("moveend", () => {
      const resolution = map.getView().getResolution() * degrees;
      root.dataset.resolution = resolution.toPrecision(4);
      fit(resolution).catch((error) => console.warn(error));
    });
    // Names of what is large enough on the map to have one; where they meet, that of the larger place.
    const inner = ol.extent.buffer(extent, -0.03 * Math.min(ol.extent.getWidth(extent), ol.extent.getHeight(extent))); // a name at the edge is cut
    const named = (text, bold, { strength = 1, ...more } = {}) => maps.label(text, `rgba(22,33,31,${strength})`, `rgba(255,255,255,${0.85 * strength})`, { font: `${bold ? "600 13px" : "12px"} sans-serif`, overflow: true, padding: [2, 4, 2, 4], ...more });
    const names = vector(10, (feature, resolution) => {
      const { name, size, city, rank } = feature.getProperties();
      const pixels = size / (resolution * degrees);
      const strength = city ? Math.min(1, 0.5 + (0.5 * (pixels - CITY[0])) / (CITY[1] - CITY[0])) : 1; // half is readable
      if (pixels < (city ? CITY[0] : NAMED)) return null;
      if (!city) return new ol.style.Style({ text: named(name, size > 1.5), zIndex: -rank });
      const side = feature.getGeometry().getCoordinates()[0] < middle[0] ? 1 : -1; // away from the edge
      const dot = new ol.style.Circle({ radius: 3, fill: new ol.style.Fill({ color: `rgba(22,33,31,${strength})` }), stroke: new ol.style.Stroke({ color: `rgba(255,255,255,${strength})`, width: 1.5 }) });
      return new ol.style.Style({ image: dot, text: named(name, false, { strength, textAlign: side > 0 ? "left" : "right", offsetX: 7 * side }), zIndex: -rank });
    }, true);
    const called = { west: Math.max(-360, west), south, east: Math.min(360, east), north };
    maps.readJson(`${base}/names?${new URLSearchParams({ layer: main.select.value, ...called })}`).then((found) => {
      const made = found.map(({ at, ...said }, rank) => new ol.Feature({ geometry: new ol.geom.Point(fromLonLat(at)), rank, ...said }));
      names.getSource().addFeatures(made.filter((one) => ol.extent.containsCoordinate(inner, one.getGeometry().getCoordinates())));
      root.dataset.named = String(found.length);
    }).catch((error) => console.warn(error));
    names.setVisible(get("names").checked);
    get("names").addEventListener("change", (event) => names.setVisible(event.target.checked));
  };
  const graticule = (extent, box, latitude, pixel, line, vector) => {
    const features = [];
    const apart = (least) => [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30].find((one) => one >= least) ?? 45;
    const step = apart(APART * pixel);
    const along = apart((APART * pixel) / Math.cos((latitude * Math.PI) / 180)); // meridians meet at the poles
    for (let lon = Math.ceil(box[0] / along) * along; lon <= box[2]; lon += along) {
      features.push(...line(Array.from({ length: 41 }, (_, i) => [lon, box[1] + ((box[3] - box[1]) * i) / 40]), { label: maps.degrees(lon, "E", "W") }));
    }
    for (let lat = Math.ceil(box[1] / step) * step; lat <= box[3]; lat += step) {
      features.push(...line(Array.from({ length: 41 }, (_, i) => [box[0] + ((box[2] - box[0]) * i) / 40, lat]), { label: maps.degrees(lat, "N", "S") }));
    }
    // Degrees stand at the lower and the right edge, where they hide least of the results.
    const within = ([x, y]) => x >= extent[0] && x <= extent[2] && y >= extent[1] && y <= extent[3];
    const style = (feature) => {
      const label = feature.get("label");
      const points = feature.getGeometry().getCoordinates();
      const [place, textAlign, offsetX] = /[NS]$/.test(label) ? [points.findLast(within), "right", -3] : [points.find(within), "left", 3];
      return [
        new ol.style.Style({ stroke: new ol.style.Stroke({ color: "rgba(110,120,125,.6)", width: 1, lineDash: [3, 4] }) }),
        new ol.style.Style({
          geometry: new ol.geom.Point(place ?? points[0]),
          text: maps.label(label, "#16211f", "#fff", { textBaseline: "bottom", textAlign, offsetX, offsetY: -3 }),
        }),
      ];
    };
    vector(11, style, true).getSource().addFeatures(features);
  };

  const part = (id, address) => htmx.ajax("GET", address, { target: `#${id}`, swap: "innerHTML" });
  let at = null;
  let marker = null;
  const read = (coordinate) => {
    const [lon, lat] = ol.proj.transform(coordinate, PROJECTION, "EPSG:4326");
    get("lon").value = lon.toFixed(5);
    get("lat").value = lat.toFixed(5);
    values(coordinate);
  };
  const values = (coordinate) => {
    const [lon, lat] = [Number(get("lon").value), Number(get("lat").value)];
    if (!get("lon").value.trim() || !get("lat").value.trim() || !(Math.abs(lon) <= 360 && Math.abs(lat) <= 90)) {
      get("point").textContent = "Longitude and latitude are numbers in degrees, such as 5.25 and 52.1.";
      return;
    }
    at = { lon, lat };
    if (map) {
      marker ??= new ol.layer.Vector({ zIndex: 12, source: new ol.source.Vector(), style: new ol.style.Style({ image: new ol.style.Circle({ radius: 6, stroke: new ol.style.Stroke({ color: "#fff", width: 3 }), fill: new ol.style.Fill({ color: "#b3261e" }) }) }) });
      if (!map.getLayers().getArray().includes(marker)) map.addLayer(marker);
      marker.getSource().clear();
      marker.getSource().addFeature(new ol.Feature(new ol.geom.Point(coordinate ?? ol.proj.transform([lon, lat], "EPSG:4326", PROJECTION))));
    }
    point();
  };
  const point = () => {
    if (at) part("point", `${base}/point?${new URLSearchParams({ layer: main.select.value, date: main.date(), ...at })}`);
  };

  const query = () => new URLSearchParams({ layer: main.select.value, date: main.date(), band: get("band").value || 0 });
  const scale = (info) => {
    const said = new URLSearchParams();
    if (!info.continuous) return said;
    if (isChosen(info)) said.set("rescale", `${range.low},${range.high}`);
    if (get("colormap").value !== get("colormap").options[0].value) said.set("colormap", get("colormap").value);
    return said;
  };
  const legends = () => {
    part("legend", `${base}/legend?${query()}&${scale(main.info)}`);
    const beside = other.select.value && other.select.value !== main.select.value;
    get("other-legend").hidden = !beside;
    if (beside && other.info) part("other-legend", `${base}/legend?${new URLSearchParams({ layer: other.select.value })}&${scale(other.info)}`);
  };
  // The address has what the map shows, so that it can be kept and handed on.
  const tellAddress = () => {
    const said = new URLSearchParams({ layer: main.select.value, date: main.date() });
    if (other.select.value) { said.set("other", other.select.value); said.set("other_date", other.date()); }
    for (const [name, value] of scale(main.info)) said.set(name, value);
    history.replaceState(null, "", `?${said}`);
    const named = (one) => `${one.select.selectedOptions[0].text}, ${one.date() || "without a date"}`;
    get("sides").textContent = other.select.value ? `Left of the handle: ${named(main)}. Right: ${named(other)}.` : "";
  };
  let asked = null;
  const tell = () => {
    tellAddress();
    clearTimeout(asked);
    asked = setTimeout(() => { part("statistics", `${base}/statistics?${query()}`); point(); }, 250);
  };
  const guarded = async (work) => {
    problem("");
    try { await work(); } catch (error) { problem(error.message); }
  };

  // Colours: another scale, and another range of it, for values; classes keep theirs.
  const [low, high] = [get("low"), get("high")];
  const value = (field, own) => (field.value.trim() ? Number(field.value) : own);
  const offer = () => {
    const { info } = main;
    get("colours").hidden = !info.continuous || info.low === null;
    [low.placeholder, high.placeholder] = [info.low, info.high].map((one) => (one === null ? "" : String(Number((one * info.scale + info.offset).toPrecision(4)))));
    get("own-range").hidden = !range;
  };
  const readRange = () => {
    const { info } = main;
    const wanted = [value(low, info.low * info.scale + info.offset), value(high, info.high * info.scale + info.offset)];
    const bad = [low, high].find((field, i) => !Number.isFinite(wanted[i]));
    const said = bad ? `“${bad.value}” is no number. Write one such as 0.5.`
      : wanted[0] < wanted[1] ? "" : `From must be less than To: ${wanted[0]} is not less than ${wanted[1]}.`;
    get("range-problem").textContent = said;
    for (const field of [low, high]) field.setAttribute("aria-invalid", String(Boolean(said) && (!bad || bad === field)));
    if (said) return false;
    range = low.value.trim() || high.value.trim() ? { id: info.id, band: info.band, low: wanted[0], high: wanted[1] } : null;
    return true;
  };
  const recolour = () => {
    for (const one of [main, other]) one.layer?.setStyle(style(one.info));
    offer();
    legends();
    tellAddress();
  };
  const forget = () => {
    [low.value, high.value, range] = ["", "", null];
    get("range-problem").textContent = "";
    for (const field of [low, high]) field.setAttribute("aria-invalid", "false");
  };
  const apply = () => { if (readRange()) recolour(); };
  get("colours").addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  low.addEventListener("change", apply);
  high.addEventListener("change", apply);
  get("colormap").addEventListener("change", recolour);
  get("own-range").addEventListener("click", () => { forget(); recolour(); low.focus(); });

  const changeLayer = (first) => guarded(async () => {
    get("band").replaceChildren();
    if (first === undefined) forget(); // a range is of one layer
    await show(main, first ?? main.date());
    get("band").replaceChildren(...main.info.bands.map((name, number) => new Option(name, String(number))));
    root.querySelector("[data-bands]").hidden = main.info.bands.length < 2;
    if (first !== undefined && main.info.continuous && main.info.low !== null && readRange()) main.layer.setStyle(style(main.info));
    offer();
    legends();
    tell();
  });
  get("band").addEventListener("change", () => guarded(async () => {
    forget();
    await show(main);
    offer();
    legends();
    tell();
  }));
  const changeDate = () => guarded(async () => { await show(main); tell(); });
  main.select.addEventListener("change", () => changeLayer());
  main.slider.addEventListener("input", changeDate);
  const changeOther = (wanted) => guarded(async () => {
    const id = other.select.value;
    for (const node of root.querySelectorAll("[data-compare]")) node.hidden = !id;
    get("compare").setAttribute("aria-pressed", String(Boolean(id)));
    // The same layer is compared with itself on the next date, another one on the same date.
    const dates = main.dates();
    const next = dates[dates.indexOf(main.date()) + 1] ?? dates.at(-2);
    await show(other, wanted ?? (id === main.select.value ? next : main.date()));
    divide();
    legends();
    tellAddress();
  });
  other.select.addEventListener("change", () => changeOther());
  get("compare").addEventListener("click", () => {
    other.select.value = other.select.value ? "" : main.select.value;
    changeOther();
  });
  other.slider.addEventListener("input", () => guarded(async () => { await show(other); tellAddress(); }));
  get("swipe").addEventListener("input", divide);
  window.addEventListener("resize", divide);
  get("opacity").addEventListener("input", () => { for (const one of [main, other]) one.layer?.setOpacity(Number(get("opacity").value) / 100); });
  const move = (by) => {
    const last = Number(main.slider.max);
    const next = Number(main.slider.value) + by;
    main.slider.value = String(next > last ? 0 : next < 0 ? last : next);
    return changeDate();
  };
  get("before").addEventListener("click", () => move(-1));
  get("after").addEventListener("click", () => move(1));
  let playing = null;
  get("play").addEventListener("click", (event) => {
    if (playing) clearInterval(playing);
    playing = playing ? null : setInterval(() => move(1), STEP);
    event.target.textContent = playing ? "Stop" : "Play";
    event.target.setAttribute("aria-pressed", String(Boolean(playing)));
  });
  get("place").addEventListener("submit", (event) => { event.preventDefault(); values(); });
  get("map-choice").addEventListener("submit", (event) => event.preventDefault());

  const canvas = document.createElement("canvas");
  if (!canvas.getContext("webgl2") && !canvas.getContext("webgl")) problem("This browser draws no WebGL, so the map stays empty. Values, legend and statistics work.");
  changeLayer(get("date-shown").textContent).then(() => { if (other.select.value) changeOther(get("other-date-shown").textContent || undefined); });
})();
