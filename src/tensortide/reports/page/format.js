"use strict";
// Numbers as people write them; the same rules as tensortide.units.

function scaled(count, base, units) {
  if (Math.abs(count) < base) return `${count} ${units[0]}`.trimEnd();
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
  if (!part || part === whole) return `${value.toFixed(0)} %`;
  if (value > 0 && value < 0.05) return "<0.1 %";
  if (value < 100 && value >= 99.95) return ">99.9 %";
  return `${value.toFixed(1)} %`;
}

/** Nanoseconds in the unit that suits them. */
function duration(ns) {
  for (const [unit, size] of [["ns", 1], ["µs", 1e3], ["ms", 1e6]]) if (ns < 1000 * size) return `${round3(ns / size)} ${unit}`;
  return `${round3(ns / 1e9)} s`;
}

function round3(value) {
  return String(Number(value.toPrecision(3)));
}

/** A whole number with thin spaces between groups of three digits. */
function whole(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

function ratio(number) {
  return number >= 100 ? number.toFixed(0) : number.toFixed(number >= 10 ? 1 : 2);
}

/** A role or phase as words: `optimizer_state` is `optimizer state`. */
function words(name) {
  return name.replaceAll("_", " ");
}
