"use strict";
// The step under a memory budget: does it fit, what that costs, and what is computed again.

const ROWS_SHOWN = 12;

/** The first rows of a table, and a button for the others. `heads` are `[text, is a number]`. */
function shortTable(title, remark, heads, rows, more) {
  const body = el("tbody", {}, rows.slice(0, ROWS_SHOWN));
  const all = rows.length > ROWS_SHOWN && el("button", { type: "button", class: "link", onclick: () => (body.append(...rows.slice(ROWS_SHOWN)), all.remove()) }, `All ${whole(rows.length)} ${more}`);
  const head = el("tr", {}, heads.map(([name, num]) => el("th", { class: num && "num" }, name)));
  return el("div", {}, el("h3", { class: "part" }, title, remark && el("span", { class: "soft" }, `  ${remark}`)), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), body)), all);
}

function recomputedTable(title, remark, name, found) {
  const most = Math.max(...found.map((row) => row.ns));
  const rows = found.map((row) =>
    el("tr", {}, el("td", { class: "wide", title: row.name }, shortOp(row.name)), meter(row.ns, most, duration(row.ns), "short"), el("td", { class: "num soft" }, percent(row.share)), numeral(row.count, whole), numeral(row.ops, whole)),
  );
  return shortTable(title, remark, [[name, false], ["Time", true], ["Share", true], ["Runs", true], ["of ops", true]], rows, "rows");
}

function evictedTable(found) {
  const most = Math.max(...found.map((row) => row.forced * row.nbytes));
  const modules = found.some((row) => row.module && row.module !== "(outside)");
  const rows = found.map((row) =>
    el(
      "tr",
      {},
      el("td", { class: "wide", title: row.name }, swatch(row.role), shortOp(row.name), row.storages > 1 && el("span", { class: "soft" }, ` ×${row.storages}`)),
      modules && el("td", { class: "wide", title: row.module }, row.module),
      el("td", { class: "num" }, bytes(row.nbytes)),
      meter(row.forced * row.nbytes, most, bytes(row.forced * row.nbytes), "short"),
      numeral(row.forced, whole),
      numeral(row.remats, whole),
    ),
  );
  const heads = [["Tensor", false], modules && ["Module", false], ["Each", true], ["Made room", true], ["Times", true], ["Came back", true]];
  const table = shortTable("Evicted most", "tensors alike together", heads.filter(Boolean), rows, "rows");
  table.classList.add("across");
  return table;
}

function heldTable(stopped) {
  const total = (row) => row.pinned_bytes + row.locked_bytes;
  const sum = stopped.held.reduce((all, row) => all + total(row), 0);
  const rows = stopped.held.map((row) =>
    el("tr", {}, el("td", {}, swatch(row.role), words(row.role)), numeral(row.storages, whole), meter(total(row), total(stopped.held[0]), bytes(total(row)), "short"), el("td", { class: "num soft" }, percent(total(row), sum)), numeral(row.pinned_bytes, bytes), numeral(row.locked_bytes, bytes)),
  );
  const heads = [["Role", false], ["Tensors", true], ["Bytes", true], ["Share", true], ["Must stay", true], ["In use", true]];
  return shortTable("What could not be evicted", stopped.waiting ? `while ${whole(stopped.waiting)} ops waited` : "", heads, rows, "rows");
}

function insteadTable(found) {
  const cost = { oom: "out of memory", thrash: "over the limit" };
  const order = [...found].sort((a, b) => (a.status !== "ok") - (b.status !== "ok") || a.overhead - b.overhead);
  const rows = order.map((run) => el("tr", {}, el("td", {}, run.policy), el("td", { class: "num" }, cost[run.status] || more(run.overhead)), el("td", { class: "num" }, bytes(run.peak_bytes))));
  return shortTable("Other policies", "at this budget", [["Policy", false], ["Time", true], ["Peak", true]], rows, "policies");
}

function more(overhead) {
  return `+${percent(overhead - 1)}`;
}

function simulationFigures(simulation) {
  const { counters } = simulation;
  const ended = simulation.status === "ok" || simulation.status === "over";
  const counted = counters && [
    figure("Evictions", whole(counters.evictions), "", [
      ["to make room", whole(counters.forced)],
      ["dropped by the program", whole(counters.evictions - counters.forced)],
      ["for good", whole(counters.banished)],
    ]),
    figure("Search", ...bigAndUnit(count(counters.evaluations)), [
      ["candidates weighed", whole(counters.evaluations)],
      ["storages looked at", whole(counters.accesses)],
      simulation.overhead_limit !== null && ["limit of time", `× ${round3(simulation.overhead_limit)}`],
    ]),
  ];
  return el(
    "div",
    { class: "figures" },
    figure(ended ? "Peak memory after" : "Peak until given up", ...bigAndUnit(bytes(simulation.peak_bytes)), [
      ["before", bytes(simulation.baseline_bytes)],
      simulation.budget_bytes !== null && ["budget", bytes(simulation.budget_bytes)],
      ["at least", bytes(simulation.least_bytes)],
      counters && ["constants", bytes(counters.constant_bytes)],
    ]),
    figure(ended ? "Time of the step" : "Time until given up", ...bigAndUnit(duration(simulation.clock_ns)), [
      ["before", duration(simulation.model_ns)],
      ended && ["more", more(simulation.overhead)],
      ["computing again", duration(simulation.remat_ns)],
    ]),
    figure("Computed again", whole(simulation.recomputed), simulation.recomputed === 1 ? "op" : "ops", [
      counters && ["tensors needed", whole(counters.direct_remats)],
      counters && ["others beside them", whole(counters.collateral_remats)],
      counters && ["most for one op", bytes(counters.bottleneck_bytes)],
    ]),
    counted,
  );
}

function simulationTables(simulation) {
  const { modules, kinds, evicted, stopped, instead } = simulation;
  const told = modules.some((row) => row.name !== "(outside)");
  return [
    stopped && stopped.held.length > 0 && heldTable(stopped),
    told && recomputedTable("Computed again, by module", "modules that differ by number together", "Module", modules),
    kinds.length > 0 && recomputedTable("Computed again, by kind of op", "", "Op", kinds),
    evicted.length > 0 && evictedTable(evicted),
    instead.some((run) => run.status === "ok") && insteadTable(instead),
  ];
}

/** Fills the section, and shows it. */
function showSimulation(report) {
  const { simulation } = report;
  const section = $("simulation");
  for (const node of document.querySelectorAll(".simulated")) node.hidden = false;
  const fits = simulation.status === "ok";
  el(
    section,
    {},
    el("p", { class: fits ? "verdict" : "verdict warn" }, simulation.verdict, simulation.advice.map((text) => [el("br"), text])),
    el("p", { class: "settings" }, el("b", {}, simulation.policy), simulation.rules && ` · ${simulation.rules}`, simulation.durations && ` · durations ${simulation.durations}`),
    simulationFigures(simulation),
  );
  if (!simulation.curves.op.length) return;
  const chart = new BudgetChart(report);
  const axes = choice("Axis", [["ops", "By op"], ["time", "By time"]], "ops", (key) => chart.follow(key));
  const legend = chart.series.roles.map(({ role }) => el("span", {}, swatch(role), words(role)));
  legend.push(el("span", {}, el("span", { class: "stroke" }), "before"), simulation.recomputed > 0 && el("span", {}, swatch("recompute"), "computed again"));
  const tools = el("div", { class: "tools" }, axes, el("div", { class: "legend" }, legend.filter(Boolean)), el("span", { class: "spring" }), chart.reset);
  el(section, {}, tools, chart.node, chart.said, el("div", { class: "pair" }, simulationTables(simulation)));
}
