"use strict";
// What the numbers mean, what they leave out, and where they come from; and opening the page.

const HOWS = {
  unknown: "unknown, in no total",
  default: "one FLOP per output element",
  framework: "the framework's formula",
  decomposition: "that of the ops it consists of",
  bound: "a bound or convention",
};

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function showAbout(report) {
  const { coverage, step } = report.overview;
  const { environment } = report;
  const rows = coverage.irregular.map((row) =>
    el("tr", {}, el("td", { class: "mono" }, row.op), el("td", { class: "num" }, whole(row.count)), el("td", {}, HOWS[row.how]), el("td", { class: "mono soft" }, row.shapes), el("td", {}, row.module), el("td", { class: "soft" }, row.reason)),
  );
  const heads = ["Op", "Runs", "Its cost", "First with inputs", "in", "Why"].map((name) => el("th", { class: name === "Runs" && "num" }, name));
  el(
    $("about"),
    {},
    el(
      "div",
      { class: "columns" },
      el("ul", {}, report.notes.map((note) => el("li", {}, note))),
      el(
        "div",
        {},
        facts([
          ["Cost rules", coverage.line],
          ["Framework", environment.framework],
          ["Python", environment.python],
          ["Captured on", environment.captured_on === "fake" ? "fake tensors" : environment.captured_on],
          ["Step", step],
          ["Written by", `tensortide ${environment.tensortide}`],
        ]),
      ),
    ),
    report.assumptions.length > 0 && [el("h3", {}, "Assumed by the capture"), el("ul", {}, report.assumptions.map((text) => el("li", {}, text)))],
    rows.length > 0 && [
      el("h3", { class: "missing", id: "irregular" }, "Ops whose cost is not simply that of their rule"),
      el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows))),
    ],
  );
}

function show(report) {
  $("report").hidden = false;
  showOverview(report);
  const chart = showMemory(report);
  if (report.liveness) showLiveness(report);
  showModules(report);
  const table = new OpTable(report, (i) => chart.choose(i));
  showTopOps(report, (row) => table.search(`${shortOp(row.op)} ${row.phase} ${row.modules.split("*")[0]}`));
  if (report.length) $("ops").append(table.node);
  else $("ops").append(el("p", { class: "empty" }, "The step has no ops."));
  showAbout(report);
}

(async () => {
  try {
    const report = new Report(await readDocument());
    show(report);
    $("status").remove();
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    $("status").textContent = `The report cannot be shown: ${error.message}`;
    throw error;
  }
})();
