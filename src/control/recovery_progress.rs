//! Whether a node serves: how far a start is with its journal, for `/readyz` and the log, and why
//! writes are refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::interval;
use tracing::info;

use super::estimate::left_s;
use crate::node::meters::CoreMeters;

/// Pause between two lines in the log.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// How far all cores are together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    /// Bytes that were read.
    read: u64,
    /// Bytes of all files. The last segment of each shard is seldom full.
    bytes: u64,
    /// Timers that were taken.
    timers: u64,
}

/// How far the cores are; `None`: all of them have read their journals, or there is none.
pub(crate) fn progress(meters: &[CoreMeters]) -> Option<Progress> {
    let sum = |meter: fn(&CoreMeters) -> u64| meters.iter().map(meter).sum::<u64>();
    (sum(|core| core.journal_recovering.get()) > 0).then(|| Progress {
        read: sum(|core| core.journal_recovered_bytes.get()),
        bytes: sum(|core| core.journal_recovery_bytes.get()),
        timers: sum(|core| core.journal_recovered_timers.get()),
    })
}

/// Why a core answers all clients' writes with 503, if it does. Whose limits alone are reached goes
/// on: other nodes stand in for it.
pub(crate) fn takes_no_writes(core: &CoreMeters) -> Option<&'static str> {
    let conditions = [
        (&core.journal_away, "takes no writes: its data directory is not where it was"),
        (&core.journal_full, "takes no writes: its journal cannot grow; the log says why"),
        (&core.journal_stalled, "takes no writes: the disk of its journal does not answer"),
        (&core.writes_refused, "takes no writes: its alarms (GET /alarms) and the log say why"),
    ];
    conditions.into_iter().find(|(gauge, _)| gauge.get() > 0).map(|(_, told)| told)
}

impl Progress {
    pub(crate) fn percent(&self) -> u64 {
        (self.read * 100).checked_div(self.bytes).unwrap_or(0).min(99)
    }

    /// A sentence without an end: how far it is.
    pub(crate) fn text(&self) -> String {
        let (percent, timers) = (self.percent(), self.timers);
        format!("reading the journal: {percent} %, {timers} timers so far")
    }

    /// Seconds that are left if it goes on as it did for `since`.
    pub(crate) fn left_s(&self, since: Duration) -> Option<u64> {
        left_s(since, self.read, self.bytes)
    }
}

/// Logs how far the start is, until it is done.
pub(crate) async fn tell(meters: Arc<[CoreMeters]>) {
    let began = Instant::now();
    let mut look = interval(TELL_EVERY);
    // The first look is at once; nobody waits for a start that is done in less than the pause.
    look.tick().await;
    loop {
        look.tick().await;
        let Some(progress) = progress(&meters) else { return };
        let text = progress.text();
        match progress.left_s(began.elapsed()) {
            Some(left_s) => info!(left_s, "{text}; no request is answered meanwhile"),
            None => info!("{text}; no request is answered meanwhile"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_until_all_cores_are_done() {
        let meters = [CoreMeters::default(), CoreMeters::default()];
        assert_eq!(progress(&meters), None, "there is no journal");
        meters[0].journal_recovering.set(1);
        meters[1].journal_recovered_bytes.set(300);
        meters[0].journal_recovery_bytes.set(400);
        meters[1].journal_recovery_bytes.set(600);
        meters[1].journal_recovered_timers.set(7);
        let found = progress(&meters).expect("one core reads");
        assert_eq!(found.text(), "reading the journal: 30 %, 7 timers so far");
        assert_eq!(found.left_s(Duration::from_secs(3)), Some(7));
        meters[0].journal_recovering.set(0);
        assert_eq!(progress(&meters), None);
    }
}
