// Elements. Text goes into text nodes only, never into markup, so that no name can become HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element with attributes, properties that start with "on", and children. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Takes all children out and puts others in. */
export function refill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null));
}

/** A drawing surface as large as its element, in device pixels; returns its 2D context. */
export function surface(canvas, width, height, ratio = window.devicePixelRatio || 1) {
  const w = Math.max(1, Math.round(width * ratio));
  const h = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** A labelled choice; `choices` are [value, text] pairs. */
export function select(label, choices, value, onchange) {
  const field = el("select", { "aria-label": label, onchange: () => onchange(field.value) });
  for (const [key, text] of choices) field.append(el("option", { value: key }, text));
  field.value = value;
  return el("label", { class: "field" }, el("span", {}, label), field);
}
