"use strict";
// The most expensive ops in groups, and the table of all ops with its search.

function topTable(report, metric, search) {
  const rows = metric === "flops" ? report.top_by_flops : report.top_by_bytes;
  if (!rows.length) return el("p", { class: "empty" }, metric === "flops" ? "No op computes anything that counts as a FLOP." : "No op moves any bytes.");
  const total = metric === "flops" ? report.overview.total.flops : report.overview.total.read_bytes + report.overview.total.written_bytes;
  const value = (row) => (metric === "flops" ? row.flops : row.accessed_bytes);
  const name = (row) => shortOp(row.op);
  const find = (row) => el("button", { type: "button", class: "link mono", title: `Find ${name(row)} in the table of all ops`, onclick: () => search(row) }, name(row));
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      el("td", {}, find(row)),
      el("td", { class: "num" }, whole(row.count)),
      meter(row.flops, metric === "flops" ? value(rows[0]) : 0, count(row.flops, "FLOP")),
      meter(row.accessed_bytes, metric === "flops" ? 0 : value(rows[0]), bytes(row.accessed_bytes)),
      el("td", { class: "num soft" }, percent(value(row), total)),
      el("td", { class: "num" }, row.accessed_bytes ? ratio(row.flops / row.accessed_bytes) : "–"),
      el("td", {}, row.phase),
      el("td", { class: "wide", title: row.modules }, row.modules),
      el("td", { class: "mono soft wide", title: row.shapes }, row.shapes),
      el("td", { class: "soft", title: sourceTitle(report, row.source) }, report.where(row.source)),
    ),
  );
  const heads = [["Op"], ["Runs", 1], ["FLOPs", 1], ["Bytes accessed", 1], ["Share", 1], ["FLOP/B", 1], ["Phase"], ["Module"], ["Inputs → outputs"], ["Source"]];
  const head = el("tr", {}, heads.map(([title, num]) => el("th", { class: num && "num" }, title)));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

function showTopOps(report, search) {
  const holder = el("div");
  const show = (metric) => holder.replaceChildren(topTable(report, metric, search));
  const metrics = choice("Order", [["flops", "By FLOPs"], ["bytes", "By bytes accessed"]], "flops", show);
  el($("top-ops"), {}, el("div", { class: "tools" }, metrics, el("span", { class: "soft" }, "Ops of the same name, shapes and phase, in modules that differ only by number.")), holder);
  show("flops");
}

/** Which ops match: every word occurs in the name, module, shapes, phase or source line of the op. */
function matcher(report, text) {
  const { ops } = report;
  const tables = [
    [ops.name, ops.names],
    [ops.module, ops.paths],
    [ops.shapes, ops.signatures],
    [ops.phase, ops.phases],
    [ops.source, report.sources.map((source) => `${source.where} ${source.function} ${source.code}`)],
  ];
  const tests = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const hits = tables.map(([column, values]) => [column, values.map((value) => value.toLowerCase().includes(word))]);
    return (i) => hits.some(([column, hit]) => hit[column[i]]);
  });
  return (i) => tests.every((test) => test(i));
}

class OpTable {
  constructor(report, choose) {
    this.report = report;
    this.phase = null;
    this.unknown = false;
    this.untaken = new Set(report.ops.untaken);
    this.input = el("input", { type: "search", placeholder: "Search ops, modules, shapes, source lines", "aria-label": "Search ops", oninput: () => this.filter() });
    this.table = new VTable({ label: "All ops", rows: [], sorted: "index", down: false, height: 24 * ROW, least: 1120, columns: this.#columns(), choose: (i) => (this.mark(i), choose(i)) });
    this.node = el("div", {}, el("div", { class: "tools" }, this.input, this.#chips()), this.table.node);
    this.filter();
  }

  #columns() {
    const { report } = this;
    const { ops } = report;
    const number = (key, title, width, values, text) => ({ key, title, width, num: true, text: (i) => (values[i] === null ? "?" : values[i] ? text(values[i]) : "0"), sort: (i) => values[i] });
    const words_ = (key, title, width, text, more = {}) => ({ key, title, width, text, title_of: text, down: false, ...more });
    return [
      { key: "index", title: "#", width: "56px", num: true, text: (i) => whole(i), sort: (i) => i, down: false, ordinal: true },
      words_("op", "Op", "minmax(150px, 1.1fr)", (i) => report.opName(i), { mono: true }),
      words_("module", "Module", "minmax(140px, 1.2fr)", (i) => report.opModule(i), { tail: true }),
      words_("phase", "Phase", "78px", (i) => report.opPhase(i), { soft: true }),
      words_("shapes", "Inputs → outputs", "minmax(200px, 2fr)", (i) => report.opShapes(i), { mono: true, soft: true }),
      number("flops", "FLOPs", "92px", ops.flops, (value) => count(value, "FLOP")),
      number("bytes", "Bytes", "86px", ops.accessed_bytes, bytes),
      number("resident", "Memory", "86px", ops.resident_bytes, bytes),
      words_("source", "Source", "minmax(152px, .7fr)", (i) => report.where(ops.source[i]), { soft: true, title_of: (i) => sourceTitle(report, ops.source[i]) }),
    ];
  }

  #chips() {
    const phases = this.report.phases.map((row) => row.phase);
    const chip = (label, isOn, press) => {
      const flip = () => {
        press();
        for (const update of updates) update();
        this.filter();
      };
      const button = el("button", { type: "button", class: "chip", "data-chip": label, onclick: flip }, label);
      updates.push(() => button.setAttribute("aria-pressed", String(isOn())));
      return button;
    };
    const updates = [];
    const chips = phases.length > 1 ? phases.map((phase) => chip(phase, () => this.phase === phase, () => (this.phase = this.phase === phase ? null : phase))) : [];
    if (this.report.ops.flops.includes(null)) chips.push(chip("no cost rule", () => this.unknown, () => (this.unknown = !this.unknown)));
    for (const update of updates) update();
    return chips;
  }

  filter() {
    const { report } = this;
    const matches = matcher(report, this.input.value);
    const phase = report.ops.phases.indexOf(this.phase);
    const rows = [];
    for (let i = 0; i < report.length; i++) {
      if ((phase < 0 || report.ops.phase[i] === phase) && (!this.unknown || report.ops.flops[i] === null) && matches(i)) rows.push(i);
    }
    const taken = rows.filter((i) => !this.untaken.has(i));
    const flops = taken.reduce((sum, i) => sum + (report.ops.flops[i] || 0), 0);
    const moved = taken.reduce((sum, i) => sum + (report.ops.accessed_bytes[i] || 0), 0);
    const away = rows.length - taken.length;
    const without = away ? ` · without ${whole(away)} in arms of a conditional that no total takes` : "";
    this.table.set(rows, `${whole(rows.length)} of ${whole(report.length)} ops · ${count(flops, "FLOP")} · ${bytes(moved)} accessed${without}`);
  }

  search(text) {
    this.input.value = text;
    this.filter();
    $("ops").scrollIntoView();
  }

  mark(i) {
    this.table.here = i;
    this.table.draw();
  }
}
