"use strict";
// Scatters: points over two axes.

/** Pixels of a letter below an axis. */
const LETTER = 6.5;
const PLOT = { left: 76, right: 18, top: 12, bottom: 34, height: 300 };

/** Looks of series, the same as in figures. */
const SERIES = {{series}};
const numberOf = ({ look }, place) => look ?? place;
const lookOf = (n) => SERIES.looks[n % SERIES.looks.length];

/** The colour of points and lines, strong enough for thin ones. */
const ink = (label, n) => `var(--${label.replace(/[^\w-]/g, "_")}, var(--p${n % SERIES.looks.length}))`;

/** Dashes of a line, in pixels. */
const dashes = (n) => lookOf(n).dashes.map((part) => part * Math.max(1, lookOf(n).width)).join(" ");

/** The outline of a marker around a point. */
function glyph(kind, x, y, r) {
  const ends = { s: "-1,-1 1,-1 1,1 -1,1", D: "0,-1.3 1.3,0 0,1.3 -1.3,0", "^": "0,-1.2 1.1,0.9 -1.1,0.9", v: "0,1.2 1.1,-0.9 -1.1,-0.9", "<": "-1.2,0 0.9,1.1 0.9,-1.1", ">": "1.2,0 -0.9,1.1 -0.9,-1.1" }[kind];
  if (kind === "x") return `M${x - r},${y - r}L${x + r},${y + r}M${x - r},${y + r}L${x + r},${y - r}`;
  if (kind === "+") return `M${x - r},${y}H${x + r}M${x},${y - r}V${y + r}`;
  if (!ends) return `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`;
  return `M${ends.split(" ").map((end) => end.split(",").map((part, i) => [x, y][i] + r * part)).join("L")}Z`;
}

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

/** Maps values of an axis to pixels from `low` to `high`; it begins at 0 where the axis says so alone, as in figures. */
function scaleOf(values, { unit = "number", log, ticks: given = [], covers = [], from_zero: zero }, low, high, room = 90) {
  const logged = log && values.some((value) => value > 0);
  const known = [...values, ...covers].filter((value) => value !== null && (!logged || value > 0));
  const ends = [Math.min(...known, zero && !logged ? 0 : Infinity), Math.max(...known, -Infinity)];
  if (!known.length) ends.splice(0, 2, 0, 1);
  if (ends[0] === ends[1]) ends[1] = ends[0] + Math.abs(ends[0] || 1);
  ends.splice(0, 2, ...margins(ends, logged));
  const f = logged ? Math.log10 : Number;
  const at = (value) => (value === null || (logged && value <= 0) ? null : low + ((f(value) - f(ends[0])) / (f(ends[1]) - f(ends[0]))) * (high - low));
  const parts = Math.max(2, Math.floor(Math.abs(high - low) / room));
  if (given.length) return { at, ends, ticks: apart(given.map((value) => [value, tickText(value, unit)]), at) };
  return { at, ends, ticks: logged ? logTicks(...ends, parts, unit) : unitTicks(...ends, parts, unit) };
}

/** The ends of an axis with some room beyond what is drawn. */
function margins([first, last], logged) {
  const room = logged ? (last / first) ** 0.05 : 0.05 * (last - first);
  return logged ? [first / room, last * room] : [first && first - room, last + room];
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
    const x = scaleOf([...block.points.flatMap((one) => one.x), ...limits("down"), ...(block.ranges || []).flatMap(({ start, end }) => [start, end])], block.x, PLOT.left, right);
    const y = scaleOf([...block.points.flatMap((one) => [...one.y, ...(one.low || []), ...(one.high || [])]), ...limits("across")], block.y, bottom, top, 45);
    const grid = [
      y.ticks.map(([value, label]) => [svg("line", { class: "grid", x1: PLOT.left, x2: right, y1: y.at(value), y2: y.at(value) }), svg("text", { x: PLOT.left - 8, y: y.at(value) + 4, "text-anchor": "end" }, label)]),
      x.ticks.map(([value, label]) => below(x.at(value), bottom + 16, label, width)),
      svg("text", { x: right, y: bottom + 30, "text-anchor": "end" }, block.x.label),
      block.x.whole > 0 && shares(x, block.x.whole, right - PLOT.left).map(([value, label]) => svg("text", { x: x.at(value), y: 10, "text-anchor": "middle" }, label)),
    ];
    const rules = [
      (block.across || []).map(({ label, value }) => [svg("line", { class: "budget", x1: PLOT.left, x2: right, y1: y.at(value), y2: y.at(value) }), svg("text", { class: "budget-text", x: PLOT.left + 4, y: y.at(value) - 4 }, label)]),
      (block.down || []).map(({ label, value }) => [svg("line", { class: "budget", x1: x.at(value), x2: x.at(value), y1: top, y2: bottom }), svg("text", { class: "budget-text", x: x.at(value) + 4, y: top + 10 }, label)]),
    ];
    const shades = (block.ranges || []).map(({ label, start, end }, n) => svg("rect", { class: `range range-${n}`, x: x.at(start), y: top, width: Math.max(0, x.at(end) - x.at(start)), height: bottom - top }, svg("title", {}, label)));
    return { height: PLOT.height, nodes: [shades, grid, rules, block.points.map((one, n) => group(one, numberOf(one, n), x, y, block, keeper, tags))] };
  };
  const reasons = [...new Set(block.points.flatMap(({ end }) => (end ? [end.reason] : [])))].sort();
  const ends = reasons.map((reason) => el("span", {}, sample(glyph(SERIES.ends[reason], 13, 5, 4)), SERIES.reasons[reason]));
  const ranged = block.points.flatMap((one, n) => (one.low && one.low.length && one.joined === "step" ? [el("span", {}, area("gap", { fill: ink(one.label, numberOf(one, n)) }), one.between || `${one.label}, range`)] : []));
  const shaded = (block.ranges || []).map(({ label }, n) => el("span", {}, area(`range range-${n}`), label));
  const legend = [...block.points.map((one, n) => el("span", {}, drawn(one, numberOf(one, n)), one.label)), ...ranged, ...ends, ...shaded];
  return el("div", {}, el("div", { class: "tools" }, el("div", { class: "legend" }, el("span", {}, block.y.label), legend)), plotOf(draw, block.title || block.key), keeper.node);
}

/** A small picture in a legend. */
const sample = (d, parts = [], stroke = "var(--soft)") => svg("svg", { class: "swatch series", viewBox: "0 0 26 10" }, ...parts, svg("path", { d, style: { stroke, "stroke-width": 1.6 } }));

/** A small area in a legend. */
const area = (kind, style = {}) => svg("svg", { class: "swatch series", viewBox: "0 0 26 10" }, svg("rect", { class: kind, x: 4, y: 0, width: 18, height: 10, style }));

/** The look of a series: its line, if it has one, and its marker. */
function drawn(one, n) {
  const [color, look] = [ink(one.label, n), lookOf(n)];
  const line = one.joined && svg("path", { d: "M0,5H26", "stroke-dasharray": dashes(n), style: { stroke: color, "stroke-width": look.width } });
  const marker = svg("path", { d: glyph(look.marker, 13, 5, 3), style: { fill: color, stroke: color } });
  return svg("svg", { class: "swatch series", viewBox: "0 0 26 10" }, ...[line, one.joined && one.x.length > SERIES.many ? null : marker].filter(Boolean));
}

/** Shares of the whole that lie on the axis: `[value, label]`. */
function shares(x, whole, width) {
  const [low, high] = x.ends.map((end) => end / whole);
  return unitTicks(low, high, Math.max(2, Math.floor(width / 90)), "share").map(([share, label]) => [share * whole, label]);
}

/** Runs of places without a gap between them: of those for which `known` is true. */
function stretches(count, known) {
  const found = [];
  for (let i = 0; i < count; i++) {
    if (known(i) && (!i || !known(i - 1))) found.push([]);
    if (known(i)) found[found.length - 1].push(i);
  }
  return found;
}

/** The ranges of points that hold until the next, as bands; a gap ends one. */
function bands({ x, low, high }, across, up) {
  const known = (i) => [x[i], low[i], high[i]].every((value) => value !== null) && up.at(low[i]) !== null;
  return stretches(x.length, known).map((run) => {
    const rows = run.flatMap((i) => (i + 1 < x.length ? [[i, i], [i + 1, i]] : [[i, i]]));
    const edge = (values) => rows.map(([at, of]) => `${across.at(x[at])},${up.at(values[of])}`);
    return `M${edge(high).join("L")}L${edge(low).reverse().join("L")}Z`;
  });
}

/** A name beside a point, unless another is there; `tags` are the places taken. */
function tag(x, y, name, tags) {
  const box = [x, y, x + 6.4 * name.length, y + 13];
  if (tags.some((other) => box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3])) return [];
  tags.push(box);
  return [svg("text", { class: "tag", x, y }, name)];
}

/** A line through places in pixels: straight, or in steps that hold until the next; a gap ends it. */
function through(one, x, y) {
  const at = (i) => [x.at(one.x[i]), y.at(one.y[i])];
  const shown = (i) => at(i).every((value) => value !== null);
  return stretches(one.x.length, shown).map((run) => {
    const parts = run.map((i, nth) => (nth ? (one.joined === "step" ? `H${at(i)[0]}V${at(i)[1]}` : `L${at(i)}`) : `M${at(i)}`));
    const [last] = run.slice(-1);
    return parts.join("") + (one.joined === "step" && last + 1 < one.x.length ? `H${x.at(one.x[last + 1])}` : "");
  }).join("");
}

/** Where a line ends, in its own colour; above the marks of others that end there. */
function ended({ end, label }, n, x, y) {
  const [left, from, up] = [x.at(end.x), x.at(end.start), y.at(end.y)];
  const style = { stroke: ink(label, n) };
  const rule = svg("path", { class: "end", d: `M${left},${up}H${from}`, "stroke-dasharray": "1 2", style: { ...style, "stroke-width": 0.8 } });
  return [rule, svg("path", { class: "end", d: glyph(SERIES.ends[end.reason], left, up - 10 * (end.below || 0), 4), style }, svg("title", {}, `${label}: ${SERIES.reasons[end.reason]}`))];
}

function group(one, n, x, y, block, keeper, tags) {
  const look = lookOf(n);
  const style = { stroke: ink(one.label, n), fill: ink(one.label, n) };
  const places = one.x.map((value, i) => [x.at(value), y.at(one.y[i]), i]).filter(([a, b]) => a !== null && b !== null);
  const line = (axis, value) => el("div", {}, `${axis.label}: ${valueText(value, axis.unit || "number")}`);
  const told = (i) => [el("div", { class: "head" }, (one.names && one.names[i]) || one.label), line(block.x, one.x[i]), line(block.y, one.y[i])];
  const radius = one.joined ? Math.max(2, 4 - n / 4) : 3;
  const many = one.joined && one.x.length > SERIES.many;
  const dots = (many && one.joined === "step" ? [] : places).map(([a, b, i]) => {
    const dot = hover(svg("path", { class: many ? "pick unseen" : "pick", d: glyph(look.marker, a, b, radius), style }), ...told(i));
    keeper.watch(dot, `${n} ${i}`, () => told(i));
    return dot;
  });
  const ranged = one.low && one.low.length > 0;
  const named = one.tagged ? places.filter(([, , i]) => one.names[i]).flatMap(([a, b, i]) => tag(a + 8, b - 8, one.names[i], tags)) : [];
  const spread = ranged && one.joined === "step"
    ? bands(one, x, y).map((d) => svg("path", { class: "gap", d, style: { fill: style.fill } }, svg("title", {}, one.between)))
    : places.map(([a, , i]) => ranged && one.low[i] !== null && svg("line", { class: "spread", x1: a, x2: a, y1: y.at(one.low[i]), y2: y.at(one.high[i]), style: { stroke: style.stroke } }));
  const path = one.joined && places.length > 0 && svg("path", { class: "line", d: through(one, x, y), "stroke-dasharray": dashes(n), style: { stroke: style.stroke, "stroke-width": look.width } });
  return [spread, named, path, dots, one.end && ended(one, n, x, y)];
}
