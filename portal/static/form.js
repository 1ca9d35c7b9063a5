// The submission form: parts that follow a choice, product cards that go, and copying the document.
"use strict";
(() => {
  const form = document.querySelector("[data-submit-form]");
  if (!form) return;
  const show = () => {
    for (const part of form.querySelectorAll("[data-when]")) {
      const [name, ...values] = part.dataset.when.split(" ");
      const chosen = form.elements.namedItem(name)?.value ?? "";
      part.hidden = values.length ? !values.includes(chosen) : chosen === "";
    }
  };
  form.addEventListener("change", show);
  show();

  // What was typed before the scripts were there is searched for, too.
  document.addEventListener("DOMContentLoaded", () => {
    const search = document.getElementById("product-search");
    if (search.value) search.dispatchEvent(new Event("search"));
  });

  // A file or a drawing that the portal could not take: its field says so.
  for (const kind of ["htmx:responseError", "htmx:sendError"]) {
    document.addEventListener(kind, (event) => {
      const { pathInfo, xhr } = event.detail;
      const told = document.getElementById("error-region-file");
      if (!told || pathInfo?.requestPath !== "/new/region") return;
      told.textContent = xhr?.status === 413 ? "The file is larger than 32 MiB. Simplify it."
        : xhr?.status ? "Other files are being read. Try again in a moment." : "The portal does not answer. Try again in a moment.";
    });
  }

  const changed = () => form.dispatchEvent(new Event("change", { bubbles: true }));
  // A group of layers is ticked, or unticked, at once; it is pressed while all of it is ticked.
  const boxesOf = (group) => {
    const names = new Set(JSON.parse(group.dataset.tick));
    return [...group.closest("[data-card]").querySelectorAll("input[type=checkbox]")].filter((box) => names.has(box.value));
  };
  const press = () => {
    for (const group of form.querySelectorAll("[data-tick]")) group.setAttribute("aria-pressed", String(boxesOf(group).every((box) => box.checked)));
  };
  form.addEventListener("change", press);
  press();
  form.addEventListener("click", async (event) => {
    const remove = event.target.closest("[data-remove]");
    if (remove) {
      remove.closest("[data-card]").remove();
      document.getElementById("product-search").focus();
      changed();
      return;
    }
    const group = event.target.closest("[data-tick]");
    if (group) {
      const boxes = boxesOf(group);
      const all = boxes.every((box) => box.checked);
      for (const box of boxes) box.checked = !all;
      changed();
      return;
    }
    const days = event.target.closest("[data-days]");
    if (days) {
      const [start, end] = days.dataset.days.split(" ");
      form.elements.namedItem("start").value = start;
      form.elements.namedItem("end").value = end;
      form.elements.namedItem("start").focus();
      changed();
      return;
    }
  });
  // Tables of measurements are read into their field; a site is named as the files of networks name it.
  document.querySelector("[data-into]")?.addEventListener("change", async (event) => {
    const field = document.getElementById(event.target.dataset.into);
    const texts = await Promise.all([...event.target.files].map(async (one) => {
      const site = /(?:FLX|AMF|FLUXNET)_([A-Z]{2}-[A-Za-z0-9]{3})_/.exec(one.name)?.[1];
      const text = await one.text();
      return site && !/^# *Site:/m.test(text) ? `# Site: ${site}\n${text}` : text;
    }));
    field.value = texts.map((text) => text.endsWith("\n") ? text : `${text}\n`).join("");
    field.dispatchEvent(new Event("change", { bubbles: true }));
  });
  // A file is dropped on the region: it is chosen, as if by hand.
  const file = document.getElementById("region-file");
  const where = file.closest("fieldset");
  const holds = (event) => event.dataTransfer?.types.includes("Files");
  for (const name of ["dragenter", "dragover"]) {
    where.addEventListener(name, (event) => {
      if (!holds(event)) return;
      event.preventDefault();
      where.classList.add("dropping");
    });
  }
  where.addEventListener("dragleave", (event) => { if (!where.contains(event.relatedTarget)) where.classList.remove("dropping"); });
  where.addEventListener("drop", (event) => {
    if (!holds(event)) return;
    event.preventDefault();
    where.classList.remove("dropping");
    const chosen = new DataTransfer();
    chosen.items.add(event.dataTransfer.files[0]);
    file.files = chosen.files;
    file.dispatchEvent(new Event("change", { bubbles: true }));
  });
  // Enter takes the first place offered that holds what was typed.
  const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  form.addEventListener("keydown", (event) => {
    const place = event.target;
    if (event.key !== "Enter" || place.id !== "place" || !place.value.trim()) return;
    const names = [...place.list.options].map((one) => one.value);
    const found = names.includes(place.value) ? place.value : names.find((name) => plain(name).includes(plain(place.value.trim())));
    if (!found || found === place.value) return;
    place.value = found;
    place.dispatchEvent(new Event("change", { bubbles: true }));
  });
  // A product that has been added: go on with its layers.
  document.body.addEventListener("htmx:afterSwap", (event) => {
    // The region as a file or a drawing gives it.
    const id = event.detail.target?.id;
    if (id === "region-fields") { show(); changed(); }
    if (id !== "chosen") return;
    const cards = event.detail.target.querySelectorAll("[data-card]");
    cards[cards.length - 1]?.querySelector("input[type=checkbox], input[type=text]")?.focus();
    show();
    changed();
  });

  // What is wrong: each error names the controls that it is about.
  const control = (id) => {
    const found = document.getElementById(id);
    const field = "input:not([type=hidden]), select, textarea";
    return found?.matches(field) ? found : found?.querySelector(field) ?? found;
  };
  const mark = () => {
    for (const was of form.querySelectorAll("[aria-invalid]")) was.removeAttribute("aria-invalid");
    for (const error of form.querySelectorAll(".error[data-for]:not(:empty)")) {
      for (const id of error.dataset.for.split(" ").filter(Boolean)) {
        const wrong = control(id);
        if (!wrong) continue;
        wrong.setAttribute("aria-invalid", "true");
        const told = new Set((wrong.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
        wrong.setAttribute("aria-describedby", [...told.add(error.id)].join(" "));
      }
    }
  };
  // A line about the archive is told when it changes, not at each check.
  document.body.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { target, fragment } = event.detail;
    if (target.id === "quality") event.detail.shouldSwap = target.dataset.of !== fragment.firstElementChild.dataset.of;
    else if (target.matches(".told") && target.textContent.trim() === fragment.textContent.trim()) event.detail.shouldSwap = false;
  });
  document.body.addEventListener("htmx:afterSettle", mark);
  document.body.addEventListener("htmx:oobAfterSwap", mark);
  mark();
  const first = form.querySelector("[aria-invalid]");
  if (first) {
    first.closest("details")?.setAttribute("open", "");
    first.focus({ preventScroll: true });
    first.scrollIntoView({ block: "center" });
    document.getElementById(first.getAttribute("aria-describedby").split(" ").pop()).scrollIntoView({ block: "nearest" });
  }
})();
