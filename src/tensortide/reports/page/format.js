"use strict";
// Numbers as people write them; the same rules as tensortide.units.

/** A number with so many digits after the point; zero has no sign. */
function fixed(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) ? text : text.replace("-", "");
}

function scaled(count, base, units) {
  if (Math.abs(count) < base) return `${Number.isInteger(count) ? count : Number(count.toPrecision(4))} ${units[0]}`.trimEnd();
  let power = 1;
  let unit = base;
  while (power + 1 < units.length && Math.abs(count) / unit >= base - 0.05) {
    power += 1;
    unit *= base;
  }
  const value = Math.abs(count / unit);
  const digits = value < 99.995 ? 2 : value < 999.95 ? 1 : 0;
  return `${(count / unit).toFixed(digits)} ${units[power]}`;
}

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];

function bytes(count) {
  return scaled(count, 1024, BINARY);
}

function count(number, unit = "") {
  return scaled(number, 1000, DECIMAL.map((prefix) => prefix + unit));
}

function percent(part, whole = 1) {
  if (!whole) return "–";
  const value = (100 * part) / whole;
  if (!part || part === whole) return `${fixed(value, 0)} %`;
  if (value > 0 && value < 0.05) return "<0.1 %";
  if (value < 100 && value >= 99.95) return ">99.9 %";
  return `${fixed(value, 1)} %`;
}

/** Seconds of each long unit, the time from which durations are printed in it, and its name. */
const LONG = [[86400, 172800, "days"], [3600, 7200, "h"], [60, 600, "min"]];

/** Nanoseconds in the unit that suits them. */
function duration(ns) {
  if (ns < 1000) return `${Number(ns.toPrecision(3))} ns`;
  for (const [unit, size] of [["µs", 1e3], ["ms", 1e6]]) if (ns < 1000 * size) return `${three(ns / size)} ${unit}`;
  const [size, , unit] = LONG.find(([, least]) => ns / 1e9 >= least) || [1, 0, "s"];
  return size === 1 ? `${three(ns / 1e9)} s` : `${ns >= 864e12 ? whole(Math.round(ns / 864e11)) : (ns / 1e9 / size).toFixed(1)} ${unit}`;
}

/** A positive number with three digits. */
function three(value) {
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

/** A whole number with thin spaces between groups of three digits. */
function whole(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** A role or phase as words: `optimizer_state` is `optimizer state`. */
function words(name) {
  return name.replaceAll("_", " ");
}
