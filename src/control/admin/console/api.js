// The admin API, as everybody asks it.

const TOKEN_KEY = "chronos-token";
const PATIENCE_MS = 8_000;

// Why there is no answer, and what helps.
class Refusal extends Error {
  constructor(status, text) {
    super(text || "no reason was given");
    this.status = status;
  }

  // Whether the node does not know such a path: it is of an older version.
  get isUnknownPath() {
    return (this.status === 404 && this.message.startsWith("the admin API has"))
      || this.status === 405;
  }

  get title() {
    if (this.status === 0) return "The node does not answer";
    if (this.isUnknownPath) return "Not in this version";
    return { 401: "A token is needed", 403: "Not allowed", 404: "Not found",
      421: "Unknown name", 503: "Busy" }[this.status] ?? `The node refused (${this.status})`;
  }

  remedy(thing) {
    if (this.isUnknownPath) {
      return `This node's version has no ${thing}. Upgrade the node to use it.`;
    }
    switch (this.status) {
      case 0: return "Is the process running, and its admin port reachable from here? This page " +
        "tries again by itself.";
      case 401: return "Give this page a token of auth.tokens_file: the button Token, above.";
      case 403: return `${this.message}.`;
      case 421: return "Open this page under the node's address, or add this name to [admin] " +
        "hosts.";
      case 503: return `${this.message}. Try again in a moment.`;
      default: return this.message;
    }
  }
}

const store = {
  // Kept for this tab alone, and only until it is closed.
  get token() {
    try { return sessionStorage.getItem(TOKEN_KEY) ?? ""; } catch { return this.inMemory ?? ""; }
  },
  set token(value) {
    this.inMemory = value;
    try {
      if (value) sessionStorage.setItem(TOKEN_KEY, value);
      else sessionStorage.removeItem(TOKEN_KEY);
    } catch { /* It stays in memory. */ }
  },
  access: null,
};

async function exchange(path, method, body) {
  const headers = { Accept: "application/json" };
  if (store.token) headers.Authorization = `Bearer ${store.token}`;
  if (method !== "GET") headers["X-Chronos-Order"] = "1";
  let answer;
  let text;
  try {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    answer = await fetch(path, { method, headers, body, signal, cache: "no-store",
      credentials: "omit", redirect: "error" });
    text = await answer.text();
  } catch (error) {
    throw new Refusal(0, error.name === "TimeoutError" ? "it took longer than 8 s" : error.message);
  }
  if (!answer.ok) throw new Refusal(answer.status, text.trim());
  if (text === "") return {};
  try {
    return JSON.parse(text);
  } catch {
    throw new Refusal(answer.status, "the answer is no JSON");
  }
}

const look = (path) => exchange(path, "GET");
const order = (method, path, document) =>
  exchange(path, method, document === undefined ? undefined : JSON.stringify(document));

// Asks again and again, and not while nobody looks at the tab.
function poll(path, everyMs, take, fail) {
  let timer = null;
  let isOver = false;
  let isAsking = false;
  const again = async () => {
    clearTimeout(timer);
    if (isOver || isAsking || document.hidden) return;
    isAsking = true;
    try {
      const answer = await look(path);
      if (!isOver) take(answer);
    } catch (error) {
      if (!isOver) fail(error instanceof Refusal ? error : new Refusal(-1, error.message));
      if (!(error instanceof Refusal)) console.error(error);
    } finally {
      isAsking = false;
      if (!isOver) timer = setTimeout(again, everyMs);
    }
  };
  document.addEventListener("visibilitychange", again);
  again();
  return {
    now: again,
    stop() {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", again);
    },
  };
}

// Whether others can read what this page sends. A token is not sent to where they can.
const isInTheClear = location.protocol !== "https:"
  && !/^(localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname);
const CLEAR_WORDS = "A token is sent over TLS or to loopback alone: open this page at [admin] " +
  "listen_tls, or through a tunnel.";

// Why orders are not for whoever looks; null: they are.
function orderHindrance() {
  if (!store.access || store.access["may-order"]) return null;
  if (isInTheClear) return `Orders need the token of an operator. ${CLEAR_WORDS}`;
  return store.access.role
    ? `Your token is one of a ${store.access.role}; orders need one of an operator.`
    : "Orders need the token of an operator: the button Token, above.";
}

async function learnAccess() {
  try {
    store.access = await look("/access");
  } catch (error) {
    // An older node tells when an order is refused.
    store.access = error.isUnknownPath ? { "may-order": true, "may-look": true } : store.access;
  }
}
