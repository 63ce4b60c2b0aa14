//! Tells in the log whose requests are refused at the limits of their tokens: at once, and then
//! once a minute for each name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch::{Receiver, Sender};
use tokio::time::interval;
use tracing::warn;

use crate::base::quota::RefusedRequests;
use crate::node::clients::tokens::Tokens;

/// How often the counts are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Shortest pause between two lines about one name.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Where the tokens that are valid from now on are put.
pub(crate) type PresentTokens = Sender<Option<Arc<Tokens>>>;

/// Tells of refusals by the present tokens, until the future is dropped. Must run inside the
/// control thread's runtime.
pub(crate) async fn watch(present: Receiver<Option<Arc<Tokens>>>) {
    let mut look = interval(LOOK_EVERY);
    let mut told = Told::default();
    loop {
        look.tick().await;
        let tokens = present.borrow().clone();
        for (name, more) in tokens.iter().flat_map(|tokens| told.due(tokens, Instant::now())) {
            let RefusedRequests { timers, creates, connections } = more;
            warn!(
                name,
                timers,
                creates,
                connections,
                "requests beyond the limits of a token's name were refused (auth.tokens_file): \
                 more timers, creates and deletes a second, or connections than it may have"
            );
        }
    }
}

/// What was told of each name, and when.
#[derive(Default)]
struct Told(HashMap<Box<str>, (RefusedRequests, Instant)>);

impl Told {
    /// The names of which there is more to tell, with what was refused since the last line. Notes
    /// that as told. Names without limits are forgotten.
    fn due<'t>(&mut self, tokens: &'t Tokens, now: Instant) -> Vec<(&'t str, RefusedRequests)> {
        let quotas = tokens.quotas();
        self.0.retain(|name, _| quotas.contains_key(name));
        let mut due = Vec::new();
        for (name, quota) in &**quotas {
            let refused = quota.refused();
            let told = self.0.get(name).copied();
            let (before, is_late) = told.map_or((RefusedRequests::default(), true), |told| {
                (told.0, now.saturating_duration_since(told.1) >= TELL_EVERY)
            });
            if refused == before || !is_late {
                continue;
            }
            let more = RefusedRequests {
                timers: refused.timers.saturating_sub(before.timers),
                creates: refused.creates.saturating_sub(before.creates),
                connections: refused.connections.saturating_sub(before.connections),
            };
            self.0.insert(name.clone(), (refused, now));
            due.push((&**name, more));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_told_at_once_and_then_once_a_minute() {
        let line = |name, digit: char, limit: &str| {
            format!("{name} client {} {limit}\n", digit.to_string().repeat(64))
        };
        let text = line("a", '1', "connections=1") + &line("b", '2', "creates_per_s=1");
        let tokens = Tokens::parse(text.as_bytes()).expect("a good file");
        let quota = |name: &str| Arc::clone(&tokens.quotas()[name]);
        let begun = Instant::now();
        let mut told = Told::default();
        let mut due = |at| {
            let mut due = told.due(&tokens, at);
            due.sort_by_key(|(name, _)| *name);
            due.into_iter().map(|(name, more)| (name, more.connections)).collect::<Vec<_>>()
        };
        assert_eq!(due(begun), []);
        let held = quota("a").connect();
        assert!(held.is_some() && quota("a").connect().is_none());
        assert_eq!(due(begun), [("a", 1)]);
        for _ in 0..3 {
            assert!(quota("a").connect().is_none());
        }
        quota("b").note_timer_refused();
        assert_eq!(due(begun + TELL_EVERY / 2), [("b", 0)], "its own first");
        assert_eq!(due(begun + TELL_EVERY), [("a", 3)]);
        assert_eq!(due(begun + TELL_EVERY * 3), []);
    }
}
