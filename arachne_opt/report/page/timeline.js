// The timeline: devices downwards, time to the right, planned and measured over each other.

import { el, refill, surface } from "./dom.js";
import { number } from "./format.js";
import { AXIS, drawAxis, drawGutter, drawRows, gutterOf } from "./frame.js";
import { listen } from "./input.js";
import { bar, label, legend, striped, stripes, taskColour } from "./paint.js";
import { theme } from "./palette.js";

const MOST = 560;
const MOST_ON_PAPER = 400;
const USUAL_ROW = 18;
const FEW_ROWS = 240;
const LARGEST_ROW = 40;

export class Timeline {
  /** Draws `model` into `host`; `tip` shows what is under the pointer. */
  constructor(host, model, state, tip) {
    Object.assign(this, { host, model, state, tip });
    this.canvas = el("canvas", {
      class: "timeline",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "timeline",
      "aria-label":
        `Timeline of ${model.title}: ${number(model.count)} tasks on ${number(model.rowCount)} ` +
        "devices. Arrow keys move between tasks, plus and minus zoom, A and D move the view, " +
        "0 shows everything, Escape clears the selection.",
    });
    this.live = el("p", { class: "unseen", "aria-live": "polite" });
    this.hint = el("p", { class: "hint", hidden: true }, "Hold Ctrl (or ⌘) while you scroll to zoom");
    this.legend = el("ul", { class: "legend", "aria-label": "colours" });
    refill(host, el("div", { class: "stage" }, this.canvas, this.hint), this.legend, this.live);
    this.top = 0;
    this.measure();
    this.rowHeight = this.fitHeight;
    listen(this);
    state.on(["window", "selected", "cursor", "theme"], () => this.draw());
    state.on(["colour", "show", "theme"], () => {
      this.draw();
      this.drawLegend();
    });
    new ResizeObserver(() => this.resize()).observe(host);
    this.drawLegend();
  }

  // ---------------------------------------------------------------------------- geometry

  measure() {
    this.width = Math.max(320, this.host.clientWidth);
    // Few rows are higher, so that planned and measured can be told apart.
    const row = Math.max(USUAL_ROW, Math.min(LARGEST_ROW, FEW_ROWS / this.model.rowCount));
    this.body = Math.min(this.state.paper ? MOST_ON_PAPER : MOST, Math.max(96, this.model.rowCount * row));
    this.gutter = gutterOf(this.width);
  }

  get fitHeight() {
    return this.body / this.model.rowCount;
  }

  get height() {
    return AXIS + this.body;
  }

  resize(ratio) {
    const fitted = this.rowHeight === this.fitHeight;
    this.measure();
    if (fitted) this.rowHeight = this.fitHeight;
    this.draw(ratio);
  }

  x(t) {
    const [from, to] = this.state.window;
    return this.gutter + ((t - from) / (to - from)) * (this.width - this.gutter);
  }

  y(row) {
    return AXIS + (row - this.top) * this.rowHeight;
  }

  timeAt(x) {
    const [from, to] = this.state.window;
    return from + ((x - this.gutter) / (this.width - this.gutter)) * (to - from);
  }

  rowAt(y) {
    const row = Math.floor(this.top + (y - AXIS) / this.rowHeight);
    return y < AXIS || row < 0 || row >= this.model.rowCount ? null : row;
  }

  get rowsShown() {
    return this.body / this.rowHeight;
  }

  /** Moves rows; false at either end, so that the page may scroll instead. */
  scrollRows(rows) {
    const before = this.top;
    this.top = Math.max(0, Math.min(this.model.rowCount - this.rowsShown, this.top + rows));
    if (this.top !== before) this.draw();
    return this.top !== before;
  }

  zoomRows(factor, y = AXIS + this.body / 2) {
    const row = this.top + (y - AXIS) / this.rowHeight;
    const most = Math.max(LARGEST_ROW, this.fitHeight);
    this.rowHeight = Math.max(this.fitHeight, Math.min(most, this.rowHeight * factor));
    this.top = row - (y - AXIS) / this.rowHeight;
    this.scrollRows(0);
    this.draw();
  }

  fit() {
    this.rowHeight = this.fitHeight;
    this.top = 0;
    this.state.glide(0, this.state.end);
    this.draw();
  }

  /** Brings a task into view, and zooms to it if asked to. */
  show(task, zoom = false) {
    const { start, end, rows } = this.model.tasks;
    const [from, to] = this.state.window;
    const width = zoom ? 3 * (end[task] - start[task]) : to - from;
    const middle = (start[task] + end[task]) / 2;
    const visible = start[task] >= from && end[task] <= to;
    if (zoom || !visible) this.state.glide(middle - width / 2, middle + width / 2);
    const row = rows[task][0];
    if (zoom && this.rowHeight < USUAL_ROW) this.zoomRows(USUAL_ROW / this.rowHeight);
    if (row < this.top || row >= this.top + this.rowsShown) {
      this.scrollRows(row - this.rowsShown / 2 - this.top);
    }
  }

  // ----------------------------------------------------------------------------- drawing

  draw(ratio) {
    const pen = surface(this.canvas, this.width, this.height, ratio);
    this.canvas.style.height = `${this.height}px`;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = theme().panel;
    pen.fillRect(0, 0, this.width, this.height);
    drawRows(this, pen);
    pen.save();
    pen.beginPath();
    pen.rect(this.gutter, AXIS, this.width - this.gutter, this.body);
    pen.clip();
    this.drawTasks(pen);
    this.drawEnds(pen);
    pen.restore();
    drawAxis(this, pen);
    drawGutter(this, pen);
  }

  drawTasks(pen) {
    const { model, state } = this;
    const both = model.measured && state.show === "both";
    const pattern = stripes(pen);
    const chosen = state.selected?.view === model.index ? state.selected.task : null;
    if (!model.measured || state.show !== "measured") {
      this.drawPlanned(pen, pattern, chosen, both);
      this.drawWaits(pen);
    }
    if (model.measured && state.show !== "planned") this.drawMeasured(pen, pattern, chosen, both);
    if (chosen !== null) this.drawChosen(pen, chosen);
  }

  drawPlanned(pen, pattern, chosen, both) {
    const { model, state } = this;
    const { start, end, owner } = model.tasks;
    for (const { task, first, count } of model.rects) {
      const box = this.box(start[task], end[task], first, count);
      if (box === null) continue;
      // Under measured times, planned ones are a broad pale bar.
      const faint = chosen !== null && chosen !== task && owner[task] !== owner[chosen];
      bar(pen, box, {
        colour: taskColour(model, task, state.colour),
        pattern: striped(model, task, state.colour) ? pattern : null,
        text: both ? "" : label(model, task, this.room(box)),
        left: this.gutter,
        faint: faint || both,
      });
    }
  }

  /** Thin lines below the tasks: results on their way, messages, gradient exchange. */
  drawWaits(pen) {
    const { model } = this;
    if (this.rowHeight < 8) return;
    pen.fillStyle = theme().soft;
    for (const { task, first, count } of model.waitRects) {
      const x = this.x(model.waits.start[task]);
      const w = Math.max(1, this.x(model.waits.end[task]) - x);
      if (x > this.width || x + w < this.gutter) continue;
      for (let row = first; row < first + count; row += 1) {
        pen.fillRect(x, this.y(row + 1) - 3, w, 2);
      }
    }
  }

  /** A slim bar per device inside the planned ones. */
  drawMeasured(pen, pattern, chosen, both) {
    const { model, state } = this;
    const { spans } = model.measured;
    spans.task.forEach((task, i) => {
      const box = this.box(spans.start[i], spans.end[i], spans.row[i], 1);
      if (box === null) return;
      const inset = both ? this.inset : 0;
      const named = spans.row[i] === model.tasks.rows[task][0];
      const faint = chosen !== null && chosen !== task;
      bar(pen, [box[0], box[1] + inset, box[2], Math.max(1, box[3] - 2 * inset)], {
        colour: taskColour(model, task, state.colour),
        pattern: striped(model, task, state.colour) ? pattern : null,
        text: named ? label(model, task, this.room(box)) : "",
        left: this.gutter,
        faint,
      });
    });
  }

  /** How much slimmer measured bars are on either side; their names still fit into usual rows. */
  get inset() {
    const row = this.rowHeight;
    return row < 5 ? 0 : Math.min(0.24 * row, Math.max(1, (row - 12) / 2));
  }

  drawChosen(pen, task) {
    const { start, end, rows } = this.model.tasks;
    pen.strokeStyle = theme().accent;
    pen.lineWidth = 2.5;
    for (let i = 0; i < rows[task].length; i += 2) {
      const box = this.box(start[task], end[task], rows[task][i], rows[task][i + 1]);
      if (box) pen.strokeRect(box[0] - 1, box[1] - 1, box[2] + 2, box[3] + 2);
    }
  }

  /**
   * A rectangle in pixels, null where it is out of sight; at least a pixel high. It is at least a
   * pixel wide as well, unless tasks are so many that this would make idle devices look busy.
   */
  box(from, to, first, count) {
    const x = this.x(from);
    const w = Math.max(this.crowded(first) ? 0 : 1, this.x(to) - x);
    const gap = this.rowHeight >= 6 ? 1 : 0;
    const y = this.y(first) + gap / 2;
    const h = Math.max(1, count * this.rowHeight - gap);
    const seen = x < this.width && x + w > this.gutter && y < this.height && y + h > AXIS;
    return seen ? [x, y, w, h] : null;
  }

  /** Whether a row has more than a task for every other pixel. */
  crowded(row) {
    const [from, to] = this.state.window;
    const shown = (this.model.onRow[row].length * (to - from)) / this.state.end;
    return shown > (this.width - this.gutter) / 2;
  }

  /** Visible width of a bar. */
  room([x, , w]) {
    return Math.min(x + w, this.width) - Math.max(x, this.gutter);
  }

  /** The bound, the end of the plan, and the time under the pointer. */
  drawEnds(pen) {
    const { model, state } = this;
    const line = (t, colour, dashes) => {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.setLineDash(dashes);
      pen.beginPath();
      pen.moveTo(this.x(t), AXIS);
      pen.lineTo(this.x(t), this.height);
      pen.stroke();
      pen.setLineDash([]);
    };
    if (model.bound_us) line(model.bound_us, theme().accent, [6, 4]);
    line(model.end_us, theme().ink, []);
    if (state.cursor !== null) line(state.cursor, theme().soft, [2, 3]);
  }

  drawLegend() {
    const { entries, rest } = legend(this.model, this.state.colour);
    const items = entries.map(([colour, text]) =>
      el("li", {}, swatch(colour), el("span", {}, text)));
    if (rest) items.push(el("li", { class: "soft" }, `and ${number(rest)} more`));
    const earlier = this.model.kinds.slice(0, -1).join(", ");
    if (this.state.colour !== "kind" && earlier) {
      items.push(el("li", {}, el("i", { class: "swatch striped" }), el("span", {}, earlier)));
    }
    if (this.model.bound_us) {
      items.push(el("li", {}, el("i", { class: "swatch dashed" }), el("span", {}, "proven bound")));
    }
    if (this.model.measured && this.state.show === "both") {
      const words = `slim: ${this.model.measured.label}, pale: planned`;
      items.push(el("li", { class: "soft" }, words));
    }
    refill(this.legend, items);
  }

  /** Says a task to screen readers. */
  say(text) {
    this.live.textContent = text;
  }
}

export function swatch(colour) {
  const node = el("i", { class: "swatch" });
  node.style.background = colour;
  return node;
}
