// The cluster: who believes whom alive, what is being moved, which versions run.

const LIVES = { alive: ["alive", "good"], self: ["itself", ""], suspect: ["suspected", "warn"],
  dead: ["dead", "bad"], unknown: ["unknown", ""] };

function clusterPage(root) {
  const place = live("/cluster/members", 4_000, "views of members", clusterParts);
  root.append(pageHead("Cluster", "As each member sees it. A node that is believed dead by one " +
    "member alone points at the network between the two."), place.node);
  return place.stop;
}

function clusterParts({ views }) {
  const own = views[0].view;
  const known = views.filter((it) => it.view);
  const walking = own.resynchronisation ?? {};
  return [
    ...clusterWarnings(own, views),
    make("section", { class: "panel" }, make("header", {}, make("h2", {}, "Who believes whom")),
      beliefs(own, known)),
    make("section", { class: "panel" }, make("header", {}, make("h2", {}, "Members")),
      versions(own, views)),
    panel("Moving timers", movement(walking, own)),
    own.sites?.length ? make("section", { class: "panel" },
      make("header", {}, make("h2", {}, "Other sites")), siteTable(own.sites, known)) : "",
  ];
}

function clusterWarnings(own, views) {
  const said = [];
  if (own.reload_error) {
    said.push(`The last reload failed: ${own.reload_error.text}. Repair the file and send ` +
      "SIGHUP; the old members stay in force.");
  }
  const lists = new Set(views.filter((it) => it.view)
    .map(({ view }) => JSON.stringify(Object.values(view.membership ?? {})
      .map((list) => [...list].sort()))));
  if (lists.size > 1) {
    said.push("The members disagree about who is a member. Repeat the unfinished chronos cluster " +
      "join or leave.");
  }
  const files = new Set(views.filter((it) => it.view).map(({ view }) => JSON.stringify(
    [view.site, ...(view.sites ?? []).map((site) => `${site.name}=${site.address}`).sort()])));
  if (files.size > 1) {
    said.push("The members have different lists of sites. Make [sites] of all nodes the same and " +
      "send SIGHUP.");
  }
  for (const site of own.sites ?? []) {
    if (site.lists_differ_s !== null && site.lists_differ_s !== undefined) {
      said.push(`The site ${site.name} has another list of sites than this one. Name the same ` +
        "sites in [sites] of all nodes of all sites.");
    }
  }
  for (const { address, error } of views) {
    if (error) said.push(`${address} did not say how it sees the cluster: ${error}`);
  }
  if (views.length === 1 && own.members?.length > 1) {
    said.push("Only the view of this node is shown. Set cluster.admin_addresses to see all.");
  }
  return said.map((text) => make("div", { class: "notice" }, text));
}

function beliefs(own, known) {
  const names = own.members.map((member) => member.name);
  const word = (view, name) => view.members?.find((it) => it.name === name)?.liveness ?? "unknown";
  const columns = [
    { name: "Member", of: (name) => [make("span", { class: "mono" }, name), " ",
      roleOf(own, name)] },
    ...known.map(({ view }) => ({ name: `Seen by ${view.name}`, of: (name) => {
      const [words, mood] = LIVES[word(view, name)] ?? [word(view, name), ""];
      return pill(words, mood);
    } })),
  ];
  return table(columns, names, "Who believes whom alive");
}

function roleOf(view, name) {
  const role = view.members?.find((it) => it.name === name)?.role;
  return role && role !== "staying" ? pill(role, "warn") : "";
}

function movement(walking, own) {
  const rows = facts([
    ["Misplaced", `${plural(walking.misplaced ?? 0, "timer", "timers")} known to be elsewhere ` +
      "than they belong"],
    ["Moved", `${count(walking.moved)} since the start`],
    ["Lacking a copy", count(own.timers_lacking)],
    ["Clocks", own.clock?.apart_ms > 1_000 ? pill(`${lasting(own.clock.apart_ms)} apart`, "warn")
      : "agree"],
  ]);
  if (!walking.is_running) {
    return make("div", { class: "stack" }, make("p", { class: "row" },
      pill("at rest", walking.misplaced ? "warn" : "good"), walking.misplaced
        ? "Timers wait until the nodes that are to hold them can be reached."
        : "Every timer is where it belongs."), rows);
  }
  return make("div", { class: "stack" }, make("p", { class: "row" }, pill("moving", "warn"),
    `This node has compared ${count(walking.seen)} of ${count(walking.total)} timers.`),
  progress(walking.seen, walking.total, "Timers compared"), rows);
}

function versions(own, views) {
  const zones = views.some((it) => it.view?.zone);
  return table([
    { name: "Node", of: (it) => make("span", { class: "mono" }, it.view?.name ?? it.address) },
    { name: "Version", of: (it) => it.view?.version ?? NOTHING },
    ...(zones ? [{ name: "Zone", of: (it) => it.view?.zone ?? NOTHING }] : []),
    { name: "Site", of: (it) => it.view?.site ?? NOTHING },
    { name: "Timers", number: true, of: (it) => count(it.view?.timers) },
    { name: "", of: (it) => (it.error ? pill("no answer", "bad")
      : it.view.is_full ? pill("full", "bad") : pill("answers", "good")) },
  ], views, "Members");
}

function siteTable(sites, known) {
  const seen = (view, name) => view.sites?.find((it) => it.name === name);
  return table([
    { name: "Site", of: (site) => site.name },
    { name: "Address", of: (site) => make("span", { class: "mono" }, site.address) },
    ...known.map(({ view }) => ({ name: `Seen by ${view.name}`, of: ({ name }) => {
      const site = seen(view, name);
      const [words, mood] = LIVES[site?.liveness] ?? LIVES.unknown;
      return [pill(words, mood), site?.seconds === undefined ? ""
        : ` for ${lasting(1_000 * site.seconds)}`];
    } })),
    { name: "Lag", number: true, of: (site) => lasting(site.lag_ms) },
    { name: "Waiting", number: true, of: (site) => count(site.waiting) },
    { name: "To offer", number: true, of: (site) => count(site.to_offer) +
      (site.left_s ? `, ${lasting(1_000 * site.left_s)} left` : "") },
    { name: "Clock", of: (site) => siteClock(site.clock_ahead_ms) },
    { name: "Kept for it", number: true, of: (site) => bytes(site.kept_bytes) },
  ], sites, "Other sites");
}

function siteClock(ahead) {
  if (ahead === null || ahead === undefined) return NOTHING;
  if (Math.abs(ahead) < 1_000) return "agrees";
  return pill(`${lasting(Math.abs(ahead))} ${ahead > 0 ? "ahead" : "behind"}`, "warn");
}
