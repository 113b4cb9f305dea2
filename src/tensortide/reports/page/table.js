"use strict";
// Tables and trees: sorted by any column, searched in every text, at any length.

const FILTERED = 12; // tables of more rows have a search
const LONG_TEXT = 40; // letters that a column is wide at most; text that is longer wraps in tables that show all rows
const SHOWN_ROWS = 24; // at once, of a table of more than ALL_ROWS
const ALL_ROWS = 32;

/** One column of a block with the text of each row; packed texts are unpacked on demand. */
class Values {
  constructor(column) {
    const { values } = column;
    Object.assign(this, { column, key: column.key, unit: column.unit, packed: values.of ? values : null });
    this.length = this.packed ? values.at.length : values.length;
    this.right = UNITS[this.unit].right;
  }

  at(i) {
    return this.packed ? this.packed.of[this.packed.at[i]] : this.column.values[i];
  }

  text(i) {
    const { before, after, zero } = this.column;
    const value = this.at(i);
    if (value === 0 && zero !== undefined && zero !== null) return zero;
    return (before ? before[i] : "") + valueText(value, this.unit, true) + (after ? after[i] : "");
  }

  /** Rows whose text has `word`, as a test. */
  has(word) {
    const found = (text) => String(text).toLowerCase().includes(word);
    if (!this.packed) return (i) => found(this.column.values[i]);
    const hits = this.packed.of.map(found);
    return (i) => hits[this.packed.at[i]];
  }

  /** The texts that occur, in their order. */
  get distinct() {
    return this.packed ? this.packed.of : [...new Set(this.column.values)];
  }

  get most() {
    let most = this.unit === "share" ? 1 : 0;
    for (let i = 0; i < this.length; i++) most = Math.max(most, Number(this.at(i)) || 0);
    return most;
  }
}

class TableView {
  /** `choose(row)` is called when a row is clicked, `point(row)` when the pointer enters or (null) leaves one. */
  constructor(block, choose = null, point = null) {
    this.block = block;
    this.every = block.columns.map((column) => new Values(column));
    this.columns = this.every.filter(({ column }) => !column.data);
    this.length = this.every.length ? this.every[0].length : 0;
    this.only = null;
    this.picked = new Map(); // the text that is chosen of a column with `pick`
    this.chips = [];
    this.closed = new Set();
    const rows = [...Array(this.length).keys()];
    const shown = (this.length > ALL_ROWS ? SHOWN_ROWS : Math.max(1, this.length)) * ROW;
    const least = this.columns.reduce((sum, one, n) => sum + 8 * this.#least(one, n) + 14, 0);
    const wraps = this.length <= SHOWN_ROWS && !block.depth && this.columns.some((one) => one.column.fold && rows.some((i) => one.text(i).length > LONG_TEXT));
    const arrange = block.depth ? (all, compare) => this.#nested(all, compare) : null;
    this.table = new VTable({ label: block.title || block.key, rows, sorted: null, height: shown, least, wraps, columns: this.columns.map((one, n) => this.#column(one, n)), choose, arrange, point });
    this.input = el("input", { type: "search", placeholder: "Search", "aria-label": `Search ${block.title || block.key}`, oninput: () => this.filter() });
    const tools = this.length > FILTERED && el("div", { class: "tools" }, this.input, this.columns.filter(({ column }) => column.pick).map((one) => this.#picking(one)), block.depth && this.#folding());
    this.node = el("div", {}, tools, this.table.node, block.note && el("p", { class: "vnote" }, block.note));
    this.filter();
  }

  column(key) {
    return this.every.find((one) => one.key === key);
  }

  /** Letters that most cells of a column have room for. */
  #width(one) {
    const { depth } = this.block;
    const deep = depth && one === this.columns[0] ? (i) => 3 + 2 * depth[i] : () => 0;
    let most = Math.ceil(0.8 * one.column.label.length) + 2;
    const step = Math.max(1, Math.floor(one.length / 200));
    for (let i = 0; i < one.length; i += step) most = Math.max(most, one.text(i).length + deep(i));
    return Math.min(most, LONG_TEXT) + (one.column.bar ? 8 : 0);
  }

  /** Letters of a column below which the table scrolls: numbers are never cut, text is. */
  #least(one, number) {
    return one.right ? this.#width(one) : Math.min(this.#width(one), number || !this.block.depth ? 14 : 26);
  }

  #column(one, number) {
    const { column, unit } = one;
    const width = this.#width(one);
    const most = column.bar ? one.most : 0;
    const made = { key: column.key, title: column.label, num: one.right, text: (i) => one.text(i), sort: (i) => one.at(i), down: one.right && unit !== "op", ordinal: unit === "op" };
    made.width = one.right ? `${width}ch` : `minmax(${this.#least(one, number)}ch, ${width}fr)`;
    if (!one.right) Object.assign(made, { title_of: (i) => one.text(i), mono: unit === "name" || unit === "code", tail: unit === "path" && !this.block.depth, soft: column.dim });
    if (column.bar) made.node = (i) => [el("i", { class: "bar-of", style: { width: `${(5 * Math.max(0, Number(one.at(i)) || 0)) / (most || 1)}ch` } }), one.text(i)];
    if (unit === "role") made.node = (i) => [swatch(one.at(i)), one.text(i)];
    if (number === 0 && this.block.depth) made.node = (i) => this.#branch(i, one.text(i));
    return made;
  }

  // -- picking

  /** A button that leaves only the rows with `text`, or null if no column with `pick` has it. */
  chip(text, name, content) {
    const one = this.every.find((each) => each.column.pick && each.distinct.includes(text));
    if (!one) return null;
    const press = () => {
      if (this.picked.get(one) === text) this.picked.delete(one);
      else this.picked.set(one, text);
      this.filter();
    };
    const button = el("button", { type: "button", class: name, "data-chip": text, title: "Show only these", onclick: press }, content);
    this.chips.push(() => button.setAttribute("aria-pressed", String(this.picked.get(one) === text)));
    return button;
  }

  #picking(one) {
    const texts = one.distinct;
    return texts.length > 1 && texts.map((text) => this.chip(text, "chip", valueText(text, one.unit)));
  }

  // -- trees

  #branch(i, text) {
    const { depth } = this.block;
    const parent = i + 1 < this.length && depth[i + 1] > depth[i];
    const flip = (event) => {
      event.stopPropagation();
      if (!this.closed.delete(i)) this.closed.add(i);
      this.filter();
    };
    const open = !this.closed.has(i);
    const twist = parent ? el("button", { type: "button", class: "twist", "aria-expanded": String(open), "aria-label": `${open ? "Close" : "Open"} ${text}`, onclick: flip }, open ? "▾" : "▸") : el("span", { class: "leaf" });
    return [el("span", { style: { display: "inline-block", width: `${1.2 * depth[i]}em` } }), twist, text];
  }

  #folding() {
    const close = () => {
      this.closed = new Set(this.block.depth.flatMap((depth, i) => (this.block.depth[i + 1] > depth ? [i] : [])));
      this.filter();
    };
    const open = () => {
      this.closed.clear();
      this.filter();
    };
    return [el("button", { type: "button", onclick: open }, "Expand all"), el("button", { type: "button", onclick: close }, "Collapse all")];
  }

  /** Siblings in the order wanted, each followed by what is below it. */
  #nested(rows, compare) {
    const { depth } = this.block;
    const below = new Map([[-1, []]]);
    const path = [];
    for (const i of rows) {
      while (path.length && depth[path[path.length - 1]] >= depth[i]) path.pop();
      below.get(path.length ? path[path.length - 1] : -1).push(i);
      below.set(i, []);
      path.push(i);
    }
    const found = [];
    const add = (i) => {
      if (i >= 0) found.push(i);
      if (!this.closed.has(i)) for (const child of below.get(i).sort(compare)) add(child);
    };
    add(-1);
    return found;
  }

  // -- what is shown

  /** Shows only rows for which `test` holds; null shows all. */
  restrict(test) {
    this.only = test;
    this.filter();
  }

  filter() {
    const texts = this.every.filter((one) => !one.right);
    const tests = this.input.value.toLowerCase().split(/\s+/).filter(Boolean).map((word) => texts.map((one) => one.has(word)));
    const picked = [...this.picked];
    const rows = [];
    for (let i = 0; i < this.length; i++) {
      if ((!this.only || this.only(i)) && picked.every(([one, text]) => one.at(i) === text) && tests.every((hits) => hits.some((hit) => hit(i)))) rows.push(i);
    }
    const sums = this.every.filter(({ column }) => column.sum).map((one) => `${valueText(rows.reduce((sum, i) => sum + (Number(one.at(i)) || 0), 0), one.unit)} ${one.column.label}`);
    const text = this.length > FILTERED ? [`${whole(rows.length)} of ${whole(this.length)} rows`, ...sums].join(" · ") : "";
    for (const update of this.chips) update();
    this.table.set(rows, text);
  }

  /** Marks a row and brings it into sight, whatever was searched or picked. */
  reveal(row) {
    this.input.value = "";
    this.picked.clear();
    this.filter();
    this.node.scrollIntoView();
    this.table.show(row);
  }

  /** A row in a few words: the texts of its columns. */
  words(i) {
    return this.columns.filter((one) => !one.right).map((one) => one.text(i)).filter(Boolean);
  }
}
