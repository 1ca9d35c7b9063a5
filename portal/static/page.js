// What every page needs: asking before something is given up, and a notice that is told once.
"use strict";
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
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
