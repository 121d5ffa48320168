// How tasks look: their colours, patterns and labels, and the legend that explains them.

import { time } from "./format.js";
import { categoryColour, degreeColour, inkOn, mix, slackColour, theme } from "./palette.js";

/** What tasks can be coloured by, as [value, text] pairs. */
export function colourings(model) {
  const words = model.words;
  const found = [["degree", words.degree], ["kind", "kind of task"], ["shape", words.shape]];
  found.push(["owner", words.owner]);
  if (model.tasks.slack.some((slack) => slack !== null)) {
    found.push(["slack", "slack (critical first)"]);
  }
  return found;
}

/** The colour of a task. */
export function taskColour(model, task, by) {
  const { tasks } = model;
  switch (by) {
    case "degree": return degreeColour(tasks.degree[task], model.degreesUsed);
    case "kind": return categoryColour(tasks.kind[task]);
    case "shape": return categoryColour(tasks.shape[task]);
    case "slack": return slackColour(tasks.slack[task], model.end_us);
    default: return categoryColour(tasks.owner[task]);
  }
}

/** Tasks before the last kind are striped where colour does not tell the kinds apart. */
export function striped(model, task, by) {
  return by !== "kind" && tasksBefore(model) > model.tasks.kind[task];
}

function tasksBefore(model) {
  return model.kinds.length - 1;
}

/** Stripes to lay over a bar. */
export function stripes(context) {
  const tile = document.createElement("canvas");
  tile.width = 8;
  tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = theme().stripe;
  pen.lineWidth = 2.4;
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift - 1, 9);
    pen.lineTo(shift + 9, -1);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

/** The words inside a bar, the longest that fit into `width` pixels at about 6 a letter. */
export function label(model, task, width) {
  const short = model.tasks.name[task] + (model.tasks.again[task] ? " ↻" : "");
  const long = `${short} · ${model.shape(task)} · ${model.words.degree} ${model.tasks.degree[task]}`;
  const room = width / 6.2;
  if (long.length < room) return long;
  if (short.length < room) return short;
  const owner = String(model.tasks.owner[task]);
  return owner.length + 1 < room ? owner : "";
}

/** What colours mean now: [colour, text] pairs, the first ones of many. */
export function legend(model, by, most = 12) {
  const seen = new Map();
  for (let task = 0; task < model.count; task += 1) {
    const [key, text] = legendEntry(model, task, by);
    if (key !== null && !seen.has(key)) seen.set(key, [taskColour(model, task, by), text]);
  }
  const entries = [...seen.entries()].sort((a, b) => a[0] - b[0]).map(([, entry]) => entry);
  const rest = entries.length - most;
  return { entries: entries.slice(0, most), rest: Math.max(0, rest) };
}

function legendEntry(model, task, by) {
  const { tasks } = model;
  if (by === "degree") return [tasks.degree[task], `${model.words.degree} ${tasks.degree[task]}`];
  if (by === "kind") return [tasks.kind[task], model.kind_name(task)];
  if (by === "shape") return [tasks.shape[task], model.shape(task)];
  if (by === "slack") {
    const none = tasks.slack[task] === 0;
    return [none ? 0 : 1, none ? "critical" : "slack, fainter with more"];
  }
  return [tasks.owner[task], `${model.words.owner} ${tasks.owner[task]}`];
}

/** Draws a bar with its pattern and label. */
export function bar(context, box, { colour, pattern, text, faint, left }) {
  const [x, y, w, h] = box;
  context.globalAlpha = faint ? 0.34 : 1;
  context.fillStyle = colour;
  context.fillRect(x, y, w, h);
  if (pattern && w > 2 && h > 2) {
    context.fillStyle = pattern;
    context.fillRect(x, y, w, h);
  }
  if (h > 4 && w > 3) {
    context.strokeStyle = mix(colour, theme().dark ? "#000000" : "#ffffff", 0.45);
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  }
  context.globalAlpha = 1;
  if (text && h >= 11) {
    const at = Math.max(x, left) + 5;
    if (pattern && !faint) {
      // Letters on stripes cannot be read.
      context.fillStyle = colour;
      context.fillRect(at - 2, y + h / 2 - 6, context.measureText(text).width + 4, 12);
    }
    context.fillStyle = faint ? theme().soft : inkOn(colour);
    context.fillText(text, at, y + h / 2);
  }
}

/** One sentence about a task, for tips and for screen readers. */
export function sentence(model, task) {
  const { tasks } = model;
  return (
    `${tasks.name[task]}, ${model.shape(task)}, ${model.words.degree} ${tasks.degree[task]}, ` +
    `from ${time(tasks.start[task])} to ${time(tasks.end[task])}`
  );
}
