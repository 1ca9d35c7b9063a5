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

  const changed = () => form.dispatchEvent(new Event("change", { bubbles: true }));
  form.addEventListener("click", async (event) => {
    const remove = event.target.closest("[data-remove]");
    if (remove) {
      remove.closest("[data-card]").remove();
      document.getElementById("product-search").focus();
      changed();
      return;
    }
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent);
      const was = copy.textContent;
      copy.textContent = "Copied";
      setTimeout(() => { copy.textContent = was; }, 2000);
    }
  });
  // Enter in a search or a number must not send an unfinished request off.
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("input")) event.preventDefault();
  });
  // A product that has been added: go on with its layers.
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id !== "chosen") return;
    const cards = event.detail.target.querySelectorAll("[data-card]");
    cards[cards.length - 1]?.querySelector("input[type=checkbox], input[type=text]")?.focus();
    show();
    changed();
  });
  const first = form.querySelector(".error:not(:empty)");
  if (first) first.closest(".field, fieldset, .card")?.querySelector("input, select, textarea")?.focus();
})();
