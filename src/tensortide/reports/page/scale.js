"use strict";
// What the chart needs to know before it draws: which op stands for a column of pixels, and where the ticks go.

/**
 * At most `columns` instants of ops `from` to `to - 1`: of each stretch the op where `total` is highest, so that no
 * peak is lost. Returns `{op, start, end}` arrays; an instant stands for ops `start` to `end - 1`.
 */
function instants(total, from, to, columns) {
  const length = to - from;
  const used = Math.max(1, Math.min(columns, length));
  const op = new Int32Array(used);
  const start = new Int32Array(used);
  const end = new Int32Array(used);
  for (let c = 0; c < used; c++) {
    start[c] = from + Math.floor((c * length) / used);
    end[c] = from + Math.floor(((c + 1) * length) / used);
    let best = start[c];
    for (let i = start[c] + 1; i < end[c]; i++) if (total[i] > total[best]) best = i;
    op[c] = best;
  }
  return { op, start, end };
}

/** A step of 1, 2 or 5 times a power of ten that cuts `span` into at most `most` parts. */
function niceStep(span, most) {
  const power = 10 ** Math.floor(Math.log10(span / most));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => span / step <= most);
}

/** Ticks for bytes from `least` to `most`, round in the unit that suits: `[value, label]`. */
function byteTicks(most, parts, least = 0) {
  const power = Math.max(0, Math.floor(Math.log2(Math.max(most, 1)) / 10));
  const unit = 1024 ** power;
  const step = niceStep((most - least) / unit, parts);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  const ticks = [];
  for (let i = Math.ceil(least / step / unit); i * step * unit <= most; i++) {
    ticks.push([i * step * unit, i ? `${(i * step).toFixed(digits)} ${BINARY[power]}` : "0"]);
  }
  return ticks;
}

/** Ticks for op indexes in the view. */
function opTicks(from, to, parts) {
  const step = Math.max(1, niceStep(to - from, parts));
  const ticks = [];
  for (let i = Math.ceil(from / step) * step; i < to; i += step) ticks.push(i);
  return ticks;
}

/** Outline of a band of steps between `lower` and `upper` (pixels), one step per column between the edges `xs`. */
function stepBand(xs, lower, upper) {
  return `${stepLine(xs, upper, 0, upper.length, 1)}L${stepLine(xs, lower, lower.length - 1, -1, -1).slice(1)}Z`;
}

/** Slanting lines across a rectangle, seen without colour. */
function hatch(left, top, width, height, gap = 7) {
  const lines = [];
  for (let c = gap - height; c < width; c += gap) {
    const [from, to] = [Math.max(0, c), Math.min(width, c + height)];
    if (to > from) lines.push(`M${(left + from).toFixed(1)},${(top + height - from + c).toFixed(1)}L${(left + to).toFixed(1)},${(top + height - to + c).toFixed(1)}`);
  }
  return lines.join("");
}

function stepLine(xs, ys, first, stop, by) {
  const ahead = by > 0 ? 1 : 0;
  let path = `M${xs[first + 1 - ahead].toFixed(1)},${ys[first].toFixed(1)}`;
  for (let i = first; i !== stop; i += by) {
    if (i !== first && ys[i] !== ys[i - by]) path += `V${ys[i].toFixed(1)}`;
    if (i + by === stop || ys[i + by] !== ys[i]) path += `H${xs[i + ahead].toFixed(1)}`;
  }
  return path;
}
