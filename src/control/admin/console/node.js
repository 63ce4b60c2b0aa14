// The journal, timestamps and the configuration of this node.

function journalPage(root) {
  let before = null;
  const place = live("/journal", 3_000, "figures of its journal", (journal) => {
    const shown = journalParts(journal, before);
    before = journal;
    return shown;
  });
  root.append(pageHead("Journal", "What this node keeps on its disk, so that timers survive a " +
    "restart of all nodes."), place.node);
  return place.stop;
}

function journalParts(journal, before) {
  if (journal.mode === "off") {
    return make("section", { class: "panel" }, empty("This node has no journal",
      "Its timers live as long as one node that holds them. Set data_dir in [journal] and " +
      "restart the node to keep them on its disk."));
  }
  const size = journal.segments * journal.segment_bytes;
  const lately = quantile(journal.sync, before?.sync, 0.99);
  return [
    ...journalWarnings(journal),
    make("div", { class: "figures" },
      figure("Size", split(bytes(size)), plural(journal.segments, "segment", "segments")),
      figure("Live", share(journal.live_bytes, size), `${bytes(journal.live_bytes)}, the rest is ` +
        "freed by copying"),
      figure("Sync, p99", split(lasting(quantile(journal.sync, null, 0.99))),
        isNumber(lately) ? `${lasting(lately)} in the last 3 s` : "no write in the last 3 s"),
      figure("Sync, p50", split(lasting(quantile(journal.sync, null, 0.5))), "since the start"),
      figure("Not on the disk yet", count(journal.lag),
        `${plural(journal.waiting, "answer waits", "answers wait")}`)),
    panel("Journal", facts([
      ["Directory", make("span", { class: "mono" }, journal.directory)],
      ["Mode", journal.mode === "sync" ? "sync: a write is on the disk before it is acknowledged"
        : "interval: a write is on the disk some time after it is acknowledged"],
      ["Written", `${bytes(journal.written_bytes)} in ${count(journal.writes)} writes, ` +
        `${count(journal.entries)} entries`],
      ["Disk stopped answering", plural(journal.stalls, "time", "times")],
      ["Taken at the start", plural(journal.recovered_timers, "timer", "timers")],
    ])),
  ];
}

function journalWarnings(journal) {
  const said = [];
  const notice = (text, ...more) => said.push(make("div", { class: "notice bad" }, text, ...more));
  if (journal.is_recovering) {
    said.push(panel("The journal is being read", progress(journal.recovered_bytes,
      journal.recovery_bytes, "Bytes read")));
  }
  if (journal.is_full) notice("The disk is full: writes are refused. Make room on that disk.");
  if (journal.is_stalled) {
    notice("The disk does not answer: writes are refused. Look at it (dmesg, iostat).");
  }
  if (journal.is_away) {
    notice("The data directory is not where it was: writes are refused. Mount or move it back.");
  }
  if (journal.damaged) {
    notice("The disk has lost or changed what was on it: chronos journal check names the places.");
  }
  return said;
}

function timestampsPage(root) {
  const place = live("/timestamp", 3_000, "timestamps", timestampParts);
  root.append(pageHead("Timestamps", "Strictly increasing numbers for all clients, given out by " +
    "one master at a time."), place.node);
  return place.stop;
}

function timestampParts(board) {
  if (board.role === "off") {
    return make("section", { class: "panel" }, empty("Timestamps are off",
      "This node hands out none. Set enabled = true in [timestamp] and restart the node."));
  }
  const lead = board.behind_ms > 0 ? [`−${lasting(board.behind_ms)}`, ""]
    : split(lasting(board.ahead_ms));
  return [
    board.keeper_failed ? make("div", { class: "notice bad" }, "The keeper has failed: this " +
      "process hands out no timestamps until it is restarted. The log says why.") : "",
    make("div", { class: "figures" },
      figure("This node", board.role, board.serving ? "hands out timestamps"
        : "hands out none at present"),
      figure("Master", board.master ?? (board.role === "master" ? "this node" : "not known"),
        board.coordination === "file" ? "alone, with a file" : "elected through ZooKeeper"),
      figure("Lead", lead, board.behind_ms > 0 ? "behind the wall clock"
        : "ahead of the wall clock", board.behind_ms > 1_000 ? "is-warn" : ""),
      figure("Window left", split(lasting(board.window_remaining_ms)), "until the next bound"),
      figure("Lease left",
        isNumber(board.lease_ms) ? split(lasting(board.lease_ms)) : "none needed",
        isNumber(board.lease_ms) ? "without news of ZooKeeper" : "coordination by file")),
    panel("Numbers", facts([
      ["Bound", [make("span", { class: "mono" }, board.bound), " no timestamp reaches it"]],
      ["Last", make("span", { class: "mono" }, board.last)],
      ...Object.entries(board.counters ?? {}).map(([name, number]) =>
        [name.replaceAll("_", " "), count(number)]),
    ])),
  ];
}

function configurationPage(root) {
  const filter = make("input", { type: "search", placeholder: "Key, value, origin or word",
    "aria-label": "Filter the keys" });
  const onlyChanged = make("input", { type: "checkbox" });
  let answer = null;
  const place = live("/config", 30_000, "view of its configuration", (said) => {
    answer = said;
    return configurationList(said, filter.value, onlyChanged.checked);
  });
  const again = () => {
    if (answer) {
      place.node.lastChild.replaceChildren(...[configurationList(answer, filter.value,
        onlyChanged.checked)].flat());
    }
  };
  filter.addEventListener("input", again);
  onlyChanged.addEventListener("change", again);
  root.append(pageHead("Configuration", "The values that hold on this node, and where each comes " +
    "from. Secrets are not shown."),
  make("section", { class: "panel" }, make("div", { class: "inside row" },
    make("label", { class: "grow" }, filter),
    make("label", { class: "check" }, onlyChanged, "Only what is set"))), place.node);
  return place.stop;
}

function configurationList({ sections }, filter, isOnlyChanged) {
  const word = filter.trim().toLowerCase();
  const fits = (section, key) => (!isOnlyChanged || key.origin !== "default")
    && [section.name, key.name, key.value, key.origin, key.help]
      .some((text) => text.toLowerCase().includes(word));
  const shown = sections.map((section) => ({ ...section,
    keys: section.keys.filter((key) => fits(section, key)) }))
    .filter((section) => section.keys.length);
  if (!shown.length) {
    return make("section", { class: "panel" }, empty("No such key", isOnlyChanged && !word
      ? "Everything is at its default." : "Nothing fits these words."));
  }
  return make("div", { class: "stack even" }, shown.map((section) =>
    make("section", { class: "panel" }, make("header", {},
      make("h2", { class: "mono" }, `[${section.name}]`), make("small", {}, section.help)),
    table(CONFIGURATION_COLUMNS, section.keys, section.name))));
}

const CONFIGURATION_COLUMNS = [
  { name: "Key", of: (key) => make("details", {},
    make("summary", { class: "mono", title: "What it does" }, key.name), make("p", {}, key.help),
    make("p", {}, make("small", {}, `Default: ${key.default}`))) },
  { name: "Value", of: (key) => make("span", { class: "mono" }, key.value) },
  { name: "From", of: (key) => (key.origin === "default" ? make("small", {}, "default")
    : make("span", { class: "tag mono" }, key.origin)) },
];
