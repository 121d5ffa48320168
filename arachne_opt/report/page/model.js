// One plan as the page uses it: rectangles to draw, an index to find them, and sums over them.

import { ranges } from "./format.js";

/** Times in order with a value from each on, and its integral, for means over any span. */
class Steps {
  constructor(changes) {
    const sorted = [...changes].sort((a, b) => a[0] - b[0]);
    this.t = [0];
    this.v = [0];
    this.sum = [0];
    for (const [t, change] of sorted) {
      const last = this.t.length - 1;
      if (t > this.t[last]) {
        this.t.push(t);
        this.v.push(this.v[last] + change);
        this.sum.push(this.sum[last] + this.v[last] * (t - this.t[last]));
      } else {
        this.v[last] += change;
      }
    }
  }

  at(t) {
    return t < 0 ? 0 : this.v[lastAtMost(this.t, t)];
  }

  integral(t) {
    const i = lastAtMost(this.t, Math.max(0, t));
    return this.sum[i] + this.v[i] * (Math.max(0, t) - this.t[i]);
  }

  mean(a, b) {
    return b > a ? (this.integral(b) - this.integral(a)) / (b - a) : this.at(a);
  }
}

/** Index of the last entry that is at most `value`; entries rise. */
export function lastAtMost(entries, value) {
  let low = 0;
  let high = entries.length;
  while (low + 1 < high) {
    const middle = (low + high) >> 1;
    if (entries[middle] <= value) low = middle;
    else high = middle;
  }
  return low;
}

export class Model {
  constructor(view, index) {
    Object.assign(this, view);
    this.index = index;
    this.count = this.tasks.start.length;
    this.rowCount = this.rows.device.length;
    this.rects = rectsOf(this.tasks);
    this.onRow = indexRows(this.rects, this.tasks.start, this.rowCount);
    this.waitRects = rectsOf(this.waits);
    this.busy = this.busyByKind();
    this.busyOfRow = this.busyTimes();
    this.groupFirst = firstRows(this.rows.group);
    this.degreesUsed = [...new Set(this.tasks.degree)].sort((a, b) => a - b);
    this.rowOfDevice = new Map(this.rows.device.map((device, row) => [device, row]));
    if (this.measured) this.readMeasured();
  }

  get lastTime() {
    return Math.max(this.end_us, this.measured ? this.measured.end_us : 0);
  }

  kind_name(task) {
    return this.kinds[this.tasks.kind[task]];
  }

  shape(task) {
    return this.shapes[this.tasks.shape[task]];
  }

  duration(task) {
    return this.tasks.end[task] - this.tasks.start[task];
  }

  devices(task) {
    return this.tasks.rows[task].reduce((sum, n, i) => sum + (i % 2 ? n : 0), 0);
  }

  /** The devices of a task in words: rows may stand in another order. */
  deviceText(task) {
    const found = [];
    const list = this.tasks.rows[task];
    for (let i = 0; i < list.length; i += 2) {
      for (let k = 0; k < list[i + 1]; k += 1) found.push(this.rows.device[list[i] + k]);
    }
    found.sort((a, b) => a - b);
    return ranges(found);
  }

  area(task) {
    return this.duration(task) * this.devices(task);
  }

  /** The tasks that run on a row at a time, first planned, then measured. */
  taskAt(row, t, slop = 0) {
    const mine = this.onRow[row];
    if (!mine || mine.length === 0) return null;
    const starts = mine.map((task) => this.tasks.start[task]);
    const i = lastAtMost(starts, t + slop);
    const task = mine[i];
    return this.tasks.start[task] <= t + slop && t - slop <= this.tasks.end[task] ? task : null;
  }

  measuredAt(row, t) {
    if (!this.measured) return null;
    const { spans } = this.measured;
    for (const i of this.measuredOnRow[row] ?? []) {
      if (spans.start[i] <= t && t <= spans.end[i]) return spans.task[i];
    }
    return null;
  }

  readMeasured() {
    const { spans } = this.measured;
    this.measuredOnRow = Array.from({ length: this.rowCount }, () => []);
    this.measuredOf = new Map();
    spans.task.forEach((task, i) => {
      this.measuredOnRow[spans.row[i]].push(i);
      const known = this.measuredOf.get(task);
      // All ranks must be there before a group can work: the last start counts.
      this.measuredOf.set(task, {
        start: Math.max(known?.start ?? 0, spans.start[i]),
        end: Math.max(known?.end ?? 0, spans.end[i]),
      });
    });
  }

  busyByKind() {
    const changes = this.kinds.map(() => []);
    for (let task = 0; task < this.count; task += 1) {
      const n = this.devices(task);
      changes[this.tasks.kind[task]].push([this.tasks.start[task], n], [this.tasks.end[task], -n]);
    }
    return changes.map((list) => new Steps(list));
  }

  busyTimes() {
    const busy = new Float64Array(this.rowCount);
    for (const { task, first, count } of this.rects) {
      for (let row = first; row < first + count; row += 1) busy[row] += this.duration(task);
    }
    return busy;
  }
}

function rectsOf({ rows }) {
  const rects = [];
  rows.forEach((list, task) => {
    for (let i = 0; i < list.length; i += 2) rects.push({ task, first: list[i], count: list[i + 1] });
  });
  return rects;
}

function indexRows(rects, starts, rowCount) {
  const onRow = Array.from({ length: rowCount }, () => []);
  for (const { task, first, count } of rects) {
    for (let row = first; row < first + count; row += 1) onRow[row].push(task);
  }
  for (const mine of onRow) mine.sort((a, b) => starts[a] - starts[b]);
  return onRow;
}

function firstRows(groups) {
  const first = [];
  groups.forEach((group, row) => {
    if (row === 0 || groups[row - 1] !== group) first.push(row);
  });
  return first;
}
