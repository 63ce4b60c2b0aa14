//! All events of a run as one number. Two runs of one seed must give the same number. The last
//! events are kept for people.

use std::collections::VecDeque;

/// How many events are kept as text.
const KEPT: usize = 60;

/// A running hash over every event, and the newest of them.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    hash: u64,
    events: u64,
    kept: VecDeque<String>,
    is_kept: bool,
}

impl Trace {
    /// Makes a trace. It keeps texts only when `is_kept`, because texts cost more than the run
    /// itself.
    pub fn new(is_kept: bool) -> Self {
        Self { is_kept, ..Self::default() }
    }

    /// Returns the hash over all events.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns how many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Adds an event: its time, its kind, and its numbers.
    pub fn add(&mut self, at_ns: u64, kind: &'static str, numbers: [u64; 4]) {
        self.events += 1;
        let name = u64::from(kind.as_bytes()[0]) << 8 | kind.len() as u64;
        for word in [at_ns, name].into_iter().chain(numbers) {
            self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
        if self.is_kept {
            if self.kept.len() == KEPT {
                self.kept.pop_front();
            }
            let [a, b, c, d] = numbers;
            self.kept.push_back(format!("{:>12} us {kind:<10} {a} {b} {c} {d}", at_ns / 1_000));
        }
    }

    /// Returns the newest events, the oldest first.
    pub fn tail(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().map(String::as_str)
    }
}
