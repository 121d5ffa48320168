// Colours that stay apart for colour-blind eyes, on light and on dark paper.

// Viridis (Smith and van der Walt, 2015) in nine steps: rising lightness, safe for all three kinds
// of colour blindness. Wide groups contrast most with the paper.
const VIRIDIS = [
  "#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725",
];
// Okabe and Ito, 2008, without black.
const OKABE_ITO = [
  "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442",
];
// Parts of the scale that stand out from white and from black paper.
const ON_LIGHT = [0.16, 0.9];
const ON_DARK = [0.26, 1];

let dark = false;
let paper = {};

/** Reads the colours of the theme that the style sheet has chosen; `print` means light. */
export function readTheme(print = false) {
  dark = !print && window.matchMedia("(prefers-color-scheme: dark)").matches;
  const style = getComputedStyle(document.documentElement);
  const names = ["bg", "panel", "ink", "soft", "line", "accent", "alarm", "stripe"];
  paper = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

export function theme() {
  return { ...paper, dark };
}

/** Colour of a share between 0 and 1, more being stronger. */
export function heat(share) {
  const [low, high] = dark ? ON_DARK : ON_LIGHT;
  const at = (low + Math.max(0, Math.min(1, share)) * (high - low)) * (VIRIDIS.length - 1);
  const scale = dark ? VIRIDIS : [...VIRIDIS].reverse();
  const index = Math.min(VIRIDIS.length - 2, Math.floor(at));
  return mix(scale[index], scale[index + 1], at - index);
}

/** Colour of a degree by its place among those that occur; one alone is in the middle. */
export function degreeColour(degree, degrees) {
  const last = degrees.length - 1;
  return heat(last > 0 ? degrees.indexOf(degree) / last : 0.5);
}

/** Colour of one among many things without order; those beyond seven are lighter or darker. */
export function categoryColour(index) {
  const base = OKABE_ITO[index % OKABE_ITO.length];
  const round = Math.floor(index / OKABE_ITO.length) % 3;
  return round === 0 ? base : mix(base, round === 1 ? "#ffffff" : "#000000", 0.4);
}

/** Red for what holds up the end, paler the more room there is. */
export function slackColour(slack, end) {
  if (slack === 0) return "#d55e00";
  return mix(dark ? "#8fb8de" : "#0072b2", dark ? "#23282f" : "#ffffff", Math.min(0.8, (4 * slack) / end));
}

/** Black or white, whichever can be read on a colour. */
export function inkOn(colour) {
  const [r, g, b] = rgb(colour).map((value) => (value / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.32 ? "#111418" : "#ffffff";
}

export function mix(a, b, share) {
  const [x, y] = [rgb(a), rgb(b)];
  const parts = x.map((value, i) => Math.round(value + (y[i] - value) * share));
  return `#${parts.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

function rgb(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}
