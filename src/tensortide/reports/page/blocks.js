"use strict";
// The page: a pane per section, one renderer per kind of block.

/** The document that is embedded in the page: JSON as it is, or gzipped in base64. */
async function readDocument() {
  const node = $("data");
  if (node.dataset.encoding !== "gzip") return JSON.parse(node.textContent);
  if (typeof DecompressionStream === "undefined")
    throw new Error("This browser cannot decompress the report. Update it, or write the report uncompressed.");
  const binary = Uint8Array.from(atob(node.textContent.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([binary]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/** Long lists as they were before they were written shorter; columns of text keep their distinct values. */
function unpack(value, name) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.length && typeof value[0] === "object" && value[0] !== null ? value.map((one) => unpack(one)) : value;
  if (Array.isArray(value.by)) {
    let sum = 0;
    return value.by.map((change) => (sum += change));
  }
  if (Array.isArray(value.of) && Array.isArray(value.at)) return name === "values" && value.of.every((one) => typeof one === "string") ? value : value.at.map((i) => value.of[i]);
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, unpack(one, key)]));
}

const factText = (fact) => (fact.before || "") + valueText(fact.value, fact.unit || "text");

/** Facts with details are tiles, each with a number in large; others a list. */
function factsView(block) {
  const rows = block.rows.filter((fact) => !fact.data);
  if (block.compact) return el("p", { class: "settings" }, rows.map((fact, i) => [i > 0 && " · ", `${fact.label} `, el("b", {}, factText(fact)), fact.remark && ` ${fact.remark}`]));
  const pair = (fact) => [el("dt", {}, fact.label), el("dd", {}, factText(fact), fact.remark && el("small", {}, fact.remark))];
  if (!rows.some((fact) => fact.level)) return el("dl", { class: "facts" }, rows.map(pair));
  const tiles = [];
  for (const fact of rows) {
    if (!fact.level || !tiles.length) tiles.push([fact]);
    else tiles[tiles.length - 1].push(fact);
  }
  return el("div", { class: "figures" }, tiles.map(([fact, ...inner]) => el("div", { class: "figure" }, el("h3", {}, fact.label), el("div", { class: "big" }, factText(fact)), fact.remark && el("div", { class: "soft" }, fact.remark), el("dl", {}, inner.map(pair)))));
}

class Page {
  constructor(document) {
    this.document = document;
    this.tables = new Map();
    this.curves = [];
    this.clocks = new Map();
    const blocks = document.sections.flatMap((section) => (section.blocks || []).map((block) => [section, block]));
    for (const [section, block] of blocks) {
      if (!block.columns) continue;
      const name = `${section.key}.${block.key}`;
      const point = block.linked && ((row) => this.point(name, row));
      this.tables.set(name, new TableView(block, (row) => this.choose(name, row), point || null));
    }
  }

  /** A table by its key: of the same section, or else of any. */
  table(section, key) {
    if (!key) return null;
    return this.tables.get(`${section.key}.${key}`) || this.tables.get(key) || [...this.tables.values()].find(({ block }) => block.key === key) || null;
  }

  /** A row was clicked: the curves over these ops move there, and the table that it leads to shows its op. */
  choose(name, row) {
    const table = this.tables.get(name);
    const goal = this.table({ key: name.split(".")[0] }, table.block.leads_to);
    if (goal) goal.reveal(table.every.find(({ unit }) => unit === "op").at(row));
    for (const curve of this.curves) if (curve.ops === table) curve.chooseOp(row);
    table.table.here = row;
    table.table.draw();
  }

  /** The pointer is over a row (null: over none): its partners in other tables are highlighted. */
  point(name, row) {
    const table = this.tables.get(name);
    const { linked } = table.block;
    const value = row === null ? null : table.column(linked).at(row);
    for (const other of this.tables.values()) {
      if (other === table || other.block.linked !== linked) continue;
      const column = other.column(linked);
      other.table.mark(value === null ? [] : other.table.all.filter((one) => column.at(one) === value));
    }
  }

  block(section, block) {
    const made = this.#renderers[block.block](section, block);
    if (block.block === "note" && !block.title) return made;
    const title = block.title && el("h3", {}, block.title, block.remark && el("span", { class: "soft" }, `  ${block.remark}`));
    return el("div", { class: "block", id: block.key && `${section.key}.${block.key}`, "data-block": block.block }, title, made);
  }

  #renderers = {
    facts: (section, block) => factsView(block),
    note: (section, block) => el("p", { class: `note ${block.kind || "remark"}${block.kind === "warning" ? " warn" : ""}` }, block.text),
    table: (section, block) => {
      const table = this.tables.get(`${section.key}.${block.key}`);
      return block.areas && table.length ? el("div", {}, new Icicle(table).node, table.node) : table.node;
    },
    scatter: (section, block) => scatterView(block),
    spans: (section, block) => this.#timed(block, new LanesView(block, this.table(section, block.table))).node,
    curve: (section, block) => {
      if (block.x.length < 2) return el("p", { class: "empty" }, "Nothing was executed.");
      const curve = new CurveView(block, this.table(section, block.table), this.table(section, block.alive));
      this.curves.push(curve);
      return this.#timed(block, curve).node;
    },
  };

  /** Zooms views of one clock together, and gives them one axis. */
  #timed({ clock, x_unit }, view) {
    if (!clock || x_unit !== "ns") return view;
    const views = this.clocks.get(clock) || [];
    this.clocks.set(clock, views);
    views.push(view);
    const left = Math.max(...views.map((one) => one.left));
    for (const one of views) one.left = left;
    view.onzoom = (from, to) => views.forEach((other) => other !== view && other.follow(from, to));
    return view;
  }

  /** The blocks of a section in order; curves that are variants of one share a place, tables beside each other a row. */
  blocks(section) {
    const groups = [];
    for (const block of section.blocks || []) {
      const last = groups[groups.length - 1];
      if (block.only === "text" || block.only === "data") continue;
      if (last && ((block.variant && last[0].variant) || block.beside)) last.push(block);
      else groups.push([block]);
    }
    return groups.map((group) => {
      if (group.length > 1 && group[1].beside) return el("div", { class: "beside" }, group.map((block) => this.block(section, block)));
      return group.length > 1 && group[0].x.length > 1 ? this.#variants(section, group) : this.block(section, group[0]);
    });
  }

  #variants(section, blocks) {
    const nodes = blocks.map((block) => this.block(section, block));
    const curves = this.curves.slice(-blocks.length);
    const show = (key) => {
      blocks.forEach((block, n) => {
        nodes[n].hidden = block.key !== key;
        if (block.key !== key) return;
        curves[n].draw();
        curves[n].choose(curves[n].pinned);
      });
    };
    show(blocks[0].key);
    return el("div", {}, el("div", { class: "tools variants" }, choice("Which curve", blocks.map(({ key, variant }) => [key, variant]), blocks[0].key, show)), nodes);
  }

  show() {
    const { title, subtitle = [], settings = {}, sections } = this.document;
    const set = Object.entries(settings).flatMap(([name, value], i) => [i > 0 && " · ", `${name} `, el("b", {}, valueText(value, "text"))]);
    const head = el("section", { id: "overview" }, el("h1", {}, title || "unnamed step"), set.length > 0 && el("p", { class: "settings" }, set), subtitle.map((line) => el("p", { class: "settings" }, line)));
    const panes = sections.map((section) => el("section", { id: section.key, "aria-label": section.title }, section.title && el("h2", {}, section.title), section.about && el("p", { class: "soft" }, section.about), this.blocks(section)));
    el($("nav"), {}, sections.map((section) => el("a", { href: `#${section.key}` }, section.title || section.key)));
    el($("report"), {}, head, panes);
    $("report").hidden = false;
  }
}

(async () => {
  try {
    const page = new Page(unpack(await readDocument()));
    page.show();
    $("status").remove();
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    $("status").textContent = `The report cannot be shown: ${error.message}`;
    throw error;
  }
})();
