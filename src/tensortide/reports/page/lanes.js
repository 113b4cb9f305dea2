"use strict";
// Lanes of intervals over time: zoomed as curves are, and each interval told under the pointer or the keys.

const LANE = { height: 16, tall: 24, few: 8, letter: 6.4, label: 268, most: 60, top: 8, bottom: 26, near: 4 };
const SHOWN = 0.8; // pixels below which intervals of one pixel are drawn as the longest of them

/** A name in at most so many letters: of each of the two devices of a link the end, which tells it from others. */
const shortened = (name, most) => {
  const parts = name.split(" > ");
  const room = Math.floor((most - 3 * (parts.length - 1)) / parts.length);
  return name.length > most ? parts.map((part) => (part.length > room ? `…${part.slice(1 - room)}` : part)).join(" > ") : name;
};

class LanesView {
  /** `table` has the rows that describe intervals, or is null. */
  constructor(block, table) {
    Object.assign(this, { block, table, lanes: block.lanes.slice(0, LANE.most), here: null, kept: null, brush: null, onzoom: null });
    this.height = this.lanes.length > LANE.few ? LANE.height : LANE.tall;
    this.left = Math.min(LANE.label, Math.max(MARGIN.left, 12 + LANE.letter * Math.max(0, ...this.lanes.map(({ label }) => label.length))));
    const ends = this.lanes.flatMap(({ start, end }) => [...start.slice(0, 1), ...end.slice(-1)]);
    this.whole = [block.x_unit === "ns" ? 0 : Math.min(...ends, Infinity), Math.max(...ends, -Infinity)]; // time begins at 0
    if (!(this.whole[1] > this.whole[0])) this.whole = [0, 1];
    this.view = [...this.whole];
    this.arrows = new Map();
    for (const { stops } of block.arrows || []) for (const [lane, i] of stops) this.arrows.set(`${lane} ${i}`, [...(this.arrows.get(`${lane} ${i}`) || []), stops]);
    this.plot = svg("svg", { tabindex: 0, role: "img", "aria-label": `${block.title || block.key}: ${this.lanes.length} lanes. Arrow keys move from interval to interval and from lane to lane.` });
    this.reset = el("button", { type: "button", disabled: true, onclick: () => this.zoom(...this.whole) }, "Whole step");
    this.said = el("span", { "aria-live": "polite", class: "said" });
    this.told = el("div", { class: "note remark told" });
    const keys = el("p", { class: "keys" }, "Drag to zoom, double-click for the whole step, click to keep what is told. Keys: ", ["← →", "↑ ↓", "+ −", "Enter", "Esc"].map((key) => [el("kbd", {}, key), " "]));
    const rest = block.lanes.length - this.lanes.length;
    this.node = el("div", {}, this.#tools(), el("div", { class: "chart plot lanes" }, this.plot), this.said, rest > 0 && el("p", { class: "vnote" }, `and ${whole(rest)} more`), keys, this.told);
    this.plot.style.height = `${LANE.top + this.lanes.length * this.height + LANE.bottom}px`;
    this.#listen();
    onResize(this.plot, () => this.draw());
  }

  #tools() {
    this.kinds = [...new Set(this.lanes.flatMap(({ kinds = [] }) => kinds))];
    const named = this.kinds.length > 1 && this.kinds.length < 12 ? this.kinds : [];
    const legend = named.map((kind, n) => el("span", {}, el("span", { class: "swatch", style: { background: paint(kind, n) } }), words(kind)));
    return el("div", { class: "tools" }, el("div", { class: "legend" }, legend), el("span", { class: "spring" }), this.reset);
  }

  zoom(from, to) {
    this.follow(from, to);
    if (this.onzoom) this.onzoom(...this.view);
  }

  /** Shows a stretch of time that was chosen here or elsewhere. */
  follow(from, to) {
    const [first, last] = this.whole;
    const span = Math.min(last - first, Math.max((last - first) / 1e6, to - from, 1));
    const start = Math.max(first, Math.min(last - span, from));
    this.view = [start, start + span];
    this.reset.disabled = span === last - first;
    this.draw();
  }

  // -- drawing

  x(value) {
    return this.left + ((value - this.view[0]) / (this.view[1] - this.view[0])) * this.width;
  }

  time(clientX) {
    const box = this.plot.getBoundingClientRect();
    const at = ((clientX - box.left) * this.plot.clientWidth) / (box.width || 1);
    return this.view[0] + ((at - this.left) / this.width) * (this.view[1] - this.view[0]);
  }

  top(lane) {
    return LANE.top + lane * this.height;
  }

  draw() {
    const total = this.plot.clientWidth;
    if (!total) return;
    const height = LANE.top + this.lanes.length * this.height + LANE.bottom;
    this.plot.setAttribute("viewBox", `0 0 ${total} ${height}`);
    this.width = total - this.left - MARGIN.right;
    this.marks = svg("g", { class: "marks" });
    this.plot.replaceChildren(...this.lanes.flatMap((lane, n) => this.#lane(lane, n)), ...this.#axis(), this.marks);
    this.mark();
  }

  #lane(lane, n) {
    const top = this.top(n);
    const name = shortened(lane.label, Math.floor((this.left - 12) / LANE.letter));
    const base = svg("line", { class: "grid", x1: this.left, x2: this.left + this.width, y1: top + this.height - 1, y2: top + this.height - 1 });
    const label = svg("text", { x: this.left - 8, y: top + this.height / 2 + 4, "text-anchor": "end" }, name, svg("title", {}, lane.label));
    return [base, label, ...this.#seen(lane).flatMap((i) => this.#bar(lane, n, i))];
  }

  /** The intervals of a lane that are drawn. Of those too short to see, the longest in each pixel; they come first, so that
   * others cover them. */
  #seen({ start, end }) {
    const [found, short] = [[], []];
    let [pixel, best] = [null, null];
    for (let i = 0; i < start.length; i++) {
      if (end[i] < this.view[0] || start[i] > this.view[1]) continue;
      if (this.x(end[i]) - this.x(start[i]) >= SHOWN) {
        found.push(i);
        continue;
      }
      const at = Math.floor(this.x(start[i]));
      if (at !== pixel) {
        if (best !== null) short.push(best);
        [pixel, best] = [at, i];
      } else if (end[i] - start[i] > end[best] - start[best]) best = i;
    }
    return [...short, ...(best === null ? [] : [best]), ...found];
  }

  #bar(lane, n, i) {
    const left = Math.max(this.left, this.x(lane.start[i]));
    const right = Math.min(this.left + this.width, this.x(lane.end[i]));
    const kind = (lane.kinds && lane.kinds[i]) || "activation";
    const bar = svg("rect", { x: left, y: this.top(n) + 2, width: Math.max(0.6, right - left), height: this.height - 4, style: { fill: paint(kind, this.kinds.indexOf(kind)) }, "data-kind": kind });
    const name = lane.names && this.height > LANE.height ? UNITS.name.text(lane.names[i]) : "";
    const room = Math.floor((right - left - 6) / 6.2);
    if (!name || room < 4) return [bar];
    const text = name.length <= room ? name : `${name.slice(0, room - 1)}…`;
    return [bar, svg("text", { class: "on", x: left + 3, y: this.top(n) + this.height / 2 + 4, style: { fill: `var(--on-${kind}, var(--ink))` } }, text)];
  }

  #axis() {
    const y = LANE.top + this.lanes.length * this.height + 16;
    const right = this.left + this.width;
    const anchor = (x) => (x > right - 24 ? { x: right + MARGIN.right, "text-anchor": "end" } : { x, "text-anchor": "middle" });
    return unitTicks(...this.view, Math.max(2, Math.floor(this.width / 110)), this.block.x_unit).map(([value, label]) => svg("text", { y, ...anchor(this.x(value)) }, label));
  }

  /** Draws what follows the pointer: the interval told, the one kept, what belongs to it, the stretch dragged over. */
  mark() {
    if (!this.marks) return;
    const parts = [];
    if (this.brush && Math.abs(this.brush[1] - this.brush[0]) > 3) {
      const [a, b] = [...this.brush].sort((p, q) => p - q);
      parts.push(svg("rect", { class: "brush", x: a, y: LANE.top, width: b - a, height: this.lanes.length * this.height }));
    }
    const place = ([n, i]) => [Math.min(this.left + this.width, Math.max(this.left, this.x(this.lanes[n].start[i]))), this.top(n) + this.height / 2];
    for (const [at, name] of [[this.kept, "kept"], [this.here, "here"]]) {
      if (!at) continue;
      const [n, i] = at;
      const [left, right] = [this.lanes[n].start[i], this.lanes[n].end[i]].map((value) => Math.min(this.left + this.width, Math.max(this.left, this.x(value))));
      for (const stops of this.arrows.get(`${n} ${i}`) || []) parts.push(svg("path", { class: "path", d: stops.map((stop, k) => `${k ? "L" : "M"}${place(stop)}`).join("") }));
      parts.push(svg("rect", { class: `told ${name}`, x: left - 1, y: this.top(n) + 1, width: Math.max(2, right - left + 2), height: this.height - 2 }));
    }
    this.marks.replaceChildren(...parts);
  }

  // -- pointer and keys

  /** What is told of an interval: its name, its times, and what its row of the table says. */
  describe([n, i]) {
    const lane = this.lanes[n];
    const unit = this.block.x_unit;
    const kind = lane.kinds ? words(lane.kinds[i]) : "";
    const moment = (value) => (unit === "ns" && this.whole[1] > 1e7 ? `${(value / 1e6).toFixed(3)} ms` : valueText(value, unit));
    const times = `${valueText(lane.end[i] - lane.start[i], unit)}, ${moment(lane.start[i])} to ${moment(lane.end[i])}`;
    const row = this.table && lane.rows ? lane.rows[i] : null;
    const told = row === null ? [] : this.table.columns.filter((one) => one.at(row) !== null && one.text(row) !== "");
    return [
      el("div", { class: "head" }, (lane.names && UNITS.name.text(lane.names[i])) || lane.label),
      el("div", { class: "soft" }, [kind, times].filter(Boolean).join(" · ")),
      told.length > 0 && el("dl", { class: "facts" }, told.map((one) => [el("dt", {}, one.column.label), el("dd", {}, one.text(row))])),
    ];
  }

  /** The interval of a lane at a time, or the nearest within a few pixels; null if there is none. */
  at(n, time) {
    const { start, end } = this.lanes[n];
    let [low, high] = [0, start.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (start[middle] <= time) low = middle + 1;
      else high = middle;
    }
    const near = [low - 1, low].filter((i) => i >= 0 && i < start.length);
    const away = (i) => Math.max(0, start[i] - time, time - end[i]);
    const best = near.sort((a, b) => away(a) - away(b))[0];
    const pixel = (this.view[1] - this.view[0]) / this.width;
    return best !== undefined && away(best) <= LANE.near * pixel ? best : null;
  }

  #under(event) {
    const box = this.plot.getBoundingClientRect();
    const n = Math.floor((event.clientY - box.top - LANE.top) / this.height);
    if (n < 0 || n >= this.lanes.length) return null;
    const i = this.at(n, this.time(event.clientX));
    return i === null ? null : [n, i];
  }

  keep(at) {
    this.kept = at;
    this.told.replaceChildren(...(at ? this.describe(at).filter(Boolean) : []));
    this.mark();
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
      this.here = this.#under(event);
      this.mark();
      if (this.here) tip.show(event.clientX, event.clientY, this.describe(this.here));
      else tip.hide();
    });
    plot.addEventListener("pointerup", (event) => {
      const [a, b] = this.brush || [0, 0];
      this.brush = null;
      if (Math.abs(b - a) <= 3) return this.keep(this.#under(event));
      const left = plot.getBoundingClientRect().left;
      this.zoom(this.time(left + Math.min(a, b)), this.time(left + Math.max(a, b)));
    });
    for (const name of ["pointerleave", "blur"]) plot.addEventListener(name, () => ((this.here = null), this.mark(), tip.hide()));
    plot.addEventListener("dblclick", () => this.zoom(...this.whole));
    plot.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const [n, i] = this.here || this.kept || this.#first();
    if (n === undefined) return;
    const count = this.lanes[n].start.length;
    const stride = event.shiftKey ? Math.max(1, Math.round(count / 40)) : 1;
    const moves = { ArrowLeft: i - stride, ArrowRight: i + stride, Home: 0, End: count - 1 };
    const scales = { "+": 0.5, "=": 0.5, "-": 2 };
    const ways = { ArrowUp: -1, ArrowDown: 1 };
    if (event.key in moves) this.#move(n, this.here || this.kept ? Math.max(0, Math.min(count - 1, moves[event.key])) : i);
    else if (event.key in ways) this.#change(n, i, ways[event.key]);
    else if (event.key in scales) {
      const [from, to] = this.view;
      const middle = Math.min(to, Math.max(from, this.lanes[n].start[i]));
      const span = (to - from) * scales[event.key];
      this.zoom(middle - span / 2, middle + span / 2);
    } else if (event.key === "Enter" || event.key === " ") this.keep([n, i]);
    else if (event.key === "Escape") this.zoom(...this.whole);
    else return;
    event.preventDefault();
  }

  #first() {
    const n = this.lanes.findIndex(({ start }) => start.length > 0);
    return n < 0 ? [] : [n, Math.max(0, this.lanes[n].start.findIndex((start) => start >= this.view[0]))];
  }

  /** Moves to the interval of the next lane that has any, nearest in time. */
  #change(n, i, by) {
    const time = this.lanes[n].start[i];
    for (let other = n + by; other >= 0 && other < this.lanes.length; other += by) {
      const { start } = this.lanes[other];
      if (!start.length) continue;
      let best = 0;
      for (let k = 1; k < start.length; k++) if (Math.abs(start[k] - time) < Math.abs(start[best] - time)) best = k;
      return this.#move(other, best);
    }
  }

  #move(n, i) {
    const { start, end } = this.lanes[n];
    const [from, to] = this.view;
    if (end[i] < from || start[i] > to) this.zoom(start[i] - (to - from) / 2, start[i] + (to - from) / 2);
    this.here = [n, i];
    this.mark();
    const box = this.plot.getBoundingClientRect();
    tip.show(box.left + Math.min(box.width, Math.max(0, this.x(start[i]))), box.top + this.top(n) + this.height, this.describe([n, i]));
    this.said.textContent = `${this.lanes[n].label}: ${(this.lanes[n].names || [])[i] || ""}, ${valueText(end[i] - start[i], this.block.x_unit)}`;
  }
}
