"use strict";
// The memory section: the chart, and what is alive at the instant that is chosen in it.

/** What is alive at one op: bytes by role, and the tensors, of all roles or of one. */
class Alive {
  constructor(report) {
    this.report = report;
    this.role = null;
    this.title = el("h3", { class: "alive-title" });
    this.roles = el("tbody");
    const { storages, ops } = report;
    const last = report.length;
    const column = (key, title, width, text, more = {}) => ({ key, title, width, text, ...more });
    this.table = new VTable({
      label: "Tensors alive",
      rows: [],
      sorted: "bytes",
      height: 14 * ROW,
      least: 820,
      columns: [
        column("bytes", "Bytes", "84px", (i) => bytes(storages.nbytes[i]), { num: true, sort: (i) => storages.nbytes[i] }),
        column("tensor", "Tensor", "minmax(150px, 1.2fr)", (i) => report.storageName(i), { node: (i) => [swatch(storages.roles[storages.role[i]]), report.storageName(i)], title_of: (i) => report.storageName(i), down: false }),
        column("shape", "Type and shape", "minmax(150px, 1.1fr)", (i) => storages.tensors[storages.tensor[i]], { mono: true, title_of: (i) => storages.tensors[storages.tensor[i]], down: false }),
        column("module", "Module", "minmax(120px, 1.1fr)", (i) => ops.paths[storages.module[i]], { tail: true, title_of: (i) => ops.paths[storages.module[i]], down: false }),
        column("source", "Source", "minmax(152px, .8fr)", (i) => report.where(report.storageSource(i)), { soft: true, title_of: (i) => sourceTitle(report, report.storageSource(i)), down: false }),
        column("birth", "Born", "58px", (i) => (storages.birth[i] < 0 ? "before" : whole(storages.birth[i])), { num: true, sort: (i) => storages.birth[i], down: false, ordinal: true }),
        column("death", "Dies", "58px", (i) => (this.deaths[i] > last ? "after" : whole(this.deaths[i])), { num: true, sort: (i) => this.deaths[i], ordinal: true }),
      ],
    });
    const head = el("tr", {}, ["Role", "Tensors", "Bytes", "Share"].map((name, i) => el("th", { class: i && "num" }, name)));
    this.node = el(
      "div",
      {},
      this.title,
      el("div", { class: "alive" }, el("div", {}, el("table", {}, el("thead", {}, head), this.roles)), el("div", {}, this.table.node)),
    );
  }

  show(series, op) {
    this.series = series;
    this.deaths = series.deaths;
    this.op = op;
    this.rows = series.alive(op);
    this.draw();
  }

  draw() {
    const { report, series, op } = this;
    const { storages } = report;
    this.title.replaceChildren(
      op === series.peak ? `Alive at the peak, op ${whole(op)}` : `Alive at op ${whole(op)}`,
      el("span", { class: "soft" }, `  ${report.opName(op)} in ${report.opModule(op)}, ${report.opPhase(op)}`),
    );
    const held = series.roles.filter(({ values }) => values[op] > 0).sort((a, b) => b.values[op] - a.values[op]);
    if (!held.some(({ role }) => role === this.role)) this.role = null;
    this.roles.replaceChildren(...held.map(({ role, values }) => this.#roleRow(role, values[op], held[0].values[op])));
    const rows = this.rows.filter((i) => this.role === null || storages.roles[storages.role[i]] === this.role);
    this.table.set(rows, `${whole(rows.length)} tensors${this.role ? ` of role ${words(this.role)}` : ""}.`);
  }

  #roleRow(role, value, most) {
    const index = this.report.storages.roles.indexOf(role);
    const tensors = this.rows.filter((i) => this.report.storages.role[i] === index).length;
    const press = () => {
      this.role = this.role === role ? null : role;
      this.draw();
    };
    const key = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), press());
    return el(
      "tr",
      { class: "pick", tabindex: 0, role: "button", "aria-pressed": String(this.role === role), title: "Show only these", onclick: press, onkeydown: key },
      el("td", {}, swatch(role), words(role)),
      el("td", { class: "num" }, tensors ? whole(tensors) : "–"),
      meter(value, most, bytes(value), "short"),
      el("td", { class: "num soft" }, percent(value, this.series.total[this.op])),
    );
  }
}

function sourceTitle(report, index) {
  const source = report.source(index);
  return source ? `${source.file}:${source.line} in ${source.function}\n${source.code}` : null;
}

/** Fills the section; returns the chart, so that other sections can choose an instant in it. */
function showMemory(report) {
  const section = $("memory");
  if (!report.length) {
    section.append(el("p", { class: "empty" }, "The step has no ops, so there is nothing to draw."));
    return null;
  }
  const alive = new Alive(report);
  const chart = new MemoryChart(report, (op) => alive.show(chart.series, op));
  const lifetimes = choice("Lifetimes", [["eager", "Eager"], ["last_use", "Released at last use"]], "eager", (key) => chart.show(key));
  const roles = report.series.eager.roles.map(({ role }) => el("span", {}, swatch(role), words(role)));
  const peak = el("button", { type: "button", onclick: () => chart.choose(chart.series.peak) }, "Go to the peak");
  const keys = ["Drag to zoom, double-click for the whole step, click to see what is alive. Keys: ", el("kbd", {}, "← →"), " move, ", el("kbd", {}, "Shift"), " faster, ", el("kbd", {}, "+ −"), " zoom, ", el("kbd", {}, "Enter"), " choose, ", el("kbd", {}, "P"), " peak, ", el("kbd", {}, "Esc"), " whole step."];
  el(
    section,
    {},
    el("div", { class: "tools" }, lifetimes, el("div", { class: "legend" }, roles), el("span", { class: "spring" }), peak, chart.reset),
    chart.node,
    chart.said,
    el("p", { class: "keys" }, keys),
    alive.node,
  );
  alive.show(chart.series, chart.pinned);
  return chart;
}
