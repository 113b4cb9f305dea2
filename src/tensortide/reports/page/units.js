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
  flag: written((value) => (value === true ? "yes" : value === false ? "no" : String(value))),
  bytes: numeric(bytes),
  ns: numeric(signed(duration)),
  s: numeric(signed((value) => duration(value * 1e9))),
  byte_ns: numeric((value) => `${bytes(value / 1e9)} s`),
  flops: numeric((value) => count(value, "FLOP"), count),
  macs: numeric((value) => count(value, "MAC"), count),
  count: numeric(whole),
  amount: numeric(count),
  number: numeric((value) => String(Number(value.toPrecision(4)))),
  ratio: numeric((value) => value.toFixed(4)),
  op: numeric(whole),
  share: numeric(percent),
  change: numeric((value) => `${value < 0 ? "" : "+"}${(100 * value).toFixed(1)} %`),
  factor: numeric((value) => `${value.toFixed(2)}x`),
  flops_per_s: numeric((value) => count(value, "FLOP/s"), count),
  bytes_per_s: numeric((value) => `${bytes(value)}/s`, bytes),
  flops_per_byte: numeric((value) => `${ratio(value)} FLOP/B`, ratio),
};

/** A value as text: text as it is, whatever its unit; a number that is not known is a dash. */
function valueText(value, unit, column = false) {
  const kind = UNITS[unit];
  if (value === null || value === undefined) return kind.right ? "–" : "";
  if (typeof value === "string") return kind.right ? value : kind.text(value);
  return column ? kind.cell(Number(value)) : kind.text(kind.right ? Number(value) : value);
}

/** Ticks from `low` to `high` at values that are round in `unit`: `[value, label]`. */
function unitTicks(low, high, parts, unit) {
  if (unit === "bytes" && low >= 0) return byteTicks(high, parts).filter(([value]) => value >= low);
  const step = niceStep(high - low || 1, parts);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) {
    const value = Number((i * step).toPrecision(12));
    ticks.push([value, value ? valueText(value, unit) : "0"]);
  }
  return ticks;
}
