// Light or dark: what was chosen last, else what the system prefers. Paper is always light.
"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  let chosen = null;
  try {
    chosen = localStorage.getItem("tensortide-theme");
  } catch {
    // no storage in this browser: the choice lasts as long as the page
  }
  const apply = () => {
    root.dataset.theme = paper.matches ? "light" : chosen || (system.matches ? "dark" : "light");
  };
  system.addEventListener("change", apply);
  paper.addEventListener("change", apply);
  apply();
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", () => {
      chosen = root.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("tensortide-theme", chosen);
      } catch {
        // see above
      }
      apply();
    });
  });
})();
