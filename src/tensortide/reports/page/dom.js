"use strict";
// Making elements. Text is always set as text, so no name in a report can become markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes and listeners (`onclick`) from `props`, then children: nodes, text or nested lists. */
function el(tag, props = {}, ...children) {
  const node = typeof tag === "string" ? document.createElement(tag) : tag;
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An SVG element; see `el`. */
function svg(tag, props = {}, ...children) {
  return el(document.createElementNS(SVG, tag), props, ...children);
}

const $ = (id) => document.getElementById(id);

function cssColor(name) {
  return `var(--${name})`;
}

function swatch(color) {
  return el("span", { class: "swatch", style: { background: cssColor(color) } });
}

/** A row of buttons of which one is pressed; `choose(key)` is called when that changes. */
function choice(label, options, current, choose) {
  const group = el("div", { class: "choice", role: "group", "aria-label": label });
  for (const [key, text] of options) {
    const press = () => {
      for (const other of group.children) other.setAttribute("aria-pressed", String(other === button));
      choose(key);
    };
    const button = el("button", { type: "button", "aria-pressed": String(key === current), "data-key": key, onclick: press }, text);
    group.append(button);
  }
  return group;
}

/** The tooltip: `show(x, y, ...content)` beside a point of the window, `hide()`. */
const tip = {
  show(x, y, ...content) {
    const node = $("tip");
    node.replaceChildren(...content.flat(Infinity).filter(Boolean));
    node.hidden = false;
    const { width, height } = node.getBoundingClientRect();
    const left = x + 16 + width > innerWidth ? Math.max(4, x - 16 - width) : x + 16;
    const top = Math.max(4, Math.min(y + 14, innerHeight - height - 4));
    node.style.transform = `translate(${left}px, ${top}px)`;
  },
  hide() {
    $("tip").hidden = true;
  },
};

/** Runs `draw` now and whenever the width of `node` has changed. */
function onResize(node, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (node.clientWidth && node.clientWidth !== width) {
      width = node.clientWidth;
      draw();
    }
  }).observe(node);
}
