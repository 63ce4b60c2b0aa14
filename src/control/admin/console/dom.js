// Elements. Everything shown is text of strangers (names, URIs, hosts, tags): it becomes text nodes
// and values of attributes, and is never read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// make("p", { class: "muted" }, "text", otherNode)
const make = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);

const draw = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

const byId = (id) => document.getElementById(id);

function pill(text, mood = "") {
  return make("span", { class: `pill ${mood}` }, text);
}

function button(text, action, attributes = {}) {
  return make("button", { type: "button", ...attributes, onclick: action }, text);
}

function link(text, hash, attributes = {}) {
  return make("a", { href: `#${hash}`, ...attributes }, text);
}

// A line of text in the corner, for some seconds.
function note(text, isBad = false) {
  const shown = make("div", { class: isBad ? "note bad" : "note" }, text);
  byId("notes").append(shown);
  setTimeout(() => shown.remove(), isBad ? 12_000 : 5_000);
}
