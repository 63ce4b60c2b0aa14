// The frame: pages and their addresses, the state of the node above, the token.

const PAGES = [
  ["/", "Overview", overviewPage],
  ["/alarms", "Alarms", alarmsPage],
  ["/timers", "Timers", timersPage],
  ["/destinations", "Destinations", destinationsPage],
  ["/dead-letters", "Dead letters", lettersPage],
  ["/cluster", "Cluster", clusterPage],
  ["/journal", "Journal", journalPage],
  ["/timestamps", "Timestamps", timestampsPage],
  ["/configuration", "Configuration", configurationPage],
];
const NODE_STATES = { serving: ["serving", "good"], left: ["left its cluster", "warn"],
  stopping: ["stopping", "warn"], failed: ["failed", "bad"] };

let leave = () => {};

// Goes to a page; to the one that is open, too.
function go(hash) {
  if (location.hash === `#${hash}`) openPage();
  else location.hash = hash;
}

function addressOf(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?", 2);
  const timer = /^\/timer\/(.+)$/.exec(path);
  let rest = null;
  try { rest = timer && decodeURIComponent(timer[1]); } catch { /* No such timer. */ }
  const page = rest !== null ? ["/timers", "Timer", oneTimerPage]
    : PAGES.find(([known]) => known === (path || "/")) ?? PAGES[0];
  return { page, rest, query: new URLSearchParams(query) };
}

function openPage() {
  leave();
  const { page: [path, title, open], rest, query } = addressOf(location.hash);
  const root = byId("main");
  root.replaceChildren();
  document.title = `${title} – Chronos`;
  for (const anchor of byId("pages").querySelectorAll("a")) {
    if (anchor.hash === `#${path}`) anchor.setAttribute("aria-current", "page");
    else anchor.removeAttribute("aria-current");
  }
  closeMenu();
  window.scrollTo(0, 0);
  leave = open(root, { rest, query }) ?? (() => {});
}

function closeMenu() {
  byId("pages").classList.remove("open");
  byId("menu").setAttribute("aria-expanded", "false");
}

function buildFrame() {
  const badge = make("span", { class: "badge", id: "alarm-count" });
  byId("pages").append(make("ul", {}, PAGES.map(([path, title]) => make("li", {},
    link(title, path))).map((item, place) => {
    if (PAGES[place][0] === "/alarms") item.firstChild.append(badge);
    return item;
  })));
  byId("menu").addEventListener("click", () => {
    const isOpen = byId("pages").classList.toggle("open");
    byId("menu").setAttribute("aria-expanded", String(isOpen));
  });
  byId("skip").addEventListener("click", () => byId("main").focus());
  byId("access").addEventListener("click", askForToken);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeMenu();
  });
}

// The state of the node, in the head.
function showPulse(answer, error) {
  const state = byId("node-state");
  if (error) {
    state.className = "pill bad";
    state.textContent = error.status === 401 ? "token needed" : "no answer";
    return;
  }
  byId("node-name").textContent = clean(answer.name);
  const [words, mood] = NODE_STATES[answer.state] ?? [answer.state, ""];
  state.className = `pill ${mood}`;
  state.textContent = words;
  const { critical, warning } = answer.alarms;
  const badge = byId("alarm-count");
  badge.textContent = critical + warning ? count(critical + warning) : "";
  badge.className = critical ? "badge bad" : "badge";
  badge.setAttribute("aria-label", critical + warning
    ? plural(critical + warning, "alarm", "alarms") : "no alarm");
}

function showAccess() {
  const shown = byId("access");
  const access = store.access;
  const role = access?.role;
  shown.textContent = role ? `Token: ${role}` : store.token ? "Token: not known" : "Token";
  shown.hidden = Boolean(access) && access["needs-token-for-orders"] === false && !store.token;
}

async function askForToken() {
  if (isInTheClear) {
    note(CLEAR_WORDS, true);
    return;
  }
  const said = await question("Token",
    "A line of auth.tokens_file stands for it: any role looks, " +
    "an operator gives orders. It is kept until this tab is closed, and sent to this node alone. " +
    "An empty field forgets it.", "Use",
  { fields: [{ name: "token", label: "Token", type: "password", value: store.token }] });
  if (!said) return;
  if (/[^ -~]/.test(said.token)) {
    note("The token has a character that no token has: one that is not shown, or no letter, digit " +
      "or sign of ASCII. Copy the token again.", true);
    return;
  }
  store.token = said.token;
  await learnAccess();
  showAccess();
  if (store.token && !store.access?.role) note("This node does not know that token.", true);
  openPage();
  pulsePoll.now();
}

buildFrame();
pulse.listeners.add(showPulse);
const pulsePoll = poll("/overview", PULSE_MS, (answer) => pulse.take(answer),
  (error) => pulse.fail(error));
window.addEventListener("hashchange", openPage);
learnAccess().then(() => {
  showAccess();
  openPage();
});
