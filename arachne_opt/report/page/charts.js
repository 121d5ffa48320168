// Charts over the same time as the timeline: devices in use, memory, and the overview with its brush.

import { el, refill, surface } from "./dom.js";
import { byteTicks, bytes, number, percent, tickTime, ticks, time } from "./format.js";
import { gutterOf } from "./frame.js";
import { lastAtMost } from "./model.js";
import { categoryColour, theme } from "./palette.js";
import { swatch } from "./timeline.js";

const FOOT = 22;
const BAND = "rgba(86, 180, 233, 0.4)";

/** A chart that follows the visible time; subclasses draw its inside. */
class TimeChart {
  constructor(host, state, height, label) {
    Object.assign(this, { host, state, height });
    this.canvas = el("canvas", { class: "chart", role: "img", "aria-label": label });
    this.readout = el("p", { class: "readout soft" });
    refill(host, this.canvas, this.readout);
    this.canvas.addEventListener("pointermove", (event) => {
      const x = event.clientX - this.canvas.getBoundingClientRect().left;
      state.set({ cursor: x < this.gutter ? null : this.timeAt(x) });
    });
    this.canvas.addEventListener("pointerleave", () => state.set({ cursor: null }));
    state.on(["window", "cursor", "theme", "device", "colour"], () => this.draw());
    new ResizeObserver(() => this.draw()).observe(host);
  }

  get gutter() {
    return gutterOf(this.width);
  }

  x(t) {
    const [from, to] = this.state.window;
    return this.gutter + ((t - from) / (to - from)) * (this.width - this.gutter);
  }

  timeAt(x) {
    const [from, to] = this.state.window;
    return from + ((x - this.gutter) / (this.width - this.gutter)) * (to - from);
  }

  y(value) {
    return 6 + (1 - value / this.most) * (this.height - FOOT - 6);
  }

  resize(ratio) {
    this.draw(ratio);
  }

  draw(ratio) {
    this.width = Math.max(320, this.host.clientWidth);
    const pen = surface(this.canvas, this.width, this.height, ratio);
    this.canvas.style.height = `${this.height}px`;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.clearRect(0, 0, this.width, this.height);
    this.drawScale(pen);
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, 0, this.width - this.gutter, this.height - FOOT);
    pen.clip();
    this.inside(pen);
    this.drawCursor(pen);
    pen.restore();
    this.drawTimes(pen);
    this.readout.textContent = this.words();
  }

  drawScale(pen) {
    pen.strokeStyle = theme().line;
    pen.fillStyle = theme().soft;
    pen.textAlign = "right";
    for (const [value, text] of this.scale()) {
      const y = Math.round(this.y(value)) + 0.5;
      pen.beginPath();
      pen.moveTo(this.gutter, y);
      pen.lineTo(this.width, y);
      pen.stroke();
      pen.fillText(text, this.gutter - 6, Math.max(7, y));
    }
    pen.textAlign = "left";
  }

  drawTimes(pen) {
    const [from, to] = this.state.window;
    pen.fillStyle = theme().soft;
    pen.textAlign = "center";
    const { step, values } = ticks(from, to, (this.width - this.gutter) / 88);
    for (const t of values) {
      const text = tickTime(t, step);
      const half = pen.measureText(text).width / 2;
      if (this.x(t) + half < this.width) {
        pen.fillText(text, Math.max(this.x(t), this.gutter + half), this.height - FOOT / 2);
      }
    }
    pen.textAlign = "left";
  }

  drawCursor(pen) {
    const { cursor } = this.state;
    if (cursor === null) return;
    pen.strokeStyle = theme().soft;
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(this.x(cursor), 0);
    pen.lineTo(this.x(cursor), this.height);
    pen.stroke();
    pen.setLineDash([]);
  }
}

/** How many devices run each kind of task. */
export class UseChart extends TimeChart {
  constructor(host, model, state) {
    super(host, state, 150, `Devices in use over time: ${percent(meanUse(model))} on average.`);
    Object.assign(this, { model, most: model.rowCount });
    const kinds = model.kinds.map((kind, i) =>
      el("li", {}, swatch(categoryColour(i)), el("span", {}, kind)));
    host.append(el("ul", { class: "legend", "aria-label": "colours" }, kinds));
    this.draw();
  }

  scale() {
    const { values } = ticks(0, this.most, 4);
    const whole = values.filter((value) => Number.isInteger(value) && value < 0.86 * this.most);
    return [...whole, this.most].map((value) => [value, number(value)]);
  }

  /** Bars one pixel wide, as high as the mean over the time that they cover. */
  inside(pen) {
    const { model } = this;
    for (let x = this.gutter; x < this.width; x += 1) {
      let below = 0;
      model.busy.forEach((steps, kind) => {
        const value = steps.mean(this.timeAt(x), this.timeAt(x + 1));
        pen.fillStyle = categoryColour(kind);
        const y = this.y(below + value);
        pen.fillRect(x, y, 1, this.y(below) - y);
        below += value;
      });
    }
  }

  words() {
    const { model, state } = this;
    if (state.cursor !== null) {
      const parts = model.kinds.map((kind, i) => `${number(model.busy[i].at(state.cursor))} ${kind}`);
      return `${time(state.cursor)}: ${parts.join(", ")} of ${number(this.most)} devices`;
    }
    const [from, to] = state.window;
    const means = model.busy.map((steps) => steps.mean(from, to));
    const parts = model.kinds.map((kind, i) => `${percent(means[i] / this.most)} ${kind}`);
    const idle = 1 - means.reduce((sum, mean) => sum + mean, 0) / this.most;
    return `Shown span: ${parts.join(", ")}, ${percent(Math.max(0, idle))} idle.`;
  }
}

function meanUse(model) {
  const busy = model.busy.reduce((sum, steps) => sum + steps.integral(model.end_us), 0);
  return busy / (model.end_us * model.rowCount);
}

/** The fullest device, the emptiest, and one of choice, with what they have. */
export class MemoryChart extends TimeChart {
  constructor(host, model, state) {
    super(host, state, 170, "Memory over time of the fullest device, the emptiest and a chosen one.");
    this.model = model;
    this.capacities = [...new Set(model.rows.capacity)].sort((a, b) => a - b);
    this.seriesOf = new Map();
    model.memory.forEach((series) => series.devices.forEach((d) => this.seriesOf.set(d, series)));
    this.peak = Math.max(1, ...model.memory.map((series) => Math.max(...series.bytes)));
    const near = this.capacities.filter((size) => size < 8 * this.peak);
    this.most = 1.06 * Math.max(this.peak, ...near);
    this.draw();
  }

  /** The device whose memory has the highest peak, as a share of what it has. */
  static fullest(model) {
    let best = 0;
    let most = -1;
    for (const series of model.memory) {
      const peak = Math.max(...series.bytes);
      for (const device of series.devices) {
        const share = peak / model.rows.capacity[device];
        if (share > most) [best, most] = [device, share];
      }
    }
    return best;
  }

  scale() {
    return byteTicks(this.most, 4).map((value) => [value, value ? bytes(value) : "0"]);
  }

  inside(pen) {
    const count = Math.ceil(this.width - this.gutter);
    const { high, low } = this.envelope(count);
    pen.fillStyle = BAND;
    for (let i = 0; i < count; i += 1) {
      pen.fillRect(this.gutter + i, this.y(high[i]), 1, Math.max(1, this.y(low[i]) - this.y(high[i])));
    }
    pen.strokeStyle = theme().alarm;
    pen.setLineDash([6, 4]);
    pen.fillStyle = theme().alarm;
    for (const size of this.capacities.filter((value) => value < this.most)) {
      const y = Math.round(this.y(size)) + 0.5;
      pen.beginPath();
      pen.moveTo(this.gutter, y);
      pen.lineTo(this.width, y);
      pen.stroke();
      pen.fillText(`${bytes(size)} there`, this.gutter + 6, y + 8);
    }
    pen.setLineDash([]);
    this.line(pen, this.seriesOf.get(this.state.device));
  }

  line(pen, series) {
    if (!series) return;
    const idle = this.model.resident[this.state.device];
    pen.strokeStyle = theme().ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(this.gutter, this.y(valueAt(series, this.state.window[0], idle)));
    const first = lastAtMost(series.t, this.state.window[0]);
    for (let i = first; i < series.t.length && series.t[i] <= this.state.window[1]; i += 1) {
      const x = Math.max(this.gutter, this.x(series.t[i]));
      pen.lineTo(x, this.y(i > 0 ? series.bytes[i - 1] : idle));
      pen.lineTo(x, this.y(series.bytes[i]));
    }
    pen.lineTo(this.width, this.y(valueAt(series, this.state.window[1], idle)));
    pen.stroke();
  }

  /** Most and least of all devices in each of `count` parts of the visible time. */
  envelope(count) {
    const [from, to] = this.state.window;
    const idle = Math.min(...this.model.resident);
    const high = new Float64Array(count);
    const low = new Float64Array(count).fill(Infinity);
    const unused = this.seriesOf.size < this.model.rowCount;
    const scale = count / (to - from);
    for (const series of this.model.memory) {
      let i = lastAtMost(series.t, from);
      let value = valueAt(series, from, this.model.resident[series.devices[0]]);
      for (let bin = 0; bin < count; bin += 1) {
        let most = value;
        let least = value;
        const end = from + (bin + 1) / scale;
        while (i < series.t.length && series.t[i] <= end) {
          if (series.t[i] > from) {
            value = series.bytes[i];
            most = Math.max(most, value);
            least = Math.min(least, value);
          }
          i += 1;
        }
        high[bin] = Math.max(high[bin], most);
        low[bin] = Math.min(low[bin], least);
      }
    }
    for (let bin = 0; bin < count; bin += 1) {
      if (unused) low[bin] = Math.min(low[bin], idle);
    }
    return { high, low };
  }

  get name() {
    return `device ${this.model.rows.device[this.state.device]}`;
  }

  words() {
    const { state, model } = this;
    const series = this.seriesOf.get(state.device);
    const there = bytes(model.rows.capacity[state.device]);
    if (state.cursor !== null && series) {
      const size = valueAt(series, state.cursor, model.resident[state.device]);
      return `${time(state.cursor)}: ${this.name} holds ${bytes(size)} of ${there}`;
    }
    const peak = series ? Math.max(...series.bytes) : model.resident[state.device];
    return (
      `Line: ${this.name}, peak ${bytes(peak)} of ${there}. ` +
      "Band: from the emptiest to the fullest device at each moment."
    );
  }
}

function valueAt(series, t, idle) {
  return t < series.t[0] ? idle : series.bytes[lastAtMost(series.t, t)];
}

/** The whole iteration in small, with the visible part marked; drag or click to move it. */
export class Overview {
  constructor(host, model, state) {
    Object.assign(this, { host, model, state });
    this.canvas = el("canvas", {
      class: "overview", role: "img", "aria-label": "Devices in use over the whole iteration",
    });
    refill(host, this.canvas);
    state.on(["window", "theme"], () => this.draw());
    new ResizeObserver(() => this.draw()).observe(host);
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.move(event);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) this.move(event);
    });
    this.draw();
  }

  get gutter() {
    return gutterOf(this.width);
  }

  move(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    const t = ((x - this.gutter) / (this.width - this.gutter)) * this.state.end;
    const [from, to] = this.state.window;
    this.state.reveal(t - (to - from) / 2, t + (to - from) / 2);
  }

  resize(ratio) {
    this.draw(ratio);
  }

  draw(ratio) {
    const height = 34;
    this.width = Math.max(320, this.host.clientWidth);
    const pen = surface(this.canvas, this.width, height, ratio);
    this.canvas.style.height = `${height}px`;
    pen.clearRect(0, 0, this.width, height);
    const scale = this.state.end / (this.width - this.gutter);
    pen.fillStyle = theme().soft;
    for (let x = 0; x < this.width - this.gutter; x += 1) {
      const busy = this.model.busy.reduce(
        (sum, steps) => sum + steps.mean(x * scale, (x + 1) * scale), 0);
      const h = (busy / this.model.rowCount) * height;
      pen.fillRect(this.gutter + x, height - h, 1, h);
    }
    const [from, to] = this.state.window.map((t) => this.gutter + t / scale);
    pen.fillStyle = theme().dark ? "rgba(15, 18, 22, 0.66)" : "rgba(255, 255, 255, 0.7)";
    pen.fillRect(this.gutter, 0, from - this.gutter, height);
    pen.fillRect(to, 0, this.width - to, height);
    pen.strokeStyle = theme().accent;
    pen.lineWidth = 1.5;
    pen.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), height - 1.5);
    pen.fillStyle = theme().soft;
    pen.font = "11px system-ui, sans-serif";
    pen.fillText("whole", 4, height / 2 + 4);
  }
}
