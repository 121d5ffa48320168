// The parts of the page that are words and bars: headline, story, degrees, comparison, facts.

import { el, refill } from "./dom.js";
import { number, time } from "./format.js";
import { degreeColour, inkOn } from "./palette.js";

export function headline(host, model) {
  const { cards, proof } = model.headline;
  refill(host,
    el("p", { class: "proof" }, proof),
    el("div", { class: "cards" }, cards.map((card) =>
      el("div", { class: "card" },
        el("span", { class: "label" }, card.label),
        el("strong", {}, card.value),
        el("span", { class: "note" }, card.note)))));
}

/** Bound, plan, run and the rules of others on one scale. */
export function bars(host, model) {
  const entries = model.headline.bars;
  const most = Math.max(...entries.map((bar) => bar.us ?? 0));
  refill(host, el("ul", { class: "bars" }, entries.map((bar) => {
    const fill = el("i", { class: `fill ${bar.kind}` });
    fill.style.width = bar.us === null ? "0" : `${(100 * bar.us) / most}%`;
    const mark = el("i", { class: "mark" });
    mark.style.left = `${(100 * model.bound_us) / most}%`;
    return el("li", { class: bar.us === null ? "none" : null },
      el("span", { class: "title" }, bar.title),
      el("span", { class: "track" }, fill, model.bound_us ? mark : null),
      el("span", { class: "value" }, bar.us === null ? "–" : time(bar.us)),
      el("span", { class: "note" }, bar.note));
  })));
}

export function story(host, model) {
  refill(host, el("ul", { class: "story" }, model.story.map((line) => el("li", {}, line))));
}

/** Which shapes got which degrees: a table of counts. */
export function degrees(host, model) {
  const rows = model.degrees;
  const colour = (degree) => degreeColour(degree, model.degreesUsed);
  if (rows.length === 0) {
    host.hidden = true;
    return;
  }
  const all = [...new Set(rows.map((row) => row.degree))].sort((a, b) => a - b);
  const kinds = model.kinds.filter((kind) => rows.some((row) => row.kind === kind));
  refill(host,
    el("h3", {}, "Which shape got which degree"),
    el("div", { class: "columns" }, kinds.map((kind) => {
      const mine = rows.filter((row) => row.kind === kind);
      const shapes = [...new Set(mine.map((row) => row.shape))];
      shapes.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      return el("div", { class: "tall", tabindex: 0, role: "group", "aria-label": kind },
        el("table", { class: "degrees" },
        el("caption", {}, kind),
        el("thead", {}, el("tr", {},
          el("th", { scope: "col" }, model.words.shape),
          all.map((degree) => el("th", { scope: "col" }, number(degree))))),
        el("tbody", {}, shapes.map((shape) => el("tr", {},
          el("th", { scope: "row" }, shape),
          all.map((degree) => countCell(mine, shape, degree, colour)))))));
    })));
}

function countCell(rows, shape, degree, colour) {
  const found = rows.find((row) => row.shape === shape && row.degree === degree);
  const cell = el("td", {}, found ? number(found.count) : "");
  if (found) {
    cell.style.background = colour(degree);
    cell.style.color = inkOn(colour(degree));
  }
  return cell;
}

/** Two plans: figures side by side, then what changed from the one to the other. */
export function comparison(host, found) {
  if (found === null) {
    host.hidden = true;
    return;
  }
  refill(host,
    el("h2", { id: "compare" }, "Two plans side by side"),
    el("div", { class: "panel columns" },
      el("table", { class: "figures" },
        el("thead", {}, el("tr", {},
          ["", "this plan (A)", "the other (B)", "B to A"].map((text) => el("th", { scope: "col" }, text)))),
        el("tbody", {}, found.rows.map((row) => el("tr", {},
          el("th", { scope: "row" }, row[0]),
          row.slice(1, 3).map((text) => el("td", {}, text)),
          el("td", { class: row[4] }, row[3]))))),
      el("div", { class: "tall", tabindex: 0, role: "group", "aria-label": "changes" },
        el("h3", {}, "From B to A"),
        changes(found.changes))));
}

function changes(lines) {
  const most = 200;
  const rest = lines.length - most;
  const list = el("ul", { class: "changes" }, lines.slice(0, most).map((line) => el("li", {}, line)));
  if (lines.length === 0) list.append(el("li", {}, "nothing: the plans are the same"));
  if (rest > 0) list.append(el("li", { class: "soft" }, `and ${number(rest)} more`));
  return list;
}

export function facts(host, model) {
  refill(host, el("dl", { class: "facts wide" },
    model.headline.facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}
