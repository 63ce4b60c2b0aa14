// How the node is: figures, their last minutes, and when timers are due.

const PULSE_MS = 2_000;
const SAMPLES_MAX = 200;

// The figures of the last minutes, whatever page is open.
const pulse = {
  last: null,
  samples: [],
  listeners: new Set(),
  take(answer) {
    const at = Date.now();
    const before = this.last;
    // A node that has been started again counts from 0.
    const isSame = before && answer.uptime_ms > before.uptime_ms;
    const seconds = isSame ? (answer.uptime_ms - before.uptime_ms) / 1_000 : 0;
    const grown = (name) => (isSame
      ? (answer.counters[name] - before.counters[name]) / seconds : null);
    const since = isSame ? before.lateness : null;
    if (!before || isSame) {
      this.samples.push({
        at,
        timers: answer.gauges.timers,
        creates: grown("creates"),
        pops: grown("pops_delivered"),
        failed: grown("pops_failed"),
        p50: isSame ? quantile(answer.lateness, since, 0.5) : null,
        p99: isSame ? quantile(answer.lateness, since, 0.99) : null,
      });
    } else {
      this.samples = [];
    }
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    this.last = answer;
    this.listeners.forEach((listen) => listen(answer, null));
  },
  fail(error) {
    this.listeners.forEach((listen) => listen(this.last, error));
  },
  // Calls with what is known, and with each answer from then on. Returns how to end that.
  listen(listener) {
    this.listeners.add(listener);
    if (this.last) listener(this.last, null);
    return () => this.listeners.delete(listener);
  },
};

const DUE_WORDS = { overdue: "Overdue", "within-second": "In the next second",
  "within-minute": "In the next minute", "within-hour": "In the next hour",
  "within-day": "In the next day", later: "Later" };

function overviewFigures(answer) {
  const { gauges, counters } = answer;
  const latest = pulse.samples[pulse.samples.length - 1] ?? {};
  const overdue = gauges.oldest_overdue_ms;
  const critical = answer.alarms.critical;
  const alarms = critical + answer.alarms.warning;
  return [
    figure("Timers held", count(gauges.timers),
      `${share(gauges.timers, answer.timers_max)} of ${count(answer.timers_max)}`),
    figure("Creates", [rate(latest.creates), "/s"],
      `${count(counters.creates)} since the start`),
    figure("Pops", [rate(latest.pops), "/s"],
      `${count(counters.pops_delivered)} delivered since the start`),
    figure("Lateness, p99", split(lasting(latest.p99)), isNumber(latest.p99)
      ? `p50 ${lasting(latest.p50)}` : `no pop in the last 2${TIED}s`),
    figure("Oldest overdue", overdue > 0 ? split(lasting(overdue)) : "none",
      `${count(gauges.pops_waiting)} pops wait, ${count(gauges.pops_in_flight)} run`,
      overdue > 5_000 ? "is-bad" : overdue > 1_000 ? "is-warn" : ""),
    figure("Alarms", alarms ? count(alarms) : "none",
      alarms ? link(critical ? `${critical} critical` : "see what to do", "/alarms")
        : "all is well", critical ? "is-bad" : alarms ? "is-warn" : ""),
  ];
}

function duePanel(due) {
  if (!due) return loading("The cores count when timers are due …");
  const rows = Object.entries(DUE_WORDS).map(([name, words]) =>
    [words, due.due[name] ?? 0, name === "overdue"]);
  if (due.timers === 0) {
    return empty("No timers yet",
      "As soon as a client creates a timer, this shows when it is due.");
  }
  const states = Object.entries(due["by-state"]).filter(([, number]) => number > 0);
  return [incompleteNotice(due.incomplete), barList(rows),
    make("p", { class: "row" }, make("small", {}, `${plural(due.timers, "timer", "timers")} of ` +
      `the whole site, counted ${lasting(due.age_ms)} ago:`),
    states.map(([name, number]) => link(`${name} ${count(number)}`,
      `/timers?state=${encodeURIComponent(name)}`, { class: "tag" })))];
}

// Work that takes long, as a start from a journal or a comparison with the other nodes.
function workPanel(work) {
  if (!work?.length) return [];
  return [panel("Under way", ...work.map((one) => make("div", { class: "stack" },
    make("p", { class: "row" }, pill(`${one.percent}${TIED}%`, "warn"), one.text,
      isNumber(one.left_s) ? make("small", {}, `about ${lasting(one.left_s * 1_000)} left`)
        : null),
    progress(one.percent, 100, one.what))))];
}

function overviewPage(root) {
  const figures = make("div", { class: "figures" }, loading());
  const charts = {
    pops: lineChart("Pops per second", [
      { name: "delivered /s", of: (sample) => sample.pops },
      { name: "failed attempts /s", of: (sample) => sample.failed }], rate),
    lateness: lineChart("Lateness", [
      { name: "p99", of: (sample) => sample.p99 },
      { name: "p50", of: (sample) => sample.p50 }], lasting),
    creates: lineChart("Creates per second",
      [{ name: "creates /s", of: (sample) => sample.creates }], rate),
    timers: lineChart("Timers held", [{ name: "held", of: (sample) => sample.timers }], count,
    true),
  };
  const due = make("div", { class: "stack" }, loading());
  const trouble = make("div");
  const work = make("div");
  const node = facts([]);
  root.append(
    pageHead("Overview", "This node, now and over the last five minutes."),
    trouble, work, figures,
    make("div", { class: "columns" }, panel("Lateness of pops", charts.lateness.node),
      panel("Pops", charts.pops.node), panel("Creates", charts.creates.node),
      panel("Timers held", charts.timers.node)),
    make("div", { class: "columns" }, panel("When timers are due", due), panel("Node", node)));
  const end = pulse.listen((answer, error) => {
    trouble.replaceChildren(...(error ? [troubleOf(answer, error)]
      : answer?.state === "left" ? [hasLeft(answer)] : []));
    if (!answer) {
      figures.replaceChildren(...(error ? [] : [loading()]));
      return;
    }
    work.replaceChildren(...workPanel(answer.work));
    figures.replaceChildren(...overviewFigures(answer));
    Object.values(charts).forEach((chart) => chart.show(pulse.samples));
    due.replaceChildren(...[duePanel(answer.due)].flat().filter(Boolean));
    node.replaceWith(nodeFacts(answer, node));
  });
  const resize = () => Object.values(charts).forEach((chart) => chart.show(pulse.samples));
  window.addEventListener("resize", resize);
  return () => {
    end();
    window.removeEventListener("resize", resize);
  };
}

function hasLeft({ gauges }) {
  const held = gauges.timers ? `still holds ${plural(gauges.timers, "timer", "timers")}`
    : "holds no timers";
  return make("div", { class: "notice" }, `This node has left its cluster. It ${held} and refuses ` +
    "requests. Stop it, or add it again with chronos cluster join.");
}

function troubleOf(answer, error) {
  if (!answer) return make("section", { class: "panel" }, failure(error, "overview", null));
  return make("div", { class: "notice bad", role: "alert" },
    `${error.title}. What is shown is old. ${error.remedy("overview")}`);
}

// Fills the list that stands there, so that what was selected in it stays.
function nodeFacts(answer, node) {
  const { gauges, peers } = answer;
  const others = peers.alive + peers.suspect + peers.dead;
  const rows = facts([
    ["Name", make("span", { class: "mono" }, answer.name)],
    ["Version", answer.version],
    ["Runs for", lasting(answer.uptime_ms)],
    ["Cores", count(answer.shards)],
    ["Memory of timers", `${bytes(gauges.store_bytes)} of ${bytes(answer.store_bytes_max)}`],
    ["Tombstones", count(gauges.tombstones)],
    ["Clients connected", count(gauges.connections)],
    ["Other nodes", others === 0 ? "none: a cluster of its own"
      : [peers.alive, " alive", peers.suspect ? `, ${peers.suspect} suspected` : "",
        peers.dead ? `, ${peers.dead} dead` : ""]],
    ["Writes", gauges.writes_refused ? pill("refused", "bad") : pill("taken", "good")],
  ]);
  node.replaceChildren(...rows.childNodes);
  return node;
}
