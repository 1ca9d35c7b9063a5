// A layer on the form's map before anything is requested: tiles of a day, before and after the quality rule.
// On the page of a folder (`swathmill view`) it is always shown, and the page itself offers layers and days.
"use strict";
(() => {
  const root = document.querySelector("[data-layer-view]");
  const map = document.querySelector("[data-region-map]");
  if (!root || !map) return;
  const form = root.closest("form");
  const alone = root.hasAttribute("data-alone");
  const part = (name) => root.querySelector(`[data-view="${name}"]`);
  const field = (name) => form.elements.namedItem(name);
  const WAIT = 300; // milliseconds after the last change
  const MOST_DAYS = 8;
  const SMALL = 160; // pixels of the screen: a region that is narrower is looked at from nearer
  let shown = null; // what is on the map: its address, and its layers

  // --- What the form asks for ---
  const layers = () => [...form.querySelectorAll("[data-card]")].flatMap((card) => {
    const [, name, collection] = card.querySelector('input[name="product"]').value.split("|");
    if (name.includes(":")) return []; // a raster, or a record: maps are of one product
    return [...card.querySelectorAll(".layers input:checked")].map((box) => ({ product: `${name}.${collection}`, layer: box.value }));
  });
  const rule = () => {
    const chosen = field("qa").value;
    if (chosen !== "rule") return chosen;
    const found = {};
    for (const box of form.querySelectorAll('input[name="qa_bits"]:checked')) {
      const [layer, bits, value] = box.value.split("|");
      ((found[layer] ??= {})[bits] ??= []).push(Number(value));
    }
    return Object.keys(found).length ? JSON.stringify(found) : "";
  };
  const options = (qa) => {
    const query = new URLSearchParams();
    if (qa) query.set("qa", qa);
    if (field("merge").value !== "nadir") query.set("merge", field("merge").value);
    const method = field("resampling").value;
    if (method && method !== "map") query.set("resampling", method);
    return query;
  };
  const address = (day = part("day").value) => {
    const [product, layer] = part("layer").value.split("|");
    return `/tiles/${encodeURIComponent(product)}/${encodeURIComponent(layer)}/${day}`;
  };
  const ask = async (url) => {
    const answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (answer.ok) return answer.json();
    const problem = await answer.json().catch(() => ({}));
    throw new Error([problem.detail, problem.remedy].filter(Boolean).join(" ") || "The portal does not answer. Try again in a moment.");
  };
  const box = async (day = part("day").value) => (await map.regionMap.region(day)).map((edge) => edge.toFixed(4)).join(",");

  // --- The map ---
  const tiles = (query) => {
    const resolutions = Array.from({ length: 19 }, (_, zoom) => 180 / 256 / 2 ** zoom);
    const source = new ol.source.XYZ({
      projection: "EPSG:4326", tileGrid: new ol.tilegrid.TileGrid({ origin: [-180, 90], resolutions, tileSize: 256 }),
      url: `${address()}/{z}/{x}/{y}.png?${query}`, interpolate: false, transition: 0, wrapX: true,
    });
    source.on("tileloaderror", () => { root.dataset.failed = String(Number(root.dataset.failed ?? 0) + 1); });
    source.on("tileloadend", () => { root.dataset.loaded = String(Number(root.dataset.loaded ?? 0) + 1); });
    return new ol.layer.Tile({ source, zIndex: 1.5 });
  };
  // Before the rule to the left of the swipe, after it to the right.
  const half = (layer, right) => {
    layer.on("prerender", ({ context }) => {
      const { width, height } = context.canvas;
      const at = width * (Number(part("swipe").value) / 100);
      context.save();
      context.beginPath();
      context.rect(right ? at : 0, 0, right ? width - at : at, height);
      context.clip();
    });
    layer.on("postrender", ({ context }) => context.restore());
  };
  const hide = () => {
    for (const layer of shown?.layers ?? []) map.regionMap.map.removeLayer(layer);
    shown = null;
    delete root.dataset.shown;
    delete map.dataset.seen;
    map.regionMap.paint();
  };
  const share = (value) => `${(100 * value).toFixed(value > 0.1 ? 0 : 1)}%`;
  const short = (value) => String(Number(value.toPrecision(4)));
  const measure = (value, units) => [short(value), units === "1" ? "" : units].join(" ").trim();
  // A histogram or classes, which the portal draws as on its other pages.
  const legend = async (query) => {
    const answer = await fetch(`${address()}/legend?${query}`, { headers: { "HX-Request": "true" } });
    return answer.ok ? answer.text() : "";
  };

  let turn = 0;
  const show = async () => {
    const region = part("day").value ? await box().catch(() => "") : "";
    const key = [part("on").checked, part("layer").value, part("day").value, rule(), options(""), region].join(" ");
    if (shown?.key === key) return; // another part of the form has changed
    const now = (turn += 1);
    hide();
    part("legend").hidden = true;
    part("elsewhere").hidden = true;
    part("value-part").hidden = true;
    if (!part("on").checked) return;
    if (!part("layer").value) { part("said").textContent = "Tick a layer above to see it."; return; }
    if (!part("day").value) { part("said").textContent = "Choose a day."; return; }
    part("said").textContent = "Looking …";
    try {
      const qa = rule();
      const said = await ask(`${address()}/survey.json?${options(qa)}&bbox=${region}`);
      const counted = await legend(`${options(qa)}&bbox=${region}`);
      if (now !== turn) return;
      const query = options("");
      query.set("tms", "WorldCRS84Quad");
      if (said.low !== null) query.set("rescale", `${said.low},${said.high}`);
      const made = [tiles(query)];
      if (qa) {
        query.set("qa", qa);
        made.push(tiles(query));
        made.forEach((layer, at) => half(layer, at === 1));
      }
      part("compare").hidden = !qa;
      for (const layer of made) map.regionMap.map.addLayer(layer);
      const edges = region.split(",").map(Number);
      const view = map.regionMap.map.getView();
      const isSmall = ol.extent.getWidth(edges) / view.getResolution() < SMALL;
      if (isSmall || !ol.extent.containsCoordinate(view.calculateExtent(), ol.extent.getCenter(edges))) map.regionMap.fit();
      shown = { key, layers: made };
      root.dataset.shown = address();
      map.dataset.seen = "yes";
      map.regionMap.paint();
      part("said").textContent = `${share(said.covered)} of the pixels in the region have a value${qa ? `; ${share(said.valid)} with the quality rule` : ""}. ${said.granules} granule${said.granules === 1 ? "" : "s"}.`;
      htmx.swap(part("legend"), counted, { swapStyle: "innerHTML" });
      part("legend").hidden = !counted.trim();
      const far = options(qa);
      if (said.low !== null) far.set("rescale", `${said.low},${said.high}`);
      part("address").href = `${address()}/WMTSCapabilities.xml?${far}`;
      part("elsewhere").hidden = false;
      part("value-part").hidden = false;
      part("value").replaceChildren();
      strip(said);
    } catch (error) {
      if (now === turn) part("said").textContent = error.message;
    }
  };

  // --- The value at a place ---
  const tell = async ([lon, lat]) => {
    if (!shown) return;
    const place = part("value");
    const facts = (lines) => place.replaceChildren(...lines.flatMap(([name, text]) => {
      const [term, told] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      told.textContent = text;
      return [term, told];
    }));
    const at = `${maps.degrees(lat, "N", "S", 3)}, ${maps.degrees(lon, "E", "W", 3)}`;
    facts([["At", `${at} …`]]);
    try {
      const { value, units, origin, note } = await ask(`${address()}/value.json?${options(rule())}&lon=${lon.toFixed(5)}&lat=${lat.toFixed(5)}`);
      const lines = [["At", at], ["Value", value === null ? "none" : measure(value, units)]];
      if (origin) lines.push(["Source pixel", `row ${origin.row}, column ${origin.column} of ${origin.granule}: ${origin.reason}`]);
      if (note) lines.push(["Note", note]);
      for (const { layer, stored, fields } of origin?.quality ?? []) lines.push([layer, [stored, ...fields.map((one) => `${one.name} ${one.meaning || one.value}`)].join("; ")]);
      facts(lines);
    } catch (error) {
      facts([["At", at], ["Value", error.message]]);
    }
  };

  // --- Days of the time span, with small pictures ---
  let stripped = "";
  const strip = async (said) => {
    const [product] = part("layer").value.split("|");
    const query = options(rule());
    query.set("side", "96");
    if (said.low !== null) query.set("rescale", `${said.low},${said.high}`);
    const key = `${part("layer").value} ${field("start").value} ${field("end").value} ${await box()} ${query}`;
    if (key !== stripped) {
      stripped = key;
      const found = await ask(`/tiles/${encodeURIComponent(product)}/days.json?start=${field("start").value || part("day").value}&end=${field("end").value || part("day").value}&most=${MOST_DAYS}`).catch(() => ({ days: [] }));
      if (key !== stripped) return;
      const boxes = await Promise.all(found.days.map((day) => box(day)));
      if (key !== stripped) return;
      part("strip").replaceChildren(...found.days.map((day, at) => {
        const button = document.createElement("button");
        button.type = "button";
        button.dataset.day = day;
        const picture = document.createElement("img");
        picture.alt = "";
        picture.loading = "lazy";
        picture.src = `${address(day)}/picture.png?${query}&bbox=${boxes[at]}`;
        button.append(picture, day);
        return button;
      }));
    }
    for (const button of part("strip").children) button.setAttribute("aria-pressed", String(button.dataset.day === part("day").value));
  };
  part("strip").addEventListener("click", (event) => {
    const button = event.target.closest("[data-day]");
    if (!button) return;
    part("day").value = button.dataset.day;
    show();
  });

  // --- Following the form ---
  const fill = () => {
    if (!part("day").value) part("day").value = field("start").value;
    const select = part("layer");
    if (alone) return;
    const before = select.value;
    const offered = layers();
    select.replaceChildren(...offered.map(({ product, layer }) => new Option(`${layer} (${product.split(".")[0]})`, `${product}|${layer}`)));
    if (offered.some(({ product, layer }) => `${product}|${layer}` === before)) select.value = before;
  };
  let waiting = null;
  const soon = () => {
    clearTimeout(waiting);
    waiting = setTimeout(show, WAIT);
  };
  form.addEventListener("change", (event) => {
    if (root.contains(event.target)) return;
    fill();
    if (event.target.name === "start") part("day").value = event.target.value;
    if (part("on").checked) soon();
  });
  root.addEventListener("change", (event) => {
    event.stopPropagation(); // it changes nothing of the request
    part("part").hidden = !part("on").checked;
    fill();
    if (event.target !== part("swipe")) soon();
  });
  root.addEventListener("input", (event) => {
    event.stopPropagation();
    if (event.target === part("swipe")) map.regionMap.map.render();
  });
  const wrapped = ([lon, lat]) => [((((lon + 180) % 360) + 360) % 360) - 180, Math.min(90, Math.max(-90, lat))];
  const begin = () => {
    root.hidden = false;
    fetch("/tiles/readers").catch(() => {}); // what draws takes seconds to start
    fill();
    if (alone) show();
    map.regionMap.map.on("click", ({ coordinate }) => tell(wrapped(coordinate)));
    part("middle").addEventListener("click", () => tell(wrapped(map.regionMap.map.getView().getCenter())));
  };
  if (map.regionMap) begin();
  else map.addEventListener("ready", begin);
})();
