// How numbers are said.

export const SECOND = 1e6;

/** A time in µs for people, with about `digits` digits. */
export function time(us, digits = 4) {
  if (us === null || us === undefined) return "–";
  const size = Math.abs(us);
  if (size >= 100 * SECOND) return `${(us / SECOND).toFixed(Math.max(0, digits - 3))} s`;
  if (size >= SECOND) return `${significant(us / SECOND, digits)} s`;
  if (size >= 1000) return `${significant(us / 1000, digits)} ms`;
  return `${Math.round(us)} µs`;
}

export function bytes(size) {
  if (!size) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let value = size;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${value.toFixed(value >= 100 || at === 0 ? 0 : 1)} ${units[at]}`;
}

export function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

export function number(value) {
  return value.toLocaleString("en-US");
}

/** Rising numbers with runs written short: "0–7, 12". */
export function ranges(numbers) {
  const runs = [];
  for (const value of numbers) {
    const last = runs[runs.length - 1];
    if (last && last[1] + 1 === value) last[1] = value;
    else runs.push([value, value]);
  }
  return runs.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

/** A time on an axis with steps of `step`: no more digits than the steps need. */
export function tickTime(us, step) {
  if (us === 0) return "0";
  const [unit, name] = step >= 100000 ? [SECOND, "s"] : step >= 100 ? [1000, "ms"] : [1, "µs"];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return `${(us / unit).toFixed(digits)} ${name}`;
}

function significant(value, digits) {
  const before = Math.max(1, Math.floor(Math.log10(Math.abs(value) || 1)) + 1);
  return value.toFixed(Math.max(0, digits - before));
}

/** Round steps that cut a span into at most `most` parts: the step and its multiples inside. */
export function ticks(from, to, most) {
  const rough = (to - from) / Math.max(1, most);
  const scale = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].find((factor) => factor * scale >= rough) * scale;
  const found = [];
  for (let k = Math.ceil(from / step); k * step <= to; k += 1) found.push(k * step);
  return { step, values: found };
}

/** The same for memory, in powers of two. */
export function byteTicks(to, most) {
  let step = 2 ** 20;
  while (to / step > most) step *= 2;
  const values = [];
  for (let at = 0; at <= to; at += step) values.push(at);
  return values;
}
