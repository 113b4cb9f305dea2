"use strict";
// Scatters: points over two axes.

/** Pixels of a letter below an axis. */
const LETTER = 6.5;
const PLOT = { left: 76, right: 18, top: 12, bottom: 34, height: 300 };

/** The colour of points and lines, strong enough for thin ones. */
const ink = (label, n) => `var(--${label.replace(/[^\w-]/g, "_")}, var(--p${n % 7}))`;

/** Draws into a plot whenever its width changes; `draw(width)` returns the height and the nodes. */
function plotOf(draw, label) {
  const plot = svg("svg", { role: "img", "aria-label": label });
  onResize(plot, () => {
    const { height, nodes } = draw(plot.clientWidth);
    plot.style.height = `${height}px`;
    plot.setAttribute("viewBox", `0 0 ${plot.clientWidth} ${height}`);
    plot.replaceChildren(...nodes.flat(Infinity).filter(Boolean));
  });
  return el("div", { class: "chart plot" }, plot);
}

const hover = (node, ...content) => {
  node.addEventListener("pointermove", (event) => tip.show(event.clientX, event.clientY, ...content));
  node.addEventListener("pointerleave", () => tip.hide());
  return node;
};

/** Those of `ticks` whose labels do not reach the one before. */
function apart(ticks, at) {
  const kept = [];
  for (const [value, label] of ticks) {
    const [last] = kept.slice(-1);
    if (!last || Math.abs(at(value) - at(last[0])) >= LETTER * Math.max(3, (label.length + last[1].length) / 2 + 1)) kept.push([value, label]);
  }
  return kept;
}

/** A label below an axis, inside of the picture where its tick is near the end. */
function below(x, y, label, width) {
  const over = x + (LETTER * label.length) / 2 > width;
  return svg("text", { x: over ? width - 1 : x, y, "text-anchor": over ? "end" : "middle" }, label);
}

/** Maps values of an axis to pixels from `low` to `high`. */
function scaleOf(values, { unit = "number", log, ticks: given = [] }, low, high, zero, room = 90) {
  const logged = log && values.some((value) => value > 0);
  const known = values.filter((value) => value !== null && (!logged || value > 0));
  const ends = [Math.min(...known, zero && !logged ? 0 : Infinity), Math.max(...known, -Infinity)];
  if (!known.length) ends.splice(0, 2, 0, 1);
  if (ends[0] === ends[1]) ends[1] = ends[0] + Math.abs(ends[0] || 1);
  const f = logged ? Math.log10 : Number;
  const at = (value) => (value === null || (logged && value <= 0) ? null : low + ((f(value) - f(ends[0])) / (f(ends[1]) - f(ends[0]))) * (high - low));
  const parts = Math.max(2, Math.floor(Math.abs(high - low) / room));
  if (given.length) return { at, ends, ticks: apart(given.map((value) => [value, tickText(value, unit)]), at) };
  return { at, ends, ticks: logged ? logTicks(...ends, parts, unit) : unitTicks(...ends, parts, unit) };
}

/** What is known of a point that was clicked stays below the plot; clicked again, it goes. */
class Keeper {
  constructor() {
    this.node = el("div", { class: "note remark", "aria-live": "polite" });
    this.dots = new Map();
    this.key = null;
  }

  watch(dot, key, content) {
    this.dots.set(key, dot);
    dot.addEventListener("click", () => {
      this.key = this.key === key ? null : key;
      this.node.replaceChildren(...(this.key ? content() : []));
      for (const [other, one] of this.dots) one.classList.toggle("kept", other === this.key);
    });
    dot.classList.toggle("kept", key === this.key);
  }
}

function scatterView(block) {
  const keeper = new Keeper();
  const draw = (width) => {
    const [right, bottom] = [width - PLOT.right, PLOT.height - PLOT.bottom];
    const tags = [];
    const top = block.x.whole > 0 ? PLOT.top + 14 : PLOT.top;
    const limits = (name) => (block[name] || []).map(({ value }) => value);
    const x = scaleOf([...block.points.flatMap((one) => one.x), ...limits("down"), ...(block.ranges || []).flatMap(({ start, end }) => [start, end])], block.x, PLOT.left, right, false);
    const y = scaleOf([...block.points.flatMap((one) => one.y), ...limits("across")], block.y, bottom, top, true, 45);
    const grid = [
      y.ticks.map(([value, label]) => [svg("line", { class: "grid", x1: PLOT.left, x2: right, y1: y.at(value), y2: y.at(value) }), svg("text", { x: PLOT.left - 8, y: y.at(value) + 4, "text-anchor": "end" }, label)]),
      x.ticks.map(([value, label]) => below(x.at(value), bottom + 16, label, width)),
      svg("text", { x: right, y: bottom + 30, "text-anchor": "end" }, block.x.label),
      block.x.whole > 0 && shares(x, block.x.whole, right - PLOT.left).map(([value, label]) => svg("text", { x: x.at(value), y: 10, "text-anchor": "middle" }, label)),
    ];
    const rules = [
      (block.across || []).map(({ label, value }) => [svg("line", { class: "budget", x1: PLOT.left, x2: right, y1: y.at(value), y2: y.at(value) }), svg("text", { class: "budget-text", x: right, y: y.at(value) - 4, "text-anchor": "end" }, label)]),
      (block.down || []).map(({ label, value }) => [svg("line", { class: "budget", x1: x.at(value), x2: x.at(value), y1: top, y2: bottom }), svg("text", { class: "budget-text", x: x.at(value) + 4, y: top + 10 }, label)]),
    ];
    const shades = (block.ranges || []).map(({ label, start, end }) => svg("rect", { class: "range", x: x.at(start), y: top, width: Math.max(0, x.at(end) - x.at(start)), height: bottom - top }, svg("title", {}, label)));
    return { height: PLOT.height, nodes: [shades, grid, rules, block.points.map((one, n) => group(one, n, x, y, block, keeper, tags))] };
  };
  const legend = block.points.map((one, n) => el("span", {}, el("span", { class: "swatch", style: { background: ink(one.label, n) } }), one.label));
  return el("div", {}, el("div", { class: "tools" }, el("div", { class: "legend" }, el("span", {}, block.y.label), legend)), plotOf(draw, block.title || block.key), keeper.node);
}

/** Shares of the whole that lie on the axis: `[value, label]`. */
function shares(x, whole, width) {
  const [low, high] = x.ends.map((end) => end / whole);
  return unitTicks(low, high, Math.max(2, Math.floor(width / 90)), "share").map(([share, label]) => [share * whole, label]);
}

/** The range of points that hold until the next, as a band. */
function band({ x, low, high }, across, up) {
  const rows = x.map((_, i) => i).flatMap((i) => (i + 1 < x.length ? [[i, i], [i + 1, i]] : [[i, i]]));
  const edge = (values) => rows.map(([at, of]) => `${across.at(x[at])},${up.at(values[of])}`);
  return `M${edge(high).join("L")}L${edge(low).reverse().join("L")}Z`;
}

/** A name beside a point, unless another is there; `tags` are the places taken. */
function tag(x, y, name, tags) {
  const box = [x, y, x + 6.4 * name.length, y + 13];
  if (tags.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) return [];
  tags.push(box);
  return [svg("text", { class: "tag", x, y }, name)];
}

function group(one, n, x, y, block, keeper, tags) {
  const places = one.x.map((value, i) => [x.at(value), y.at(one.y[i]), i]).filter(([a, b]) => a !== null && b !== null);
  const parts = places.map(([a, b], i) => `${i ? (one.joined === "step" ? `H${a}V${b}` : `L${a},${b}`) : `M${a},${b}`}`);
  const line = (axis, value) => el("div", {}, `${axis.label}: ${valueText(value, axis.unit || "number")}`);
  const told = (i) => [el("div", { class: "head" }, (one.names && one.names[i]) || one.label), line(block.x, one.x[i]), line(block.y, one.y[i])];
  const dots = places.map(([a, b, i]) => {
    const dot = hover(svg("circle", { class: "pick", cx: a, cy: b, r: 3, style: { fill: ink(one.label, n) } }), ...told(i));
    keeper.watch(dot, `${n} ${i}`, () => told(i));
    return dot;
  });
  const filled = one.joined === "step" && one.low && one.low.length > 0;
  const named = one.tagged ? places.filter(([, , i]) => one.names[i]).flatMap(([a, b, i]) => tag(a + 8, b - 8, one.names[i], tags)) : [];
  const spread = filled ? svg("path", { class: "gap", d: band(one, x, y), style: { fill: ink(one.label, n) } }, svg("title", {}, one.between)) : places.map(([a, , i]) => one.low && one.low.length > 0 && one.low[i] !== null && svg("line", { class: "spread", x1: a, x2: a, y1: y.at(one.low[i]), y2: y.at(one.high[i]), style: { stroke: ink(one.label, n) } }));
  if (one.joined === "step") dots.length = 0;
  return [spread, named, one.joined && parts.length && svg("path", { class: "line", d: parts.join(""), style: { stroke: ink(one.label, n) } }), dots];
}
