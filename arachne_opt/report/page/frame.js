// What is around the tasks of a timeline: its time axis, the names of rows, lines between nodes.

import { tickTime, ticks } from "./format.js";
import { theme } from "./palette.js";

/** Height of the time axis. */
export const AXIS = 24;

/** Room for names left of timelines and charts, so that their times are below each other. */
export function gutterOf(width) {
  return width < 560 ? 64 : 124;
}

/** Lines between nodes. */
export function drawRows(line, pen) {
  pen.strokeStyle = theme().line;
  pen.lineWidth = 1;
  const far = line.model.groupFirst.length > 1 ? line.y(line.model.groupFirst[1]) - line.y(0) : 99;
  for (const row of line.model.groupFirst) {
    const y = Math.round(line.y(row)) + 0.5;
    if (y < AXIS || y > line.height || far < 6) continue;
    pen.beginPath();
    pen.moveTo(0, y);
    pen.lineTo(line.width, y);
    pen.stroke();
  }
}

/** Times above, and where the bound is. */
export function drawAxis(line, pen) {
  const { state, model } = line;
  const [from, to] = state.window;
  pen.fillStyle = theme().panel;
  pen.fillRect(0, 0, line.width, AXIS);
  const { step, values } = ticks(from, to, (line.width - line.gutter) / 88);
  const bound = model.bound_us ? line.x(model.bound_us) : -1;
  const tag = bound > line.gutter && bound < line.width;
  pen.strokeStyle = theme().line;
  pen.fillStyle = theme().soft;
  for (const t of values) {
    const x = Math.round(line.x(t)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 5);
    pen.lineTo(x, AXIS);
    pen.stroke();
    const text = tickTime(t, step);
    const half = pen.measureText(text).width / 2;
    if (x + half < line.width && !(tag && Math.abs(x - bound) < half + 34)) {
      pen.textAlign = "center";
      pen.fillText(text, Math.max(x, line.gutter + 4), AXIS / 2 - 1);
    }
  }
  if (tag) {
    pen.textAlign = "center";
    pen.fillStyle = theme().accent;
    pen.fillText("bound", Math.max(line.gutter + 18, Math.min(bound, line.width - 18)), AXIS / 2 - 1);
  }
  pen.textAlign = "left";
}

/** Names of nodes, and numbers of devices where rows are high enough. */
export function drawGutter(line, pen) {
  const { model } = line;
  pen.fillStyle = theme().panel;
  pen.fillRect(0, 0, line.gutter, line.height);
  pen.save();
  pen.beginPath();
  pen.rect(0, AXIS, line.gutter, line.body);
  pen.clip();
  let free = -Infinity;
  model.groupFirst.forEach((row, i) => {
    const next = model.groupFirst[i + 1] ?? model.rowCount;
    const top = Math.max(line.y(row), AXIS);
    const bottom = Math.min(line.y(next), line.height);
    const y = line.rowHeight >= 12 ? line.y(row) + line.rowHeight / 2 : (top + bottom) / 2;
    if (bottom < AXIS || top > line.height || y < free) return;
    pen.fillStyle = theme().ink;
    const room = line.gutter - (line.rowHeight >= 9 ? 34 : 8);
    pen.fillText(shorten(pen, model.rows.groups[model.rows.group[row]], room), 4, y);
    free = y + 13;
  });
  if (line.rowHeight >= 9) {
    pen.fillStyle = theme().soft;
    pen.textAlign = "right";
    for (let row = Math.floor(line.top); row < line.top + line.rowsShown; row += 1) {
      const device = model.rows.device[row];
      if (device !== undefined) pen.fillText(device, line.gutter - 5, line.y(row + 0.5));
    }
    pen.textAlign = "left";
  }
  pen.restore();
  pen.fillStyle = theme().soft;
  pen.fillText(model.words.group, 4, AXIS / 2 - 1);
  pen.strokeStyle = theme().line;
  pen.strokeRect(line.gutter - 0.5, AXIS - 0.5, line.width - line.gutter, line.body + 0.5);
}

function shorten(pen, text, width) {
  let shown = text;
  while (shown.length > 1 && pen.measureText(shown).width > width) shown = shown.slice(0, -1);
  return shown === text ? text : `${shown.slice(0, -1)}…`;
}
