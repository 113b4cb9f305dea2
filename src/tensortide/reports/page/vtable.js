"use strict";
// A table of any length: only the rows in sight exist. Columns are
// {key, title, width, text(row), node?(row), sort?(row), num?, ordinal?, mono?, soft?, tail?, down?}; rows are whole
// numbers. `down: false` sorts upwards first; `tail` keeps the end of a text that is too long.

const ROW = 24;
const PRINTED = 60;

class VTable {
  /**
   * `choose(row)`, if given, is called when a row is clicked; `least` is the width below which it scrolls. Rows keep
   * their order while `sorted` is null; `arrange(rows, compare)` orders them in place of a plain sort. `point(row)`, if
   * given, is called for the row under the pointer, and with null when there is none. A table that `wraps` has all of
   * its rows, each as high as its text.
   */
  constructor({ label, columns, rows, sorted, down = true, height, least = 900, wraps = false, choose = null, arrange = null, point = null }) {
    Object.assign(this, { columns, all: rows, rows, sorted, down, height, wraps, choose, arrange, point });
    this.here = null;
    this.mates = new Set();
    this.widths = columns.map((column) => column.width).join(" ");
    this.head = el("div", { class: "vhead", role: "row" });
    this.space = el("div", { class: "vspace", role: "rowgroup" });
    this.body = el("div", { class: "vbody", tabindex: 0, "aria-label": label, onscroll: () => this.draw() }, this.space);
    if (point) this.body.addEventListener("pointerleave", () => point(null));
    this.note = el("p", { class: "vnote" });
    const table = el("div", { class: wraps ? "vtable wraps" : "vtable", role: "table", "aria-label": label }, this.head, this.body);
    table.style.setProperty("--least", `${least}px`);
    this.node = el("div", {}, table, this.note);
    this.head.style.gridTemplateColumns = this.widths;
    this.#heads();
    this.set(rows);
    onResize(this.body, () => this.draw());
    matchMedia("print").addEventListener("change", () => this.draw());
  }

  /** Shows other rows, in the order chosen. */
  set(rows, note = "") {
    this.all = rows;
    this.text = note;
    this.#sort();
    this.body.scrollTop = 0;
    this.draw();
  }

  /** Marks a row and brings it into sight. */
  show(row) {
    this.here = row;
    const at = this.rows.indexOf(row);
    if (at >= 0) this.body.scrollTop = Math.max(0, at * ROW - this.body.clientHeight / 2);
    this.draw();
  }

  /** Highlights rows, and scrolls to the first of them if none is in sight. */
  mark(rows) {
    this.mates = new Set(rows);
    const places = [...this.mates].map((row) => this.rows.indexOf(row)).filter((at) => at >= 0);
    const [top, bottom] = [this.body.scrollTop, this.body.scrollTop + this.body.clientHeight];
    if (places.length && !places.some((at) => at * ROW >= top && (at + 1) * ROW <= bottom)) this.body.scrollTop = Math.max(0, places[0] * ROW - this.body.clientHeight / 2);
    this.draw();
  }

  #heads() {
    const cells = this.columns.map((column) => {
      const state = column.key === this.sorted ? `sorted${this.down ? "" : " up"}` : "";
      const press = () => {
        this.down = column.key === this.sorted ? !this.down : column.down !== false;
        this.sorted = column.key;
        this.#heads();
        this.#sort();
        this.body.scrollTop = 0;
        this.draw();
      };
      const sort = state ? (this.down ? "descending" : "ascending") : "none";
      return el("button", { type: "button", role: "columnheader", "aria-sort": sort, class: `${column.num ? "num" : ""} ${state}`, "data-key": column.key, onclick: press }, column.title);
    });
    this.head.replaceChildren(...cells);
  }

  #sort() {
    const column = this.columns.find((c) => c.key === this.sorted);
    const keys = new Map(column ? this.all.map((row) => [row, column.sort ? column.sort(row) : column.text(row)]) : []);
    const sign = this.down ? -1 : 1;
    const compare = (a, b) => {
      const [p, q] = [keys.get(a), keys.get(b)];
      if (p === q) return a - b;
      if (p === null || q === null) return p === null ? 1 : -1;
      if (typeof p !== typeof q) return typeof p < typeof q ? -1 : 1;
      return p < q ? -sign : sign;
    };
    this.rows = this.arrange ? this.arrange(this.all, compare) : column ? [...this.all].sort(compare) : this.all;
  }

  draw() {
    const printing = matchMedia("print").matches;
    const length = this.rows.length;
    if (!this.wraps) {
      this.space.style.height = `${length * ROW}px`;
      this.body.style.height = `${Math.min(this.height, Math.max(1, length) * ROW)}px`;
    }
    const first = printing || this.wraps ? 0 : Math.max(0, Math.floor(this.body.scrollTop / ROW) - 8);
    const shown = this.wraps ? length : printing ? PRINTED : Math.ceil(this.body.clientHeight / ROW) + 16;
    const rows = this.rows.slice(first, first + shown);
    this.space.replaceChildren(...rows.map((row, i) => this.#row(row, first + i)));
    this.head.style.paddingRight = `${this.body.offsetWidth - this.body.clientWidth}px`;
    const rest = printing && length > PRINTED ? `The first ${PRINTED} of ${whole(length)} rows.` : "";
    this.note.textContent = length ? [this.text, rest].filter(Boolean).join(" ") : "Nothing here.";
  }

  #row(row, at) {
    const cells = this.columns.map((column) => {
      const text = column.text(row);
      const names = [column.num && "num", column.mono && "mono", column.soft && "soft", text === "?" && "unknown", column.num && text === "0" && !column.ordinal && "zero", column.tail && "tail"];
      return el("span", { role: "cell", class: names.filter(Boolean).join(" "), title: column.title_of ? column.title_of(row) : null }, column.node ? column.node(row) : column.tail ? el("bdi", {}, text) : text);
    });
    const name = `vrow${this.choose ? " go" : ""}${row === this.here ? " here" : ""}${this.mates.has(row) ? " mate" : ""}`;
    const choose = this.choose && (() => this.choose(row));
    const point = this.point && (() => this.point(row));
    return el("div", { role: "row", class: name, style: { top: `${at * ROW}px`, gridTemplateColumns: this.widths }, "aria-rowindex": at + 1, onclick: choose, onpointerenter: point }, cells);
  }
}
