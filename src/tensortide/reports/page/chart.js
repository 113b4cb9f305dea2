"use strict";
// Memory over the step: stacked steps by role over the index of the op, phases as a ribbon below.

const MARGIN = { left: 66, right: 14, top: 26, bottom: 46 };
const RIBBON = 17;

class MemoryChart {
  /** `pin(op)` is called when an instant is chosen; the peak is the first. */
  constructor(report, pin) {
    this.report = report;
    this.pin = pin;
    this.lifetime = "eager";
    this.view = [0, report.length];
    this.cross = null;
    this.pinned = report.series.eager.peak;
    this.plot = svg("svg", { tabindex: 0, role: "img", "aria-label": this.#summary() });
    this.said = el("span", { "aria-live": "polite", class: "said" });
    this.reset = el("button", { type: "button", disabled: true, onclick: () => this.zoom(0, report.length) }, "Whole step");
    this.node = el("div", { class: "chart" }, this.plot);
    this.#listen();
    onResize(this.plot, () => this.draw());
  }

  get series() {
    return this.report.series[this.lifetime];
  }

  show(lifetime) {
    const wasPeak = this.pinned === this.series.peak;
    this.lifetime = lifetime;
    if (wasPeak) this.pinned = this.series.peak;
    this.plot.setAttribute("aria-label", this.#summary());
    this.draw();
    this.pin(this.pinned);
  }

  zoom(from, to) {
    const length = this.report.length;
    const span = Math.min(length, Math.max(8, Math.round(to - from)));
    const start = Math.max(0, Math.min(length - span, Math.round(from)));
    this.view = [start, start + span];
    this.reset.disabled = span === length;
    this.draw();
  }

  choose(op) {
    this.pinned = op;
    if (op < this.view[0] || op >= this.view[1]) this.zoom(0, this.report.length);
    this.mark();
    this.pin(op);
  }

  #summary() {
    const { series } = this;
    return `Memory over ${series.length} ops; peak ${bytes(series.total[series.peak])} at op ${series.peak}. Arrow keys move along it.`;
  }

  x(op) {
    return MARGIN.left + ((op - this.view[0]) / (this.view[1] - this.view[0])) * this.width;
  }

  opAt(clientX) {
    const at = (clientX - this.plot.getBoundingClientRect().left - MARGIN.left) / this.width;
    const [from, to] = this.view;
    return Math.max(from, Math.min(to - 1, from + Math.floor(at * (to - from))));
  }

  draw() {
    const box = { width: this.plot.clientWidth, height: this.plot.clientHeight };
    if (!box.width) return;
    this.width = box.width - MARGIN.left - MARGIN.right;
    this.height = box.height - MARGIN.top - MARGIN.bottom;
    const { op, start, end } = instants(this.series.total, ...this.view, Math.floor(this.width));
    const most = 1.04 * Math.max(1, this.highest(Array.from(op)));
    const y = (value) => MARGIN.top + this.height * (1 - value / most);
    const xs = [...start, end[end.length - 1]].map((i) => this.x(i));
    this.y = y;
    this.marks = svg("g", { class: "marks" });
    this.plot.replaceChildren(...this.#grid(most), ...this.under(), ...this.#areas(op, xs), ...this.over(op, xs), ...this.#ribbon(), ...this.#axis(), ...this.#peak(), this.marks);
    this.mark();
  }

  /** The most bytes that are drawn at the instants `op`. */
  highest(op) {
    return Math.max(...op.map((i) => this.series.total[i]));
  }

  /** What is drawn below the areas, and what above them: nothing, but in charts that show more. */
  under() {
    return [];
  }

  over() {
    return [];
  }

  #grid(most) {
    const right = MARGIN.left + this.width;
    return byteTicks(most, 6).map(([value, label]) => [
      svg("line", { class: value ? "grid" : "axis", x1: MARGIN.left, x2: right, y1: this.y(value), y2: this.y(value) }),
      svg("text", { x: MARGIN.left - 8, y: this.y(value) + 4, "text-anchor": "end" }, label),
    ]).flat();
  }

  #areas(op, xs) {
    const sums = new Float64Array(op.length);
    const level = () => Float64Array.from(sums, this.y);
    const bands = this.series.roles.map(({ role, values }) => {
      const lower = level();
      op.forEach((i, c) => (sums[c] += values[i]));
      return svg("path", { d: stepBand(xs, lower, level()), style: { fill: cssColor(role) }, "data-role": role });
    });
    return [...bands, svg("path", { class: "total", d: stepLine(xs, level(), 0, op.length, 1) })];
  }

  #ribbon() {
    const top = MARGIN.top + this.height + 4;
    const [from, to] = this.view;
    const parts = [];
    for (const stretch of this.report.stretches()) {
      const left = this.x(Math.max(from, stretch.from));
      const width = this.x(Math.min(to, stretch.to)) - left;
      if (width < 0.4) continue;
      parts.push(svg("rect", { x: left, y: top, width, height: RIBBON, style: { fill: cssColor(stretch.phase) } }, svg("title", {}, stretch.phase)));
      if (width > 9 * stretch.phase.length)
        parts.push(svg("text", { x: left + width / 2, y: top + 12.5, "text-anchor": "middle", style: { fill: cssColor(`on-${stretch.phase}`) } }, stretch.phase));
    }
    return parts;
  }

  #axis() {
    const y = MARGIN.top + this.height + RIBBON + 19;
    const parts = Math.max(2, Math.floor(this.width / 110));
    return this.ticks(parts).map(([x, text]) => svg("text", { x, y, "text-anchor": "middle" }, text));
  }

  peakText(op) {
    return `peak ${bytes(this.series.total[op])} at op ${whole(this.number(op))}`;
  }

  /** The number of the op that is the entry `op` of the series: itself, but in charts of something else than ops. */
  number(op) {
    return op;
  }

  /** Labels of the axis, at most `parts` or so, and where they stand. */
  ticks(parts) {
    return opTicks(...this.view, parts).map((op) => [this.x(op), op ? whole(op) : "op 0"]);
  }

  #peak() {
    const { peak, total } = this.series;
    if (peak < this.view[0] || peak >= this.view[1]) return [];
    const x = this.x(peak + 0.5);
    const y = this.y(total[peak]);
    const side = x > MARGIN.left + this.width * 0.72 ? -1 : 1;
    return [
      svg("line", { class: "peak", x1: x, x2: x, y1: y, y2: MARGIN.top + this.height }),
      svg("circle", { class: "peak-dot", cx: x, cy: y, r: 3.5 }),
      svg("text", { class: "peak-text", x: x + 8 * side, y: y - 7, "text-anchor": side > 0 ? "start" : "end" }, this.peakText(peak)),
    ];
  }

  /** Draws what follows the pointer: the cross, the pin and the stretch that is being dragged. */
  mark() {
    const bottom = MARGIN.top + this.height;
    const line = (op, name) => svg("line", { class: name, x1: this.x(op + 0.5), x2: this.x(op + 0.5), y1: MARGIN.top - 6, y2: bottom });
    const seen = (op) => op !== null && op >= this.view[0] && op < this.view[1];
    const parts = [];
    if (this.brush && Math.abs(this.brush[1] - this.brush[0]) > 3) {
      const [a, b] = [...this.brush].sort((p, q) => p - q);
      parts.push(svg("rect", { class: "brush", x: a, y: MARGIN.top, width: b - a, height: this.height }));
    }
    if (seen(this.pinned) && this.pinned !== this.series.peak) {
      const x = this.x(this.pinned + 0.5);
      parts.push(line(this.pinned, "pin"), svg("path", { class: "pin-flag", d: `M${x},${MARGIN.top - 6}l9,4l-9,4z` }));
    }
    if (seen(this.cross)) parts.push(line(this.cross, "cross"));
    this.marks.replaceChildren(...parts);
  }

  describe(op) {
    const { report, series } = this;
    const source = report.source(report.ops.source[op]);
    const rows = [...series.roles].reverse().filter(({ values }) => values[op] > 0);
    return [
      el("div", { class: "head" }, `op ${whole(op)}  ${report.opName(op)}`),
      el("div", { class: "soft" }, `${report.opModule(op)} · ${report.opPhase(op)}`),
      source && el("div", { class: "code" }, `${source.where}  ${source.code}`),
      el(
        "table",
        {},
        el("tr", {}, el("td", {}, el("b", {}, "resident")), el("td", { class: "num" }, el("b", {}, bytes(series.total[op])))),
        rows.map(({ role, values }) => el("tr", {}, el("td", {}, swatch(role), words(role)), el("td", { class: "num" }, bytes(values[op])))),
      ),
    ];
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
      if (this.brush) this.brush[1] = inside(event);
      this.cross = this.opAt(event.clientX);
      this.mark();
      tip.show(event.clientX, event.clientY, this.describe(this.cross));
    });
    plot.addEventListener("pointerup", (event) => {
      const [a, b] = this.brush || [0, 0];
      this.brush = null;
      if (Math.abs(b - a) <= 3) return this.choose(this.opAt(event.clientX));
      const left = plot.getBoundingClientRect().left;
      this.zoom(this.opAt(left + Math.min(a, b)), this.opAt(left + Math.max(a, b)) + 1);
    });
    plot.addEventListener("pointerleave", () => this.#away());
    plot.addEventListener("blur", () => this.#away());
    plot.addEventListener("dblclick", () => this.zoom(0, this.report.length));
    plot.addEventListener("keydown", (event) => this.#key(event));
  }

  #away() {
    this.cross = null;
    this.mark();
    tip.hide();
  }

  #key(event) {
    const [from, to] = this.view;
    const at = this.cross ?? Math.max(from, Math.min(to - 1, this.pinned));
    const stride = event.shiftKey ? Math.max(1, Math.round((to - from) / 40)) : 1;
    const moves = { ArrowLeft: at - stride, ArrowRight: at + stride, Home: from, End: to - 1, p: this.series.peak };
    const scales = { "+": 0.5, "=": 0.5, "-": 2 };
    if (event.key in moves) this.#move(Math.max(0, Math.min(this.report.length - 1, moves[event.key])));
    else if (event.key in scales) {
      const span = (to - from) * scales[event.key];
      this.zoom(at - span / 2, at + span / 2);
      this.#move(at);
    } else if (event.key === "Enter" || event.key === " ") this.choose(at);
    else if (event.key === "Escape") this.zoom(0, this.report.length);
    else return;
    event.preventDefault();
  }

  #move(op) {
    const [from, to] = this.view;
    if (op < from || op >= to) this.zoom(op - (to - from) / 2, op + (to - from) / 2);
    this.cross = op;
    this.mark();
    const box = this.plot.getBoundingClientRect();
    tip.show(box.left + this.x(op + 0.5), box.top + this.y(this.series.total[op]), this.describe(op));
    this.said.textContent = `op ${this.number(op)}, ${this.report.opName(op)}, ${bytes(this.series.total[op])}`;
  }
}
