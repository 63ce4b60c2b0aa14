// One timer: what it is, who holds it, when it pops, and what can be done with it.

const OPAQUE_SHOWN = 4_096;

function oneTimerPage(root, { rest }) {
  const id = rest;
  const path = `/timers/${encodeURIComponent(id)}`;
  const title = make("code", {}, id.slice(0, 16));
  const head = pageHead("Timer", title);
  const place = live(path, 5_000, "single timers", (timer) => {
    title.textContent = clean(timer.name ?? id.slice(0, 16));
    return timerParts(timer, path, () => place.now());
  }, () => make("section", { class: "panel" }, empty("No such timer", "It was cancelled, has " +
    "popped for the last time, or never was. If it was given up it is among the dead letters.",
  link("Dead letters", "/dead-letters", { class: "button" }))));
  root.append(link("← Timers", "/timers"), head, place.node);
  return place.stop;
}

function timerParts(timer, path, again) {
  return [
    make("section", { class: "panel" }, make("header", {}, make("h2", {}, "Orders"),
      timerActions(timer, path, again)), make("div", { class: "inside stack" },
      hindranceNotice() ?? make("small", {}, "Each is done on all replicas of the timer."))),
    make("div", { class: "columns" },
      panel("Timer", facts(timerFacts(timer))),
      make("div", { class: "stack" }, panel("Next pops", nextPops(timer)),
        panel("Replicas", replicaTable(timer)))),
    panel("What the callback carries", opaqueOf(timer)),
  ];
}

function timerActions(timer, path, again) {
  const act = async (action, done) => {
    if (await obey("POST", `${path}/${action}`, undefined, done, `order to ${action} a timer`)) {
      again();
    }
  };
  const cancel = async () => {
    const sure = await question("Cancel this timer?",
      "No further callback begins. This cannot be taken back.", "Cancel the timer",
      { isDanger: true });
    if (sure && await obey("DELETE", path, undefined, "The timer is cancelled.", "cancelling")) {
      go("/timers");
    }
  };
  const isPaused = timer.paused === true || timer.timing?.paused === true
    || timer.state === "paused";
  return make("div", { class: "row" },
    isPaused ? button("Run now", null, { disabled: true,
      title: "A paused timer is not run: resume it first." })
      : orderButton("Run now", () => act("run-now", "The next pop is made now.")),
    isPaused ? orderButton("Resume", () => act("resume", "The timer pops again."))
      : orderButton("Pause", () => act("pause", "The timer does not pop until it is resumed.")),
    orderButton("Cancel timer", cancel, { class: "danger" }));
}

function timerFacts(timer) {
  const { timing = {}, callback = {} } = timer;
  const http = callback.http ?? {};
  const mono = (text) => make("span", { class: "mono" }, text);
  return [
    ["Id", mono(idOf(timer))],
    timer.name === undefined ? null : ["Name", timer.name],
    ["Callback", mono(`${http.method ?? "POST"} ${http.uri}`)],
    timing.cron ? ["Calendar", [mono(timing.cron), ` in ${timing["time-zone"]}`]]
      : timing.at ? ["At", moment(timing.at)]
        : ["Every", `${lasting(timing.interval * 1_000)}, for ` +
          `${lasting(timing["repeat-for"] * 1_000)}`],
    ["Pops done", count(timing["sequence-number"])],
    ["Began", `${lasting(-timing["start-time-delta"])} ago`],
    ["Replication factor", count(timer.reliability?.["replication-factor"])],
    ["Tags", tagsOf(timer).length ? make("span", { class: "row" }, tagsOf(timer)) : "none"],
    callback.retry ? ["Retries", retryWords(callback.retry)] : null,
    timing.window ? ["Window", lasting(timing.window * 1_000)] : null,
  ];
}

const retryWords = (retry) => `${retry["max-attempts"]} attempts within ` +
  `${lasting(retry["max-age"] * 1_000)}, first pause ${lasting(retry.initial * 1_000)}`;

function nextPops(timer) {
  const pops = timer["next-pops"] ?? [];
  if (!pops.length) return make("p", { class: "muted" }, "This was its last pop.");
  const when = timer.paused === true ? "Paused: it does not pop until it is resumed. Its times are"
    : fromNow(timer["due-in-ms"]);
  return make("div", { class: "stack" }, make("p", {}, make("strong", {}, when)),
  make("ul", { class: "plain-list" }, pops.map((at) => make("li", { title: at }, moment(at)))),
  timer.timing?.window ? make("small", {}, "The window may add to each of these.") : null);
}

function replicaTable(timer) {
  const moods = { alive: "good", self: "good", suspect: "warn", dead: "bad" };
  return (timer.replicas ?? []).length ? table([
    { name: "Node", of: (replica) => make("span", { class: "mono" }, replica.node) },
    { name: "Rank", of: (replica) => (replica.rank === 0 ? "0, pops"
      : `${replica.rank}, after ${2 * replica.rank} s`) },
    { name: "State", of: (replica) => pill(replica.liveness === "self" ? "this node"
      : replica.liveness, moods[replica.liveness]) },
  ], timer.replicas, "Replicas") : make("p", { class: "muted" }, "No node is to hold it.");
}

function opaqueOf(timer) {
  const http = timer.callback?.http ?? {};
  const text = http.opaque ?? http["opaque-base64"] ?? "";
  if (!text) return make("p", { class: "muted" }, "Nothing: the body of the callback is empty.");
  const shown = make("pre", { tabindex: "0", "aria-label": "Body of the callback" },
    text.slice(0, OPAQUE_SHOWN));
  const all = text.length > OPAQUE_SHOWN ? button(`Show all ${count(text.length)} characters`,
    (event) => {
      shown.textContent = cleanLines(text);
      event.target.remove();
    }) : null;
  return make("div", { class: "stack" }, make("small", {}, http.opaque === undefined
    ? "Bytes that are no text, in base64" : `${http["content-type"] ?? "text"}, ` +
      plural(text.length, "character", "characters")), shown, all);
}
