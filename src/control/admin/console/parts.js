// Parts that pages share: their head, panels, states, tables, questions.

function pageHead(title, words, ...beside) {
  return make("div", { class: "head" },
    make("div", {}, make("h1", {}, title), words ? make("p", {}, words) : null), ...beside);
}

function panel(title, ...inside) {
  return make("section", { class: "panel" },
    title ? make("header", {}, make("h2", {}, title)) : null,
    make("div", { class: "inside" }, ...inside));
}

const loading = (words = "Asking the node …") =>
  make("div", { class: "state", "aria-busy": "true" }, make("div", { class: "spinner" }),
    make("p", {}, words));

const empty = (title, words, ...more) =>
  make("div", { class: "state" }, make("h3", {}, title), make("p", {}, words), ...more);

function failure(error, thing, retry) {
  return make("div", { class: "state is-error", role: "alert" }, make("h3", {}, error.title),
    make("p", {}, error.remedy(thing)), retry ? button("Try again", retry) : null);
}

// A place that shows the answer to a path, asked again from time to time. An error takes the place
// of what was never shown, and stands above what was. `none` shows that there is nothing: a 404.
function live(path, everyMs, thing, render, none) {
  const above = make("div");
  const inside = make("div", { class: "stack" }, loading());
  const node = make("div", { class: "stack" }, above, inside);
  let shownAt = null;
  above.hidden = true;
  const take = (answer) => {
    above.hidden = true;
    shownAt = Date.now();
    const shown = render(answer, inside);
    if (shown) inside.replaceChildren(...[shown].flat());
  };
  const fail = (error) => {
    if (none && error.status === 404 && !error.isUnknownPath) {
      shownAt = null;
      above.hidden = true;
      inside.replaceChildren(none(error));
      return;
    }
    if (shownAt === null || error.isUnknownPath || error.status === 401) {
      shownAt = null;
      inside.replaceChildren(failure(error, thing, () => polled.now()));
      return;
    }
    above.hidden = false;
    const age = lasting(Math.max(1_000, Date.now() - shownAt));
    above.replaceChildren(make("div", { class: "notice", role: "alert" },
      `${error.title}. What is shown is ${age} old. ${error.remedy(thing)}`));
  };
  const polled = poll(path, everyMs, take, fail);
  return { node, stop: polled.stop, now: polled.now };
}

// columns: [{ name, of: (row) => node or text, number, actions }]
function table(columns, rows, label) {
  const kind = (column) => (column.number ? "number" : column.actions ? "actions" : null);
  const cell = (column, row, place) => {
    const attributes = { class: kind(column), "data-label": column.name };
    const values = [column.of(row)].flat();
    const shown = values.length ? make("span", { class: "value" }, values) : [];
    return place === 0 ? make("th", { ...attributes, scope: "row" }, shown)
      : make("td", attributes, shown);
  };
  return make("div", { class: "table" }, make("table", { "aria-label": label },
    make("thead", {}, make("tr", {}, columns.map((column) =>
      make("th", { scope: "col", class: kind(column) },
        column.actions ? "" : column.name)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, columns.map((column, place) =>
      cell(column, row, place)))))));
}

function facts(pairs) {
  return make("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) =>
    [make("dt", {}, name), make("dd", {}, [value].flat())]));
}

function figure(name, value, words, mood = "") {
  const [number, unit] = Array.isArray(value) ? value : [value, ""];
  return make("dl", { class: `panel figure ${mood}` }, make("dt", {}, name),
    make("dd", {}, number, unit ? make("span", { class: "unit" }, ` ${unit}`) : null),
    words ? make("small", {}, words) : null);
}

// "2.4 s" as number and unit.
function split(text) {
  const [first, ...rest] = text.split(TIED);
  return rest.length === 1 ? [first, rest[0]] : text;
}

function incompleteNotice(sentences) {
  if (!Array.isArray(sentences) || !sentences.length) return null;
  return make("div", { class: "notice" }, make("strong", {}, "Something may be missing. "),
    sentences.join(" "));
}

// A button for an order: disabled, with the reason, for those who may not give it.
function orderButton(text, action, attributes = {}) {
  const hindrance = orderHindrance();
  const made = button(text, action, { ...attributes, disabled: hindrance !== null,
    title: hindrance ?? attributes.title });
  made.dataset.order = "";
  return made;
}

function hindranceNotice() {
  const hindrance = orderHindrance();
  return hindrance ? make("div", { class: "notice info" }, hindrance) : null;
}

// Asks before something is done. fields: [{ name, label, value, type, placeholder }]. Resolves with
// the values, or null.
function question(title, words, yes, { fields = [], isDanger = false } = {}) {
  const inputs = fields.map(({ label, ...attributes }) => ({
    name: attributes.name,
    input: make("input", { autocomplete: "off", ...attributes }),
    label,
  }));
  const box = make("dialog", { "aria-labelledby": "question" });
  return new Promise((resolve) => {
    const end = (answer) => {
      box.close();
      box.remove();
      resolve(answer);
    };
    const form = make("form", { onsubmit: (event) => {
      event.preventDefault();
      end(Object.fromEntries(inputs.map(({ name, input }) => [name, input.value.trim()])));
    } },
    make("h2", { id: "question" }, title), words ? make("p", {}, words) : null,
    inputs.map(({ input, label }) => make("label", { class: "field" }, label, input)),
    make("div", { class: "row" }, button("Back", () => end(null)),
      make("button", { type: "submit", class: isDanger ? "danger" : "main" }, yes)));
    box.addEventListener("cancel", () => end(null));
    box.append(form);
    document.body.append(box);
    box.showModal();
  });
}

// Gives an order and says how it went. Returns whether it was obeyed.
async function obey(method, path, document, done, thing) {
  try {
    const answer = await order(method, path, document);
    note(typeof done === "function" ? done(answer) : done);
    return true;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    note(`${error.title}: ${error.remedy(thing)}`, true);
    return false;
  }
}
