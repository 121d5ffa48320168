// What the parts of the page share: the visible time, the selected task, the time under the pointer.

const GLIDE_MS = 160;

export class State {
  constructor(end) {
    this.end = end;
    this.window = [0, end];
    this.cursor = null;
    this.selected = null;
    this.colour = null;
    this.show = "both";
    this.paper = false;
    this.listeners = [];
    this.changed = new Set();
    this.pending = 0;
    this.gliding = 0;
  }

  /** Calls `react` in the next frame after one of the keys has changed. */
  on(keys, react) {
    this.listeners.push({ keys, react });
  }

  set(values) {
    for (const [key, value] of Object.entries(values)) {
      this[key] = value;
      this.changed.add(key);
    }
    if (!this.pending) this.pending = requestAnimationFrame(() => this.flush());
  }

  /** Tells the changes now. */
  flush() {
    cancelAnimationFrame(this.pending);
    this.pending = 0;
    const { changed } = this;
    this.changed = new Set();
    for (const { keys, react } of this.listeners) {
      if (keys.some((key) => changed.has(key))) react();
    }
  }

  /** Shows a span of time, kept inside the iteration and not narrower than ten µs. */
  reveal(from, to) {
    const width = Math.min(this.end, Math.max(10, to - from));
    const start = Math.max(0, Math.min(this.end - width, from));
    this.set({ window: [start, start + width] });
  }

  /** Zooms around a time; a factor above 1 shows less. */
  zoom(factor, around) {
    const [from, to] = this.window;
    const at = around ?? (from + to) / 2;
    const width = Math.min(this.end, Math.max(10, (to - from) / factor));
    const share = (at - from) / (to - from);
    this.reveal(at - share * width, at + (1 - share) * width);
  }

  pan(share) {
    const [from, to] = this.window;
    const move = share * (to - from);
    this.reveal(from + move, to + move);
  }

  /** Goes to a span smoothly, at once where the reader wants no motion. */
  glide(from, to) {
    cancelAnimationFrame(this.gliding);
    if (window.matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.reveal(from, to);
      return;
    }
    const [a, b] = this.window;
    const begin = performance.now();
    const step = (now) => {
      const share = Math.min(1, (now - begin) / GLIDE_MS);
      const ease = share * (2 - share);
      this.reveal(a + (from - a) * ease, b + (to - b) * ease);
      if (share < 1) this.gliding = requestAnimationFrame(step);
    };
    this.gliding = requestAnimationFrame(step);
  }

  select(view, task) {
    this.set({ selected: task === null ? null : { view, task } });
  }
}
