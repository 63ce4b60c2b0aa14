// Alarms in words: what is wrong, since when, what it means for timers, what to do.

function alarmsPage(root) {
  const place = live("/alarms", 2_000, "alarms in words", alarmList);
  root.append(pageHead("Alarms", "What is wrong with this node, and what to do about it."),
    place.node);
  return place.stop;
}

function alarmList({ alarms, watched }) {
  if (!alarms.length) {
    return make("section", { class: "panel" }, empty("No alarm",
      `${count(watched)} conditions are watched once a second, and none holds.`));
  }
  return make("div", { class: "stack" }, alarms.map((alarm) =>
    make("article", { class: `panel alarm ${alarm.severity}` },
      make("div", { class: "row" }, make("h2", {}, alarm.what),
        pill(alarm.severity, alarm.severity === "critical" ? "bad" : "warn")),
      make("dl", {},
        make("dt", {}, "Since"), make("dd", {}, `${moment(alarm.since)}, for ` +
          lasting(Math.max(1, alarm.seconds) * 1_000)),
        make("dt", {}, "For timers"), make("dd", {}, alarm.effect),
        make("dt", {}, "Do"), make("dd", {}, alarm.remedy),
        make("dt", {}, "Figure"), make("dd", {}, figureOf(alarm))))));
}

const figureOf = (alarm) => (alarm.unit === "ms" ? lasting(alarm.value)
  : `${count(alarm.value)} ${alarm.unit}`.trim());
