// Elements. Everything shown is text of strangers (names, URIs, hosts, tags): it becomes text nodes
// and values of attributes, and is never read as markup.

const SVG = "http://www.w3.org/2000/svg";

// What acts on a text, hides a part of it or turns it round: the same set as that of the commands.
const HOSTILE = new RegExp("[\\u0000-\\u001f\\u007f-\\u009f\\u200b-\\u200f\\u2028-\\u202e" +
  "\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}]", "gu");
const escaped = (character) => `\\u{${character.codePointAt(0).toString(16)}}`;

// A text with each hostile character as \u{202e}.
const clean = (text) => text.replace(HOSTILE, escaped);
// The same of a text of many lines.
const cleanLines = (text) => text.replace(HOSTILE, (character) =>
  (character === "\n" || character === "\t" ? character : escaped(character)));

// Text becomes clean here, so that no page forgets it.
function shownChild(child, isOfLines) {
  if (child instanceof Node) return child;
  return isOfLines ? cleanLines(String(child)) : clean(String(child));
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "title" || name === "aria-label") node.setAttribute(name, clean(`${value}`));
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  const isOfLines = node.localName === "pre";
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined)
    .map((child) => shownChild(child, isOfLines)));
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
