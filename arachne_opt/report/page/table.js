// All tasks in a table that sorts, filters and stays quick: only the visible rows exist.

import { el, refill } from "./dom.js";
import { SECOND, bytes, number, time } from "./format.js";

const ROW = 28;
const AROUND = 8;
const PRINTED = 400;
const CONDITION = /^([a-z ]+)(>=|<=|>|<|=)([\d.]+)$/;
const GIB = 2 ** 30;

export class TaskTable {
  constructor(host, model, state) {
    Object.assign(this, { host, model, state });
    this.columns = model.columns;
    this.sort = { key: "start", down: false };
    this.filter = "";
    this.body = el("div", { class: "rows", role: "rowgroup" });
    this.head = el("div", { class: "row head", role: "row" });
    this.grid = el("div", {
      class: "grid", role: "grid", tabindex: 0, "aria-label": "Tasks", "aria-rowcount": model.count + 1,
      onscroll: () => this.draw(), onkeydown: (event) => this.key(event),
    }, this.head, this.body);
    this.grid.style.setProperty("--columns", this.columns.map(columnWidth).join(" "));
    this.search = el("input", {
      type: "search",
      placeholder: "denoise 129x720   degree>=8   slack<0.5",
      "aria-label": "Filter tasks by words or by conditions such as degree>=8",
      oninput: () => {
        this.filter = this.search.value;
        this.refresh();
      },
    });
    this.found = el("span", { class: "soft", role: "status" });
    refill(host,
      el("div", { class: "tools" },
        el("label", { class: "field wide" }, el("span", {}, "Filter"), this.search),
        this.found,
        el("button", { type: "button", onclick: () => this.download() }, "Save as CSV")),
      this.grid,
      el("div", { class: "printed" }));
    this.drawHead();
    this.refresh();
    state.on(["selected"], () => this.follow());
    new ResizeObserver(() => this.draw()).observe(this.grid);
  }

  /** What a column says of a task, as a number or a text to sort by. */
  value(key, task) {
    const { model } = this;
    switch (key) {
      case "shape": return model.shape(task);
      case "duration": return model.duration(task);
      case "area": return model.area(task);
      case "rows": return model.tasks.rows[task][0];
      case "measured": {
        const real = model.measuredOf?.get(task);
        return real ? real.end - real.start : null;
      }
      default: return model.tasks[key][task];
    }
  }

  text(column, task) {
    const value = this.value(column.key, task);
    if (value === null || value === undefined) return "–";
    switch (column.type) {
      case "rows": return this.model.deviceText(task);
      case "time": return value === 0 ? "0" : time(value);
      case "bytes": return bytes(value);
      case "factor": return value === 1 ? "–" : `× ${value.toFixed(3)}`;
      case "number": return number(value);
      default: return String(value);
    }
  }

  refresh() {
    const tests = this.filter.trim().toLowerCase().split(/\s+/).filter(Boolean).map((word) => this.test(word));
    const order = [];
    for (let task = 0; task < this.model.count; task += 1) {
      if (tests.every((passes) => passes(task))) order.push(task);
    }
    const { key, down } = this.sort;
    const values = new Map(order.map((task) => [task, this.value(key, task)]));
    const sign = down ? -1 : 1;
    order.sort((a, b) => sign * compare(values.get(a), values.get(b)) || a - b);
    this.order = order;
    this.found.textContent = `${number(order.length)} of ${number(this.model.count)} tasks`;
    this.body.style.height = `${order.length * ROW}px`;
    this.grid.scrollTop = 0;
    this.draw();
  }

  /** A word to find, or a condition in seconds, GiB or plain numbers. */
  test(word) {
    const match = CONDITION.exec(word);
    const column = match && this.columns.find((c) => c.key === match[1] || c.title === match[1]);
    if (!column || column.type === "text") {
      return (task) => `${this.model.tasks.name[task]} ${this.model.shape(task)}`.toLowerCase().includes(word);
    }
    const limit = Number(match[3]) * ({ time: SECOND, bytes: GIB }[column.type] ?? 1);
    const holds = {
      ">": (v) => v > limit, "<": (v) => v < limit, ">=": (v) => v >= limit,
      "<=": (v) => v <= limit, "=": (v) => v === limit,
    }[match[2]];
    return (task) => {
      const value = this.value(column.key, task);
      return value !== null && holds(value);
    };
  }

  drawHead() {
    refill(this.head, this.columns.map((column) => {
      const sorted = this.sort.key === column.key;
      const arrow = sorted ? (this.sort.down ? " ▾" : " ▴") : "";
      return el("span", {
        role: "columnheader",
        class: column.type === "text" || column.type === "rows" ? null : "right",
        "aria-sort": sorted ? (this.sort.down ? "descending" : "ascending") : "none",
      }, el("button", { type: "button", onclick: () => this.sortBy(column) }, column.title + arrow));
    }));
  }

  sortBy(column) {
    const again = this.sort.key === column.key;
    this.sort = { key: column.key, down: again ? !this.sort.down : column.type !== "text" };
    this.drawHead();
    this.refresh();
  }

  draw() {
    if (!this.order) return;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / ROW) - AROUND);
    const seen = Math.ceil((this.grid.clientHeight || 400) / ROW) + 2 * AROUND;
    const { selected } = this.state;
    const chosen = selected?.view === this.model.index ? selected.task : null;
    refill(this.body, this.order.slice(first, first + seen).map((task, i) => {
      const row = el("div", {
        class: task === chosen ? "row chosen" : "row",
        role: "row",
        "aria-rowindex": first + i + 2,
        "aria-selected": task === chosen,
        onclick: () => this.state.select(this.model.index, task),
      }, this.columns.map((column) => this.cell(column, task)));
      row.style.top = `${(first + i) * ROW}px`;
      return row;
    }));
  }

  cell(column, task) {
    const right = column.type !== "text" && column.type !== "rows";
    const text = this.text(column, task);
    return el("span", { role: "gridcell", class: right ? "right" : null, title: text }, text);
  }

  key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12 };
    if (!(event.key in steps) || event.target !== this.grid) return;
    event.preventDefault();
    const { selected } = this.state;
    const at = selected?.view === this.model.index ? this.order.indexOf(selected.task) : -1;
    const next = Math.max(0, Math.min(this.order.length - 1, at + steps[event.key]));
    if (this.order.length) this.state.select(this.model.index, this.order[next]);
  }

  /** Scrolls to the selected task. */
  follow() {
    const { selected } = this.state;
    if (selected?.view === this.model.index) {
      const at = this.order.indexOf(selected.task);
      const top = this.grid.scrollTop;
      const room = this.grid.clientHeight - 2 * ROW;
      if (at >= 0 && (at * ROW < top || at * ROW > top + room)) this.grid.scrollTop = at * ROW - room / 2;
    }
    this.draw();
  }

  download() {
    const lines = [this.columns.map((column) => column.title)];
    for (const task of this.order) lines.push(this.columns.map((column) => this.plain(column, task)));
    const text = lines.map((line) => line.map(quote).join(",")).join("\r\n");
    const link = el("a", { download: "tasks.csv", href: URL.createObjectURL(new Blob([text], { type: "text/csv" })) });
    link.click();
    URL.revokeObjectURL(link.href);
  }

  plain(column, task) {
    if (column.type === "rows") return this.model.deviceText(task);
    const value = this.value(column.key, task);
    return column.type === "time" && value !== null ? value / SECOND : value ?? "";
  }

  /** A plain table for paper, of the first tasks in the present order. */
  print() {
    const shown = this.order.slice(0, PRINTED);
    const rest = this.order.length - shown.length;
    refill(this.host.querySelector(".printed"),
      el("table", {},
        el("thead", {}, el("tr", {}, this.columns.map((column) => el("th", {}, column.title)))),
        el("tbody", {}, shown.map((task) =>
          el("tr", {}, this.columns.map((column) => el("td", {}, this.text(column, task))))))),
      rest > 0 ? el("p", {}, `and ${number(rest)} more; the page itself has them all`) : null);
  }

  unprint() {
    refill(this.host.querySelector(".printed"));
  }
}

function columnWidth(column) {
  return { text: "minmax(9rem, 1.6fr)", rows: "minmax(7rem, 1.2fr)" }[column.type] ?? "minmax(5.5rem, 1fr)";
}

function compare(a, b) {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}

/** A CSV field; one that a spreadsheet would take for a formula gets a quote before it. */
function quote(value) {
  const text = String(value);
  const safe = /^[=+@\t\r]/.test(text) || (/^-/.test(text) && Number.isNaN(Number(text))) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
