"use strict";
// A tree as nested bars: as long as one of its columns says, coloured by another.

const BAR = 23;

class Icicle {
  /** `view` is the table of the tree. */
  constructor(view) {
    const { block } = view;
    Object.assign(this, { view, depth: block.depth, length: view.length, top: null, children: [], roots: [], parent: [] });
    this.areas = block.areas.map((key) => view.column(key)).filter((one) => one.column.values.length && one.most > 0);
    this.area = this.areas[0];
    this.names = view.columns[0];
    this.#link();
    this.kind = view.column(block.kind);
    this.colors = this.#colors();
    this.plot = svg("svg", { role: "img", "aria-label": `${block.title || block.key} as nested bars` });
    this.crumb = el("p", { class: "keys" });
    const legend = [...this.colors].map(([kind, i]) => el("span", {}, swatch(`t${i}`), kind));
    const choose = (key) => ((this.area = this.areas.find((one) => one.key === key)), this.draw());
    const pick = this.area && choice("Length of the bars", this.areas.map((one) => [one.key, one.column.label]), this.area.key, choose);
    this.node = el("div", { class: "icicle" }, el("div", { class: "tools" }, pick, el("div", { class: "legend" }, legend)), this.plot, this.crumb);
    onResize(this.plot, () => this.draw());
  }

  #link() {
    const path = [];
    for (let i = 0; i < this.length; i++) {
      while (path.length && this.depth[path[path.length - 1]] >= this.depth[i]) path.pop();
      this.parent.push(path.length ? path[path.length - 1] : null);
      (path.length ? this.children[path[path.length - 1]] : this.roots).push(i);
      this.children.push([]);
      path.push(i);
    }
  }

  value(i, area = this.area) {
    return Number(area.at(i)) || 0;
  }

  total(area) {
    return this.roots.reduce((sum, i) => sum + this.value(i, area), 0);
  }

  /** The kinds of row with most that is not their children's, each with a colour; others are grey. */
  #colors() {
    const tally = new Map();
    for (let i = 0; this.kind && this.area && i < this.length; i++) {
      const own = this.value(i) - this.children[i].reduce((sum, child) => sum + this.value(child), 0);
      const works = !this.children[i].length || own > 0.1 * this.value(i);
      if (works && this.kind.at(i)) tally.set(this.kind.at(i), (tally.get(this.kind.at(i)) || 0) + own + 1);
    }
    const order = [...tally].sort((a, b) => b[1] - a[1]).map(([kind]) => kind);
    return new Map(order.slice(0, 7).map((kind, i) => [kind, i]));
  }

  focus(i) {
    this.top = i;
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width || !this.area) return;
    const tiles = [];
    const place = (rows, x, scale, level) => {
      for (const i of rows) {
        const size = this.value(i) * scale;
        if (size >= 0.7) {
          tiles.push({ i, x, width: size, level });
          place(this.children[i], x, scale, level + 1);
        }
        x += size;
      }
    };
    const total = this.top === null ? this.total(this.area) : this.value(this.top);
    if (total > 0) place(this.top === null ? this.roots : [this.top], 0, width / total, 0);
    const height = tiles.length ? BAR * (1 + Math.max(...tiles.map((tile) => tile.level))) : 0;
    this.plot.style.height = `${height}px`;
    this.plot.setAttribute("viewBox", `0 0 ${width} ${height || 1}`);
    this.plot.replaceChildren(...tiles.flatMap((tile) => this.#tile(tile)));
    this.crumb.replaceChildren(...this.#crumb(total));
  }

  #tile({ i, x, width, level }) {
    const name = this.names.text(i);
    const rect = svg("rect", { x, y: level * BAR, width, height: BAR - 1, style: { fill: cssColor(`t${this.colors.get(this.kind && this.kind.at(i)) ?? 7}`) }, "data-row": i, onclick: () => this.focus(this.top === i ? this.parent[i] : i) });
    hover(rect, el("div", { class: "head" }, this.#path(i)), this.kind && el("div", { class: "soft" }, this.kind.text(i)), el("table", {}, this.areas.map((area) => el("tr", {}, el("td", {}, area.column.label), el("td", { class: "num" }, area.text(i)), el("td", { class: "num soft" }, percent(this.value(i, area), this.total(area)))))));
    const room = Math.floor((width - 8) / 6.4);
    const label = name.length <= room ? name : room > 4 ? `${name.slice(0, room - 1)}…` : "";
    return label && room > 1 ? [rect, svg("text", { x: x + 4, y: level * BAR + 15 }, label)] : [rect];
  }

  #path(i) {
    return this.parent[i] === null ? this.names.text(i) : `${this.#path(this.parent[i])}.${this.names.text(i)}`;
  }

  #crumb(total) {
    if (this.top === null) return ["Click a bar to enlarge it. Colours are the kinds that do most themselves; grey only encloses."];
    const back = el("button", { type: "button", onclick: () => this.focus(null) }, "Show all");
    return [back, `  ${this.#path(this.top)} · ${valueText(total, this.area.unit)}, ${percent(total, this.total(this.area))} of all`];
  }
}
