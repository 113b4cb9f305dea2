"use strict";
// Curves: stacked steps over time or over the number of the op, with what is resident under the pointer.

const MARGIN = { left: 66, right: 14, top: 26, bottom: 46 };
const RIBBON = 17;
const NAMED = 8; // storages that the tooltip names
const LINES = ["--ink", "--accent", "--warn", "--soft"];

const paint = (key, number) => `var(--${key.replace(/[^\w-]/g, "_")}, var(--t${number % 8}))`;

class CurveView {
  /** `ops` and `alive` are the tables of its ops and of its storages, or null. */
  constructor(block, ops, alive) {
    Object.assign(this, { block, ops, alive, length: block.x.length - 1, unit: block.unit || "bytes", left: MARGIN.left });
    this.stack = block.stack || [];
    this.lines = block.lines || [];
    this.total = new Float64Array(this.length);
    for (const { values } of this.stack) for (let i = 0; i < this.length; i++) this.total[i] += values[i];
    this.peak = this.total.reduce((best, value, i) => (value > this.total[best] ? i : best), 0);
    this.axis = block.x_unit;
    this.view = [0, this.length];
    this.cross = null;
    this.onzoom = null;
    this.pinned = this.peak;
    this.plot = svg("svg", { tabindex: 0, role: "img", "aria-label": `${block.title || block.key}: ${this.length} entries, peak ${this.text(this.total[this.peak])}. Arrow keys move along it.` });
    this.said = el("span", { "aria-live": "polite", class: "said" });
    this.reset = el("button", { type: "button", disabled: true, onclick: () => this.zoom(0, this.length) }, "Whole step");
    this.title = el("h3", { class: "alive-title" });
    this.node = el("div", {}, this.#tools(), el("div", { class: "chart" }, this.plot), this.said, this.#keys(), alive && this.title);
    this.#listen();
    onResize(this.plot, () => this.draw());
    this.choose(this.peak);
  }

  text(value) {
    return valueText(value, this.unit);
  }

  op(i) {
    return this.block.ops ? this.block.ops[i] : i;
  }

  #tools() {
    const axes = this.block.x_unit === "ns" && choice("Axis", [["ns", "By time"], ["op", "By op"]], "ns", (key) => ((this.axis = key), this.draw()));
    const entries = this.stack.map((one, n) => {
      const content = [el("span", { class: "swatch", style: { background: paint(one.key, n) } }), one.label];
      return (this.alive && this.alive.chip(one.key, "", content)) || el("span", {}, content);
    });
    entries.push(...this.lines.map((one, n) => el("span", {}, el("span", { class: "stroke", style: { borderColor: `var(${LINES[n % 4]})` } }), one.label)));
    if ((this.block.shades || []).length) entries.push(el("span", {}, swatch("recompute"), this.block.shades[0].label));
    const peak = el("button", { type: "button", onclick: () => this.choose(this.peak) }, "Go to the peak");
    return el("div", { class: "tools" }, axes, el("div", { class: "legend" }, entries), el("span", { class: "spring" }), peak, this.reset);
  }

  #keys() {
    return el("p", { class: "keys" }, "Drag to zoom, double-click for the whole step, click to keep an instant. Keys: ", ["← →", "Shift", "+ −", "Enter", "P", "Esc"].map((key) => [el("kbd", {}, key), " "]));
  }

  zoom(from, to) {
    this.#show(from, to);
    if (this.onzoom) this.onzoom(...this.view.map((end) => this.block.x[end]));
  }

  /** Shows a stretch of time that was chosen elsewhere. */
  follow(from, to) {
    const { x } = this.block;
    const first = x.findIndex((edge) => edge > from);
    const last = x.findIndex((edge) => edge >= to);
    this.#show((first < 0 ? this.length : first) - 1, last < 0 ? this.length : last);
  }

  #show(from, to) {
    const span = Math.min(this.length, Math.max(8, Math.round(to - from)));
    const start = Math.max(0, Math.min(this.length - span, Math.round(from)));
    this.view = [start, start + span];
    this.reset.disabled = span === this.length;
    this.draw();
  }

  /** Keeps an instant, and shows the storages resident then in their table. */
  choose(i) {
    this.pinned = i;
    if (i < this.view[0] || i >= this.view[1]) this.zoom(0, this.length);
    this.mark();
    if (!this.alive) return;
    const op = this.op(i);
    this.title.replaceChildren(i === this.peak ? `Resident at the peak, op ${whole(op)}` : `Resident at op ${whole(op)}`, el("span", { class: "soft" }, `  ${this.#opWords(i).join(" · ")}`));
    this.alive.restrict(this.#alive(op));
  }

  /** The entry of an op, chosen elsewhere. */
  chooseOp(op) {
    const i = this.block.ops ? this.block.ops.indexOf(op) : op;
    if (i >= 0) this.choose(i);
  }

  #alive(op) {
    const [birth, death] = [this.alive.column("birth_op"), this.alive.column(this.block.death || "death_op")];
    return (row) => birth.at(row) <= op && op < death.at(row);
  }

  #opWords(i) {
    return this.ops && this.op(i) < this.ops.length ? this.ops.words(this.op(i)) : [];
  }

  // -- drawing

  position(i) {
    if (this.axis === "op") return i;
    const at = Math.min(this.length - 1, Math.floor(i));
    return this.block.x[at] + (i - at) * (this.block.x[at + 1] - this.block.x[at]);
  }

  x(i) {
    const [from, to] = this.view.map((end) => this.position(end));
    return this.left + ((this.position(i) - from) / (to - from || 1)) * this.width;
  }

  entryAt(clientX) {
    const box = this.plot.getBoundingClientRect();
    const at = ((clientX - box.left) * this.plot.clientWidth) / (box.width || 1);
    let [low, high] = this.view;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.x(middle) <= at) low = middle;
      else high = middle;
    }
    return low;
  }

  draw() {
    const box = { width: this.plot.clientWidth, height: this.plot.clientHeight };
    if (!box.width || !this.length) return;
    this.plot.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`); // printed in another width, it is scaled
    this.width = box.width - this.left - MARGIN.right;
    this.height = box.height - MARGIN.top - MARGIN.bottom;
    const { op, start, end } = this.#instants();
    const seen = Array.from(op);
    const highest = Math.max(...seen.map((i) => Math.max(this.total[i], ...this.lines.map(({ values }) => values[i]))));
    this.limits = (this.block.limits || []).filter(({ value }) => value < 1.5 * highest);
    this.most = 1.04 * Math.max(1e-9, highest, ...this.limits.map(({ value }) => value));
    this.y = (value) => MARGIN.top + this.height * (1 - value / this.most);
    const xs = [...start, end[end.length - 1]].map((i) => this.x(i));
    this.marks = svg("g", { class: "marks" });
    this.plot.replaceChildren(...this.#grid(), ...this.#shades(), ...this.#areas(op, xs), ...this.#over(op, xs), ...this.#ribbon(), ...this.#axis(), ...this.#peak(), this.marks);
    this.mark();
  }

  /** The entries that are drawn: of those that share a pixel the highest. */
  #instants() {
    const [from, to] = this.view;
    if (this.axis === "op") return instants(this.total, from, to, Math.floor(this.width));
    const found = { op: [], start: [], end: [] };
    let last = -1;
    for (let i = from; i < to; i++) {
      const pixel = Math.floor(this.x(i));
      const at = found.op.length - 1;
      if (pixel !== last) {
        for (const key of ["op", "start"]) found[key].push(i);
        found.end.push(i + 1);
        last = pixel;
      } else {
        if (this.total[i] > this.total[found.op[at]]) found.op[at] = i;
        found.end[at] = i + 1;
      }
    }
    return found;
  }

  #grid() {
    const right = this.left + this.width;
    return unitTicks(0, this.most, 6, this.unit).flatMap(([value, label]) => [
      svg("line", { class: value ? "grid" : "axis", x1: this.left, x2: right, y1: this.y(value), y2: this.y(value) }),
      svg("text", { x: this.left - 8, y: this.y(value) + 4, "text-anchor": "end" }, label),
    ]);
  }

  /** The part of a stretch of entries that is in view: `[left, right]`, or null. */
  #seen({ start, end }) {
    const [from, to] = this.view;
    return start < to && end > from ? [this.x(Math.max(from, start)), this.x(Math.min(to, end))] : null;
  }

  #shades() {
    const found = (this.block.shades || []).map((stretch) => this.#seen(stretch)).filter(Boolean);
    return found.flatMap(([left, right]) => {
      const width = Math.max(0.6, right - left);
      return [svg("rect", { class: "again", x: left, y: MARGIN.top, width, height: this.height }), width > 3 && svg("path", { class: "hatch", d: hatch(left, MARGIN.top, width, this.height) })].filter(Boolean);
    });
  }

  #areas(op, xs) {
    const sums = new Float64Array(op.length);
    const level = () => Float64Array.from(sums, this.y);
    const bands = this.stack.map(({ key, values }, n) => {
      const lower = level();
      op.forEach((i, c) => (sums[c] += values[i]));
      return svg("path", { d: stepBand(xs, lower, level()), style: { fill: paint(key, n) }, "data-role": key });
    });
    return this.stack.length ? [...bands, svg("path", { class: "total", d: stepLine(xs, level(), 0, op.length, 1) })] : [];
  }

  #over(op, xs) {
    const lines = this.lines.map(({ values }, n) => svg("path", { class: "line", style: { stroke: `var(${LINES[n % 4]})` }, d: stepLine(xs, Float64Array.from(op, (i) => this.y(values[i])), 0, op.length, 1) }));
    const right = this.left + this.width;
    const limits = this.limits.flatMap(({ label, value }) => [
      svg("line", { class: "budget", x1: this.left, x2: right, y1: this.y(value), y2: this.y(value) }),
      svg("text", { class: "budget-text", x: right - 4, y: this.y(value) - 5, "text-anchor": "end" }, label),
    ]);
    return [...lines, ...limits];
  }

  #ribbon() {
    const top = MARGIN.top + this.height + 4;
    return (this.block.bands || []).flatMap((band, n) => {
      const [left, right] = this.#seen(band) || [0, 0];
      if (right - left < 0.4) return [];
      const made = [svg("rect", { x: left, y: top, width: right - left, height: RIBBON, style: { fill: paint(band.label, n) } }, svg("title", {}, band.label))];
      if (right - left > 9 * band.label.length) made.push(svg("text", { x: (left + right) / 2, y: top + 12.5, "text-anchor": "middle", style: { fill: `var(--on-${band.label.replace(/[^\w-]/g, "_")}, var(--ink))` } }, band.label));
      return made;
    });
  }

  #axis() {
    const y = MARGIN.top + this.height + RIBBON + 19;
    const parts = Math.max(2, Math.floor(this.width / 110));
    const [from, to] = this.view.map((end) => this.position(end));
    const place = (value) => this.left + ((value - from) / (to - from || 1)) * this.width;
    const ticks = this.axis === "op" ? opTicks(from, to, parts).map((i) => [i, i ? whole(this.op(i)) : `op ${whole(this.op(0))}`]) : unitTicks(from, to, parts, "ns");
    const right = this.left + this.width;
    const anchor = (x) => (x > right - 24 ? { x: right + MARGIN.right, "text-anchor": "end" } : { x, "text-anchor": "middle" });
    return ticks.map(([value, label]) => svg("text", { y, ...anchor(place(value)) }, label));
  }

  #peak() {
    const marks = (this.block.marks || []).filter(({ at }) => at >= this.view[0] && at < this.view[1]);
    return marks.flatMap(({ at, label }) => {
      const [x, y] = [this.x(at + 0.5), this.y(this.total[at])];
      const side = x > this.left + this.width * 0.72 ? -1 : 1;
      return [
        svg("line", { class: "peak", x1: x, x2: x, y1: y, y2: MARGIN.top + this.height }),
        svg("circle", { class: "peak-dot", cx: x, cy: y, r: 3.5 }),
        svg("text", { class: "peak-text", x: x + 8 * side, y: y - 7, "text-anchor": side > 0 ? "start" : "end" }, label),
      ];
    });
  }

  /** Draws what follows the pointer: the cross, the pin and the stretch that is being dragged. */
  mark() {
    if (!this.marks) return;
    const bottom = MARGIN.top + this.height;
    const line = (i, name) => svg("line", { class: name, x1: this.x(i + 0.5), x2: this.x(i + 0.5), y1: MARGIN.top - 6, y2: bottom });
    const seen = (i) => i !== null && i >= this.view[0] && i < this.view[1];
    const parts = [];
    if (this.brush && Math.abs(this.brush[1] - this.brush[0]) > 3) {
      const [a, b] = [...this.brush].sort((p, q) => p - q);
      parts.push(svg("rect", { class: "brush", x: a, y: MARGIN.top, width: b - a, height: this.height }));
    }
    if (seen(this.pinned) && this.pinned !== this.peak) parts.push(line(this.pinned, "pin"));
    if (seen(this.cross)) parts.push(line(this.cross, "cross"));
    this.marks.replaceChildren(...parts);
  }

  // -- pointer and keys

  describe(i) {
    const line = (name, value, more = {}) => el("tr", more, el("td", {}, name), el("td", { class: "num" }, value));
    const parts = [...this.stack.entries()].reverse().filter(([, { values }]) => values[i] > 0);
    const [head, ...rest] = this.#opWords(i);
    const at = this.block.x_unit === "ns" ? [duration(this.block.x[i])] : [];
    const inside = [...(this.block.bands || []), ...(this.block.shades || [])].filter(({ start, end }) => start <= i && i < end);
    return [
      el("div", { class: "head" }, `op ${whole(this.op(i))}  ${head || ""}`),
      el("div", { class: "soft" }, [...rest, ...at, ...inside.map(({ label }) => label)].join(" · ")),
      el(
        "table",
        {},
        this.stack.length > 0 && line(el("b", {}, "in all"), this.text(this.total[i])),
        parts.map(([n, one]) => line([el("span", { class: "swatch", style: { background: paint(one.key, n) } }), one.label], this.text(one.values[i]))),
        this.lines.map((one) => line(one.label, this.text(one.values[i]))),
      ),
      this.#named(this.op(i)),
    ];
  }

  /** The largest storages resident during `op`. */
  #named(op) {
    const size = this.alive && this.alive.every.find(({ unit }) => unit === "bytes");
    if (!size) return null;
    const test = this.#alive(op);
    const found = [];
    for (let row = 0; row < this.alive.length; row++) if (test(row)) found.push(row);
    const most = found.sort((a, b) => size.at(b) - size.at(a)).slice(0, NAMED);
    const rest = found.length - most.length;
    return el("table", { class: "alive-now" }, most.map((row) => el("tr", {}, el("td", {}, this.alive.words(row).slice(0, 2).join(" · ")), el("td", { class: "num" }, bytes(size.at(row))))), rest > 0 && el("tr", {}, el("td", { class: "soft" }, `and ${whole(rest)} more`)));
  }

  #listen() {
    const { plot } = this;
    const inside = (event) => event.clientX - plot.getBoundingClientRect().left;
    plot.addEventListener("pointerdown", (event) => {
      if (event.button || event.pointerType === "touch") return;
      this.brush = [inside(event), inside(event)];
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      if (!this.length) return;
      if (this.brush) this.brush[1] = inside(event);
      this.cross = this.entryAt(event.clientX);
      this.mark();
      tip.show(event.clientX, event.clientY, this.describe(this.cross));
    });
    plot.addEventListener("pointerup", (event) => {
      const [a, b] = this.brush || [0, 0];
      this.brush = null;
      if (Math.abs(b - a) <= 3) return this.choose(this.entryAt(event.clientX));
      const left = plot.getBoundingClientRect().left;
      this.zoom(this.entryAt(left + Math.min(a, b)), this.entryAt(left + Math.max(a, b)) + 1);
    });
    for (const name of ["pointerleave", "blur"]) plot.addEventListener(name, () => ((this.cross = null), this.mark(), tip.hide()));
    plot.addEventListener("dblclick", () => this.zoom(0, this.length));
    plot.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const [from, to] = this.view;
    const at = this.cross ?? Math.max(from, Math.min(to - 1, this.pinned));
    const stride = event.shiftKey ? Math.max(1, Math.round((to - from) / 40)) : 1;
    const moves = { ArrowLeft: at - stride, ArrowRight: at + stride, Home: from, End: to - 1, p: this.peak };
    const scales = { "+": 0.5, "=": 0.5, "-": 2 };
    if (event.key in moves) this.#move(Math.max(0, Math.min(this.length - 1, moves[event.key])));
    else if (event.key in scales) {
      const span = (to - from) * scales[event.key];
      this.zoom(at - span / 2, at + span / 2);
    } else if (event.key === "Enter" || event.key === " ") this.choose(at);
    else if (event.key === "Escape") this.zoom(0, this.length);
    else return;
    event.preventDefault();
  }

  #move(i) {
    const [from, to] = this.view;
    if (i < from || i >= to) this.zoom(i - (to - from) / 2, i + (to - from) / 2);
    this.cross = i;
    this.mark();
    const box = this.plot.getBoundingClientRect();
    tip.show(box.left + this.x(i + 0.5), box.top + this.y(this.total[i]), this.describe(i));
    this.said.textContent = `op ${this.op(i)}, ${this.#opWords(i)[0] || ""}, ${this.text(this.total[i])}`;
  }
}
