"use strict";
// Scatters and spans: points over two axes, and lanes of intervals.

const PLOT = { left: 76, right: 18, top: 12, bottom: 34, height: 300 };
const LANE = { height: 16, label: 180, most: 60 };

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

/** Maps values of an axis to pixels from `low` to `high`. */
function scaleOf(values, { unit = "number", log }, low, high, zero) {
  const logged = log && values.some((value) => value > 0);
  const known = values.filter((value) => value !== null && (!logged || value > 0));
  const ends = [Math.min(...known, zero && !logged ? 0 : Infinity), Math.max(...known, -Infinity)];
  if (!known.length) ends.splice(0, 2, 0, 1);
  if (ends[0] === ends[1]) ends[1] = ends[0] + Math.abs(ends[0] || 1);
  const f = logged ? Math.log10 : Number;
  const at = (value) => (value === null || (logged && value <= 0) ? null : low + ((f(value) - f(ends[0])) / (f(ends[1]) - f(ends[0]))) * (high - low));
  const parts = Math.max(2, Math.floor(Math.abs(high - low) / 90));
  if (!logged) return { at, ticks: unitTicks(...ends, parts, unit) };
  const ticks = [];
  const every = Math.max(1, Math.ceil((f(ends[1]) - f(ends[0])) / parts));
  for (let p = Math.ceil(f(ends[0])); p <= f(ends[1]); p += every) ticks.push([10 ** p, valueText(10 ** p, unit)]);
  return { at, ticks };
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
    const limits = (name) => (block[name] || []).map(({ value }) => value);
    const x = scaleOf([...block.points.flatMap((one) => one.x), ...limits("down"), ...(block.ranges || []).flatMap(({ start, end }) => [start, end])], block.x, PLOT.left, right, false);
    const y = scaleOf([...block.points.flatMap((one) => one.y), ...limits("across")], block.y, bottom, PLOT.top, true);
    const grid = [
      y.ticks.map(([value, label]) => [svg("line", { class: "grid", x1: PLOT.left, x2: right, y1: y.at(value), y2: y.at(value) }), svg("text", { x: PLOT.left - 8, y: y.at(value) + 4, "text-anchor": "end" }, label)]),
      x.ticks.map(([value, label]) => svg("text", { x: x.at(value), y: bottom + 16, "text-anchor": "middle" }, label)),
      svg("text", { x: right, y: bottom + 30, "text-anchor": "end" }, block.x.label),
    ];
    const rules = [
      (block.across || []).map(({ label, value }) => [svg("line", { class: "budget", x1: PLOT.left, x2: right, y1: y.at(value), y2: y.at(value) }), svg("text", { class: "budget-text", x: right, y: y.at(value) - 4, "text-anchor": "end" }, label)]),
      (block.down || []).map(({ label, value }) => [svg("line", { class: "budget", x1: x.at(value), x2: x.at(value), y1: PLOT.top, y2: bottom }), svg("text", { class: "budget-text", x: x.at(value) + 4, y: PLOT.top + 10 }, label)]),
    ];
    const shades = (block.ranges || []).map(({ label, start, end }) => svg("rect", { class: "range", x: x.at(start), y: PLOT.top, width: Math.max(0, x.at(end) - x.at(start)), height: bottom - PLOT.top }, svg("title", {}, label)));
    return { height: PLOT.height, nodes: [shades, grid, rules, block.points.map((one, n) => group(one, n, x, y, block, keeper))] };
  };
  const legend = block.points.map((one, n) => el("span", {}, el("span", { class: "swatch", style: { background: paint(one.label, n) } }), one.label));
  return el("div", {}, el("div", { class: "tools" }, el("div", { class: "legend" }, el("span", {}, block.y.label), legend)), plotOf(draw, block.title || block.key), keeper.node);
}

function group(one, n, x, y, block, keeper) {
  const places = one.x.map((value, i) => [x.at(value), y.at(one.y[i]), i]).filter(([a, b]) => a !== null && b !== null);
  const parts = places.map(([a, b], i) => `${i ? (one.joined === "step" ? `H${a}V${b}` : `L${a},${b}`) : `M${a},${b}`}`);
  const line = (axis, value) => el("div", {}, `${axis.label}: ${valueText(value, axis.unit || "number")}`);
  const told = (i) => [el("div", { class: "head" }, (one.names && one.names[i]) || one.label), line(block.x, one.x[i]), line(block.y, one.y[i])];
  const dots = places.map(([a, b, i]) => {
    const dot = hover(svg("circle", { class: "pick", cx: a, cy: b, r: 3, style: { fill: paint(one.label, n) } }), ...told(i));
    keeper.watch(dot, `${n} ${i}`, () => told(i));
    return dot;
  });
  const spread = places.map(([a, , i]) => one.low && one.low.length > 0 && one.low[i] !== null && svg("line", { class: "spread", x1: a, x2: a, y1: y.at(one.low[i]), y2: y.at(one.high[i]), style: { stroke: paint(one.label, n) } }));
  return [spread, one.joined && parts.length && svg("path", { class: "line", d: parts.join(""), style: { stroke: paint(one.label, n) } }), dots];
}

function spansView(block, table) {
  const lanes = block.lanes.slice(0, LANE.most);
  const ends = lanes.flatMap(({ start, end }) => [...start.slice(0, 1), ...end.slice(-1)]);
  const draw = (width) => {
    const bottom = 8 + lanes.length * LANE.height;
    const x = scaleOf(ends, { unit: block.x_unit }, LANE.label + 8, width - PLOT.right, false);
    const rows = lanes.map((lane, n) => {
      const top = 8 + n * LANE.height;
      const name = lane.label.length > 28 ? `…${lane.label.slice(-27)}` : lane.label;
      const bars = lane.start.map((start, i) => {
        const [left, right] = [x.at(start), x.at(lane.end[i])];
        const told = (lane.names && lane.names[i]) || lane.label;
        const kind = (lane.kinds && lane.kinds[i]) || "activation";
        const bar = svg("rect", { x: left, y: top + 2, width: Math.max(0.6, right - left), height: LANE.height - 4, style: { fill: paint(kind, n) } });
        const more = table && lane.rows ? table.words(lane.rows[i]).join(" · ") : "";
        return hover(bar, el("div", { class: "head" }, told), el("div", {}, [lane.kinds && words(lane.kinds[i]), valueText(lane.end[i] - start, block.x_unit)].filter(Boolean).join(" · ")), more && el("div", { class: "soft" }, more));
      });
      return [svg("text", { x: LANE.label, y: top + 12, "text-anchor": "end" }, name, svg("title", {}, lane.label)), bars];
    });
    const axis = x.ticks.map(([value, label]) => svg("text", { x: x.at(value), y: bottom + 16, "text-anchor": "middle" }, label));
    return { height: bottom + 24, nodes: [rows, axis] };
  };
  const rest = block.lanes.length - lanes.length;
  return el("div", {}, plotOf(draw, block.title || block.key), rest > 0 && el("p", { class: "vnote" }, `and ${whole(rest)} more`));
}
