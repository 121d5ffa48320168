// What stands beside the pointer, and the panel of the selected task.

import { el, refill } from "./dom.js";
import { bytes, number, time } from "./format.js";
import { swatch } from "./timeline.js";
import { taskColour } from "./paint.js";

/** Name and value pairs of a task. */
function taskFacts(model, task) {
  const { tasks } = model;
  const facts = [
    [model.words.shape, model.shape(task)],
    [model.words.degree, number(tasks.degree[task])],
    ["devices", model.deviceText(task)],
    ["planned", `${time(tasks.start[task])} – ${time(tasks.end[task])} (${time(model.duration(task))})`],
  ];
  const real = model.measuredOf?.get(task);
  if (real) {
    const ratio = (real.end - real.start) / model.duration(task);
    const text = `${time(real.start)} – ${time(real.end)} (${ratio.toFixed(2)} × planned)`;
    facts.push([model.measured.label, text]);
  }
  if (tasks.penalty[task] !== 1) {
    facts.push(["penalty", `× ${tasks.penalty[task].toFixed(3)} over ${tasks.nodes[task]} nodes`]);
  }
  if (tasks.slack[task] !== null) {
    facts.push(["slack", tasks.slack[task] === 0 ? "none: critical" : time(tasks.slack[task])]);
  }
  if (tasks.again[task]) facts.push(["activations", "computed again"]);
  if (tasks.memory[task]) facts.push(["memory", `${bytes(tasks.memory[task])} a device`]);
  return facts;
}

export class Tip {
  constructor() {
    this.node = el("div", { class: "tip", role: "tooltip", hidden: true });
    document.body.append(this.node);
  }

  show(model, task, x, y) {
    refill(
      this.node,
      el("strong", {}, model.tasks.name[task]),
      el("dl", {}, taskFacts(model, task).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])),
    );
    this.node.hidden = false;
    const { width, height } = this.node.getBoundingClientRect();
    const left = x + 16 + width > window.innerWidth ? x - width - 12 : x + 16;
    const top = Math.min(y + 14, window.innerHeight - height - 8);
    this.node.style.left = `${Math.max(4, left)}px`;
    this.node.style.top = `${Math.max(4, top)}px`;
  }

  hide() {
    this.node.hidden = true;
  }
}

/** The panel that explains the selected task. */
export class Details {
  constructor(host, models, state) {
    Object.assign(this, { host, models, state });
    state.on(["selected", "colour", "theme"], () => this.draw());
    this.draw();
  }

  draw() {
    const { selected } = this.state;
    this.host.classList.toggle("empty", selected === null);
    if (selected === null) {
      refill(this.host, ...this.usage());
      return;
    }
    const model = this.models[selected.view];
    const { task } = selected;
    const why = model.why[model.tasks.why[task]];
    refill(
      this.host,
      el("h3", {}, swatch(taskColour(model, task, this.state.colour)), model.tasks.name[task]),
      el("dl", { class: "facts" },
        taskFacts(model, task).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])),
      el("h4", {}, `Why ${model.words.degree} ${model.tasks.degree[task]}?`),
      optionTable(model, why.options),
      el("ul", { class: "why" }, why.lines.map((line) => el("li", {}, line))),
    );
  }

  usage() {
    const keys = [
      ["click", "select a task: why its degree"],
      ["double click", "zoom to a task, or out"],
      ["Ctrl + wheel, + −, W S", "zoom"],
      ["drag, Shift + wheel, A D", "move"],
      ["Shift + drag", "zoom to a span"],
      ["[ ]", "lower or higher rows"],
      ["← → ↑ ↓", "next task, next device"],
      ["0 · Enter · Esc", "all · zoom to the task · none"],
    ];
    return [
      el("h3", {}, "Select a task"),
      el("p", { class: "soft" }, "It tells its figures, and why it got its degree."),
      el("dl", { class: "keys" },
        keys.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)])),
    ];
  }
}

/** Degrees side by side: time as a bar, device time, memory, verdict. */
function optionTable(model, options) {
  const slowest = Math.max(...options.map((option) => option[1]));
  const head = [model.words.degree, "time", "device time", "memory", ""];
  const rows = options.map(([degree, us, area, size, verdict, chosen, again]) => {
    const fill = el("i", { class: "meter" });
    fill.style.width = `${Math.max(2, (100 * us) / slowest)}%`;
    return el("tr", { class: chosen ? "chosen" : null },
      el("th", { scope: "row", title: again ? "activations are computed again" : null },
        `${degree}${again ? " ↻" : ""}`),
      el("td", {}, time(us, 3), fill),
      el("td", {}, time(area, 3)),
      el("td", {}, bytes(size)),
      el("td", { class: "verdict" }, verdict));
  });
  return el("table", { class: "options" },
    el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, rows));
}

