// Timers: the search, and what it finds.

const STATES = { armed: "waits for its pop", ready: "due, waits for a place at its host",
  "in-flight": "its callback runs", "backing-off": "failed, waits for the next attempt",
  "handed-over": "left to another replica", paused: "paused by a client" };
const STATE_MOODS = { "in-flight": "good", "backing-off": "bad", ready: "warn",
  "handed-over": "warn", paused: "warn", "dead-letter": "bad" };
const DUE_CHOICES = [["", "any time"], ["0.001", "overdue"], ["60", "within a minute"],
  ["3600", "within an hour"], ["86400", "within a day"]];

function timerForm(asked) {
  const field = (name, label, placeholder, kind = "") => make("label", { class: `field ${kind}` },
    label, make("input", { name, placeholder, value: asked.get(name) ?? "", maxlength: 1024,
      autocomplete: "off", spellcheck: "false" }));
  const choice = (name, label, choices) => make("label", { class: "field" }, label,
    make("select", { name }, choices.map(([value, words]) => make("option",
      { value, selected: (asked.get(name) ?? "") === value }, words))));
  const states = [["", "any state"], ...Object.keys(STATES).map((state) => [state, state])];
  const find = (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams();
    for (const [name, value] of new FormData(event.target)) {
      if (value.trim()) wanted.set(name, value.trim());
    }
    const id = idIn(wanted.get("id") ?? "");
    if (id) go(`/timer/${encodeURIComponent(id)}`);
    else go(`/timers${wanted.size ? `?${wanted}` : ""}`);
  };
  return make("form", { class: "form", role: "search", "aria-label": "Timers", onsubmit: find },
    field("id", "Id", "6884bcf536400668-2-…", "wide"),
    field("name", "Name begins with", "invoice-"), field("tag", "Tag", "CALL"),
    field("host", "Callback host", "10.0.0.1:8080"),
    choice("due-before", "Due", DUE_CHOICES), choice("state", "State", states),
    make("div", { class: "row" }, make("button", { type: "submit", class: "main" }, "Search"),
      link("Clear", "/timers", { class: "button" })));
}

// What a path of the API calls the timer: a factor must follow 16 digits.
function idIn(text) {
  const id = text.trim().replace(/^.*\/timers\//, "");
  return /^[0-9a-f]{16}$/i.test(id) ? `${id}-2` : id;
}

// The query of a search for the API.
function timerQuery(asked, cursor) {
  const query = new URLSearchParams();
  for (const name of ["tag", "host", "due-before", "state"]) {
    if (asked.get(name)) query.set(name, asked.get(name));
  }
  if (asked.get("name")) query.set("name-prefix", asked.get("name"));
  query.set("limit", "50");
  if (cursor) query.set("cursor", cursor);
  return query;
}

// The last word of "/timers/<id>", and of "/dead-letters/<id>".
const idOf = (timer) => timer.location.replace(/^.*\//, "");
const tagsOf = (timer) => (timer.statistics?.["tag-info"] ?? []).map((tag) =>
  make("span", { class: "tag" }, tag.count === 1 ? tag.type : `${tag.type} × ${tag.count}`));

const TIMER_COLUMNS = [
  { name: "Timer", of: (timer) => link(timer.name ?? idOf(timer).slice(0, 16),
    `/timer/${encodeURIComponent(idOf(timer))}`, { class: "mono" }) },
  { name: "Next pop", of: (timer) => [make("span", { title: timer["due-at"] },
    fromNow(timer["due-in-ms"]))] },
  { name: "State", of: (timer) => pill(timer.state, STATE_MOODS[timer.state]) },
  { name: "Callback", of: (timer) => make("span", { class: "uri" }, timer.callback?.http?.uri) },
  { name: "Tags", of: (timer) => {
    const tags = tagsOf(timer);
    return tags.length ? make("span", { class: "row" }, tags) : [];
  } },
];

const JOB_MOODS = { running: "warn", done: "good", stopped: "bad" };
const JOBS_SHOWN_MAX = 10;

// Jobs that delete timers, while there are any.
function jobsPanel({ jobs, incomplete }) {
  if (!jobs.length) return make("div");
  return panel("Jobs that delete timers", incompleteNotice(incomplete),
    ...jobs.slice(0, JOBS_SHOWN_MAX).map(jobRow),
    jobs.length > JOBS_SHOWN_MAX ? make("small", {}, `${jobs.length - JOBS_SHOWN_MAX} more: ` +
      "chronos jobs list") : null);
}

function jobRow(job) {
  const isRunning = job.state === "running";
  const filter = Object.entries(job.filter).map(([name, value]) => `${name}=${value}`).join("  ");
  const words = [`${plural(job.deleted, "timer", "timers")} deleted`,
    job.failed ? `${count(job.failed)} could not be` : "",
    !isRunning && job.complete === false ? "a node was not reached: order it again" : ""];
  const stop = () => obey("DELETE", `/jobs/${encodeURIComponent(job.id)}`, undefined,
    "The job is stopped.", "stopping jobs");
  return make("div", { class: "stack job" },
    make("p", { class: "row" }, pill(job.state, JOB_MOODS[job.state]),
      make("span", { class: "mono" }, filter), words.filter(Boolean).join(", "),
      isRunning ? orderButton("Stop", stop) : null),
    isRunning ? progress(job.deleted, job.seen, "Timers deleted of those found") : null);
}

function timersPage(root, { query }) {
  const found = make("div", { class: "stack" }, loading("Searching …"));
  const jobs = live("/jobs", 5_000, "jobs", jobsPanel);
  root.append(
    pageHead("Timers", "The timers of all nodes of the site. An id leads to its timer at once."),
    make("section", { class: "panel" }, make("div", { class: "inside" }, timerForm(query))),
    make("section", { class: "panel" }, make("header", {}, make("h2", {}, "Found")), found),
    jobs.node);
  const all = [];
  let isLeft = false;
  const search = async (cursor) => {
    try {
      const page = await timerPage(query, cursor);
      if (isLeft) return;
      all.push(...page.timers);
      found.replaceChildren(...[foundTimers(all, page, () => search(page.cursor))].flat()
        .filter(Boolean));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (!isLeft) found.replaceChildren(failure(error, "search for timers", () => search(cursor)));
    }
  };
  search(null);
  return () => {
    isLeft = true;
    jobs.stop();
  };
}

// A page of a list. A version without name-prefix finds whole names.
async function timerPage(query, cursor) {
  try {
    return await look(`/timers?${timerQuery(query, cursor)}`);
  } catch (error) {
    if (!query.get("name") || error.status !== 400 || !error.message.startsWith("query:")) {
      throw error;
    }
    try {
      const timer = await look(`/timers/by-name/${encodeURIComponent(query.get("name"))}`);
      return { timers: [{ state: "armed", ...timer }],
        incomplete: ["This version finds a timer by its whole name only."] };
    } catch (second) {
      if (second.status === 404 && !second.isUnknownPath) return { timers: [] };
      throw second;
    }
  }
}

function foundTimers(all, page, more) {
  if (!all.length && !page.cursor) {
    return [incompleteNotice(page.incomplete), empty("No such timer",
      "No timer of the site fits. Leave a field out, or look at the dead letters: pops that were " +
      "given up are there.")];
  }
  return [incompleteNotice(page.incomplete), table(TIMER_COLUMNS, all, "Timers found"),
  make("div", { class: "foot" }, make("small", {},
    `${plural(all.length, "timer", "timers")}${page.cursor ? " so far" : ", these are all"}`),
  page.cursor ? button("More", more) : null)];
}
