// The cluster as a map: nodes with their devices, and what goes between nodes.

import { el, refill, select, svg } from "./dom.js";
import { bytes, number, percent, time } from "./format.js";
import { taskColour } from "./paint.js";
import { heat, theme } from "./palette.js";

const CELL = 15;
const PAD = 7;
const HEAD = 15;
const GAP = 26;
const MOST_LINKS = 80;

export class ClusterMap {
  constructor(host, model, state) {
    Object.assign(this, { host, model, state });
    this.by = "use";
    this.links = true;
    this.peaks = peaksOf(model);
    this.picture = svg("svg", { class: "map", role: "img", "aria-label": this.words() });
    this.key = el("p", { class: "soft readout" });
    this.tools = el("div", { class: "tools" },
      select("Devices show", [
        ["use", "busy share"], ["memory", "peak memory"], ["now", "task under the pointer"],
      ], this.by, (value) => {
        this.by = value;
        this.paint();
      }),
      el("label", { class: "field" },
        el("input", {
          type: "checkbox",
          checked: true,
          onchange: (event) => {
            this.links = event.target.checked;
            this.wires.setAttribute("visibility", this.links ? "visible" : "hidden");
          },
        }),
        el("span", {}, "cross-node links")));
    refill(host, this.tools, el("div", { class: "scroll" }, this.picture), this.key);
    this.build();
    state.on(["cursor", "selected", "theme", "colour"], () => this.paint());
  }

  words() {
    const { nodes, link_count: count } = this.model.cluster;
    const devices = nodes.reduce((sum, node) => sum + node.devices, 0);
    return `Cluster of ${number(nodes.length)} nodes and ${number(devices)} devices, ` +
      `${number(count)} pairs of nodes exchange data.`;
  }

  /** Lays nodes out in a grid that is somewhat wider than high; a zone begins a line of its own. */
  build() {
    const { nodes } = this.model.cluster;
    const zoned = new Set(nodes.map((node) => node.zone)).size > 1;
    const across = nodes.some((node) => node.devices > 2) ? 4 : 2;
    const deep = Math.ceil(Math.max(...nodes.map((node) => node.devices)) / across);
    const width = across * CELL + 2 * PAD;
    const height = deep * CELL + HEAD + 2 * PAD;
    const columns = Math.min(nodes.length, Math.max(4, Math.ceil(Math.sqrt(nodes.length * 2.2))));
    this.cells = [];
    this.tops = [];
    const boxes = svg("g");
    let device = 0;
    let [column, y] = [0, GAP];
    nodes.forEach((node, n) => {
      const begins = zoned && (n === 0 || nodes[n - 1].zone !== node.zone);
      if (column === columns || (begins && n > 0)) [column, y] = [0, y + height + GAP];
      if (begins) {
        boxes.append(svg("text", { x: GAP / 2, y: y + 4, class: "zone" }, `zone ${node.zone}`));
        y += PAD + 5;
      }
      const x = column * (width + GAP) + GAP / 2;
      column += 1;
      this.tops.push([x + width / 2, y]);
      boxes.append(this.node(node, n, [x, y, width, height], device, across));
      device += node.devices;
    });
    const size = [columns * (width + GAP), y + height + GAP];
    this.picture.setAttribute("viewBox", `0 0 ${size[0]} ${size[1]}`);
    this.picture.style.maxWidth = `${Math.min(1300, size[0] * 1.6)}px`;
    this.wires = this.wire();
    refill(this.picture, boxes, this.wires);
    this.paint();
  }

  node(node, n, [x, y, width, height], first, across) {
    const group = svg("g", { class: "node" },
      svg("title", {}, `${node.name}: ${node.devices} × ${node.type}, ${node.memory}, zone ${node.zone}`),
      svg("rect", { x, y, width, height, rx: 4, class: "box" }),
      svg("text", { x: x + PAD, y: y + 14, class: "name" }, clip(node.name, across)));
    for (let d = 0; d < node.devices; d += 1) {
      const cell = svg("rect", {
        x: x + PAD + (d % across) * CELL + 1,
        y: y + HEAD + PAD + Math.floor(d / across) * CELL + 1,
        width: CELL - 2,
        height: CELL - 2,
        rx: 2,
        class: "device",
      }, svg("title"));
      this.cells.push([cell, this.model.rowOfDevice.get(first + d), first + d]);
      group.append(cell);
    }
    group.addEventListener("pointerenter", () => this.point(n));
    group.addEventListener("pointerleave", () => this.point(null));
    return group;
  }

  /** Arcs between nodes, broader where more time is spent. */
  wire() {
    const { links } = this.model.cluster;
    const most = Math.max(1, ...links.map((link) => link.busy_us));
    const group = svg("g", { class: "wires" });
    for (const link of links.slice(0, MOST_LINKS)) {
      const [ax, ay] = this.tops[link.a];
      const [bx, by] = this.tops[link.b];
      const bend = Math.min(2 * GAP, 0.12 * Math.hypot(bx - ax, by - ay) + 14);
      const [mx, my] = [(ax + bx) / 2, Math.min(ay, by) - bend];
      const path = svg("path", {
        d: `M${ax} ${ay}Q${mx} ${my} ${bx} ${by}`,
        class: `wire ${link.kind === "groups" || link.kind === "sends" ? "main" : "side"}`,
        "stroke-width": (1 + 4 * Math.sqrt(link.busy_us / most)).toFixed(2),
      }, svg("title", {}, this.linkWords(link)));
      path.dataset.a = link.a;
      path.dataset.b = link.b;
      group.append(path);
    }
    return group;
  }

  linkWords(link) {
    const { nodes } = this.model.cluster;
    const names = `${nodes[link.a].name} – ${nodes[link.b].name}`;
    return `${names}: ${number(link.count)} ${link.kind}, ${time(link.busy_us)} in all`;
  }

  /** Shows the links of one node only. */
  point(n) {
    for (const path of this.wires.children) {
      const away = n !== null && Number(path.dataset.a) !== n && Number(path.dataset.b) !== n;
      path.classList.toggle("away", away);
    }
  }

  paint() {
    const { model, state } = this;
    const selected = state.selected?.view === model.index ? state.selected.task : null;
    const mine = new Set(selected === null ? [] : rowsOf(model, selected));
    this.cells.forEach(([cell, row, device]) => {
      const [colour, words] = row === undefined ? [theme().line, "not used"] : this.cellLook(row);
      cell.setAttribute("fill", colour);
      cell.firstChild.textContent = `device ${device}: ${words}`;
      cell.classList.toggle("mine", mine.has(row));
    });
    this.key.textContent = this.keyWords();
  }

  cellLook(row) {
    const { model, state } = this;
    if (this.by === "memory") {
      const share = this.peaks[row] / model.rows.capacity[row];
      return [heat(share), `peak ${bytes(this.peaks[row])} (${percent(share)})`];
    }
    if (this.by === "now") {
      const task = state.cursor === null ? null : model.taskAt(row, state.cursor);
      if (task === null) return [theme().line, "idle"];
      return [taskColour(model, task, state.colour), model.tasks.name[task]];
    }
    const share = model.busyOfRow[row] / model.end_us;
    return [heat(share), `busy ${percent(share)}`];
  }

  keyWords() {
    const { links, link_count: count } = this.model.cluster;
    const shown = Math.min(MOST_LINKS, links.length);
    const kinds = [...new Set(links.map((link) => link.kind))].join(" and ");
    const about = count === 0 ? "Nothing goes between nodes." :
      `Lines: ${kinds} between nodes, the busiest ${number(shown)} of ${number(count)}; ` +
      "broader means more time. Point at a node for its own.";
    const colours = { use: "Darker is busier.", memory: "Darker is fuller.", now: "Colours as in the timeline." };
    const words = theme().dark ? colours[this.by].replace("Darker", "Lighter") : colours[this.by];
    return `${words} ${about}`;
  }
}

function rowsOf(model, task) {
  const rows = [];
  const list = model.tasks.rows[task];
  for (let i = 0; i < list.length; i += 2) {
    for (let k = 0; k < list[i + 1]; k += 1) rows.push(list[i] + k);
  }
  return rows;
}

function peaksOf(model) {
  const peaks = [...model.resident];
  for (const series of model.memory) {
    const peak = series.bytes.reduce((most, value) => Math.max(most, value), 0);
    for (const device of series.devices) peaks[device] = Math.max(peaks[device], peak);
  }
  return peaks;
}

function clip(text, across) {
  const most = across === 4 ? 10 : 5;
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
