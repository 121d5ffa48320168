// Puts the page together.

import { byId, el, refill, select } from "./dom.js";
import { MemoryChart, Overview, UseChart } from "./charts.js";
import { ClusterMap } from "./cluster.js";
import { Model } from "./model.js";
import { colourings } from "./paint.js";
import { readTheme } from "./palette.js";
import { State } from "./state.js";
import { TaskTable } from "./table.js";
import { Timeline } from "./timeline.js";
import { Details, Tip } from "./tip.js";
import { bars, comparison, degrees, facts, headline, story } from "./words.js";

const PRINT_RATIO = 3;

function start() {
  const data = JSON.parse(byId("data").textContent);
  readTheme();
  const models = data.views.map((view, index) => new Model(view, index));
  const [model] = models;
  shareDegrees(models);
  const state = new State(Math.max(...models.map((one) => one.lastTime)));
  state.colour = model.kind === "pipeline" ? "kind" : "degree";
  state.device = MemoryChart.fullest(model);
  const tip = new Tip();

  headline(byId("headline"), model);
  bars(byId("bars"), model);
  story(byId("story"), model);
  facts(byId("facts"), model);
  const overview = new Overview(byId("overview"), model, state);
  const timelines = models.map((one, i) => new Timeline(byId(`timeline-${i}`), one, state, tip));
  toolbar(byId("tools"), model, state, timelines);
  new Details(byId("details"), models, state);
  for (const one of timelines) one.draw();
  performance.mark("timeline");
  // What is below the first screen can wait until that is painted.
  requestAnimationFrame(() => setTimeout(() => {
    const charts = lower(data, models, state);
    watch(state, [overview, ...timelines, ...charts.drawn], charts.tables);
    performance.mark("ready");
    document.documentElement.dataset.ready = "yes";
  }));
  window.arachne = { models, state, timelines };
}

/** Equal degrees get equal colours in all timelines. */
function shareDegrees(models) {
  const all = [...new Set(models.flatMap((one) => one.degreesUsed))].sort((a, b) => a - b);
  for (const one of models) one.degreesUsed = all;
}

/** Everything below the timeline. */
function lower(data, models, state) {
  const [model] = models;
  const drawn = [
    new UseChart(byId("use"), model, state),
    new MemoryChart(byId("memory"), model, state),
  ];
  refill(byId("memory-tools"), deviceChoice(model, state));
  new ClusterMap(byId("cluster"), model, state);
  degrees(byId("degrees"), model);
  state.on(["theme"], () => degrees(byId("degrees"), model));
  comparison(byId("comparison"), data.comparison);
  return { drawn, tables: [new TaskTable(byId("tasks"), model, state)] };
}

function toolbar(host, model, state, timelines) {
  const button = (text, label, act) =>
    el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
  const run = timelines.map((one) => one.model.measured).find((measured) => measured);
  refill(host,
    select("Colour by", colourings(model), state.colour, (colour) => state.set({ colour })),
    run
      ? select("Show", [
        ["both", `planned and ${run.label}`],
        ["planned", "planned"],
        ["measured", run.label],
      ], state.show, (show) => state.set({ show }))
      : null,
    el("span", { class: "group" },
      button("−", "zoom out", () => state.zoom(1 / 1.6)),
      button("+", "zoom in", () => state.zoom(1.6)),
      button("◂", "earlier", () => state.pan(-0.3)),
      button("▸", "later", () => state.pan(0.3)),
      button("⇕", "higher rows", () => timelines.forEach((one) => one.zoomRows(1.6))),
      button("fit", "show everything", () => timelines.forEach((one) => one.fit()))));
}

function deviceChoice(model, state) {
  const field = el("input", {
    type: "number", min: 0, max: model.rowCount - 1, value: model.rows.device[state.device],
    oninput: () => {
      const row = model.rowOfDevice.get(Math.round(Number(field.value)));
      if (row !== undefined) state.set({ device: row });
    },
  });
  state.on(["selected"], () => {
    if (state.selected?.view !== model.index) return;
    const [row] = model.tasks.rows[state.selected.task];
    field.value = model.rows.device[row];
    state.set({ device: row });
  });
  return el("label", { class: "field" }, el("span", {}, "Device"), field);
}

/** Follows the theme of the system, and turns the page light and sharp for paper. */
function watch(state, drawn, tables) {
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    state.set({ theme: performance.now() });
  });
  const redraw = (print) => {
    document.documentElement.classList.toggle("paper", print);
    readTheme(print);
    state.set({ theme: performance.now(), paper: print });
    state.flush();
    for (const part of drawn) part.resize(print ? PRINT_RATIO : undefined);
  };
  window.addEventListener("beforeprint", () => {
    for (const table of tables) table.print();
    redraw(true);
  });
  window.addEventListener("afterprint", () => {
    for (const table of tables) table.unprint();
    redraw(false);
  });
}

start();
