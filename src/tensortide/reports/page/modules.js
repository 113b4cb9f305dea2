"use strict";
// Where it goes, by module: an icicle of the tree, and the tree as a table.

const METRICS = [
  { key: "flops", title: "FLOPs", of: (row) => row.flops, text: (value) => count(value, "FLOP") },
  { key: "accessed_bytes", title: "Bytes accessed", of: (row) => row.accessed_bytes, text: bytes },
  { key: "parameters", title: "Parameters", of: (row) => row.parameters, text: (value) => count(value) },
  { key: "saved_bytes", title: "Saved activations", of: (row) => row.saved_bytes, text: bytes },
  { key: "peak_bytes", title: "Alive at peak", of: (row) => row.peak_bytes, text: bytes },
];

/** Columns of the table beside the metrics, each after one of them: they do not add up over modules, so no bars. */
const BESIDE = {
  flops: [{ key: "macs", title: "MACs", text: (value) => count(value, "MAC") }],
  saved_bytes: [
    { key: "retained_bytes", title: "Leaves", hint: "How much more is resident after its forward calls than before them", text: bytes },
    { key: "transient_bytes", title: "Adds", hint: "The most that any of its calls, forward or backward, adds while it runs", text: bytes },
  ],
};

/** The rows of the module table as a tree. */
class ModuleTree {
  constructor(rows) {
    this.rows = rows;
    this.children = rows.map(() => []);
    this.roots = [];
    rows.forEach((row, i) => (row.parent < 0 ? this.roots : this.children[row.parent]).push(i));
    this.kinds = this.#kinds();
  }

  /** The types of module that do work themselves, the busiest first, each with a colour; what only encloses has none. */
  #kinds() {
    const tally = new Map();
    this.rows.forEach((row, i) => {
      const works = !this.children[i].length || row.own_flops > 0.1 * row.flops || row.own_accessed_bytes > 0.1 * row.accessed_bytes;
      if (works && row.type) tally.set(row.type, (tally.get(row.type) || 0) + row.own_flops + 1);
    });
    const order = [...tally].sort((a, b) => b[1] - a[1]).map(([type]) => type);
    return new Map(order.slice(0, 7).map((type, i) => [type, i]));
  }

  color(i) {
    return cssColor(`t${this.kinds.get(this.rows[i].type) ?? 7}`);
  }

  total(metric) {
    return this.roots.reduce((sum, i) => sum + metric.of(this.rows[i]), 0);
  }
}

class Icicle {
  constructor(tree, choose) {
    Object.assign(this, { tree, choose, metric: METRICS[0], top: null });
    this.plot = svg("svg", { role: "img", "aria-label": "Modules as nested bars" });
    this.crumb = el("p", { class: "keys" });
    const legend = [...tree.kinds].map(([type, i]) => el("span", {}, swatch(`t${i}`), type));
    this.node = el("div", { class: "icicle" }, el("div", { class: "legend" }, legend), this.plot, this.crumb);
    onResize(this.plot, () => this.draw());
  }

  show(metric) {
    this.metric = metric;
    this.draw();
  }

  focus(i) {
    this.top = i;
    this.draw();
  }

  draw() {
    const { tree, metric, top } = this;
    const width = this.plot.clientWidth;
    if (!width) return;
    const tiles = [];
    const total = top === null ? tree.total(metric) : metric.of(tree.rows[top]);
    this.total = total;
    if (total > 0) this.#place(top === null ? tree.roots : [top], 0, width / total, 0, tiles);
    const levels = Math.max(0, ...tiles.map((tile) => tile.level)) + 1;
    this.plot.style.height = `${tiles.length ? levels * 23 : 0}px`;
    this.plot.replaceChildren(...tiles.flatMap((tile) => this.#tile(tile)));
    this.crumb.replaceChildren(...this.#crumb(total));
  }

  #place(rows, x, scale, level, tiles) {
    for (const i of rows) {
      const width = this.metric.of(this.tree.rows[i]) * scale;
      if (width >= 0.7) {
        tiles.push({ i, x, width, level });
        this.#place(this.tree.children[i], x, scale, level + 1, tiles);
      }
      x += width;
    }
  }

  #tile({ i, x, width, level }) {
    const row = this.tree.rows[i];
    const rect = svg("rect", {
      x, y: level * 23, width, height: 22, style: { fill: this.tree.color(i) }, "data-row": i,
      onclick: () => (this.focus(this.top === i ? this.#up(i) : i), this.choose(i)),
      onpointermove: (event) => tip.show(event.clientX, event.clientY, this.#describe(row)),
      onpointerleave: () => tip.hide(),
    });
    const room = Math.floor((width - 8) / 6.4);
    if (room < 2) return [rect];
    const label = row.name.length <= room ? row.name : room > 4 ? `${row.name.slice(0, room - 1)}…` : "";
    return label ? [rect, svg("text", { x: x + 4, y: level * 23 + 15 }, label)] : [rect];
  }

  #up(i) {
    const { parent } = this.tree.rows[i];
    return parent < 0 ? null : parent;
  }

  #describe(row) {
    return [
      el("div", { class: "head" }, row.path),
      el("div", { class: "soft" }, row.type),
      el("table", {}, METRICS.map((metric) => el("tr", {}, el("td", {}, metric.title), el("td", { class: "num" }, metric.text(metric.of(row))), el("td", { class: "num soft" }, percent(metric.of(row), this.tree.total(metric)))))),
    ];
  }

  #crumb(total) {
    if (!(total > 0)) return [`No module has any ${this.metric.title.toLowerCase()}.`];
    if (this.top === null) return ["Click a module to enlarge it. Colours are the types that do most of the work themselves; grey only encloses."];
    const back = el("button", { type: "button", onclick: () => this.focus(null) }, "Whole model");
    return [back, `  ${this.tree.rows[this.top].path} · ${this.metric.text(total)}, ${percent(total, this.tree.total(this.metric))} of the step`];
  }
}

class TreeTable {
  constructor(tree) {
    this.tree = tree;
    this.open = new Set();
    this.sorted = null;
    this.down = true;
    this.active = null;
    this.head = el("thead");
    this.body = el("tbody");
    this.node = el("div", { class: "scroll tree" }, el("table", {}, this.head, this.body));
    this.#openUntil(24);
    this.#heads();
    this.draw();
  }

  /** Opens levels from the top while the table stays short. */
  #openUntil(limit) {
    let level = this.tree.roots;
    let shown = level.length;
    while (level.length) {
      const next = level.flatMap((i) => this.tree.children[i]);
      shown += next.length;
      if (shown > limit) break;
      for (const i of level) this.open.add(i);
      level = next;
    }
  }

  expand(all) {
    this.open = new Set(all ? this.tree.rows.keys() : []);
    this.draw();
  }

  /** Opens what encloses row `i`, and marks it. */
  reveal(i) {
    for (let up = this.tree.rows[i].parent; up >= 0; up = this.tree.rows[up].parent) this.open.add(up);
    this.active = i;
    this.draw();
  }

  #heads() {
    const cell = (key, title, num, hint) => {
      const press = () => {
        this.down = this.sorted === key ? !this.down : true;
        this.sorted = this.sorted === key && this.down ? null : key;
        this.#heads();
        this.draw();
      };
      const state = this.sorted === key ? `sorted${this.down ? "" : " up"}` : "";
      const sort = state ? (this.down ? "descending" : "ascending") : "none";
      return el("th", { class: num && "num", "aria-sort": sort }, el("button", { type: "button", class: state, "data-key": key, title: hint, onclick: press }, title));
    };
    const numbers = METRICS.flatMap(({ key, title }) => [cell(key, title, true), ...(BESIDE[key] || []).map((more) => cell(more.key, more.title, true, more.hint))]);
    this.head.replaceChildren(el("tr", {}, el("th", {}, "Module"), el("th", {}, "Type"), cell("ops", "Ops", true), numbers));
  }

  #sortedRows(rows) {
    if (!this.sorted) return rows;
    const sign = this.down ? -1 : 1;
    return [...rows].sort((a, b) => sign * (this.tree.rows[a][this.sorted] - this.tree.rows[b][this.sorted]) || a - b);
  }

  draw() {
    this.most = METRICS.map((metric) => this.tree.total(metric));
    const rows = [];
    const walk = (level) => {
      for (const i of this.#sortedRows(level)) {
        rows.push(this.#row(i));
        if (this.open.has(i)) walk(this.tree.children[i]);
      }
    };
    walk(this.tree.roots);
    this.body.replaceChildren(...rows);
  }

  #row(i) {
    const row = this.tree.rows[i];
    const toggle = () => {
      if (!this.open.delete(i)) this.open.add(i);
      this.draw();
      this.body.querySelector(`[data-twist="${i}"]`).focus();
    };
    const isOpen = this.open.has(i);
    const twist = this.tree.children[i].length
      ? el("button", { type: "button", class: "twist", "data-twist": i, "aria-expanded": String(isOpen), "aria-label": row.path, onclick: toggle }, isOpen ? "▾" : "▸")
      : el("span", { class: "leaf" });
    const cells = METRICS.flatMap((metric, m) => [
      meter(metric.of(row), this.most[m], metric.text(metric.of(row))),
      ...(BESIDE[metric.key] || []).map((more) => numeral(row[more.key], more.text)),
    ]);
    return el(
      "tr",
      { "data-row": i, class: i === this.active && "active" },
      el("td", { style: { paddingLeft: `${row.depth * 15}px` }, title: row.path }, twist, row.name),
      el("td", { class: "soft", title: row.type }, row.type),
      numeral(row.ops, whole),
      cells,
    );
  }
}

function showModules(report) {
  const section = $("modules");
  if (!report.modules.length) {
    section.append(el("p", { class: "empty" }, "No modules: nothing in this step ran inside one."));
    return;
  }
  const tree = new ModuleTree(report.modules);
  const table = new TreeTable(tree);
  const icicle = new Icicle(tree, (i) => table.reveal(i));
  const metrics = choice("What the bars show", METRICS.map(({ key, title }) => [key, title]), "flops", (key) => icicle.show(METRICS.find((metric) => metric.key === key)));
  el(
    section,
    {},
    el("div", { class: "tools" }, metrics, el("span", { class: "spring" }), el("button", { type: "button", onclick: () => table.expand(true) }, "Expand all"), el("button", { type: "button", onclick: () => table.expand(false) }, "Collapse all")),
    icicle.node,
    table.node,
  );
}
