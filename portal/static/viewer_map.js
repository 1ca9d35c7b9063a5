// The map of a folder's granules (`swathmill view`): where those of a day lie. Mouse, finger and keys move it.
"use strict";
(() => {
  const root = document.querySelector("[data-region-map]");
  const form = root.closest("form");
  const note = root.querySelector("[data-note]");
  const target = document.getElementById("region-map");
  const field = (name) => form.elements.namedItem(name);
  const tool = (name) => form.querySelector(`[data-tool="${name}"]`);
  const day = () => document.getElementById("view-day").value;
  const places = new Map();
  let here = null; // what was in view when it was taken as the region

  const place = (of) => {
    if (!places.has(of)) {
      const query = new URLSearchParams({ product: field("product").value, day: of });
      places.set(of, maps.readJson(`/place.json?${query}`).then(({ bbox }) => bbox));
      places.get(of).catch(() => places.delete(of));
    }
    return places.get(of);
  };
  const region = async (of) => here ?? place(of);

  const begin = () => {
    const globe = maps.globe(root, target, note);
    const { map, view } = globe;
    const frame = globe.vector(4, null);
    map.addLayer(frame);
    map.getViewport().style.touchAction = "pan-y";
    root.dataset.mode = "move";
    const paint = async () => {
      globe.paint();
      frame.setStyle(new ol.style.Style({ stroke: globe.stroke(maps.colour("--bad"), 1.5) }));
      const [west, south, east, north] = await region(day());
      frame.getSource().clear();
      frame.getSource().addFeature(new ol.Feature({ geometry: ol.geom.Polygon.fromExtent([west, south, east, north]) }));
      note.textContent = `${maps.degrees(west, "E", "W", 2)} to ${maps.degrees(east, "E", "W", 2)}, ${maps.degrees(south, "N", "S", 2)} to ${maps.degrees(north, "N", "S", 2)}`;
    };
    const fit = async () => globe.fit(await region(day()));
    const changed = () => form.dispatchEvent(new Event("change"));
    const take = (box) => {
      here = box;
      tool("day").hidden = !box;
      changed();
    };
    const tools = {
      in: () => globe.zoom(0.6), out: () => globe.zoom(1 / 0.6), fit, whole: globe.whole,
      here: () => take(view.calculateExtent().map((edge, at) => (at % 2 ? globe.clamp(edge, -90, 90) : globe.clamp(edge, -360, 360)))),
      day: () => { take(null); fit(); },
    };
    for (const [name, act] of Object.entries(tools)) tool(name).addEventListener("click", act);
    target.addEventListener("keydown", (event) => {
      const keys = {
        ArrowLeft: () => globe.move(-40, 0), ArrowRight: () => globe.move(40, 0), ArrowUp: () => globe.move(0, 40), ArrowDown: () => globe.move(0, -40),
        "+": () => globe.zoom(0.7), "=": () => globe.zoom(0.7), "-": () => globe.zoom(1.4), 0: fit,
        Enter: () => form.querySelector('[data-view="middle"]').click(),
      };
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      event.preventDefault();
      keys[event.key]();
    });
    field("product").addEventListener("change", () => { location.search = new URLSearchParams({ product: field("product").value }); });
    form.addEventListener("change", () => { document.getElementById("rule").hidden = field("qa").value !== "rule"; });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
    globe.paint();
    globe.whole();
    fit().catch(() => {}); // the page says why
    root.dataset.ready = "yes";
    root.regionMap = { map, region, paint, fit };
    root.dispatchEvent(new Event("ready"));
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  if (window.ol) begin();
  else document.getElementById("map-library").addEventListener("load", begin);
})();
