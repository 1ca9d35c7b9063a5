// Charts: the values at a date where one points or goes by keys, a zoom by a brush, and a picture.
"use strict";
(() => {
  const [LEFT, RIGHT, APART] = [1, 98, 18]; // percent, as charts.py has them
  const number = (text) => Number.parseFloat(text);
  // The plot; what is left of it holds the numbers of its lines.
  const plotOf = (svg) => {
    const [box, beside] = [svg.getBoundingClientRect(), number(getComputedStyle(svg).paddingLeft)];
    return { left: box.left + beside, width: box.width - beside, height: box.height, beside };
  };
  // Where a mark stands: a bar in its middle.
  const placeOf = (mark) => {
    const shape = mark.querySelector("rect");
    return number(shape.getAttribute("x")) + (shape.getAttribute("width").endsWith("%") ? number(shape.getAttribute("width")) / 2 : 0);
  };

  // What of a line or an area lies on one side of an upright edge.
  const side = (points, edge, way, closed) => {
    const found = [];
    points.forEach((point, index) => {
      const before = points[index - 1] ?? (closed ? points.at(-1) : point);
      const [inside, was] = [point, before].map(([x]) => (x - edge) * way >= 0);
      if (inside !== was) found.push([edge, before[1] + ((point[1] - before[1]) * (edge - before[0])) / (point[0] - before[0])]);
      if (inside) found.push(point);
    });
    return found;
  };

  const enhance = (figure) => {
    if (figure.dataset.chart === "on") return;
    figure.dataset.chart = "on";
    const svg = figure.querySelector("svg.drawn-chart");
    const marks = [...svg.querySelectorAll(".mark")];
    if (!marks.length) return;
    const isLine = svg.querySelector(".lines") !== null;
    const read = figure.querySelector(".chart-read");
    const whole = figure.querySelector('[data-chart-do="whole"]');
    const tools = figure.querySelector("[data-chart-tools]");
    if (tools) tools.hidden = false;
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-label", `${svg.getAttribute("aria-label")}. Arrow keys go from value to value${isLine ? ", plus zooms in, minus shows all" : ""}.`);
    // A stop is what stands at one place: a mark of each line.
    const stops = [];
    const placed = marks.map((mark) => [placeOf(mark), mark]);
    for (const [at, mark] of placed.sort(([one], [other]) => one - other)) {
      const last = stops.at(-1);
      if (last && at - last.at < 0.005) last.marks.push(mark);
      else stops.push({ at, shown: at, marks: [mark] });
    }
    const visible = () => stops.filter((stop) => stop.shown !== null);
    const nearest = (at) => visible().reduce((one, other) => (Math.abs(other.shown - at) < Math.abs(one.shown - at) ? other : one));
    let chosen = null;
    const choose = (stop) => {
      for (const mark of chosen?.marks ?? []) mark.classList.remove("on");
      chosen = stop;
      for (const mark of stop.marks) mark.classList.add("on");
      read.textContent = stop.marks.map((mark) => mark.querySelector("title").textContent).join("; ");
    };

    // A zoom moves what is drawn; what was drawn first is kept.
    const kept = new Map();
    const original = (node, name) => {
      if (!kept.has(node)) kept.set(node, node.getAttribute(name));
      return kept.get(node);
    };
    const zoom = (from, to) => {
      if (!isLine) return;
      const all = from === undefined;
      const [low, high] = all ? [LEFT, RIGHT] : [from, to];
      const place = (at) => LEFT + ((RIGHT - LEFT) * (at - low)) / (high - low);
      for (const stop of stops) {
        const at = place(stop.at);
        stop.shown = at >= LEFT - 0.01 && at <= RIGHT + 0.01 ? at : null;
        for (const mark of stop.marks) {
          mark.toggleAttribute("hidden", stop.shown === null);
          mark.querySelector("rect").setAttribute("x", `${at.toFixed(2)}%`);
          mark.querySelector("circle").setAttribute("cx", `${at.toFixed(2)}%`);
        }
      }
      const lines = svg.querySelector(".lines");
      for (const node of lines.querySelectorAll("polyline, polygon")) {
        const pairs = original(node, "points").trim().split(/\s+/).map((pair) => pair.split(",").map(Number));
        const moved = pairs.map(([x, y]) => [place(x), y]);
        const closed = node.tagName === "polygon";
        const cut = side(side(moved, LEFT, 1, closed), RIGHT, -1, closed);
        node.setAttribute("points", cut.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(" "));
      }
      for (const node of svg.querySelectorAll(".at, .at-date")) node.toggleAttribute("hidden", !all);
      for (const node of svg.querySelectorAll(".zoomed")) node.remove();
      whole.hidden = all;
      if (!all) dates(visible());
    };
    const dates = (shown) => {
      const end = shown.at(-1);
      let last = -Infinity;
      for (const stop of shown) {
        const first = stop === shown[0];
        if (!first && stop !== end && (stop.shown - last < APART || end.shown - stop.shown < APART)) continue;
        last = stop.shown;
        const text = document.createElementNS(svg.namespaceURI, "text");
        for (const [name, value] of Object.entries({ class: "zoomed", x: `${last}%`, y: "97%", "text-anchor": first ? "start" : stop === end ? "end" : "middle" })) text.setAttribute(name, value);
        text.textContent = stop.marks[0].dataset.date;
        svg.append(text);
      }
    };
    const between = (one, other) => { if (one !== other) zoom(one.at, other.at); };
    const closer = () => {
      const near = visible();
      const middle = Math.max(0, near.indexOf(chosen));
      const half = Math.max(1, Math.floor(near.length / 4));
      between(near[Math.max(0, middle - half)], near[Math.min(near.length - 1, middle + half)]);
    };

    let began = null;
    const brush = document.createElementNS(svg.namespaceURI, "rect");
    brush.setAttribute("class", "brush");
    brush.setAttribute("height", "84%");
    const share = (event) => { const plot = plotOf(svg); return (100 * (event.clientX - plot.left)) / plot.width; };
    svg.addEventListener("pointerdown", (event) => { if (isLine && !event.button) began = share(event); });
    svg.addEventListener("pointermove", (event) => {
      const at = share(event);
      choose(nearest(at));
      if (began === null || Math.abs(at - began) < 1) return;
      svg.setPointerCapture(event.pointerId);
      if (!brush.isConnected) svg.append(brush);
      brush.setAttribute("x", `${Math.max(0, Math.min(began, at))}%`);
      brush.setAttribute("width", `${Math.abs(at - began)}%`);
    });
    svg.addEventListener("pointerup", (event) => {
      const at = share(event);
      if (began !== null && Math.abs(at - began) >= 2) between(nearest(Math.min(began, at)), nearest(Math.max(began, at)));
      began = null;
      brush.remove();
    });
    svg.addEventListener("pointercancel", () => { began = null; brush.remove(); });
    svg.addEventListener("dblclick", () => zoom());
    svg.addEventListener("keydown", (event) => {
      const near = visible();
      const at = near.indexOf(chosen);
      const moves = { ArrowRight: near[at + 1], ArrowLeft: near.at(at < 0 ? -1 : Math.max(0, at - 1)), Home: near[0], End: near.at(-1) };
      if (event.key in moves) choose(moves[event.key] ?? chosen);
      else if (event.key === "+" || event.key === "=") closer();
      else if (event.key === "-" || event.key === "0" || event.key === "Escape") zoom();
      else return;
      event.preventDefault();
    });
    whole?.addEventListener("click", () => { zoom(); svg.focus(); });
    figure.querySelector('[data-chart-do="picture"]')?.addEventListener("click", () => picture(svg));
  };

  // The picture has the styles of the page, as a file knows none of its sheets.
  const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "vector-effect", "font-family", "font-size", "display"];
  const picture = (svg) => {
    const { width, height, beside } = plotOf(svg);
    const [wide, high] = [Math.ceil(width + beside) + 24, Math.ceil(height) + 32];
    const copy = svg.cloneNode(true);
    const copies = [copy, ...copy.querySelectorAll("*")];
    [svg, ...svg.querySelectorAll("*")].forEach((node, index) => {
      const styles = getComputedStyle(node);
      for (const name of STYLES) copies[index].setAttribute(name, styles.getPropertyValue(name));
    });
    for (const [name, value] of Object.entries({ x: 16 + beside, y: 24, width, height, overflow: "visible" })) copy.setAttribute(name, value);
    const outer = document.createElementNS(svg.namespaceURI, "svg");
    for (const [name, value] of Object.entries({ width: wide, height: high })) outer.setAttribute(name, value);
    outer.append(copy);
    const image = new Image();
    image.addEventListener("load", () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * wide, 2 * high];
      const context = canvas.getContext("2d");
      context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--card");
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      const link = document.createElement("a");
      link.href = canvas.toDataURL("image/png");
      link.download = "chart.png";
      link.click();
    });
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(outer))}`;
  };

  const all = () => { for (const figure of document.querySelectorAll("[data-chart]")) enhance(figure); };
  all();
  document.body.addEventListener("htmx:afterSwap", all);
})();
