"use strict";
// The head of the page: what the step is, its totals, and the same by phase.

function figure(title, big, unit, facts) {
  const list = facts.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
  return el(
    "div",
    { class: "figure" },
    el("h3", {}, title),
    el("div", { class: "big" }, big, unit && el("small", {}, ` ${unit}`)),
    el("dl", {}, list),
  );
}

/** `12.3 GiB` as big number and small unit. */
function bigAndUnit(text) {
  const at = text.lastIndexOf(" ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

function figures(report) {
  const { overview } = report;
  const { total } = overview;
  const saved = 1 - overview.last_use_peak_bytes / (overview.peak_bytes || 1);
  const accessed = total.read_bytes + total.written_bytes;
  const least = ([number, unit]) => [total.unknown_ops ? `≥ ${number}` : number, unit];
  const frozen = overview.parameters - overview.trainable_parameters;
  return el(
    "div",
    { class: "figures" },
    figure("Peak memory", ...bigAndUnit(bytes(overview.peak_bytes)), [
      ["released at last use", bytes(overview.last_use_peak_bytes)],
      saved > 0 && ["could be freed earlier", percent(saved)],
      ["persistent, resident throughout", bytes(overview.persistent_bytes)],
      ["sum of all storages", bytes(overview.footprint_bytes)],
    ]),
    figure("FLOPs", ...least(bigAndUnit(count(total.flops, "FLOP"))), [
      ["products", count(total.product_flops, "FLOP")],
      ["elementwise", count(total.elementwise_flops, "FLOP")],
      ["MACs in products", count(total.macs, "MAC")],
      total.active_macs !== null && total.active_macs !== total.macs && ["active MACs", count(total.active_macs, "MAC")],
      total.recompute_macs > 0 && ["recomputed MACs", count(total.recompute_macs, "MAC")],
    ]),
    figure("Bytes accessed", ...least(bigAndUnit(bytes(accessed))), [
      ["read", bytes(total.read_bytes)],
      ["written", bytes(total.written_bytes)],
      ["arithmetic intensity", `${ratio(overview.arithmetic_intensity_flops_per_byte)} FLOP/B`],
    ]),
    figure("Parameters", ...bigAndUnit(count(overview.parameters)), [
      ["in bytes", bytes(overview.parameter_bytes)],
      ["trainable", frozen ? count(overview.trainable_parameters) : "all"],
      ["step inputs", bytes(overview.input_bytes)],
      ["step outputs", bytes(overview.output_bytes)],
    ]),
    figure("Ops", whole(overview.ops), "", [
      ["cost known", percent(overview.coverage.covered, overview.coverage.ops)],
      ["modules", whole(report.modules.filter((row) => row.path !== "(outside)").length)],
      ["storages", whole(report.storages.nbytes.length)],
    ]),
  );
}

/** A cell with a bar on the left, `value` of `most`, and a number on the right. */
function meter(value, most, text, name = "") {
  const part = most > 0 ? value / most : 0;
  return el(
    "td",
    { class: `num meter ${name}` },
    part > 0 && el("i", { style: { width: `calc((100% - var(--number)) * ${part.toFixed(4)})` } }),
    value ? text : el("span", { class: "zero" }, "0"),
  );
}

/** A cell with a number; zero is told quietly. */
function numeral(value, text) {
  return el("td", { class: "num" }, value ? text(value) : el("span", { class: "zero" }, "0"));
}

function phaseTable(report) {
  const most = (get) => Math.max(...report.phases.map(get));
  const columns = [
    ["flops", (row) => row.work.flops, (row) => count(row.work.flops, "FLOP"), "FLOPs"],
    ["bytes", (row) => row.work.read_bytes + row.work.written_bytes, (row) => bytes(row.work.read_bytes + row.work.written_bytes), "Bytes accessed"],
    ["peak", (row) => row.peak_bytes, (row) => bytes(row.peak_bytes), "Peak memory"],
  ];
  const tops = columns.map(([, get]) => most(get));
  const intensity = ({ work }) => {
    const accessed = work.read_bytes + work.written_bytes;
    return accessed ? ratio(work.flops / accessed) : "–";
  };
  const rows = report.phases.map((row) =>
    el(
      "tr",
      {},
      el("td", {}, swatch(row.phase), words(row.phase)),
      el("td", { class: "num" }, whole(row.work.ops)),
      meter(columns[0][1](row), tops[0], columns[0][2](row)),
      el("td", { class: "num soft" }, percent(row.work.flops, report.overview.total.flops)),
      numeral(row.work.product_flops, (value) => count(value, "FLOP")),
      numeral(row.work.elementwise_flops, (value) => count(value, "FLOP")),
      meter(columns[1][1](row), tops[1], columns[1][2](row)),
      el("td", { class: "num" }, intensity(row)),
      meter(columns[2][1](row), tops[2], columns[2][2](row)),
    ),
  );
  const heads = ["Phase", "Ops", "FLOPs", "Share", "Products", "Elementwise", "Bytes accessed", "FLOP/B", "Peak memory"];
  const head = el("tr", {}, heads.map((name, i) => el("th", { class: i && "num" }, name)));
  return el("div", { class: "scroll phases" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows)));
}

function showOverview(report) {
  const { overview, environment } = report;
  const settings = Object.entries(overview.hyperparameters).flatMap(([name, value], i) => [
    i ? " · " : "",
    `${name} `,
    el("b", {}, String(value)),
  ]);
  const uncovered = overview.coverage.ops - overview.coverage.covered;
  el(
    $("overview"),
    {},
    el("h1", {}, overview.workload || "unnamed step"),
    el("p", { class: "settings" }, `one ${overview.kind} step`, settings.length ? " · " : "", settings, environment.framework && ` · ${environment.framework}`),
    figures(report),
    uncovered > 0 && el("p", { class: "warn" }, `${whole(uncovered)} of ${whole(overview.coverage.ops)} ops have no cost rule: FLOPs and bytes are lower bounds. `, el("a", { href: "#irregular" }, "Which")),
    report.assumptions.length > 0 && el("p", { class: "settings" }, el("b", {}, "Assumed: "), report.assumptions.join("; ")),
    report.phases.length > 0 && phaseTable(report),
  );
}
