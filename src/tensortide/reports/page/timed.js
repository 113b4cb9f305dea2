"use strict";
// A chart of memory whose axis is the number of the op or its time.

/** Draws a report that also has `times`: when each of its ops starts, and as a last entry when the last one ends. */
class TimedChart extends MemoryChart {
  axis = "ops";

  follow(axis) {
    this.axis = axis;
    this.draw();
  }

  /** Where an executed op, or a part of it, starts on the axis: its number or its time. */
  position(op) {
    if (this.axis === "ops") return op;
    const { times, length } = this.report;
    const at = Math.min(length - 1, Math.floor(op));
    return times[at] + (op - at) * (times[at + 1] - times[at]);
  }

  x(op) {
    const [from, to] = this.view.map((end) => this.position(end));
    return MARGIN.left + ((this.position(op) - from) / (to - from || 1)) * this.width;
  }

  opAt(clientX) {
    if (this.axis === "ops") return super.opAt(clientX);
    const at = clientX - this.plot.getBoundingClientRect().left;
    let [low, high] = this.view;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.x(middle) <= at) low = middle;
      else high = middle;
    }
    return low;
  }

  ticks(parts) {
    if (this.axis === "ops") return super.ticks(parts);
    const [from, to] = this.view.map((end) => this.position(end));
    const step = niceStep(Math.max(1, to - from), parts);
    const found = [];
    for (let i = Math.ceil(from / step); i * step <= to; i++) {
      found.push([MARGIN.left + ((i * step - from) / (to - from || 1)) * this.width, i ? duration(i * step) : "0"]);
    }
    return found;
  }
}
