//! The client's records of its requests: latencies, throughput over time, failures by kind.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::histogram::{BUCKET_NS, BUCKETS_MAX, new_histogram};
use crate::over_time::OverTime;

/// What a request does. Each operation has its own histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A `POST`.
    Create,
    /// A `PUT`.
    Update,
    /// A `DELETE`.
    Delete,
}

impl Operation {
    /// All operations, in the order of their histograms.
    pub const ALL: [Operation; 3] = [Operation::Create, Operation::Update, Operation::Delete];

    /// The operation's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
        }
    }
}

/// Why a request has no good answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Failure {
    /// The answer has another status than 200.
    Status(u16),
    /// The connection was refused.
    Refused,
    /// The connection broke with requests in flight.
    Reset,
    /// The server closed the connection with requests in flight.
    Closed,
    /// No answer came in time.
    Timeout,
    /// An answer cannot be read, or no request asked for it.
    Malformed,
    /// The request was intended within the measured time but never sent, because the server was too
    /// slow (open loop).
    Unsent,
}

impl Failure {
    /// The failure's key in reports: `status 503`, `refused`…
    pub fn name(self) -> String {
        match self {
            Failure::Status(code) => format!("status {code}"),
            other => format!("{other:?}").to_lowercase(),
        }
    }
}

/// One request in flight.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// When the request should have been sent, in monotonic nanoseconds. Latency counts from this
    /// time.
    pub intended_ns: u64,
    /// When the request was handed to the ring, in monotonic nanoseconds.
    pub sent_ns: u64,
    /// What the request does.
    pub operation: Operation,
    /// The workload's own number of the request.
    pub tag: u64,
}

/// Counts and histograms of one run.
#[derive(Debug)]
pub struct Recorder {
    /// Start of the measured time, in monotonic nanoseconds.
    pub from_ns: u64,
    /// End of the measured time, in monotonic nanoseconds.
    pub to_ns: u64,
    /// Requests intended from this time on are also recorded in [`Recorder::after_split`].
    pub split_ns: u64,
    /// Whether the load is an open loop. In an open loop the intended time of a request decides
    /// whether the request belongs to the measured time; in a closed loop the arrival of its answer
    /// decides.
    pub open_loop: bool,
    /// Latency in nanoseconds of the good answers of the measured time; in an open loop also the
    /// time that unanswered requests waited.
    pub latency: Histogram<u64>,
    /// The same latencies by operation, in the order of [`Operation::ALL`].
    pub by_operation: [Histogram<u64>; 3],
    /// The same latencies for requests intended after the split.
    pub after_split: Histogram<u64>,
    /// Good answers that arrived within the measured time.
    pub answered: u64,
    /// Good answers of the whole run, with warm-up and drain.
    pub answered_in_all: u64,
    /// Good answers per bucket of the measured time.
    pub timeline: Vec<u32>,
    /// The recorded latencies by the time since the start of the measured time.
    pub over_time: OverTime,
    /// Failures of the whole run, by kind.
    pub failures: BTreeMap<Failure, u64>,
}

impl Recorder {
    /// An empty recorder. It measures nothing until `from_ns` and `to_ns` are set.
    pub fn new(open_loop: bool, split_ns: Option<u64>) -> Recorder {
        Recorder {
            from_ns: u64::MAX,
            to_ns: u64::MAX,
            split_ns: split_ns.unwrap_or(u64::MAX),
            open_loop,
            latency: new_histogram(),
            by_operation: [new_histogram(), new_histogram(), new_histogram()],
            after_split: new_histogram(),
            answered: 0,
            answered_in_all: 0,
            timeline: Vec::new(),
            over_time: OverTime::default(),
            failures: BTreeMap::new(),
        }
    }

    /// Notes that a good answer to `flight` arrived.
    pub fn answered(&mut self, flight: &Flight, now_ns: u64) {
        self.answered_in_all += 1;
        let arrived_inside = (self.from_ns..self.to_ns).contains(&now_ns);
        if arrived_inside {
            self.answered += 1;
            let bucket = ((now_ns - self.from_ns) / BUCKET_NS) as usize;
            if bucket < BUCKETS_MAX {
                if bucket >= self.timeline.len() {
                    self.timeline.resize(bucket + 1, 0);
                }
                self.timeline[bucket] += 1;
            }
        }
        let intended_inside = (self.from_ns..self.to_ns).contains(&flight.intended_ns);
        if if self.open_loop { intended_inside } else { arrived_inside } {
            self.record(flight, now_ns);
        }
    }

    /// Notes that a request failed. In an open loop the latency of an unanswered request counts
    /// with the time that it waited.
    pub fn failed(&mut self, failure: Failure, flight: &Flight, now_ns: u64) {
        *self.failures.entry(failure).or_default() += 1;
        let unanswered = matches!(failure, Failure::Timeout | Failure::Unsent);
        let inside = (self.from_ns..self.to_ns).contains(&flight.intended_ns);
        if unanswered && self.open_loop && inside {
            self.record(flight, now_ns);
        }
    }

    /// Notes a failure that belongs to no request.
    pub fn failed_without_request(&mut self, failure: Failure) {
        *self.failures.entry(failure).or_default() += 1;
    }

    fn record(&mut self, flight: &Flight, now_ns: u64) {
        let latency_ns = now_ns.saturating_sub(flight.intended_ns);
        self.latency.saturating_record(latency_ns);
        self.over_time.note(now_ns.saturating_sub(self.from_ns), latency_ns);
        self.by_operation[flight.operation as usize].saturating_record(latency_ns);
        if flight.intended_ns >= self.split_ns {
            self.after_split.saturating_record(latency_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(intended_ns: u64) -> Flight {
        Flight { intended_ns, sent_ns: intended_ns, operation: Operation::Update, tag: 0 }
    }

    #[test]
    fn open_loop_counts_by_intention_and_keeps_the_unanswered() {
        let mut recorder = Recorder::new(true, Some(160));
        (recorder.from_ns, recorder.to_ns) = (100, 200);
        recorder.answered(&flight(99), 150);
        recorder.answered(&flight(100), 250);
        recorder.answered(&flight(199), 199);
        recorder.failed(Failure::Unsent, &flight(150), 1150);
        recorder.failed(Failure::Status(503), &flight(150), 150);
        assert_eq!((recorder.answered, recorder.answered_in_all), (2, 3));
        assert_eq!((recorder.latency.len(), recorder.latency.max()), (3, 1000));
        assert_eq!(recorder.by_operation[Operation::Update as usize].len(), 3);
        assert_eq!(recorder.after_split.len(), 1);
        assert_eq!(recorder.timeline, [2]);
        let names: Vec<String> = recorder.failures.keys().map(|failure| failure.name()).collect();
        assert_eq!(names, ["status 503", "unsent"]);
    }

    #[test]
    fn closed_loop_counts_by_arrival() {
        let mut recorder = Recorder::new(false, None);
        (recorder.from_ns, recorder.to_ns) = (100, 200);
        recorder.answered(&flight(90), 110);
        recorder.answered(&flight(190), 210);
        assert_eq!((recorder.latency.len(), recorder.latency.max()), (1, 20));
    }
}
