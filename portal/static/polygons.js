// Polygons on the map of results: drawn by mouse, finger or keys, and put into the form as GeoJSON.
"use strict";
(() => {
  const root = document.querySelector("[data-results-map]");
  const form = document.getElementById("polygon-form");
  if (!root || !form) return;
  const text = document.getElementById("polygon-text");
  const found = document.getElementById("polygons-found");
  const hint = form.querySelector("[data-polygon-hint]");
  const [draw, clear] = ["draw", "clear"].map((name) => form.querySelector(`[data-polygon="${name}"]`));
  document.getElementById("layer").addEventListener("change", () => { if (found.children.length) form.requestSubmit(); });
  document.getElementById("polygon-file").addEventListener("change", (event) => {
    clear.click();
    if (event.target.files.length) form.requestSubmit();
  });

  root.addEventListener("map-ready", ({ detail: { map, projection } }) => {
    const source = new ol.source.Vector({ wrapX: false });
    const style = () => new ol.style.Style({
      stroke: new ol.style.Stroke({ color: "#b3261e", width: 2.5 }), fill: new ol.style.Fill({ color: "rgba(255,255,255,.25)" }),
      image: new ol.style.Circle({ radius: 5, stroke: new ol.style.Stroke({ color: "#b3261e", width: 2 }), fill: new ol.style.Fill({ color: "#fff" }) }),
    });
    map.addLayer(new ol.layer.Vector({ zIndex: 8, source, style: style() }));
    const format = new ol.format.GeoJSON();
    const write = () => {
      text.value = source.getFeatures().length ? format.writeFeatures(source.getFeatures(), { featureProjection: projection, dataProjection: "EPSG:4326", decimals: 6 }) : "";
      clear.hidden = !text.value;
    };
    let pen = null;
    const put = (on) => {
      if (pen) map.removeInteraction(pen);
      pen = on ? new ol.interaction.Draw({ source, type: "Polygon", style: style() }) : null;
      draw.setAttribute("aria-pressed", String(on));
      hint.textContent = on ? "Click each corner; click the first one again to finish. With the keyboard: Enter sets a corner at the map's centre, Backspace takes it back, Escape ends." : "";
      root.toggleAttribute("data-drawing", on);
      if (!on) return;
      map.addInteraction(pen);
      pen.on("drawend", ({ feature }) => setTimeout(() => {
        feature.setProperties({ name: `Polygon ${source.getFeatures().length}` });
        put(false);
        write();
        form.requestSubmit();
      }));
      map.getTargetElement().focus({ preventScroll: true });
    };
    draw.hidden = false;
    draw.addEventListener("click", () => { document.getElementById("polygon-file").value = ""; put(!pen); });
    clear.addEventListener("click", () => { source.clear(); write(); found.replaceChildren(); });
    let corners = 0;
    map.getTargetElement().addEventListener("keydown", (event) => {
      if (!pen) return;
      if (event.key === "Enter") {
        const centre = map.getView().getCenter();
        pen.appendCoordinates([centre]);
        corners += 1;
        hint.textContent = `${corners} corner${corners > 1 ? "s" : ""}; ${corners > 2 ? "Space finishes" : "move the map with the arrow keys and press Enter again"}.`;
      } else if (event.key === " " && corners > 2) { corners = 0; pen.finishDrawing(); }
      else if (event.key === "Backspace" && corners) { corners -= 1; pen.removeLastPoint(); }
      else if (event.key === "Escape") { corners = 0; put(false); }
      else return;
      event.preventDefault();
    });
  });
})();
