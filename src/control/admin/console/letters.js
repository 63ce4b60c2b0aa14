// Dead letters: pops that were given up.

const REASONS = { attempts: "all attempts failed", age: "too old", denied: "host not allowed" };

function lettersPage(root, { query }) {
  const found = make("div", { class: "stack" }, loading());
  const again = () => show(null);
  root.append(pageHead("Dead letters",
    "Pops that were given up, kept so that they can be replayed.", lettersActions(query, again)), hindranceNotice() ?? "",
  make("section", { class: "panel" }, make("div", { class: "inside" }, letterForm(query))),
  make("section", { class: "panel" }, found));
  let all = [];
  let isLeft = false;
  const show = async (cursor) => {
    if (cursor === null) all = [];
    try {
      const page = await look(`/dead-letters?${letterQuery(query, cursor)}`);
      if (isLeft) return;
      all.push(...(page["dead-letters"] ?? []));
      found.replaceChildren(...letterList(all, page, show, again));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (!isLeft) found.replaceChildren(failure(error, "dead letters", again));
    }
  };
  show(null);
  return () => { isLeft = true; };
}

function letterQuery(query, cursor) {
  const wanted = new URLSearchParams();
  for (const name of ["reason", "host", "tag"]) {
    if (query.get(name)) wanted.set(name, query.get(name));
  }
  wanted.set("limit", "50");
  if (cursor) wanted.set("cursor", cursor);
  return wanted;
}

function letterForm(asked) {
  const input = (name, label, placeholder) => make("label", { class: "field" }, label,
    make("input", { name, placeholder, value: asked.get(name) ?? "", autocomplete: "off" }));
  const reasons = [["", "any reason"], ...Object.entries(REASONS)];
  const find = (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams([...new FormData(event.target)]
      .filter(([, value]) => value.trim()));
    go(`/dead-letters${wanted.size ? `?${wanted}` : ""}`);
  };
  return make("form", { class: "form", role: "search", "aria-label": "Dead letters",
    onsubmit: find },
  make("label", { class: "field" }, "Reason", make("select", { name: "reason" },
    reasons.map(([value, words]) => make("option",
      { value, selected: (asked.get("reason") ?? "") === value }, words)))),
  input("host", "Callback host", "10.0.0.1:8080"), input("tag", "Tag", "CALL"),
  make("div", { class: "row" }, make("button", { type: "submit", class: "main" }, "Show"),
    link("Clear", "/dead-letters", { class: "button" })));
}

// For all that the form says, a page at a time.
function lettersActions(query, again) {
  const each = async (method, path, words, member, isDanger) => {
    const sure = await question(`${words} up to 1,000 dead letters?`, query.size
      ? "Those that the form below says." : "Of all hosts, tags and reasons.", words,
    { isDanger });
    const wanted = letterQuery(query, null);
    wanted.set("limit", "1000");
    if (sure && await obey(method, `${path}?${wanted}`, undefined, (answer) =>
      `${words}: ${count(answer[member] ?? 0)} done, ${count(answer.refused ?? 0)} refused` +
      `${answer.cursor ? "; there are more" : ""}.`, "dead letters")) again();
  };
  return make("div", { class: "row" },
    orderButton("Replay these …", () => each("POST", "/dead-letters/replay", "Replay", "replayed")),
    orderButton("Delete these …", () => each("DELETE", "/dead-letters", "Delete", "deleted", true),
      { class: "danger" }));
}

function letterList(all, page, show, again) {
  if (!all.length && !page.cursor) {
    return [incompleteNotice(page.incomplete), empty("No dead letters", "No pop was given up, or " +
      "none that fits. Only pops of timers with a retry policy are kept, unless " +
      "dead_letters.plain is set.")].filter(Boolean);
  }
  return [incompleteNotice(page.incomplete), table(letterColumns(again), all, "Dead letters"),
    make("div", { class: "foot" }, make("small", {},
      plural(all.length, "dead letter", "dead letters")),
    page.cursor ? button("More", () => show(page.cursor)) : null)].filter(Boolean);
}

function letterColumns(again) {
  const of = (it) => it["dead-letter"] ?? {};
  const path = (it) => `/dead-letters/${encodeURIComponent(idOf(it))}`;
  const replay = async (it) => {
    if (await obey("POST", `${path(it)}/replay`, undefined, "The pop is tried again.",
      "replay of dead letters")) again();
  };
  const remove = async (it) => {
    const sure = await question("Delete this dead letter?", "The pop is lost then.", "Delete",
      { isDanger: true });
    if (sure && await obey("DELETE", path(it), undefined, "The dead letter is deleted.",
      "dead letters")) again();
  };
  return [
    { name: "Timer", of: (it) => make("span", { class: "mono", title: idOf(it) },
      it.name ?? idOf(it).slice(0, 16)) },
    { name: "Given up", of: (it) => moment(of(it)["given-up-at"]) },
    { name: "Reason", of: (it) => [pill(REASONS[of(it).reason] ?? of(it).reason, "bad"),
      make("div", {}, make("small", {}, letterWords(of(it))))] },
    { name: "Callback", of: (it) => make("span", { class: "uri" }, it.callback?.http?.uri) },
    { name: "Tags", of: (it) => (tagsOf(it).length
      ? make("span", { class: "row" }, tagsOf(it)) : []) },
    { name: "Orders", actions: true, of: (it) => make("div", { class: "row" },
      orderButton("Replay", () => replay(it), { class: "small" }),
      orderButton("Delete", () => remove(it), { class: "small danger" })) },
  ];
}

function letterWords(letter) {
  const last = letter.status ? `answered ${letter.status}` : letter.failure ?? "";
  return [plural(letter.attempts ?? 0, "attempt", "attempts"), last, letter.answer ?? ""]
    .filter(Boolean).join(", ").slice(0, 200);
}
