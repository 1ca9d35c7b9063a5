// What every page needs: asking before something is given up, a notice that is shown once, and what
// follows a request.
"use strict";
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});
// The parts of a request's page: one is seen at a time. Without scripts all are, one below the other.
const Tabs = {
  nav: document.querySelector("[data-tabs]"),
  links() { return [...this.nav.querySelectorAll('a[href^="#"]')].filter((link) => this.part(link) && !this.part(link).hidden); },
  part(link) { return document.getElementById(link.hash.slice(1)); },
  show(hash, scroll) {
    const links = this.links();
    const named = document.getElementById(hash.slice(1));
    const inside = named?.closest(".panel");
    // What failed is seen first where there is no result, and something failed.
    const holds = (part) => part.id !== "lacks" || part.querySelector(".group, table");
    const chosen = links.find((link) => this.part(link) === inside) ?? links.find((link) => holds(this.part(link))) ?? links[0];
    for (const link of links) {
      this.part(link).classList.toggle("off", link !== chosen);
      if (link === chosen) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    if (scroll && inside && named !== inside) named.scrollIntoView();
  },
};
// Where links are longer than a phone's screen, the one of this page is in sight.
for (const link of document.querySelectorAll("nav a[aria-current]")) {
  const nav = link.closest("nav");
  nav.scrollLeft = link.offsetLeft + link.offsetWidth / 2 - nav.offsetWidth / 2;
}
if (Tabs.nav) {
  Tabs.show(location.hash, true);
  window.addEventListener("hashchange", () => Tabs.show(location.hash, true));
  // A part is open before the browser goes to it: the next Tab key is then inside it.
  Tabs.nav.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link) Tabs.show(link.hash, false);
  });
}
// Squares of results: one of a layer is in the order of the keys, arrows go to the others.
document.addEventListener("keydown", (event) => {
  const square = event.target.closest("[data-squares] li > :is(a, [role])");
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  const rows = { ArrowUp: -1, ArrowDown: 1 };
  if (!square || !(event.key in steps || event.key in rows)) return;
  const layers = [...document.querySelectorAll("[data-squares]")].map((one) => [...one.querySelectorAll("li > :is(a, [role])")]).filter((one) => one.length);
  const row = layers.findIndex((one) => one.includes(square));
  const column = layers[row].indexOf(square);
  const within = (number, list) => list[Math.max(0, Math.min(list.length - 1, number))];
  const to = event.key in steps ? within(column + steps[event.key], layers[row]) : within(column, within(row + rows[event.key], layers));
  if (!to) return;
  event.preventDefault();
  to.tabIndex = 0;
  to.focus();
});
const Squares = {
  settle() {
    for (const layer of document.querySelectorAll("[data-squares]")) {
      layer.querySelectorAll("li > :is(a, [role])").forEach((one, number) => { one.tabIndex = number ? -1 : 0; });
    }
  },
};
document.addEventListener("focusin", (event) => {
  const layer = event.target.closest("[data-squares] ol");
  if (layer) layer.querySelectorAll("li > :is(a, [role])").forEach((one) => { one.tabIndex = one === event.target ? 0 : -1; });
});
document.addEventListener("htmx:afterSettle", () => Squares.settle());
Squares.settle();
// Two dates are compared: a square is chosen by what comes up beside it or by the key C, and each other
// one then leads to the map with both.
const Comparing = {
  chosen: null, // the address of the first one
  waiting: 0,
  note: Object.assign(document.createElement("div"), { className: "square-note", innerHTML: '<span aria-hidden="true"></span><button type="button" class="small">Compare with another date</button>' }),
  bar: Object.assign(document.createElement("p"), { className: "notice comparing", innerHTML: '<span role="status"></span> <button type="button" class="small">Cancel</button>' }),
  squares: () => [...document.querySelectorAll('[data-squares] li > a[href*="/map?"]')],
  of: (node) => node.closest('[data-squares] li > a[href*="/map?"]'),
  offer(square) {
    if (this.chosen || this.note.previousElementSibling === square) return;
    this.note.firstChild.textContent = square.getAttribute("aria-label");
    square.after(this.note);
    this.note.style.top = `${square.offsetTop + square.offsetHeight}px`;
    this.note.style.left = `${Math.min(square.offsetLeft, Math.max(0, square.parentElement.parentElement.offsetWidth - square.parentElement.offsetLeft - this.note.offsetWidth))}px`;
  },
  withdraw() {
    clearTimeout(this.waiting);
    this.note.remove();
  },
  choose(square) {
    this.chosen = square.href;
    const said = new URL(square.href).searchParams;
    this.bar.firstChild.textContent = `${said.get("date")} is chosen. Choose the date to compare it with.`;
    document.getElementById("matrix").after(this.bar);
    this.settle();
    square.focus({ preventScroll: true });
    this.withdraw();
  },
  cancel() {
    this.chosen = null;
    this.bar.remove();
    this.settle();
  },
  settle() {
    for (const square of this.squares()) {
      square.dataset.alone ??= square.href;
      square.href = square.dataset.alone;
      square.classList.toggle("chosen", square.href === this.chosen);
      if (!this.chosen || square.href === this.chosen) continue;
      const [address, other] = [new URL(this.chosen), new URL(square.href).searchParams];
      for (const name of ["layer", "date"]) address.searchParams.set({ layer: "other", date: "other_date" }[name], other.get(name));
      square.href = address;
    }
  },
};
document.addEventListener("focusin", (event) => {
  const square = Comparing.of(event.target);
  if (square?.matches(":focus-visible")) Comparing.offer(square);
  else if (!Comparing.note.contains(event.target)) Comparing.withdraw();
});
document.addEventListener("mouseover", (event) => {
  const square = Comparing.of(event.target);
  if (Comparing.note.contains(event.target) || square?.matches(":focus-visible")) return;
  Comparing.withdraw();
  // Not at once: it lies above other squares.
  if (square) Comparing.waiting = setTimeout(() => Comparing.offer(square), 400);
});
document.addEventListener("keydown", (event) => {
  const square = Comparing.of(event.target);
  if (event.key === "Escape") { Comparing.withdraw(); Comparing.cancel(); }
  else if (event.key === "c" && square && !event.ctrlKey && !event.metaKey && !event.altKey) Comparing.choose(square);
});
Comparing.note.lastChild.addEventListener("click", () => Comparing.choose(Comparing.note.previousElementSibling));
Comparing.bar.lastChild.addEventListener("click", () => Comparing.cancel());
document.addEventListener("htmx:afterSettle", () => Comparing.settle());
window.addEventListener("pagehide", () => { Comparing.withdraw(); Comparing.cancel(); });
// An address with the name of a folded part opens it: there the answer to its form is seen.
const folded = location.hash && document.getElementById(location.hash.slice(1));
if (folded?.tagName === "DETAILS") folded.open = true;
// A file that is all its form asks for is sent as soon as it is chosen, or dropped.
document.addEventListener("change", ({ target }) => { if (target.matches("[data-sends]") && target.files.length) target.form.requestSubmit(); });
// A browser shows a day in its own order; beside the label it stands as everything else writes it.
const sayDay = (field) => {
  const label = field.labels?.[0];
  if (!label) return;
  const said = label.querySelector(".day") ?? label.appendChild(Object.assign(document.createElement("span"), { className: "day", ariaHidden: "true" }));
  if (said.textContent !== field.value) said.textContent = field.value;
};
const sayDays = () => document.querySelectorAll('input[type="date"]').forEach(sayDay);
sayDays();
for (const what of ["input", "change"]) document.addEventListener(what, sayDays);
document.addEventListener("htmx:afterSettle", sayDays);
// A text, or a whole address, in which maps fill in {z}, {x} and {y}.
const whole = (node) => (node.href ?? new URL(node.textContent, location).href).replace(/%7B/gi, "{").replace(/%7D/gi, "}");
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-address]");
  if (!button) return;
  const { copy, copyAddress } = button.dataset;
  const from = document.getElementById(copy ?? copyAddress);
  if (!navigator.clipboard) { from.select?.(); return; } // of a portal without TLS: at hand for the keys
  await navigator.clipboard.writeText(copy ? (from.value ?? from.textContent) : whole(from));
  const was = [...button.childNodes];
  button.replaceChildren("Copied");
  setTimeout(() => button.replaceChildren(...was), 2000);
});
// A call copies for some seconds; its answer says where the next goes on.
document.addEventListener("submit", async (event) => {
  const address = event.target.dataset.copyResults;
  if (!address) return;
  event.preventDefault();
  const form = event.target;
  const told = form.querySelector("[data-copied]");
  const button = form.querySelector("button");
  const order = Object.fromEntries([...new FormData(form)].filter(([, value]) => value));
  // After a failure the same order goes on where it was.
  let { copied, after } = form.begun?.to === order.to ? form.begun : { copied: 0, after: "" };
  button.disabled = true;
  told.textContent = "Copying…";
  try {
    for (let left = 1; left;) {
      const answer = await fetch(address, {
        method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ...order, after }),
      });
      const said = await answer.json();
      if (!answer.ok) throw new Error(`${said.detail} ${said.remedy ?? ""}`);
      ({ after, left } = said);
      copied += said.copied;
      form.begun = left ? { to: order.to, copied, after } : null;
      told.textContent = left ? `${copied} copied, ${left} left.` : `All ${copied} files are copied.`;
    }
  } catch (error) {
    told.textContent = `${copied} copied. ${error.message}${copied ? " Press again to go on from there." : ""}`;
  }
  button.disabled = false;
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, serverResponse } = event.detail;
  if (target.id !== "service-notice") return;
  // Screen readers tell a notice again whenever it is put in its place again.
  const answer = document.createElement("template");
  answer.innerHTML = serverResponse;
  const same = answer.content.textContent.trim() === target.textContent.trim();
  if (same) event.detail.shouldSwap = false;
});
// A request's page follows it by events. A browser has few connections to one host, so pages that are
// not seen give theirs back.
const Follower = {
  source: null,
  start() {
    this.source?.close();
    this.source = null;
    const address = document.getElementById("progress")?.dataset.events;
    if (!address || document.hidden) return;
    this.source = new EventSource(address);
    this.source.onmessage = (event) => this.show(JSON.parse(event.data));
    this.source.onerror = () => {
      // The browser itself tries again, unless the answer was an error.
      if (this.source?.readyState === EventSource.CLOSED) setTimeout(() => this.start(), 10000);
    };
  },
  show({ html, mark, saying, ended }) {
    const before = document.getElementById("progress").dataset.mark;
    htmx.swap("#progress", html, { swapStyle: "outerHTML" });
    const isMade = document.getElementById("progress").dataset.made !== "0";
    for (const link of document.querySelectorAll("[data-when-made]")) link.hidden = !isMade;
    const said = document.getElementById("said");
    if (said.textContent !== saying) said.textContent = saying;
    if (ended) this.source.close();
    if (mark !== before) htmx.trigger(document.body, ended ? "request-ended" : "request-changed");
  },
};
Follower.start();
document.addEventListener("visibilitychange", () => Follower.start());
