// Callback servers: what waits, runs and fails at each, and what may be asked of it.

const BREAKERS = { closed: ["well", "good"], open: ["in trouble", "bad"],
  "half-open": ["probed", "warn"] };

function destinationsPage(root) {
  const place = live("/destinations?limit=1000", 3_000, "list of destinations", (answer) =>
    destinationList(answer, () => place.now()));
  root.append(pageHead("Destinations", "Callback servers that have a rule, or pops that wait, " +
    "run or fail on this node. A rule holds on all nodes.",
  orderButton("Set a rule …", async () => {
    const said = await ruleQuestion({ destination: "" }, true);
    if (said && await putRule(said.destination, said.rule, "The rule holds.")) place.now();
  })), hindranceNotice() ?? "", make("section", { class: "panel" }, place.node));
  return place.stop;
}

const ROWS_MAX = 200;

// What holds a host up comes first, then what waits there, then failures in a row.
function worseFirst(one, other) {
  const rank = (it) => [it.breaker !== "closed" || it.paused ? 1 : 0, it.queue ?? 0,
    it.failing?.attempts ?? it.failures ?? 0];
  const [ranks, others] = [rank(one), rank(other)];
  const at = ranks.findIndex((figure, place) => figure !== others[place]);
  return at < 0 ? 0 : others[at] - ranks[at];
}

function destinationList(answer, again) {
  const known = [...(answer.destinations ?? [])].sort(worseFirst);
  const rows = known.slice(0, ROWS_MAX);
  const more = known.length - rows.length;
  if (!rows.length) {
    return empty("Nothing waits and nothing fails",
      "No callback server has pops that wait, run or fail on this node, and none has a rule.");
  }
  return [table(destinationColumns(again), rows, "Destinations"),
    more || answer.next ? make("div", { class: "foot" }, make("small", {},
      `… ${count(more)} more` + (answer.next ? ", and more behind them by name: " +
        "chronos destinations list shows all." : ", less in trouble than these."))) : null,
  ].filter(Boolean);
}

function destinationColumns(again) {
  return [
    { name: "Destination", of: (it) => [make("span", { class: "mono" }, it.destination),
      it.rule && it.rule !== it.destination
        ? make("div", {}, make("small", {}, `rule of ${it.rule}`)) : []].flat() },
    { name: "State", of: (it) => {
      const [words, mood] = BREAKERS[it.breaker] ?? [it.breaker, ""];
      const probe = isNumber(it["next-probe-ms"])
        ? make("small", {}, ` probe in ${lasting(it["next-probe-ms"])}`) : [];
      return make("span", { class: "row" }, it.paused ? pill("paused", "warn") : [],
        it.paused && it.breaker === "closed" ? [] : pill(words, mood), probe);
    } },
    { name: "Waiting", number: true, of: (it) => count(it.queue) },
    { name: "Running", number: true, of: (it) => limited(count(it["in-flight"]),
      it["max-in-flight"]) },
    { name: "Attempts /s", number: true, of: (it) => limited(rate(it["attempts-per-second"]),
      it["rate-per-second"]) },
    { name: "Failures in a row", number: true, of: (it) => (it.failing
      ? [count(it.failing.attempts), make("small", {},
        ` last ${it.failing.status ?? it.failing.failure}`)]
      : count(it.failures)) },
    { name: "Orders", actions: true, of: (it) => destinationActions(it, again) },
  ];
}

const limited = (figure, limit) => (isNumber(limit)
  ? [figure, make("small", {}, ` of ${limit}`)] : figure);

function destinationActions(it, again) {
  // What is shown may be some seconds old, and a PUT replaces the whole rule.
  const give = async (changed, done) => {
    let rule = ruleOf(it);
    try {
      rule = ruleOf(await look(rulePath(it.destination)));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
    }
    if (await putRule(it.destination, { ...rule, ...changed }, done)) again();
  };
  const pause = async () => {
    const sure = await question(`Pause ${it.destination}?`,
      "No callback begins there on any node until it is resumed. Its pops wait and get late.",
      "Pause");
    if (sure) give({ paused: true }, `${it.destination} is paused.`);
  };
  const resume = async () => {
    const sure = await question(`Resume ${it.destination}?`, `All that waits is due: ` +
      `${plural(it.queue ?? 0, "pop", "pops")} on this node. After a long pause set a rate first.`,
    "Resume");
    if (sure) give({ paused: false }, `${it.destination} gets its callbacks.`);
  };
  const limits = async () => {
    const said = await ruleQuestion(it, false);
    if (said) give(said.rule, "The limits hold.");
  };
  const back = async () => {
    if (await obey("DELETE", rulePath(it.destination), undefined,
      "What is configured holds again.", "rules of destinations")) again();
  };
  return make("div", { class: "row" },
    it.paused ? orderButton("Resume", resume, { class: "small" })
      : orderButton("Pause", pause, { class: "small" }),
    orderButton("Limits …", limits, { class: "small" }),
    it["set-by"] === "order" && it.rule === it.destination
      ? orderButton("Take back", back, { class: "small",
        title: "Take the order back: what is configured holds" }) : []);
}

// The parts of a rule that a PUT has to repeat, as it replaces the whole.
function ruleOf(it) {
  const rule = { paused: it.paused === true };
  for (const name of ["max-in-flight", "rate-per-second"]) {
    if (isNumber(it[name])) rule[name] = it[name];
  }
  return rule;
}

const rulePath = (name) => `/destinations/${encodeURIComponent(name)}`;
const putRule = (name, rule, done) =>
  obey("PUT", rulePath(name), rule, done, "rules of destinations");

async function ruleQuestion(it, isNew) {
  const number = { type: "number", min: "0", step: "any", placeholder: "not limited" };
  const said = await question(isNew ? "Rule of a destination" : `Limits of ${it.destination}`,
    "For all nodes together. An empty field does not limit.", "Set",
    { fields: [
      ...(isNew ? [{ name: "destination", label: "Host, or host:port", required: true,
        placeholder: "10.0.0.1:8080" }] : []),
      { name: "max-in-flight", label: "Most callbacks at a time", ...number,
        value: it["max-in-flight"] ?? "" },
      { name: "rate-per-second", label: "Most attempts a second", ...number,
        value: it["rate-per-second"] ?? "" },
    ] });
  if (!said) return null;
  const rule = {};
  for (const name of ["max-in-flight", "rate-per-second"]) {
    rule[name] = said[name] === "" ? undefined : Number(said[name]);
  }
  return { destination: said.destination ?? it.destination, rule };
}
