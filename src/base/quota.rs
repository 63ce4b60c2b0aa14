//! What the tokens of one name may use of a node, and what they use of it. All cores of the node
//! share the figures. Each figure is one atomic word, so no core waits for another.

// May panic: assertions 2.
// Why it does not: compiled 2.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::limits::TAG_BYTES_MAX;
use super::time::MonoNs;

/// Most bytes of a token's name.
pub const TOKEN_NAME_BYTES_MAX: usize = 64;
/// Highest rate of creates that can be asked for. Above it the pause between two creates, counted
/// in whole nanoseconds, would be off by more than 0.1 %.
pub const CREATES_PER_SECOND_MAX: u32 = 1_000_000;
/// Set in the length of a name that stands among the tags of a timer and is that of its owner.
/// Names of tags and of tokens are shorter than that.
pub const IS_OWNER: u8 = 0x80;
const _: () = assert!(TOKEN_NAME_BYTES_MAX < IS_OWNER as usize);
const _: () = assert!(TAG_BYTES_MAX < IS_OWNER as usize);
const NS_PER_SECOND: u64 = 1_000_000_000;

/// Whether a text can name tokens.
pub fn is_token_name(text: &[u8]) -> bool {
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    (1..=TOKEN_NAME_BYTES_MAX).contains(&text.len()) && text.iter().all(is_fine)
}

/// What the tokens of a name may use of a node. `None`: as much as there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenLimits {
    /// Most timers that the node holds.
    pub timers: Option<u32>,
    /// Most creates a second, on average: POST and PUT.
    pub creates_per_second: Option<u32>,
    /// Most connections at a time.
    pub connections: Option<u32>,
}

impl TokenLimits {
    /// The words of the limits in a line of the file.
    pub const WORDS: [&'static str; 3] = ["timers", "creates_per_s", "connections"];

    /// Reads a word of a line: `timers=1000`. `None`: the word is no limit, is out of range, or
    /// says again what was said.
    pub fn read(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=')?;
        let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
        let value: u32 = value.parse().ok().filter(|value| *value > 0 && is_plain)?;
        let [timers, creates, connections] = Self::WORDS;
        let place = match name {
            _ if name == timers => &mut self.timers,
            _ if name == creates && value <= CREATES_PER_SECOND_MAX => &mut self.creates_per_second,
            _ if name == connections => &mut self.connections,
            _ => return None,
        };
        place.replace(value).is_none().then_some(())
    }

    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Writes the words of the file, each with a space before it.
impl fmt::Display for TokenLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = [self.timers, self.creates_per_second, self.connections];
        for (word, value) in Self::WORDS.into_iter().zip(values) {
            if let Some(value) = value {
                write!(f, " {word}={value}")?;
            }
        }
        Ok(())
    }
}

/// Requests refused at each limit of a name, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RefusedRequests {
    /// Those of a timer more than the name may have.
    pub timers: u64,
    /// Creates beyond the rate.
    pub creates: u64,
    /// Those over one connection more than the name may have.
    pub connections: u64,
}

/// What the tokens of a name use.
#[derive(Debug, Default)]
struct Usage {
    timers: AtomicU64,
    connections: AtomicU64,
    /// Until when, in ns of the monotonic clock, the creates so far use up the rate.
    creates_until: AtomicU64,
    timers_refused: AtomicU64,
    creates_refused: AtomicU64,
    connections_refused: AtomicU64,
}

/// The limits of a name, and what its tokens use.
#[derive(Clone, Debug)]
pub struct Quota {
    /// The name of the tokens.
    pub name: Box<str>,
    /// What its tokens may use.
    pub limits: TokenLimits,
    usage: Arc<Usage>,
}

/// The quotas of a node by name: of the names that have limits.
pub type Quotas = HashMap<Box<str>, Arc<Quota>>;

impl Quota {
    /// The quota of a name that uses nothing yet.
    pub fn new(name: &str, limits: TokenLimits) -> Self {
        Self { name: name.into(), limits, usage: Arc::default() }
    }

    /// The same limits, with what the tokens of the name use already.
    pub fn going_on_from(&self, former: &Quota) -> Self {
        Self { usage: Arc::clone(&former.usage), ..self.clone() }
    }

    /// Whether both quotas count the same.
    pub fn counts_with(&self, other: &Quota) -> bool {
        Arc::ptr_eq(&self.usage, &other.usage)
    }

    /// Whether the name has as many timers on this node as it may. Two cores that ask at the same
    /// time may both be told that it has not. So a node of n cores holds at most n - 1 more.
    pub fn has_all_timers(&self) -> bool {
        let max = self.limits.timers.map(u64::from);
        max.is_some_and(|max| self.usage.timers.load(Ordering::Relaxed) >= max)
    }

    /// Counts so many timers more.
    pub fn add_timers(&self, count: u64) {
        self.usage.timers.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts so many timers less. They must have been counted by [`Quota::add_timers`].
    pub fn remove_timers(&self, count: u64) {
        self.usage.timers.fetch_sub(count, Ordering::Relaxed);
    }

    /// How many timers the name has on this node.
    pub fn timers(&self) -> u64 {
        self.usage.timers.load(Ordering::Relaxed)
    }

    /// Takes a create out of the rate; false: the rate is used up. A name that has made none for a
    /// second may make those of a second at once. So in any t seconds a node takes at most
    /// rate x (t + 1) creates.
    pub fn may_create(&self, now: MonoNs) -> bool {
        let Some(rate) = self.limits.creates_per_second.map(u64::from) else { return true };
        let each_ns = NS_PER_SECOND.div_ceil(rate.max(1));
        let next = |until: u64| {
            let next = until.max(now.0).saturating_add(each_ns);
            (next - now.0 <= each_ns * rate).then_some(next)
        };
        let word = &self.usage.creates_until;
        let may = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        if !may {
            self.usage.creates_refused.fetch_add(1, Ordering::Relaxed);
        }
        may
    }

    /// Counts a request of a timer that was refused because the name has all that it may.
    pub fn note_timer_refused(&self) {
        self.usage.timers_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// What was refused since the start.
    pub fn refused(&self) -> RefusedRequests {
        let count = |word: &AtomicU64| word.load(Ordering::Relaxed);
        RefusedRequests {
            timers: count(&self.usage.timers_refused),
            creates: count(&self.usage.creates_refused),
            connections: count(&self.usage.connections_refused),
        }
    }

    /// Takes a place among the connections of the name; `None`: all are taken. Exact for the node.
    pub fn connect(&self) -> Option<CountedConnection> {
        let max = self.limits.connections.map_or(u64::MAX, u64::from);
        let word = &self.usage.connections;
        let more = |open: u64| (open < max).then_some(open + 1);
        let taken = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        if taken.is_err() {
            self.usage.connections_refused.fetch_add(1, Ordering::Relaxed);
        }
        taken.ok().map(|_| CountedConnection(Arc::clone(&self.usage)))
    }
}

/// The place of one connection among those of a name. It is given back when it is dropped.
#[derive(Debug)]
pub struct CountedConnection(Arc<Usage>);

impl CountedConnection {
    /// Whether the place counts in this quota.
    pub fn is_of(&self, quota: &Quota) -> bool {
        Arc::ptr_eq(&self.0, &quota.usage)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(words: &str) -> Quota {
        let mut limits = TokenLimits::default();
        words.split_whitespace().for_each(|word| limits.read(word).expect("a limit"));
        Quota::new("billing", limits)
    }

    #[test]
    fn limits_are_read_as_they_are_written() {
        let limits = quota("connections=3 timers=4294967295").limits;
        assert_eq!((limits.timers, limits.connections), (Some(u32::MAX), Some(3)));
        assert_eq!(limits.creates_per_second, None);
        assert_eq!(limits.to_string(), " timers=4294967295 connections=3");
        assert!(TokenLimits::default().is_none() && !limits.is_none());
        for wrong in [
            "timers",
            "timers=",
            "timers=0",
            "timers=-1",
            "timers=+1",
            "timers=1e3",
            "timers=4294967296",
            "Timers=1",
            "creates_per_s=1000001",
            "rate=1",
            "=1",
        ] {
            assert_eq!(TokenLimits::default().read(wrong), None, "{wrong}");
        }
        let mut twice = limits;
        assert_eq!(twice.read("timers=5"), None, "said again");
    }

    #[test]
    fn a_rate_lets_a_second_of_creates_through_and_then_one_at_a_time() {
        let quota = quota("creates_per_s=3");
        let at = |ms: u64| MonoNs(1 << 40).plus_ms(ms);
        let at_once = |ms| (0..10).filter(|_| quota.may_create(at(ms))).count();
        assert_eq!(at_once(0), 3);
        assert_eq!(at_once(300), 0);
        assert_eq!(at_once(334), 1);
        assert_eq!(at_once(10_000), 3, "no more than a second's are saved up");
        assert_eq!(at_once(11_001), 3);
        // Cores look at the clock at different times.
        assert_eq!(at_once(10_500), 0);
        let refused = RefusedRequests { creates: 60 - 10, ..RefusedRequests::default() };
        assert_eq!(quota.refused(), refused);
    }

    #[test]
    fn refused_requests_are_counted_by_their_limit() {
        let quota = quota("timers=1");
        (0..3).for_each(|_| quota.note_timer_refused());
        assert_eq!(quota.refused(), RefusedRequests { timers: 3, ..RefusedRequests::default() });
    }

    #[test]
    fn any_rate_is_kept() {
        for rate in [1, 2, 7, 999, 5_000, 999_999, CREATES_PER_SECOND_MAX] {
            let quota = quota(&format!("creates_per_s={rate}"));
            let mut taken = 0;
            for ms in 0..3_000 {
                while quota.may_create(MonoNs(5).plus_ms(ms)) {
                    taken += 1;
                }
            }
            assert!((3 * rate..=4 * rate).contains(&taken), "{taken} at {rate}");
        }
    }

    #[test]
    fn places_come_back() {
        let quota = quota("connections=2");
        let seats = (quota.connect(), quota.connect());
        assert!(seats.0.is_some() && seats.1.is_some() && quota.connect().is_none());
        let changed = Quota::new("billing", TokenLimits::default());
        let went_on = quota.going_on_from(&quota);
        let seat = seats.0.expect("looked at");
        assert!(seat.is_of(&quota) && seat.is_of(&went_on) && !seat.is_of(&changed));
        drop(seat);
        let again = went_on.connect();
        assert!(again.is_some() && quota.connect().is_none(), "they count together");
    }

    #[test]
    fn timers_are_counted_by_all_cores_together() {
        let quota = Arc::new(quota("timers=1000"));
        let cores: Vec<_> = (0..4)
            .map(|_| {
                let quota = Arc::clone(&quota);
                std::thread::spawn(move || {
                    let mut taken = 0_u64;
                    while !quota.has_all_timers() {
                        quota.add_timers(1);
                        taken += 1;
                    }
                    taken
                })
            })
            .collect();
        let taken: u64 = cores.into_iter().map(|core| core.join().expect("no panic")).sum();
        assert!((1_000..=1_003).contains(&taken), "{taken}");
        assert_eq!(quota.timers(), taken);
        quota.remove_timers(taken);
        assert!(!quota.has_all_timers());
    }
}
