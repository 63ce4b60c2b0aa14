//! Work of a node that takes long: reading its journal at the start, and comparing its timers with
//! the other nodes and sites. The log tells how far the work is, and `/overview` does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::interval;
use tracing::info;

use super::cluster::desk::ClusterDesk;
use super::cluster::moving::Moving;
use super::cluster::sites::Offer;
use super::estimate::left_s;
use super::recovery_progress;
use crate::node::meters::CoreMeters;

/// How often is looked whether nodes compare their timers.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause between two lines of the log about one work.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A line for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// It goes on; so many copies were moved since it began, and so many seconds are left.
    Under { moved: u64, left_s: Option<u64> },
    /// It is done, after so many seconds; so many copies were moved.
    Done { moved: u64, seconds: u64 },
}

/// What the log has said of a comparison.
#[derive(Debug, Default)]
struct Told {
    /// When it was first seen, and what had been moved until then.
    begun: Option<(Instant, u64)>,
    last: Option<Instant>,
}

impl Told {
    /// Takes a look, and returns what the log is to say. A comparison that ends before the first
    /// line is not told of.
    fn look(&mut self, moving: &Moving, now: Instant) -> Option<Line> {
        if !moving.is_running {
            let (begun, before) = self.begun.take()?;
            self.last.take()?;
            let seconds = now.saturating_duration_since(begun).as_secs();
            return Some(Line::Done { moved: moving.moved.saturating_sub(before), seconds });
        }
        let (begun, before) = *self.begun.get_or_insert((now, moving.moved));
        if now.saturating_duration_since(self.last.unwrap_or(begun)) < TELL_EVERY {
            return None;
        }
        self.last = Some(now);
        let since = now.saturating_duration_since(begun);
        let left_s = left_s(since, moving.done(), moving.total);
        Some(Line::Under { moved: moving.moved.saturating_sub(before), left_s })
    }
}

/// Logs how far comparisons are until the future is dropped. Must run inside the control thread's
/// runtime.
pub(crate) async fn watch(desk: Arc<ClusterDesk>, meters: Arc<[CoreMeters]>) {
    let mut look = interval(LOOK_EVERY);
    let mut told = Told::default();
    let mut told_of_sites = BTreeMap::new();
    loop {
        look.tick().await;
        tell_offers(&mut told_of_sites, desk.offers(&meters));
        let moving = desk.moving(&meters);
        match told.look(&moving, Instant::now()) {
            Some(Line::Under { moved, left_s: Some(left_s) }) => {
                info!(left_s, moved, "{}, {moved} copies moved so far", moving.text());
            }
            Some(Line::Under { moved, left_s: None }) => {
                info!(moved, "{}, {moved} copies moved so far", moving.text());
            }
            Some(Line::Done { moved, seconds }) => {
                info!(
                    seconds,
                    moved,
                    "all timers are compared with the other nodes, in {seconds} s: {moved} copies \
                     moved"
                );
            }
            None => {}
        }
    }
}

/// Tells how far other sites are offered what they lack. A site that is not reached any more is
/// none of them.
fn tell_offers(told: &mut BTreeMap<String, Told>, offers: Vec<(String, Option<Offer>)>) {
    told.retain(|site, _| offers.iter().any(|(named, _)| named == site));
    for (site, offer) in offers {
        let moving = Offer::moving(offer);
        let line = told.entry(site.clone()).or_default().look(&moving, Instant::now());
        let percent = moving.percent();
        match line {
            Some(Line::Under { left_s: Some(left_s), .. }) => info!(
                site,
                percent,
                left_s,
                "{site} is offered the timers that it lacks: {percent} %, {left_s} s left"
            ),
            Some(Line::Under { left_s: None, .. }) => {
                info!(site, percent, "{site} is offered the timers that it lacks: {percent} %");
            }
            Some(Line::Done { seconds, .. }) => {
                info!(
                    site,
                    seconds, "{site} was offered all timers that it lacked, in {seconds} s"
                );
            }
            None => {}
        }
    }
}

/// The work that goes on, for `/overview`. `since` is how long the node runs.
pub(crate) fn document(desk: &ClusterDesk, meters: &[CoreMeters], since: Duration) -> Value {
    let mut works = Vec::new();
    if let Some(reading) = recovery_progress::progress(meters) {
        works.push(json!({
            "what": "recovery",
            "percent": reading.percent(),
            "left_s": reading.left_s(since),
            "text": reading.text(),
        }));
    }
    let moving = desk.moving(meters);
    if moving.is_running {
        let since = desk.moving_since(moving.is_running, Instant::now()).unwrap_or_default();
        works.push(json!({
            "what": "resynchronisation",
            "percent": moving.percent(),
            "left_s": left_s(since, moving.done(), moving.total),
            "text": moving.text(),
        }));
    }
    works.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moving(seen: u64, moved: u64) -> Moving {
        Moving { is_running: true, seen, total: 1_000, misplaced: 0, moved }
    }

    #[test]
    fn a_comparison_is_told_every_ten_seconds_and_at_its_end() {
        let begun = Instant::now();
        let mut told = Told::default();
        let mut look = |moving: Moving, s: u64| told.look(&moving, begun + Duration::from_secs(s));
        assert_eq!(look(moving(0, 5), 0), None);
        assert_eq!(look(moving(100, 5), 9), None);
        assert_eq!(look(moving(250, 8), 10), Some(Line::Under { moved: 3, left_s: Some(30) }));
        assert_eq!(look(moving(300, 8), 19), None);
        assert_eq!(look(moving(0, 9), 20), Some(Line::Under { moved: 4, left_s: None }));
        let over = Moving { is_running: false, ..moving(1_000, 9) };
        assert_eq!(look(over, 23), Some(Line::Done { moved: 4, seconds: 23 }));
        assert_eq!(look(over, 40), None);
    }

    #[test]
    fn a_short_comparison_is_not_told_of() {
        let begun = Instant::now();
        let mut told = Told::default();
        assert_eq!(told.look(&moving(5, 0), begun), None);
        let over = Moving { is_running: false, ..moving(5, 0) };
        assert_eq!(told.look(&over, begun + Duration::from_secs(5)), None);
        // The next one counts from its own beginning.
        assert_eq!(told.look(&moving(5, 7), begun + Duration::from_secs(60)), None);
        assert_eq!(told.look(&moving(5, 7), begun + Duration::from_secs(69)), None);
    }
}
