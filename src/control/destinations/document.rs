//! The JSON of destinations: their rules, and how their hosts are on this node.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::book::Book;
use crate::base::destinations::{DESTINATIONS_MAX, DestinationTable};
use crate::base::time::WallMs;
use crate::node::callbacks::failing::Failing;
use crate::node::destinations::SurveyPart;
use crate::shard::effects::HostState;
use crate::wire::destination::{destination_to, per_second_of};
use crate::wire::wall_time::write_wall_time;

/// Destinations of a page if the query does not say.
const PAGE_DEFAULT: usize = 100;
/// Most destinations of a page.
const PAGE_MAX: usize = 1_000;

/// How the hosts of a destination are, over all cores.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    waiting: u64,
    in_flight: u64,
    failures: u32,
    attempts_per_second: u64,
    /// Cores on which only probes are made.
    in_trouble: u32,
    /// On one of these a probe runs, or may begin.
    is_probing: bool,
    next_probe_ms: Option<u64>,
    failing: Option<Failing>,
}

impl Sum {
    fn add(&mut self, host: &HostState) {
        self.waiting += u64::from(host.waiting);
        self.in_flight += u64::from(host.in_flight);
        self.failures = self.failures.max(host.failures);
        self.attempts_per_second += u64::from(host.attempts_per_second);
        let Some(probe_ms) = host.next_probe_ms else { return };
        self.in_trouble += 1;
        self.is_probing |= host.in_flight > 0 || probe_ms == 0;
        self.next_probe_ms = Some(self.next_probe_ms.map_or(probe_ms, |next| next.min(probe_ms)));
    }

    fn add_failing(&mut self, other: &Failing) {
        let Some(failing) = &mut self.failing else {
            self.failing = Some(*other);
            return;
        };
        let last = if other.last_at > failing.last_at { *other } else { *failing };
        let attempts = failing.attempts.saturating_add(other.attempts);
        *failing = Failing { attempts, since: failing.since.min(other.since), ..last };
    }

    fn breaker(&self) -> &'static str {
        match (self.in_trouble, self.is_probing) {
            (0, _) => "closed",
            (_, true) => "half-open",
            (_, false) => "open",
        }
    }
}

/// What is known of destinations: rules, and the state of hosts.
pub(super) struct Known<'a> {
    book: &'a Book,
    table: &'a DestinationTable,
    sums: BTreeMap<String, Sum>,
}

impl<'a> Known<'a> {
    pub(super) fn new(book: &'a Book, table: &'a DestinationTable, found: &SurveyPart) -> Self {
        let mut known = Self { book, table, sums: BTreeMap::new() };
        for host in &found.hosts {
            known.enter(&host.authority, |sum| sum.add(host));
        }
        for (authority, failing) in &found.failing {
            known.enter(authority, |sum| sum.add_failing(failing));
        }
        known
    }

    /// Adds something to a host, and to the rule that holds for it.
    fn enter(&mut self, authority: &str, add: impl Fn(&mut Sum)) {
        let name = destination_to(authority);
        let rule = self.table.find_for(&name).map(|found| &*found.name);
        if let Some(rule) = rule.filter(|rule| *rule != name) {
            add(self.sums.entry(rule.to_owned()).or_default());
        }
        add(self.sums.entry(name).or_default());
    }

    /// One destination; `None`: it has no rule, and nothing waits, runs or fails there.
    pub(super) fn one(&self, name: &str) -> Option<Value> {
        let is_known = self.sums.contains_key(name) || self.book.rule(name).is_some();
        is_known.then(|| self.show(name))
    }

    /// One destination, of which nothing need be known.
    pub(super) fn show(&self, name: &str) -> Value {
        let rule = match self.book.rule(name) {
            Some(_) => Some(name),
            None => self.table.find_for(name).map(|found| &*found.name),
        };
        let found = rule.and_then(|rule| self.book.rule(rule));
        let (limits, is_order) = found.unwrap_or_default();
        let sum = self.sums.get(name).copied().unwrap_or_default();
        json!({
            "destination": name,
            "rule": rule,
            "set-by": found.map(|_| if is_order { "order" } else { "configuration" }),
            "max-in-flight": limits.max_in_flight,
            "rate-per-second": limits.per_1000_s.map(per_second_of),
            "paused": limits.is_paused,
            "breaker": sum.breaker(),
            "failures": sum.failures,
            "next-probe-ms": sum.next_probe_ms,
            "queue": sum.waiting,
            "in-flight": sum.in_flight,
            "attempts-per-second": sum.attempts_per_second,
            "failing": sum.failing.map(|failing| json!({
                "attempts": failing.attempts,
                "failure": failing.failure.name(),
                "status": failing.status,
                "since": text_of(failing.since),
                "last-at": text_of(failing.last_at),
            })),
        })
    }

    /// A page of all destinations, by name.
    pub(super) fn page(&self, page: &Page) -> Value {
        let mut names = self.book.names();
        let rules = names.len();
        names.extend(self.sums.keys().map(String::as_str));
        let mut rest = names.range::<str, _>((page.from(), std::ops::Bound::Unbounded));
        let shown: Vec<&str> = rest.by_ref().take(page.limit).copied().collect();
        let next = rest.next().and_then(|_| shown.last());
        json!({
            "destinations": shown.iter().map(|name| self.show(name)).collect::<Vec<_>>(),
            "next": next,
            "rules": rules,
            "rules-max": DESTINATIONS_MAX,
        })
    }
}

/// Which page is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Page {
    limit: usize,
    after: Option<String>,
}

impl Page {
    /// Reads `limit=100&after=NAME`. The error is a sentence.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let (mut limit, mut after) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let former = match key {
                "limit" => {
                    let number = value.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
                    let told = || {
                        let got = shown(value);
                        format!("limit: expected a whole number from 1 to {PAGE_MAX}, got {got}")
                    };
                    limit.replace(number.ok_or_else(told)?).is_some()
                }
                "after" => after.replace(unescaped(value)?).is_some(),
                other => {
                    return Err(format!("query: expected limit or after, got {}", shown(other)));
                }
            };
            if former {
                return Err(format!("{key}: expected once, got it twice"));
            }
        }
        Ok(Self { limit: limit.unwrap_or(PAGE_DEFAULT), after })
    }

    fn from(&self) -> std::ops::Bound<&str> {
        self.after.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded)
    }
}

fn text_of(at: WallMs) -> String {
    let mut text = Vec::new();
    write_wall_time(at, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn shown(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_default).collect()
}

/// A value of a query without its percent-escapes.
fn unescaped(value: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escape = after.split_first_chunk::<2>().filter(|_| byte == b'%');
        let digits =
            escape.and_then(|(digits, rest)| Some((std::str::from_utf8(digits).ok()?, rest)));
        let decoded =
            digits.and_then(|(digits, rest)| Some((u8::from_str_radix(digits, 16).ok()?, rest)));
        let (byte, next) = decoded.unwrap_or((byte, after));
        bytes.push(byte);
        rest = next;
    }
    String::from_utf8(bytes).map_err(|_| "after: expected UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::destinations::Rule;
    use crate::wire::dead_letter::Failure;

    fn host(authority: &str, failures: u32, next_probe_ms: Option<u64>) -> HostState {
        HostState {
            authority: authority.into(),
            waiting: 3,
            in_flight: 0,
            failures,
            attempts_per_second: 5,
            next_probe_ms,
        }
    }

    #[test]
    fn hosts_are_summed_over_cores_and_spellings_and_under_their_rule() {
        let mut book = Book::default();
        let paused = Rule { is_paused: true, ..Rule::default() };
        book.configure(vec![("a".into(), paused), ("z:1".into(), Rule::default())]);
        let table = book.table(&DestinationTable::default());
        let hosts = vec![
            host("A:80", 1, None),
            host("a", 9, Some(40)),
            host("a:81", 0, None),
            host("b:81", 8, Some(0)),
        ];
        let how = |status: u16, since: u64| Failing {
            attempts: 3,
            failure: Failure::Status,
            status: Some(status),
            since: WallMs(since),
            last_at: WallMs(since + 10),
        };
        let failing = vec![("A:80".into(), how(500, 70)), ("a:80".into(), how(503, 40))];
        let found = SurveyPart { hosts, failing };
        let known = Known::new(&book, &table, &found);
        let failing = &known.one("a:80").expect("it fails")["failing"];
        assert_eq!((&failing["attempts"], &failing["status"]), (&6.into(), &500.into()));
        assert_eq!(failing["since"], "1970-01-01T00:00:00.040Z");
        assert_eq!(known.one("b:81").expect("pops wait")["failing"], Value::Null);
        let a = known.one("a").expect("a rule");
        assert_eq!(
            (&a["queue"], &a["paused"], &a["breaker"]),
            (&9.into(), &true.into(), &"open".into())
        );
        let one = known.one("a:80").expect("pops wait");
        assert_eq!((&one["queue"], &one["rule"]), (&6.into(), &"a".into()));
        assert_eq!((&one["failures"], &one["next-probe-ms"]), (&9.into(), &40.into()));
        let b = known.one("b:81").expect("pops wait");
        assert_eq!((&b["breaker"], &b["rule"]), (&"half-open".into(), &Value::Null));
        assert_eq!(known.one("c"), None);
        let mut names = Vec::new();
        let mut query = "limit=2".to_owned();
        loop {
            let page = known.page(&Page::parse(&query).expect("a query"));
            let shown = page["destinations"].as_array().expect("a list").clone();
            names.extend(shown.iter().map(|one| one["destination"].as_str().expect("").to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            query = format!("limit=2&after={}", next.replace(':', "%3A"));
        }
        assert_eq!(names, ["a", "a:80", "a:81", "b:81", "z:1"]);
    }

    #[test]
    fn a_query_is_read_or_told_to_be_wrong() {
        assert_eq!(Page::parse(""), Ok(Page { limit: 100, after: None }));
        assert!(
            Page::parse("after=%zz&limit=1").is_ok_and(|page| page.after == Some("%zz".into()))
        );
        for bad in
            ["limit=0", "limit=1001", "limit=x", "limit", "limit=1&limit=1", "x=1", "after=%ff"]
        {
            assert!(Page::parse(bad).is_err(), "{bad}");
        }
    }
}
