"use strict";
// How long memory lies idle: in a few figures, in pictures, and what to do about it.

function nameInModule(stored) {
  const inside = `${stored.module}.`;
  const name = stored.name.startsWith(inside) ? stored.name.slice(inside.length) : stored.name;
  return name || words(stored.role);
}

function lifeName(stored) {
  const name = stored.name ? nameInModule(stored) : `${nameInModule(stored)} ${stored.index}`;
  return stored.module.startsWith("(") ? name : `${stored.module}: ${name}`;
}

function tableOf(pairs) {
  const rows = pairs.filter(Boolean).map(([name, value]) => el("tr", {}, el("td", {}, name), el("td", { class: "num" }, value)));
  return el("table", {}, rows);
}

/** A storage of the life chart: what it is, where it comes from, how long it is idle. */
function aboutLife(report, life) {
  const { stored } = life;
  const alive = life.death_ns - life.birth_ns;
  return [
    el("div", { class: "head" }, swatch(stored.role), nameInModule(stored)),
    el("div", { class: "soft" }, [stored.module, words(stored.role), stored.tensor].filter(Boolean).join(" · ")),
    stored.source && el("div", { class: "code" }, `${stored.source}  ${stored.code}`),
    tableOf([
      [el("b", {}, bytes(stored.nbytes)), ""],
      ["alive", duration(alive)],
      ["idle", `${duration(life.idle_ns)}, ${percent(life.idle_ns, alive)}`],
      [report.liveness.step_ns > 0 && "idle, on average", bytes(Math.round((stored.nbytes * life.idle_ns) / Math.max(1, report.liveness.step_ns)))],
    ]),
  ];
}

/** An inactive period: of what, how long, between which two uses, and which links hide a move. */
function aboutPeriod(report, i) {
  const { points, links } = report.liveness;
  const storage = points.storage[i];
  const role = report.storages.roles[report.storages.role[storage]];
  const hidden = links.filter((item) => points.ns[i] > 2.5 * (item.latency_ns + (1e9 * points.nbytes[i]) / item.bytes_per_s)).map((item) => item.link);
  const use = (op) => {
    const source = report.source(report.ops.source[op]);
    return [el("div", { class: "soft" }, `op ${whole(op)} ${report.opName(op)} · ${report.opModule(op)}`), source && el("div", { class: "code" }, `${source.where}  ${source.code}`)];
  };
  return [
    el("div", { class: "head" }, swatch(role), report.storageName(storage) || words(role)),
    el("div", { class: "soft" }, [report.ops.paths[report.storages.module[storage]], words(role), report.storages.tensors[report.storages.tensor[storage]]].filter(Boolean).join(" · ")),
    tableOf([
      [el("b", {}, bytes(points.nbytes[i])), el("b", {}, duration(points.ns[i]))],
      ["hidden by", hidden.length ? hidden.join(", ") : "no link"],
    ]),
    el("div", { class: "between" }, "idle from after"),
    use((points.start[i] - 1 + report.length) % report.length),
    el("div", { class: "between" }, "until"),
    use(points.end[i]),
  ];
}

function livenessFigures(view) {
  const average = (spent) => bytes(Math.round(spent / Math.max(1, view.step_ns)));
  const { total, peak } = view;
  const chosen = view.links.find((item) => item.link === view.link);
  const inactive = total.idle_byte_ns + total.unused_byte_ns;
  const all = inactive + total.active_byte_ns;
  const longer = Object.fromEntries(view.longer_than);
  return el(
    "div",
    { class: "figures" },
    figure("Alive, on average", ...bigAndUnit(average(all)), [
      ["in use", average(total.active_byte_ns)],
      ["idle", average(total.idle_byte_ns)],
      ["not touched again", average(total.unused_byte_ns)],
    ]),
    figure("Inactive", ...bigAndUnit(percent(inactive, all)), [
      ["of memory-time", ""],
      ["in use by an op", `${percent(view.active_share_mean)} of peak`],
      ["at most", bytes(view.active_peak_bytes)],
    ]),
    figure("Idle at the peak", ...bigAndUnit(bytes(peak.idle_bytes)), [
      ["alive at the peak", bytes(peak.live_bytes)],
      ["in use", bytes(peak.active_bytes)],
      [`hidden by ${view.link}`, bytes(peak.hideable_bytes)],
    ]),
    figure("Inactive periods", whole(view.periods), "", [
      ["longer than 100 µs", percent(longer[1e5], view.periods)],
      ["longer than 1 ms", percent(longer[1e6], view.periods)],
      ["longer than 100 ms", percent(longer[1e8], view.periods)],
    ]),
    figure(`Hidden by ${view.link}`, ...bigAndUnit(percent(chosen.byte_ns, chosen.period_byte_ns)), [
      ["of idle memory-time", ""],
      ["of periods", percent(chosen.count, chosen.periods)],
      ["all moves, each way", duration(chosen.transfer_ns)],
    ]),
  );
}

function roleTable(view) {
  const sum = (row) => row.active_byte_ns + row.idle_byte_ns + row.unused_byte_ns;
  const average = (spent) => bytes(Math.round(spent / Math.max(1, view.step_ns)));
  const order = [...view.roles].sort((a, b) => sum(b) - sum(a));
  const rows = order.map((row) =>
    el(
      "tr",
      {},
      el("td", {}, swatch(row.role), words(row.role)),
      meter(sum(row), sum(order[0]), average(sum(row)), "short"),
      numeral(row.active_byte_ns, average),
      numeral(row.idle_byte_ns, average),
      numeral(row.unused_byte_ns, average),
      el("td", { class: "num soft" }, percent(row.idle_byte_ns + row.unused_byte_ns, sum(row))),
    ),
  );
  const heads = [["Role", false], ["Alive", true], ["In use", true], ["Idle", true], ["Unused", true], ["Inactive", true]];
  return shortTable("Memory-time by role", "bytes on average over the step", heads, rows, "roles");
}

function linkTable(view) {
  const rows = view.links.map((item) =>
    el("tr", {}, el("td", { title: item.about }, item.link === view.link ? el("b", {}, item.link) : item.link), numeral(item.count, whole), el("td", { class: "num" }, percent(item.count, item.periods)), el("td", { class: "num" }, percent(item.nbytes, item.period_bytes)), el("td", { class: "num" }, percent(item.byte_ns, item.period_byte_ns)), el("td", { class: "num" }, duration(item.transfer_ns))),
  );
  const heads = [["Link", false], ["Periods", true], ["Share", true], ["Of bytes", true], ["Of memory-time", true], ["Each way", true]];
  return shortTable("What links hide", "periods longer than 2.5 transfers", heads, rows, "links");
}

function adviceTable(title, remark, rows, heads, cells) {
  const several = (row) => row.indexes.length > 1 && el("span", { class: "soft" }, ` ×${row.indexes.length}`);
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      el("td", { class: "wide", title: `${lifeName(row.first)}\n${row.first.tensor}` }, swatch(row.first.role), nameInModule(row.first), several(row)),
      el("td", { class: "wide", title: row.modules }, row.modules),
      el("td", { class: "soft", title: row.first.code }, row.first.source),
      meter(row.nbytes, Math.max(...rows.map((other) => other.nbytes)), bytes(row.nbytes), "short"),
      numeral(row.peak_bytes, bytes),
      cells(row).map((text) => el("td", { class: "num" }, text)),
    ),
  );
  const all = [["Tensor", false], ["Module", false], ["Source", false], ["Bytes", true], ["At the peak", true], ...heads.map((name) => [name, true])];
  const table = shortTable(title, remark, all, body, "kinds of tensors");
  table.classList.add("across");
  return table;
}

function adviceTables(view) {
  const whole_ = view.total.active_byte_ns + view.total.idle_byte_ns + view.total.unused_byte_ns;
  const away = (row) => [duration(row.hideable_ns / row.indexes.length), duration(row.transfer_ns / row.periods), percent(row.hideable_byte_ns, whole_)];
  const again = (row) => [duration(row.idle_ns / row.indexes.length), duration(row.cost_ns), percent(row.cost_ns, view.step_ns), row.random.length ? el("span", { title: "draws random numbers: recomputed by hand it needs the generator state saved, or gradients are wrong" }, `${row.ops.length} random`) : row.ops.length];
  return [
    view.offload.length > 0 && adviceTable(`Worth moving over ${view.link}`, "most memory-time first; tensors alike together", view.offload, ["Away, each", "Transfer", "Of memory-time"], away),
    view.recompute.length > 0 && adviceTable("Worth recomputing", "most memory-time for its cost first; tensors alike together", view.recompute, ["Idle, each", "Cost", "Of the step", "Ops"], again),
  ];
}

/** The two pictures of periods beside each other, what is picked in them, and the lives below. */
function livenessPictures(report, section) {
  const view = report.liveness;
  const nothing = "Click a point or a bar (or use the arrow keys in a picture) to keep what it tells here.";
  const picked = el("div", { class: "picked soft", "aria-live": "polite" }, nothing);
  const pick = (content) => {
    picked.classList.remove("soft");
    picked.replaceChildren(...content.flat(Infinity).filter(Boolean));
  };
  const shown = view.points.ns.length;
  const sampled = shown < view.periods ? `${whole(shown)} of ${whole(view.periods)} shown: those of most memory-time, and an even sample` : `right of a line, its link hides a move`;
  const part = (title, remark, chart) => el("div", {}, el("h3", { class: "part" }, title, el("span", { class: "soft" }, `  ${remark}`)), chart.node);
  el(
    section,
    {},
    el("div", { class: "pair" }, part("Inactive periods by length and bytes", sampled, new PeriodChart(report, pick)), part("How long they are", "share of periods at most as long", new ShareChart(report))),
    picked,
    part(`Lives of the ${whole(view.lives.length)} tensors with most bytes times idle time`, "in use dark, idle light", new LifeChart(report, pick)),
  );
}

/** Fills the section, and shows it. */
function showLiveness(report) {
  const view = report.liveness;
  const section = $("liveness");
  for (const node of document.querySelectorAll(".lived")) node.hidden = false;
  el(
    section,
    {},
    el("p", { class: "verdict" }, view.verdict, view.advice.map((text) => [el("br"), text])),
    el("p", { class: "settings" }, view.mode === "compat" && "every tensor counts for itself · ", view.durations && `durations ${view.durations}`),
    livenessFigures(view),
  );
  if (!view.curves.op.length) return;
  const chart = new IdleChart(report);
  const legend = [...chart.series.roles.map(({ role }) => el("span", {}, swatch(role), words(role))), el("span", {}, el("span", { class: "stroke" }), "in use")];
  el(section, {}, el("div", { class: "tools" }, el("div", { class: "legend" }, legend), el("span", { class: "spring" }), chart.reset), chart.node, chart.said);
  if (view.periods) livenessPictures(report, section);
  el(section, {}, el("div", { class: "pair" }, roleTable(view), view.periods > 0 && linkTable(view), adviceTables(view)));
}
