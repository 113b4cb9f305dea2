"use strict";
// Pictures of idle memory: over time, period by period, and life by life.

/** The stretches of a step, told as `TimedChart` asks of a report. */
class Stretches {
  constructor(report) {
    const { curves, step_ns: end } = report.liveness;
    Object.assign(this, { report, curves, length: curves.op.length });
    this.ops = { source: curves.op.map((op) => report.ops.source[op]) };
    const total = curves.live_bytes;
    const roles = Object.entries(curves.live_by_role).map(([role, values]) => ({ role, values }));
    this.series = { eager: { roles, total, peak: total.indexOf(Math.max(...total)), length: this.length } };
    this.times = Float64Array.from([...curves.start_ns, end]);
  }

  opName(i) {
    return this.report.opName(this.curves.op[i]);
  }

  opModule(i) {
    return this.report.opModule(this.curves.op[i]);
  }

  opPhase(i) {
    return this.report.opPhase(this.curves.op[i]);
  }

  source(index) {
    return this.report.source(index);
  }

  stretches() {
    return stretchesOf(this.length, (i) => this.opPhase(i));
  }
}

/** What is alive over time by role, and as a line what is in use. */
class IdleChart extends TimedChart {
  constructor(report) {
    super(new Stretches(report), () => {});
    this.axis = "time";
    this.curves = report.liveness.curves;
    this.plot.setAttribute("aria-label", `Memory over ${duration(report.liveness.step_ns)}: what is alive, by role, and what is in use. Arrow keys move along it.`);
  }

  number(op) {
    return this.curves.op[op];
  }

  over(op, xs) {
    const active = Float64Array.from(op, (i) => this.y(this.curves.active_bytes[i]));
    return [svg("path", { class: "before", d: stepLine(xs, active, 0, op.length, 1) })];
  }

  describe(i) {
    const { curves, report } = this;
    const line = (name, value) => el("tr", {}, el("td", {}, name), el("td", { class: "num" }, bytes(value)));
    const source = report.source(report.ops.source[i]);
    return [
      el("div", { class: "head" }, `${duration(curves.start_ns[i])}: op ${whole(curves.op[i])}  ${report.opName(i)}`),
      el("div", { class: "soft" }, `${report.opModule(i)} · ${report.opPhase(i)}`),
      source && el("div", { class: "code" }, `${source.where}  ${source.code}`),
      el("table", {}, line(el("b", {}, "alive"), curves.live_bytes[i]), line(el("b", {}, "in use, at most"), curves.active_bytes[i]), [...this.series.roles].reverse().filter(({ values }) => values[i] > 0).map(({ role, values }) => line([swatch(role), words(role)], values[i]))),
    ];
  }
}

/** A logarithmic scale from values to pixels, with ticks at powers of `base` that `label` names. */
function logScale(values, from, to, base) {
  const known = values.filter((value) => value > 0).map((value) => Math.log(value) / Math.log(base));
  const low = known.length ? Math.floor(Math.min(...known)) : 0;
  const high = known.length ? Math.max(low + 1, Math.ceil(Math.max(...known) + 0.01)) : 1;
  const at = (value) => from + ((Math.log(value) / Math.log(base) - low) / (high - low)) * (to - from);
  const step = Math.max(1, Math.ceil((high - low) / Math.max(2, Math.floor(Math.abs(to - from) / 56))));
  const ticks = [];
  for (let power = low; power <= high; power += step) ticks.push(base ** power);
  return { at, ticks };
}

/** A drawing that is made again when its width changes. */
class Drawing {
  constructor(label, height) {
    this.plot = svg("svg", { tabindex: 0, role: "img", "aria-label": label, style: { height: height && `${height}px` } });
    this.node = el("div", { class: "chart" }, this.plot);
    onResize(this.plot, () => {
      this.box = { width: this.plot.clientWidth, height: this.plot.clientHeight };
      this.draw();
    });
  }

  frame(x, y, xText, yText) {
    const { width, height } = this.box;
    const [left, right, bottom] = [MARGIN.left, width - MARGIN.right, height - 26];
    return [
      ...y.ticks.map((value) => [svg("line", { class: "grid", x1: left, x2: right, y1: y.at(value), y2: y.at(value) }), svg("text", { x: left - 8, y: y.at(value) + 4, "text-anchor": "end" }, yText(value))]),
      ...x.ticks.map((value) => [svg("line", { class: "grid", x1: x.at(value), x2: x.at(value), y1: 8, y2: bottom }), svg("text", { x: x.at(value), y: bottom + 16, "text-anchor": "middle" }, xText(value))]),
    ].flat();
  }
}

/** Every inactive period by its length and the bytes that lie idle; what lies right of a line, its link hides. */
class PeriodChart extends Drawing {
  constructor(report, pick) {
    super("Length of inactive periods against bytes. Arrow keys go from period to period, the most memory-time first.");
    Object.assign(this, { report, pick, at: -1 });
    const { points } = report.liveness;
    this.shown = points.ns.map((_, i) => i).filter((i) => points.ns[i] > 0 && points.nbytes[i] > 0);
    this.shown.sort((a, b) => points.nbytes[b] * points.ns[b] - points.nbytes[a] * points.ns[a]);
    this.plot.addEventListener("pointermove", (event) => this.#hover(event));
    this.plot.addEventListener("pointerleave", () => this.#mark(-1));
    this.plot.addEventListener("blur", () => this.#mark(-1));
    this.plot.addEventListener("click", (event) => this.#choose(this.#nearest(event)));
    this.plot.addEventListener("keydown", (event) => this.#key(event));
  }

  draw() {
    const { points, links, link } = this.report.liveness;
    const { width, height } = this.box;
    const value = (column) => this.shown.map((i) => column[i]);
    this.x = logScale(value(points.ns), MARGIN.left, width - MARGIN.right, 10);
    this.y = logScale(value(points.nbytes), height - 26, 8, 2);
    const most = Math.max(1, ...value(points.nbytes));
    const lines = links.filter((item) => item.link === link || item.link === "nvme").map((item) => this.#frontier(item, most, item.link === link));
    const { storages } = this.report;
    const dots = this.shown.map((i) => svg("circle", { cx: this.x.at(points.ns[i]).toFixed(1), cy: this.y.at(points.nbytes[i]).toFixed(1), r: 3, style: { fill: cssColor(storages.roles[storages.role[points.storage[i]]]) } }));
    this.ring = svg("circle", { class: "ring", r: 6, visibility: "hidden" });
    this.plot.replaceChildren(...this.frame(this.x, this.y, duration, bytes), ...dots.reverse(), ...lines.flat(), this.ring);
  }

  #frontier(item, most, chosen) {
    const right = this.box.width - MARGIN.right;
    const needed = (nbytes) => 2.5 * (item.latency_ns + (1e9 * nbytes) / item.bytes_per_s);
    const path = [];
    for (let nbytes = 1; nbytes <= 2 * most; nbytes *= 1.3) {
      const [x, y] = [this.x.at(needed(nbytes)), this.y.at(nbytes)];
      if (x >= MARGIN.left && x <= right && y >= 8 && y <= this.box.height - 26) path.push([x.toFixed(1), y.toFixed(1)]);
    }
    if (!path.length) return [];
    const [x, y] = path[path.length - 1];
    return [
      svg("path", { class: `frontier${chosen ? "" : " other"}`, d: `M${path.map((p) => p.join(",")).join("L")}` }),
      svg("text", { class: "peak-text", x: Math.min(right, Number(x) + 4), y: Math.max(20, Number(y) - 4), "text-anchor": Number(x) > right - 60 ? "end" : "start" }, item.link),
    ];
  }

  #nearest(event) {
    const { points } = this.report.liveness;
    const box = this.plot.getBoundingClientRect();
    let best = [-1, 15 ** 2];
    this.shown.forEach((i, place) => {
      const distance = (this.x.at(points.ns[i]) - event.clientX + box.left) ** 2 + (this.y.at(points.nbytes[i]) - event.clientY + box.top) ** 2;
      if (distance < best[1]) best = [place, distance];
    });
    return best[0];
  }

  #hover(event) {
    const place = this.#nearest(event);
    this.#mark(place);
    if (place >= 0) tip.show(event.clientX, event.clientY, ...aboutPeriod(this.report, this.shown[place]));
  }

  #mark(place) {
    if (!this.ring) return;
    const { points } = this.report.liveness;
    this.at = place;
    this.ring.setAttribute("visibility", place < 0 ? "hidden" : "visible");
    if (place < 0) return tip.hide();
    this.ring.setAttribute("cx", this.x.at(points.ns[this.shown[place]]));
    this.ring.setAttribute("cy", this.y.at(points.nbytes[this.shown[place]]));
  }

  #choose(place) {
    if (place >= 0) this.pick(aboutPeriod(this.report, this.shown[place]));
  }

  #key(event) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" || event.key === " ") this.#choose(this.at);
    else if (by && this.shown.length) {
      this.#mark(Math.max(0, Math.min(this.shown.length - 1, this.at + by)));
      this.#choose(this.at);
    } else return;
    event.preventDefault();
  }
}

/** The share of inactive periods that are at most as long as a time. */
class ShareChart extends Drawing {
  constructor(report) {
    super("The share of inactive periods that are at most as long as a time.");
    this.lengths = report.liveness.quantile_ns.filter((ns) => ns > 0);
    this.none = report.liveness.quantile_ns.length - this.lengths.length;
  }

  draw() {
    const { width, height } = this.box;
    const count = this.lengths.length + this.none;
    const x = logScale(this.lengths, MARGIN.left, width - MARGIN.right, 10);
    const y = { at: (share) => height - 26 - share * (height - 34), ticks: [0, 0.25, 0.5, 0.75, 1] };
    const steps = this.lengths.map((ns, i) => `H${x.at(ns).toFixed(1)}V${y.at((this.none + i + 1) / count).toFixed(1)}`);
    const path = svg("path", { class: "share", d: `M${MARGIN.left},${y.at(this.none / Math.max(1, count)).toFixed(1)}${steps.join("")}` });
    this.plot.replaceChildren(...this.frame(x, y, duration, (share) => `${100 * share} %`), path);
  }
}

const LIFE = 18;

/** When each of the tensors with most bytes times idle time is in use and idle. */
class LifeChart extends Drawing {
  constructor(report, pick) {
    const { lives } = report.liveness;
    super("Lives of the tensors with most bytes times idle time. Arrow keys go from one to the next.", LIFE * lives.length + 34);
    Object.assign(this, { report, lives, pick, at: -1 });
    this.plot.classList.add("lives");
    this.plot.addEventListener("keydown", (event) => this.#key(event));
    this.plot.addEventListener("pointermove", (event) => this.#hover(event));
    this.plot.addEventListener("pointerleave", () => this.#mark(-1));
    this.plot.addEventListener("click", (event) => this.#choose(this.#row(event)));
  }

  draw() {
    const { width } = this.box;
    const step = Math.max(1, this.report.liveness.step_ns);
    const left = width > 640 ? 250 : 128;
    const x = (ns) => left + (ns / step) * (width - left - MARGIN.right);
    const fit = Math.floor((left - 12) / 6.1);
    const bottom = LIFE * this.lives.length + 8;
    const nice = niceStep(step, Math.max(2, Math.floor((width - left) / 90)));
    const ticks = [];
    for (let ns = 0; ns <= step; ns += nice) ticks.push(svg("line", { class: "grid", x1: x(ns), x2: x(ns), y1: 4, y2: bottom }), svg("text", { x: x(ns), y: bottom + 16, "text-anchor": "middle" }, ns ? duration(ns) : "0"));
    const rows = this.lives.map(({ stored, birth_ns: birth, death_ns: death, used_ns: used }, i) => {
      const y = LIFE * i + 6;
      const name = lifeName(stored);
      const fill = { fill: cssColor(stored.role) };
      return svg(
        "g",
        {},
        svg("text", { x: left - 8, y: y + 11, "text-anchor": "end" }, name.length > fit ? `…${name.slice(1 - fit)}` : name),
        svg("rect", { class: "alive-bar", x: x(birth), y, width: Math.max(1, x(death) - x(birth)), height: LIFE - 5, style: fill }),
        used.map(([start, end]) => svg("rect", { x: x(start), y, width: Math.max(1.5, x(end) - x(start)), height: LIFE - 5, style: fill })),
      );
    });
    this.ring = svg("rect", { class: "ring", x: 1, width: width - 2, height: LIFE, visibility: "hidden" });
    this.plot.replaceChildren(...ticks, ...rows, this.ring);
  }

  #row(event) {
    const row = Math.floor((event.clientY - this.plot.getBoundingClientRect().top - 3) / LIFE);
    return row >= 0 && row < this.lives.length ? row : -1;
  }

  #hover(event) {
    const row = this.#row(event);
    this.#mark(row);
    if (row >= 0) tip.show(event.clientX, event.clientY, ...aboutLife(this.report, this.lives[row]));
  }

  #mark(row) {
    if (!this.ring) return;
    this.at = row;
    this.ring.setAttribute("visibility", row < 0 ? "hidden" : "visible");
    if (row < 0) return tip.hide();
    this.ring.setAttribute("y", LIFE * row + 3);
  }

  #choose(row) {
    if (row >= 0) this.pick(aboutLife(this.report, this.lives[row]));
  }

  #key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    this.#mark(Math.max(0, Math.min(this.lives.length - 1, this.at + by)));
    this.#choose(this.at);
    event.preventDefault();
  }
}
