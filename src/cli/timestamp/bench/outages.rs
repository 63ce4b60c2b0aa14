//! How long clients were without an answer. The outages of single connections are put together into
//! failovers.

use serde_json::{Value, json};

/// What one connection saw between an error and the next answer. Times are nanoseconds since the
/// run began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    /// When the connection got its last answer before; `None` if it never had one.
    pub last_answer_ns: Option<u64>,
    /// When the connection met the first error.
    pub first_error_ns: u64,
    /// When the connection got the first answer after.
    pub answer_ns: u64,
    /// How many errors lie in between.
    pub errors: u64,
    /// The server that had answered before.
    pub from: Option<String>,
    /// The server that answered after.
    pub to: String,
    /// The first error, in words.
    pub error: String,
}

impl Outage {
    /// Returns the nanoseconds without an answer: from the last answer, or from the first error if
    /// there was no answer before.
    pub(super) fn gap_ns(&self) -> u64 {
        self.answer_ns - self.last_answer_ns.unwrap_or(self.first_error_ns)
    }

    /// Returns the nanoseconds as the original's benchmark counts them: from the first error.
    pub(super) fn error_ns(&self) -> u64 {
        self.answer_ns - self.first_error_ns
    }

    /// Reports whether the connection was closed and made again at the first try, with the same
    /// server. The original closes connections that are quiet for 3 s.
    pub(super) fn is_reconnection(&self) -> bool {
        self.errors == 1 && self.from.as_deref() == Some(&*self.to)
    }
}

/// Outages of several connections that overlap in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failover {
    /// When the first connection met an error.
    pub first_error_ns: u64,
    /// How many connections took part.
    pub connections: usize,
    /// The median time of a connection without an answer.
    pub gap_median_ns: u64,
    /// The longest time of a connection without an answer.
    pub gap_max_ns: u64,
    /// From the last answer on any of these connections to the first answer on any of them.
    pub gap_all_ns: u64,
    /// The mean time of a connection from its first error to the next answer, as the original
    /// counts.
    pub error_mean_ns: u64,
    /// The longest time of a connection from its first error to the next answer.
    pub error_max_ns: u64,
    /// The server that answered after.
    pub to: String,
    /// The first error, in words.
    pub error: String,
}

/// Puts outages that overlap in time together. Leaves reconnections out.
pub(crate) fn failovers(outages: &[Outage]) -> Vec<Failover> {
    let mut outages: Vec<&Outage> =
        outages.iter().filter(|outage| !outage.is_reconnection()).collect();
    outages.sort_by_key(|outage| outage.first_error_ns);
    let mut groups: Vec<Vec<&Outage>> = Vec::new();
    let mut end_ns = 0;
    for outage in outages {
        match groups.last_mut() {
            Some(group) if outage.first_error_ns <= end_ns => group.push(outage),
            _ => groups.push(vec![outage]),
        }
        end_ns = end_ns.max(outage.answer_ns);
    }
    groups.iter().map(|group| together(group)).collect()
}

fn together(group: &[&Outage]) -> Failover {
    let mut gaps: Vec<u64> = group.iter().map(|outage| outage.gap_ns()).collect();
    gaps.sort_unstable();
    let first_answer = group.iter().map(|outage| outage.answer_ns).min().unwrap_or(0);
    let last_answer = group.iter().filter_map(|outage| outage.last_answer_ns).max();
    let errors = group.iter().map(|outage| outage.error_ns());
    Failover {
        first_error_ns: group[0].first_error_ns,
        connections: group.len(),
        gap_median_ns: gaps[gaps.len() / 2],
        gap_max_ns: gaps[gaps.len() - 1],
        gap_all_ns: last_answer.map_or(0, |last| first_answer.saturating_sub(last)),
        error_mean_ns: errors.clone().sum::<u64>() / group.len() as u64,
        error_max_ns: errors.max().unwrap_or(0),
        to: group[group.len() - 1].to.clone(),
        error: group[0].error.clone(),
    }
}

impl Failover {
    /// Returns one line for people. `at` is when the failover began, in words.
    pub(super) fn line(&self, at: &str) -> String {
        let s = |ns: u64| ns as f64 / 1e9;
        let connections = self.connections;
        let plural = if connections == 1 { "" } else { "s" };
        format!(
            "{at}  {connections} connection{plural} without an answer for {:.3} s (median), {:.3} \
             s (longest); nobody had one for {:.3} s; from the first error {:.3} s (mean); then \
             {} answered; first error: {}",
            s(self.gap_median_ns),
            s(self.gap_max_ns),
            s(self.gap_all_ns),
            s(self.error_mean_ns),
            self.to,
            self.error
        )
    }

    /// Returns the failover as JSON. `at` is when it began, in words.
    pub(super) fn document(&self, at: &str) -> Value {
        let ms = |ns: u64| ns as f64 / 1e6;
        json!({
            "at": at, "connections": self.connections, "server": self.to, "error": self.error,
            "gap_median_ms": ms(self.gap_median_ns), "gap_max_ms": ms(self.gap_max_ns),
            "gap_all_ms": ms(self.gap_all_ns),
            "from_first_error_mean_ms": ms(self.error_mean_ns),
            "from_first_error_max_ms": ms(self.error_max_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outage(last: u64, error: u64, answer: u64, errors: u64, to: &str) -> Outage {
        Outage {
            last_answer_ns: Some(last),
            first_error_ns: error,
            answer_ns: answer,
            errors,
            from: Some("a:1".into()),
            to: to.into(),
            error: "closed".into(),
        }
    }

    #[test]
    fn outages_that_overlap_are_one_failover() {
        let outages = [
            outage(1_000, 1_010, 4_000, 7, "b:1"),
            outage(990, 1_200, 4_100, 5, "b:1"),
            outage(9_000, 9_001, 9_900, 2, "c:1"),
            outage(6_000, 6_001, 6_010, 1, "a:1"),
        ];
        let found = failovers(&outages);
        assert_eq!(found.len(), 2, "{found:?}");
        let first = &found[0];
        assert_eq!((first.connections, first.first_error_ns), (2, 1_010));
        assert_eq!(
            (first.gap_median_ns, first.gap_max_ns, first.gap_all_ns),
            (3_110, 3_110, 3_000)
        );
        assert_eq!((first.error_mean_ns, first.error_max_ns), ((2_990 + 2_900) / 2, 2_990));
        assert_eq!((found[1].connections, found[1].to.as_str()), (1, "c:1"));
        assert!(failovers(&[]).is_empty());
    }

    #[test]
    fn a_connection_made_again_at_once_is_no_failover() {
        assert!(outage(0, 1, 2, 1, "a:1").is_reconnection());
        assert!(!outage(0, 1, 2, 2, "a:1").is_reconnection());
        assert!(!outage(0, 1, 2, 1, "b:1").is_reconnection());
        let line = failovers(&[outage(0, 1_000_000, 2_000_000, 2, "a:1")])[0].line("12:00:00");
        assert!(line.starts_with("12:00:00  1 connection without an answer for 0.002 s"), "{line}");
    }
}
