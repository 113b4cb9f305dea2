"use strict";
// The chart of a step under a memory budget: memory before and after over what was executed.

/** What was executed, told as `MemoryChart` asks of a report: its ops are those that ran, some of them again. */
class Executed {
  constructor(report) {
    const { curves } = report.simulation;
    Object.assign(this, { report, curves, length: curves.op.length });
    this.ops = { source: curves.op.map((op) => report.ops.source[op]) };
    this.series = { eager: this.#series() };
    this.times = Float64Array.from([...curves.start_ns, Math.max(report.simulation.clock_ns, curves.start_ns[this.length - 1] || 0)]);
  }

  #series() {
    const { after_bytes: after, pinned_bytes: pinned, locked_bytes: locked } = this.curves;
    const rest = after.map((value, i) => value - (pinned.length ? pinned[i] + locked[i] : 0));
    const roles = pinned.length
      ? [{ role: "pinned", values: pinned }, { role: "in_use", values: locked }, { role: "evictable", values: rest }]
      : [{ role: "resident", values: after }];
    let peak = 0;
    for (let i = 1; i < this.length; i++) if (after[i] > after[peak]) peak = i;
    return { roles, total: after, peak, length: this.length };
  }

  opName(i) {
    return this.report.opName(this.curves.op[i]);
  }

  opModule(i) {
    return this.report.opModule(this.curves.op[i]);
  }

  opPhase(i) {
    return this.curves.again[i] ? "recompute" : this.report.opPhase(this.curves.op[i]);
  }

  source(index) {
    return this.report.source(index);
  }

  stretches() {
    return stretchesOf(this.length, (i) => this.opPhase(i));
  }
}

/** The chart of what was executed: memory after as areas, before as a line, the budget, and recomputation shaded. */
class BudgetChart extends TimedChart {
  constructor(report) {
    const executed = new Executed(report);
    super(executed, () => {});
    this.curves = executed.curves;
    this.budget = report.simulation.budget_bytes;
  }

  highest(op) {
    const before = op.map((i) => this.curves.before_bytes[i]);
    const most = Math.max(super.highest(op), ...before);
    return this.budget !== null && this.budget < 1.5 * most ? Math.max(most, this.budget) : most;
  }

  under() {
    const [from, to] = this.view;
    const seen = this.report.stretches().filter((stretch) => stretch.phase === "recompute" && stretch.from < to && stretch.to > from);
    const shades = [];
    for (const stretch of seen) {
      const left = this.x(Math.max(from, stretch.from));
      const right = this.x(Math.min(to, stretch.to));
      const last = shades[shades.length - 1];
      if (last && left - last.right < 0.5) last.right = right;
      else shades.push({ left, right });
    }
    return shades.map(({ left, right }) =>
      svg("rect", { class: "again", x: left, y: MARGIN.top, width: Math.max(0.6, right - left), height: this.height }),
    );
  }

  over(op, xs) {
    const before = Float64Array.from(op, (i) => this.y(this.curves.before_bytes[i]));
    const parts = [svg("path", { class: "before", d: stepLine(xs, before, 0, op.length, 1) })];
    const y = this.budget === null ? -1 : this.y(this.budget);
    if (y >= MARGIN.top) {
      const right = MARGIN.left + this.width;
      parts.push(svg("line", { class: "budget", x1: MARGIN.left, x2: right, y1: y, y2: y }));
      parts.push(svg("text", { class: "budget-text", x: right - 4, y: y - 5, "text-anchor": "end" }, `budget ${bytes(this.budget)}`));
    }
    return parts;
  }

  /** Nothing: it would be written over the budget's label, and is told above. */
  peakText() {
    return "";
  }

  describe(i) {
    const { curves, report } = this;
    const again = curves.again[i] ? " · computed again" : "";
    const rows = [...this.series.roles].reverse().filter(({ role }) => role !== "resident");
    const line = (name, value) => el("tr", {}, el("td", {}, name), el("td", { class: "num" }, bytes(value)));
    return [
      el("div", { class: "head" }, `op ${whole(curves.op[i])}  ${report.opName(i)}`),
      el("div", { class: "soft" }, `${report.opModule(i)} · executed ${whole(i)}${again} · ${duration(curves.start_ns[i])}`),
      el("table", {}, line(el("b", {}, "before"), curves.before_bytes[i]), line(el("b", {}, "after"), curves.after_bytes[i]), rows.map(({ role, values }) => line([swatch(role), words(role)], values[i]))),
    ];
  }
}
