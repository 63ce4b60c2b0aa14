//! All rules of destinations that a node knows: those of its configuration, and what operators
//! ordered at any node. An order goes before the configuration. Of two orders for one destination
//! the later one counts, so that all nodes come to the same rules in whatever order they hear.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::destinations::{DESTINATIONS_MAX, DestinationTable, Rule};
use crate::wire::destination::Ordered;
use crate::wire::peer_message::ORDERS_BYTES_MAX;

/// For so long it is remembered that an order was taken back. A node that was away for longer may
/// bring the order back.
const TAKEN_BACK_MS: u64 = 7 * 24 * 3_600_000;
/// So far ahead of this node's clock an order of another node may be. It would go before all that
/// is ordered until then.
const AHEAD_MS_MAX: u64 = 24 * 3_600_000;

/// As many destinations have rules as may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{DESTINATIONS_MAX} destinations have rules, which is the limit: delete one, or give a rule \
     without a port to a host at all its ports"
)]
pub(super) struct Full;

/// The rules.
#[derive(Debug, Default)]
pub(super) struct Book {
    configured: BTreeMap<String, Rule>,
    orders: BTreeMap<String, Ordered>,
}

impl Book {
    /// Sets what the configuration says.
    pub(super) fn configure(&mut self, rules: Vec<(String, Rule)>) {
        self.configured = rules.into_iter().collect();
    }

    /// Makes an order of an operator: it is later than all orders for the destination that are
    /// known.
    pub(super) fn order(
        &mut self,
        name: String,
        rule: Option<Rule>,
        (now_ms, node): (u64, u32),
    ) -> Result<Ordered, Full> {
        if rule.is_some() && !self.has_room(&name) {
            return Err(Full);
        }
        let former = self.orders.get(&name).map_or(0, |former| former.stamp.0.saturating_add(1));
        let ordered = Ordered { stamp: (now_ms.max(former), node), name, rule };
        self.orders.insert(ordered.name.clone(), ordered.clone());
        self.forget_old(now_ms);
        Ok(ordered)
    }

    /// Takes an order that another node tells, or that the file has. Returns whether something
    /// changes.
    pub(super) fn take(&mut self, ordered: Ordered, now_ms: u64) -> bool {
        let former = self.orders.get(&ordered.name);
        let is_later = former.is_none_or(|former| former.stamp < ordered.stamp);
        let is_sane = ordered.stamp.0 <= now_ms.saturating_add(AHEAD_MS_MAX);
        let is_over = ordered.rule.is_none() && ordered.stamp.0 + TAKEN_BACK_MS < now_ms;
        let has_room = ordered.rule.is_none() || self.has_room(&ordered.name);
        if !is_later || !is_sane || is_over || !has_room {
            return false;
        }
        self.orders.insert(ordered.name.clone(), ordered);
        self.forget_old(now_ms);
        true
    }

    fn has_room(&self, name: &str) -> bool {
        self.rule(name).is_some() || self.names().len() < DESTINATIONS_MAX
    }

    /// Forgets that orders were taken back, the oldest first.
    fn forget_old(&mut self, now_ms: u64) {
        self.orders.retain(|_, one| {
            one.rule.is_some() || one.stamp.0.saturating_add(TAKEN_BACK_MS) >= now_ms
        });
        let taken_back = self.orders.values().filter(|one| one.rule.is_none());
        let mut stamps: Vec<_> = taken_back.map(|one| one.stamp).collect();
        let Some(extra) = stamps.len().checked_sub(DESTINATIONS_MAX) else { return };
        stamps.sort_unstable();
        let oldest: BTreeSet<_> = stamps.into_iter().take(extra).collect();
        self.orders.retain(|_, one| one.rule.is_some() || !oldest.contains(&one.stamp));
    }

    /// The destinations that have rules.
    pub(super) fn names(&self) -> BTreeSet<&str> {
        let ordered = self.orders.values().filter(|one| one.rule.is_some());
        let ordered = ordered.map(|one| one.name.as_str());
        self.configured.keys().map(String::as_str).chain(ordered).collect()
    }

    /// The rule of a destination, and whether an operator ordered it.
    pub(super) fn rule(&self, name: &str) -> Option<(Rule, bool)> {
        let ordered = self.orders.get(name).and_then(|one| one.rule);
        let ordered = ordered.map(|rule| (rule, true));
        ordered.or_else(|| self.configured.get(name).map(|rule| (*rule, false)))
    }

    /// The rules for the cores.
    pub(super) fn table(&self, former: &DestinationTable) -> DestinationTable {
        let rule = |name: &str| self.rule(name).map(|(rule, _)| (name.to_owned(), rule));
        DestinationTable::new(self.names().into_iter().filter_map(rule), former)
    }

    /// All orders as lines, for the file.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.orders.values().for_each(|one| one.write(&mut text));
        text
    }

    /// All orders as messages for other nodes.
    pub(super) fn messages(&self) -> Vec<Box<[u8]>> {
        messages(self.orders.values())
    }
}

/// Orders as messages for other nodes.
pub(super) fn messages<'a>(orders: impl Iterator<Item = &'a Ordered>) -> Vec<Box<[u8]>> {
    let (mut messages, mut text, mut line) = (Vec::new(), String::new(), String::new());
    for one in orders {
        line.clear();
        one.write(&mut line);
        if text.len() + line.len() > ORDERS_BYTES_MAX {
            messages.push(std::mem::take(&mut text).into_bytes().into());
        }
        text.push_str(&line);
    }
    if !text.is_empty() {
        messages.push(text.into_bytes().into());
    }
    messages
}

/// The orders of a message or a file, and how many lines are none.
pub(super) fn read(lines: &[u8]) -> (Vec<Ordered>, usize) {
    let (mut orders, mut wrong) = (Vec::new(), 0);
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match std::str::from_utf8(line).ok().and_then(Ordered::parse) {
            Some(ordered) => orders.push(ordered),
            None => wrong += 1,
        }
    }
    (orders, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn rule(max: u32) -> Option<Rule> {
        Some(Rule { max_in_flight: Some(max), ..Rule::default() })
    }

    fn max_of(book: &Book, name: &str) -> Option<u32> {
        book.rule(name).and_then(|(rule, _)| rule.max_in_flight)
    }

    #[test]
    fn an_order_goes_before_the_configuration_until_it_is_taken_back() {
        let mut book = Book::default();
        book.configure(vec![("a".into(), rule(1).expect("a rule"))]);
        book.order("a".into(), rule(2), (NOW, 7)).expect("room");
        assert_eq!((max_of(&book, "a"), book.rule("a").map(|(_, by)| by)), (Some(2), Some(true)));
        book.order("a".into(), None, (NOW - 5_000, 7)).expect("room");
        assert_eq!(max_of(&book, "a"), Some(1), "the clock was set back");
        assert_eq!(book.table(&DestinationTable::default()).all().len(), 1);
    }

    #[test]
    fn nodes_agree_in_whatever_order_they_hear() {
        let mut at = Book::default();
        let first = at.order("a".into(), rule(1), (NOW, 1)).expect("room");
        let second = at.order("a".into(), rule(2), (NOW, 1)).expect("room");
        let other = Ordered { stamp: (second.stamp.0, 2), ..first.clone() };
        let gone = at.order("b".into(), None, (NOW, 1)).expect("room");
        let all = [first, second, other, gone];
        let mut texts = BTreeSet::new();
        for turn in 0..4 {
            let mut book = Book::default();
            for one in all.iter().cycle().skip(turn).take(4) {
                book.take(one.clone(), NOW);
            }
            assert!(!book.take(all[0].clone(), NOW), "it is older");
            texts.insert(book.text());
            let told = book.messages();
            let mut learner = Book::default();
            for one in told.iter().flat_map(|message| read(message).0) {
                assert!(learner.take(one, NOW));
            }
            texts.insert(learner.text());
        }
        assert_eq!(texts.len(), 1, "{texts:?}");
    }

    #[test]
    fn the_table_is_bounded_and_so_is_what_is_remembered() {
        let mut book = Book::default();
        for number in 0..DESTINATIONS_MAX {
            book.order(format!("h{number}"), rule(1), (NOW, 1)).expect("room");
        }
        assert_eq!(book.order("more".into(), rule(1), (NOW, 1)), Err(Full));
        book.order("h7".into(), rule(9), (NOW, 1)).expect("it has a rule");
        let told = Ordered { stamp: (NOW, 3), name: "told".into(), rule: rule(1) };
        assert!(!book.take(told.clone(), NOW));
        book.order("h8".into(), None, (NOW, 1)).expect("it needs no room");
        assert!(book.take(told, NOW));
        let messages = book.messages();
        assert!(messages.len() > 1 && messages.iter().all(|one| one.len() <= ORDERS_BYTES_MAX));
        for number in 0..3 * DESTINATIONS_MAX {
            book.order(format!("gone{number}"), None, (NOW + number as u64, 1)).expect("no room");
        }
        assert!(book.orders.len() <= 2 * DESTINATIONS_MAX);
        assert_eq!(book.names().len(), DESTINATIONS_MAX);
        book.order("h9".into(), None, (NOW + 2 * TAKEN_BACK_MS, 1)).expect("it needs no room");
        assert_eq!(book.orders.len(), DESTINATIONS_MAX, "only h9 is remembered as taken back");
    }

    #[test]
    fn nonsense_is_counted_and_the_far_future_is_not_taken() {
        let (orders, wrong) = read(b"1 2 a paused\nx\n\n\xff\n3 4 - b\n");
        assert_eq!((orders.len(), wrong), (2, 2));
        let far = Ordered { stamp: (u64::MAX, 1), name: "a".into(), rule: rule(1) };
        assert!(!Book::default().take(far, NOW));
    }
}
