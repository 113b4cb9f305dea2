"use strict";
// Values by unit: the same rows as UNITS in tensortide.reports.render.values.

const signed = (text) => (value) => (value < 0 ? `-${text(-value)}` : text(value));
const numeric = (text, cell = text) => ({ right: true, text, cell });
const written = (text = String) => ({ right: false, text, cell: text });

const UNITS = {
  text: written(),
  name: written((text) => String(text).replace(/^(aten|dtr)\./, "").replace(/\.default$/, "")),
  path: written(),
  code: written(),
  role: written((text) => words(String(text))),
  flag: written((value) => (["no", "yes"][Number(value)] || String(value))), // long lists are written as numbers
  bytes: numeric(bytes),
  ns: numeric(signed(duration)),
  s: numeric(signed((value) => duration(value * 1e9))),
  byte_ns: numeric((value) => `${bytes(value / 1e9)} s`),
  flops: numeric((value) => count(value, "FLOP"), count),
  macs: numeric((value) => count(value, "MAC"), count),
  count: numeric(whole),
  amount: numeric(count),
  number: numeric((value) => String(Number.isInteger(value) && Math.abs(value) < 1e15 ? value : Number(value.toPrecision(4)))),
  ratio: numeric((value) => fixed(value, 4)),
  op: numeric(whole),
  share: numeric(percent),
  change: numeric((value) => `${fixed(100 * value, 1)} %`.replace(/^(?!-)/, "+")),
  factor: numeric((value) => `${fixed(value, 2)}x`),
  flops_per_s: numeric((value) => count(value, "FLOP/s"), count),
  bytes_per_s: numeric((value) => count(value, "B/s"), count),
  flops_per_byte: numeric((value) => `${fixed(value, 1)} FLOP/B`, (value) => fixed(value, 1)),
};

/** A value as text: text as it is, whatever its unit; a number that is not known is a dash. */
function valueText(value, unit, column = false) {
  const kind = UNITS[unit];
  if (value === null || value === undefined) return kind.right ? "–" : "";
  if (typeof value === "string") return kind.right ? value : kind.text(value);
  return column ? kind.cell(Number(value)) : kind.text(kind.right ? Number(value) : value);
}

/** The value at a tick, without the zeros that all ticks share. */
function tickText(value, unit) {
  return value ? valueText(value, unit).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "") : "0";
}

/** The size of the unit that `value` is printed in, where it is no power of ten. */
function printed(value, unit) {
  if (unit !== "s" && unit !== "ns") return 1;
  const second = unit === "s" ? 1 : 1e9;
  const [size] = LONG.find(([, least]) => value / second >= least) || [0];
  return size ? size * second : 1;
}

/** Ticks from `low` to `high` at values that are round in `unit`: `[value, label]`. */
function unitTicks(low, high, parts, unit) {
  if (unit === "bytes" && low >= 0) return byteTicks(high, parts, low);
  const scale = printed(high, unit);
  const step = niceStep((high - low || 1) / scale, parts) * scale;
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) {
    const value = Number((i * step).toPrecision(12));
    ticks.push([value, tickText(value, unit)]);
  }
  return ticks;
}

const POWERS = [1, 2, 3, 5, 10, 20];
const STEPS = [[[1, 1.5, 2, 3, 5, 7], 1], [[1, 2, 5], 1], [[1, 3], 1], ...POWERS.map((step) => [[1], step])];

/** Multiples of every `step`-th power of ten from `low` to `high`. */
function decimal(low, high, multiples, step) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    if (power % step === 0) found.push(...multiples.map((multiple) => Number((multiple * 10 ** power).toPrecision(12))));
  return found.filter((value) => value >= low && value <= high);
}

/** Times that are round in the unit in which each is printed. */
function roundTimes(low, high, multiples, step, second) {
  const parts = [...LONG].reverse();
  return [[1, 0], ...parts].flatMap(([size, least], i) => {
    const end = i < parts.length ? parts[i][1] * second : Infinity;
    const [first, last] = [Math.max(low, least * second), Math.min(high, end)];
    return first < last ? decimal(first / size / second, last / size / second, multiples, step).map((value) => value * size * second).filter((value) => value < end) : [];
  });
}

/** Ticks of a logarithmic axis at up to `parts` values that are round in `unit`, as even as they come. */
function logTicks(low, high, parts, unit) {
  const gap = (0.8 * Math.log(high / low)) / parts;
  const whole = unit === "op" || unit === "count";
  const binary = (step) => Array.from({ length: 71 }, (_, power) => power).filter((power) => power % step === 0).map((power) => 2 ** power).filter((value) => value >= low && value <= high);
  const round = ([multiples, step]) => (unit === "s" || unit === "ns" ? roundTimes(low, high, multiples, step, unit === "s" ? 1 : 1e9) : decimal(low, high, multiples, step).filter((value) => !whole || Number.isInteger(value)));
  const choices = unit === "bytes" ? POWERS.map(binary) : STEPS.map(round);
  if (choices[0].length < 3) return unitTicks(low, high, parts, unit);
  const wide = (values) => values.length <= parts && values.every((value, i) => !i || Math.log(value / values[i - 1]) >= gap);
  return (choices.find(wide) || choices.at(-1)).map((value) => [value, tickText(value, unit)]);
}
