"use strict";
// The document of the page, and what is computed from its columns: memory at any op, under either lifetime.

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

const WORKSPACE = "workspace";

/** Memory of the step under one lifetime: a series of bytes per role with one entry per op, and their total. */
class Series {
  constructor(document, deaths) {
    const { storages, ops } = document;
    const length = ops.name.length;
    this.deaths = deaths;
    this.length = length;
    this.births = storages.birth;
    this.total = new Float64Array(length);
    const changes = storages.roles.map(() => new Float64Array(length + 2));
    for (let i = 0; i < storages.nbytes.length; i++) {
      if (deaths[i] <= storages.birth[i]) continue;
      const change = changes[storages.role[i]];
      change[Math.max(0, storages.birth[i])] += storages.nbytes[i];
      change[Math.max(0, deaths[i])] -= storages.nbytes[i];
    }
    this.roles = [];
    storages.roles.forEach((role, i) => this.#add(role, changes[i], true));
    this.#add(WORKSPACE, ops.workspace_bytes, false);
    this.peak = 0;
    for (let i = 1; i < length; i++) if (this.total[i] > this.total[this.peak]) this.peak = i;
  }

  #add(role, values, accumulate) {
    const series = new Float64Array(this.length);
    let sum = 0;
    let most = 0;
    for (let i = 0; i < this.length; i++) {
      sum = accumulate ? sum + values[i] : values[i];
      series[i] = sum;
      this.total[i] += sum;
      most = Math.max(most, sum);
    }
    if (most > 0) this.roles.push({ role, values: series, most });
  }

  /** Indexes of the storages that are alive during op `at`. */
  alive(at) {
    const found = [];
    for (let i = 0; i < this.births.length; i++) if (this.births[i] <= at && at < this.deaths[i]) found.push(i);
    return found;
  }
}

/** The document with its tables resolved by row. */
class Report {
  constructor(document) {
    Object.assign(this, document);
    this.length = document.ops.name.length;
    this.series = {
      eager: new Series(document, document.storages.death),
      last_use: new Series(document, document.storages.last_use_death),
    };
  }

  opName(i) {
    return shortOp(this.ops.names[this.ops.name[i]]);
  }

  opModule(i) {
    return this.ops.paths[this.ops.module[i]];
  }

  opPhase(i) {
    return this.ops.phases[this.ops.phase[i]];
  }

  opShapes(i) {
    return this.ops.signatures[this.ops.shapes[i]];
  }

  source(index) {
    return index < 0 ? null : this.sources[index];
  }

  where(index) {
    return index < 0 ? "" : this.sources[index].where;
  }

  /** Name of a storage within its module, or else of the op that made it. */
  storageName(i) {
    const label = this.storages.labels[this.storages.label[i]];
    const module = `${this.ops.paths[this.storages.module[i]]}.`;
    if (label) return label.startsWith(module) ? label.slice(module.length) : label;
    const birth = this.storages.birth[i];
    return birth < 0 ? "" : this.opName(birth);
  }

  storageSource(i) {
    const birth = this.storages.birth[i];
    return birth < 0 ? -1 : this.ops.source[birth];
  }

  /** Stretches of ops of the same phase: `{phase, from, to}`, `to` exclusive. */
  stretches() {
    return stretchesOf(this.length, (i) => this.opPhase(i));
  }
}

function stretchesOf(length, phaseOf) {
  const found = [];
  for (let i = 0; i < length; i++) {
    const last = found[found.length - 1];
    if (last && last.phase === phaseOf(i)) last.to = i + 1;
    else found.push({ phase: phaseOf(i), from: i, to: i + 1 });
  }
  return found;
}
