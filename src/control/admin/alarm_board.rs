//! `/alarms`: what is wrong with this node at present, since when, what it means for timers, and
//! what to do. The control thread looks at all conditions once a second, whether anybody asks or
//! not, so that an alarm knows when it began.

// Reads the wall clock: told 1.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::alarm_conditions::{CONDITIONS, Condition, Severity, Test};
use super::answers::json_text;
use super::node_view::NodeView;
use crate::node::meters::CoreMeters;
use crate::ring;

/// How far back a count is compared.
const GROWTH_SPAN: Duration = Duration::from_secs(60);
/// How often a count is kept for that.
const KEEP_EVERY: Duration = Duration::from_secs(5);

/// The alarms of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlarmBoard(Arc<Mutex<Vec<Watched>>>);

/// A condition, as it was seen last.
#[derive(Debug, Default)]
struct Watched {
    /// Counts of the last minute, the oldest first.
    kept: VecDeque<(Instant, u64)>,
    /// When the condition began to hold, by both clocks; `None`: it does not hold.
    since: Option<(Instant, u64)>,
    value: u64,
}

impl Watched {
    /// Takes a figure. `wall_ms` is the present in ms since 1970.
    fn see(&mut self, condition: &Condition, figure: u64, now: Instant, wall_ms: u64) {
        let (holds, value) = match condition.test {
            Test::Above(bound) => (figure > bound, figure),
            Test::GrowsBy(least) => {
                let growth = self.growth(figure, now);
                (growth >= least, growth)
            }
        };
        self.value = value;
        self.since = holds.then(|| self.since.unwrap_or((now, wall_ms)));
    }

    /// By how much the count has grown in the last minute. Before the first look it was 0.
    fn growth(&mut self, count: u64, now: Instant) -> u64 {
        let is_old = |kept: &(Instant, u64)| now.saturating_duration_since(kept.0) > GROWTH_SPAN;
        while self.kept.get(1).is_some_and(is_old) {
            self.kept.pop_front();
        }
        let before = match self.kept.front() {
            Some(kept) if self.kept.len() > 1 || is_old(kept) => kept.1,
            Some(kept) => kept.1.min(count),
            None => 0,
        };
        let is_due = |kept: &(Instant, u64)| now.saturating_duration_since(kept.0) >= KEEP_EVERY;
        if self.kept.is_empty() {
            self.kept.push_back((now, 0));
        }
        if self.kept.back().is_none_or(is_due) {
            self.kept.push_back((now, count));
        }
        count.saturating_sub(before)
    }
}

impl AlarmBoard {
    fn lock(&self) -> MutexGuard<'_, Vec<Watched>> {
        // A half-finished look leaves conditions of the look before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at all conditions.
    pub(crate) fn look(&self, meters: &[CoreMeters], now: Instant, wall_ms: u64) {
        let mut watched = self.lock();
        watched.resize_with(CONDITIONS.len(), Watched::default);
        for (condition, watched) in CONDITIONS.iter().zip(watched.iter_mut()) {
            watched.see(condition, condition.figure(meters), now, wall_ms);
        }
    }

    /// How many alarms there are, by severity.
    pub(super) fn counts(&self) -> Value {
        let watched = self.lock();
        let count = |severity| {
            let both = CONDITIONS.iter().zip(watched.iter());
            both.filter(|(it, seen)| it.severity == severity && seen.since.is_some()).count()
        };
        json!({ "critical": count(Severity::Critical), "warning": count(Severity::Warning) })
    }

    /// The alarms, those that are critical first.
    fn render(&self, now: Instant) -> Value {
        let watched = self.lock();
        let mut alarms = Vec::new();
        for severity in [Severity::Critical, Severity::Warning] {
            for (condition, seen) in CONDITIONS.iter().zip(watched.iter()) {
                if let Some((since, wall_ms)) = seen.since
                    && condition.severity == severity
                {
                    alarms.push(json!({
                        "name": condition.name,
                        "severity": severity.word(),
                        "what": condition.what,
                        "effect": condition.effect,
                        "remedy": condition.remedy,
                        "since": super::moment(wall_ms),
                        "seconds": now.saturating_duration_since(since).as_secs(),
                        "value": seen.value,
                        "unit": condition.unit(),
                    }));
                }
            }
        }
        json!({ "alarms": alarms, "watched": CONDITIONS.len() })
    }
}

/// Answers the alarms.
pub(super) async fn alarms(
    State(board): State<AlarmBoard>,
    State(view): State<NodeView>,
) -> Response {
    board.look(&view.meters, Instant::now(), ring::now().wall.0);
    json_text(&board.render(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
        let alarms = document["alarms"].as_array().expect("a list");
        alarms.iter().find(|alarm| alarm["name"] == name)
    }

    #[test]
    fn a_level_is_an_alarm_from_when_it_is_passed_until_it_is_not() {
        let (board, meters) = (AlarmBoard::default(), [CoreMeters::default()]);
        let begun = Instant::now();
        board.look(&meters, begun, 1_000);
        assert_eq!(board.counts(), json!({ "critical": 0, "warning": 0 }));
        meters[0].journal_stalled.set(1);
        for second in 1..4 {
            board.look(&meters, begun + Duration::from_secs(second), 1_000 * (second + 1));
        }
        let told = board.render(begun + Duration::from_secs(3));
        let alarm = named(&told, "journal-stalled").expect("it holds");
        assert_eq!((&alarm["seconds"], &alarm["severity"]), (&2.into(), &"critical".into()));
        assert_eq!(alarm["since"], "1970-01-01T00:00:02.000Z");
        assert_eq!(board.counts()["critical"], 1);
        meters[0].journal_stalled.set(0);
        board.look(&meters, begun + Duration::from_secs(4), 5_000);
        assert_eq!(board.counts()["critical"], 0);
    }

    #[test]
    fn growth_is_an_alarm_for_a_minute() {
        let (board, meters) = (AlarmBoard::default(), [CoreMeters::default()]);
        let begun = Instant::now();
        let told = |second: u64| {
            let now = begun + Duration::from_secs(second);
            board.look(&meters, now, 1_000 * second);
            let told = board.render(now);
            named(&told, "pops-given-up").map(|alarm| alarm["value"].as_u64().expect("a number"))
        };
        assert_eq!(told(0), None);
        meters[0].pops_given_up.set(3);
        assert_eq!(told(1), Some(3));
        for second in 2..55 {
            assert_eq!(told(second), Some(3), "{second}");
        }
        for second in 55..80 {
            told(second);
        }
        assert_eq!(told(80), None);
        meters[0].pops_given_up.set(4);
        assert_eq!(told(81), Some(1));
    }
}
