// Mouse, wheel, fingers and keys on a timeline.

import { sentence } from "./paint.js";

const CLICK_PIXELS = 4;
const HINT_MS = 1500;

export function listen(timeline) {
  const { canvas } = timeline;
  canvas.addEventListener("wheel", (event) => wheel(timeline, event), { passive: false });
  canvas.addEventListener("keydown", (event) => key(timeline, event));
  canvas.addEventListener("dblclick", (event) => {
    const task = taskUnder(timeline, event);
    if (task === null) timeline.fit();
    else timeline.show(task, true);
  });
  pointers(timeline);
}

function place(timeline, event) {
  const box = timeline.canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

/** The task under the pointer: what is measured lies over what is planned. */
function taskUnder(timeline, event) {
  const [x, y] = place(timeline, event);
  const row = timeline.rowAt(y);
  if (row === null || x < timeline.gutter) return null;
  const { model, state } = timeline;
  const t = timeline.timeAt(x);
  const slop = timeline.timeAt(x + 2) - t;
  const hidden = state.show === "measured" && model.measured;
  const planned = hidden ? null : model.taskAt(row, t, slop);
  const measured = state.show === "planned" ? null : model.measuredAt(row, t);
  return measured ?? planned;
}

function wheel(timeline, event) {
  const { state } = timeline;
  const [x, y] = place(timeline, event);
  const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
  const factor = Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002));
  if ((event.ctrlKey || event.metaKey) && event.shiftKey) {
    event.preventDefault();
    timeline.zoomRows(Math.exp(-(event.deltaY || event.deltaX) * 0.002), y);
  } else if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    state.zoom(factor, timeline.timeAt(Math.max(x, timeline.gutter)));
  } else if (event.shiftKey || sideways) {
    event.preventDefault();
    state.pan((sideways || event.deltaY) / (timeline.width - timeline.gutter));
  } else if (timeline.scrollRows(event.deltaY / timeline.rowHeight)) {
    event.preventDefault();
  } else {
    hint(timeline);
  }
}

/** Tells once in a while how to zoom, to those who scroll over the timeline. */
function hint(timeline) {
  timeline.hint.hidden = false;
  clearTimeout(timeline.hintTimer);
  timeline.hintTimer = setTimeout(() => {
    timeline.hint.hidden = true;
  }, HINT_MS);
}

function pointers(timeline) {
  const { canvas, state } = timeline;
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const [x, y] = place(timeline, event);
    drag = { x, y, window: state.window, top: timeline.top, moved: false, mark: event.shiftKey };
    canvas.setPointerCapture(event.pointerId);
    timeline.tip.hide();
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(timeline, event);
    if (drag === null) {
      hover(timeline, event, x);
      return;
    }
    drag.moved ||= Math.abs(x - drag.x) + Math.abs(y - drag.y) > CLICK_PIXELS;
    if (!drag.moved) return;
    if (drag.mark) mark(timeline, drag.x, x);
    else dragTo(timeline, drag, x, y);
  });
  canvas.addEventListener("pointerup", (event) => {
    const [x] = place(timeline, event);
    const done = drag;
    drag = null;
    timeline.draw();
    if (done === null) return;
    if (!done.moved) {
      choose(timeline, taskUnder(timeline, event), false);
    } else if (done.mark) {
      const ends = [timeline.timeAt(done.x), timeline.timeAt(x)].sort((a, b) => a - b);
      state.glide(...ends);
    }
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => {
    timeline.tip.hide();
    state.set({ cursor: null });
  });
}

function dragTo(timeline, drag, x, y) {
  const width = timeline.width - timeline.gutter;
  const [from, to] = drag.window;
  const move = ((drag.x - x) / width) * (to - from);
  timeline.state.reveal(from + move, to + move);
  timeline.scrollRows(drag.top + (drag.y - y) / timeline.rowHeight - timeline.top);
}

/** Shows the span that will be zoomed to. */
function mark(timeline, from, to) {
  timeline.draw();
  const pen = timeline.canvas.getContext("2d");
  pen.fillStyle = "rgba(86, 180, 233, 0.3)";
  pen.fillRect(Math.min(from, to), 0, Math.abs(to - from), timeline.height);
}

function hover(timeline, event, x) {
  const task = taskUnder(timeline, event);
  timeline.canvas.classList.toggle("pointing", task !== null);
  const inside = x >= timeline.gutter;
  timeline.state.set({ cursor: inside ? timeline.timeAt(x) : null });
  if (task === null) timeline.tip.hide();
  else timeline.tip.show(timeline.model, task, event.clientX, event.clientY);
}

function choose(timeline, task, reveal = true) {
  const { model, state } = timeline;
  state.select(model.index, task);
  if (task === null) return;
  if (reveal) timeline.show(task);
  timeline.say(sentence(model, task));
}

// ---------------------------------------------------------------------------------- keys

function key(timeline, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const act = KEYS[event.key] ?? KEYS[event.key.toLowerCase()];
  if (!act) return;
  event.preventDefault();
  act(timeline);
}

const KEYS = {
  ArrowRight: (t) => step(t, 1),
  ArrowLeft: (t) => step(t, -1),
  ArrowDown: (t) => across(t, 1),
  ArrowUp: (t) => across(t, -1),
  Home: (t) => choose(t, 0),
  End: (t) => choose(t, t.model.count - 1),
  Enter: (t) => chosen(t) !== null && t.show(chosen(t), true),
  Escape: (t) => {
    choose(t, null);
    t.tip.hide();
  },
  "+": (t) => t.state.zoom(1.5),
  "=": (t) => t.state.zoom(1.5),
  "-": (t) => t.state.zoom(1 / 1.5),
  w: (t) => t.state.zoom(1.5),
  s: (t) => t.state.zoom(1 / 1.5),
  a: (t) => t.state.pan(-0.2),
  d: (t) => t.state.pan(0.2),
  0: (t) => t.fit(),
  f: (t) => t.fit(),
  "]": (t) => t.zoomRows(1.5),
  "[": (t) => t.zoomRows(1 / 1.5),
  PageDown: (t) => t.scrollRows(t.rowsShown * 0.8),
  PageUp: (t) => t.scrollRows(-t.rowsShown * 0.8),
};

function chosen(timeline) {
  const { state, model } = timeline;
  return state.selected?.view === model.index ? state.selected.task : null;
}

/** The next or previous task on the first device of the selected one. */
function step(timeline, direction) {
  const { model } = timeline;
  const now = chosen(timeline);
  if (now === null) {
    choose(timeline, firstVisible(timeline));
    return;
  }
  const mine = model.onRow[timeline.lane ?? model.tasks.rows[now][0]];
  const at = mine.indexOf(now);
  const lane = at < 0 ? model.onRow[model.tasks.rows[now][0]] : mine;
  const next = lane[lane.indexOf(now) + direction];
  if (next !== undefined) choose(timeline, next);
}

/** The task on the next device below or above that runs at the same time or soonest. */
function across(timeline, direction) {
  const { model } = timeline;
  const now = chosen(timeline);
  if (now === null) {
    choose(timeline, firstVisible(timeline));
    return;
  }
  const middle = (model.tasks.start[now] + model.tasks.end[now]) / 2;
  const own = model.tasks.rows[now];
  let row = direction > 0 ? own[0] + own[1] : own[0] - 1;
  for (; row >= 0 && row < model.rowCount; row += direction) {
    const there = nearest(model, row, middle);
    if (there !== null && there !== now) {
      timeline.lane = row;
      choose(timeline, there);
      return;
    }
  }
}

function nearest(model, row, t) {
  const { start, end } = model.tasks;
  const distance = (task) => Math.max(0, start[task] - t, t - end[task]);
  return model.onRow[row].reduce(
    (best, task) => (best === null || distance(task) < distance(best) ? task : best), null);
}

function firstVisible(timeline) {
  const { model, state } = timeline;
  const found = model.tasks.end.findIndex((end) => end > state.window[0]);
  return found < 0 ? null : found;
}
