//! How nodes ask each other for the numbers of `GET /timers/count`, and how they answer. A question
//! travels as one for a list does ([`super::timer_list`]) and begins with another kind.
//!
//! ```text
//! ask   kind u8 = 2, walk u64, which u8 (1: when timers are due)
//! part  flags u8 (1: done, 2: starved), shards u16; when it is done:
//!       each state v, each span v, other tags v, tags v, then each tag: length v, text, count v,
//!       other hosts v, their timers v, hosts v, then each host: length v, text, timers v
//! ```

use std::collections::BTreeMap;

use crate::base::limits::SHARDS_MAX;
use crate::wire::leb128::write_leb128;
use crate::wire::peer_message::{PeerMessageError, byte, bytes, chunk, number};
use crate::wire::timer_list::{COUNT_KIND, ListedState};

/// Most hosts that an answer names, those with most timers.
pub const HOSTS_NAMED_MAX: usize = 100;
/// When timers are due: overdue, within a second, a minute, an hour, a day, later.
pub const SPANS: [(&str, u64); 6] = [
    ("overdue", 0),
    ("within-second", 1_000),
    ("within-minute", 60_000),
    ("within-hour", 3_600_000),
    ("within-day", 86_400_000),
    ("later", u64::MAX),
];
const STATES: usize = ListedState::ALL.len();
const IS_DONE: u8 = 1;
const IS_STARVED: u8 = 2;
const HAS_SPANS: u8 = 1;

/// A question for the numbers of one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountAsk {
    /// Tells the parts of one answer from those of others.
    pub walk: u64,
    /// Whether it is asked when timers are due.
    pub has_spans: bool,
}

impl CountAsk {
    /// Appends the question.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(COUNT_KIND);
        out.extend_from_slice(&self.walk.to_le_bytes());
        out.push(if self.has_spans { HAS_SPANS } else { 0 });
    }

    /// Reads a question, which is all of `input`.
    pub fn decode(mut input: &[u8]) -> Result<Self, PeerMessageError> {
        let input = &mut input;
        let kind = byte(input)?;
        let walk = u64::from_le_bytes(chunk(input)?);
        let which = byte(input)?;
        match (kind, which & !HAS_SPANS, input.is_empty()) {
            (COUNT_KIND, 0, true) => Ok(Self { walk, has_spans: which & HAS_SPANS != 0 }),
            _ => Err(PeerMessageError("expected a question for numbers of timers")),
        }
    }
}

/// The numbers of one shard, or of many.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// Timers by state, in the order of [`ListedState::ALL`].
    pub states: [u64; STATES],
    /// Timers by when they are due, in the order of [`SPANS`].
    pub spans: [u64; SPANS.len()],
    /// What each statistics tag counts.
    pub tags: BTreeMap<String, u64>,
    /// What the tags count that are not named.
    pub other_tags: u64,
    /// Timers of each callback host, of those with most timers.
    pub hosts: BTreeMap<String, u64>,
    /// How many hosts are not named, and how many timers they have.
    pub other_hosts: u64,
    /// See [`Numbers::other_hosts`].
    pub timers_of_other_hosts: u64,
}

impl Numbers {
    /// Adds the numbers of another shard.
    pub fn add(&mut self, other: Numbers) {
        self.states.iter_mut().zip(other.states).for_each(|(sum, more)| add(sum, more));
        self.spans.iter_mut().zip(other.spans).for_each(|(sum, more)| add(sum, more));
        other.tags.into_iter().for_each(|(tag, n)| add(self.tags.entry(tag).or_default(), n));
        other.hosts.into_iter().for_each(|(host, n)| add(self.hosts.entry(host).or_default(), n));
        add(&mut self.other_tags, other.other_tags);
        add(&mut self.other_hosts, other.other_hosts);
        add(&mut self.timers_of_other_hosts, other.timers_of_other_hosts);
    }

    /// Names only the hosts with most timers.
    pub fn name_fewer_hosts(&mut self) {
        while self.hosts.len() > HOSTS_NAMED_MAX {
            // A few hundred hosts at most: each shard names its own hundred.
            let least = self.hosts.iter().min_by_key(|(_, timers)| **timers);
            let Some(least) = least.map(|(host, _)| host.clone()) else { return };
            add(&mut self.timers_of_other_hosts, self.hosts.remove(&least).unwrap_or(0));
            add(&mut self.other_hosts, 1);
        }
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// A shard's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountPart {
    /// How many shards the node has.
    pub shards: u16,
    /// Whether the shard's time for lists is used up for now.
    pub is_starved: bool,
    /// The numbers; `None`: the shard must be asked again.
    pub numbers: Option<Numbers>,
}

impl CountPart {
    /// Appends the answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let is_done = if self.numbers.is_some() { IS_DONE } else { 0 };
        out.push(is_done | if self.is_starved { IS_STARVED } else { 0 });
        out.extend_from_slice(&self.shards.to_le_bytes());
        let Some(numbers) = &self.numbers else { return };
        let plain = numbers.states.iter().chain(&numbers.spans).chain([&numbers.other_tags]);
        plain.for_each(|n| write_leb128(*n, out));
        write_named(&numbers.tags, out);
        write_leb128(numbers.other_hosts, out);
        write_leb128(numbers.timers_of_other_hosts, out);
        write_named(&numbers.hosts, out);
    }

    /// Reads an answer, which is all of `input`.
    pub fn decode(mut input: &[u8]) -> Result<Self, PeerMessageError> {
        let input = &mut input;
        let flags = byte(input)?;
        let shards = u16::from_le_bytes(chunk(input)?);
        if flags & !(IS_DONE | IS_STARVED) != 0 || !(1..=SHARDS_MAX).contains(&shards) {
            return Err(PeerMessageError("an answer with numbers that no shard gives"));
        }
        let mut numbers = None;
        if flags & IS_DONE != 0 {
            let mut read = Numbers::default();
            let plain = read.states.iter_mut().chain(&mut read.spans);
            for n in plain.chain([&mut read.other_tags]) {
                *n = whole(input)?;
            }
            read.tags = read_named(input)?;
            read.other_hosts = whole(input)?;
            read.timers_of_other_hosts = whole(input)?;
            read.hosts = read_named(input)?;
            numbers = Some(read);
        }
        if !input.is_empty() {
            return Err(PeerMessageError("bytes behind numbers of timers"));
        }
        Ok(Self { shards, is_starved: flags & IS_STARVED != 0, numbers })
    }
}

fn whole(input: &mut &[u8]) -> Result<u64, PeerMessageError> {
    number(input, u64::MAX, PeerMessageError("a number of timers out of range"))
}

fn write_named(named: &BTreeMap<String, u64>, out: &mut Vec<u8>) {
    write_leb128(named.len() as u64, out);
    for (name, n) in named {
        write_leb128(name.len() as u64, out);
        out.extend_from_slice(name.as_bytes());
        write_leb128(*n, out);
    }
}

fn read_named(input: &mut &[u8]) -> Result<BTreeMap<String, u64>, PeerMessageError> {
    // Each takes two bytes at least, so that no more are made room for than came.
    let most = input.len() as u64 / 2;
    let count = number(input, most, PeerMessageError("more names than bytes"))?;
    let mut named = BTreeMap::new();
    for _ in 0..count {
        let name = std::str::from_utf8(bytes(input)?);
        let name = name.map_err(|_| PeerMessageError("a name that is no text"))?;
        let is_new = named.last_key_value().is_none_or(|(last, _): (&String, _)| *name > **last);
        if !is_new {
            return Err(PeerMessageError("names out of order"));
        }
        named.insert(name.to_owned(), whole(input)?);
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(seed: u64) -> Numbers {
        let named = |names: &[&str]| names.iter().map(|name| (name.to_string(), seed)).collect();
        Numbers {
            states: [seed, 1, 2, 3, 4, 5],
            spans: [0, seed, 2, 3, 4, u64::MAX],
            tags: named(&["a", "b"]),
            other_tags: 7,
            hosts: named(&["h:80"]),
            other_hosts: 8,
            timers_of_other_hosts: 9,
        }
    }

    #[test]
    fn answers_come_back_as_they_were() {
        for numbers in [None, Some(Numbers::default()), Some(numbers(5))] {
            let part = CountPart { shards: 256, is_starved: true, numbers };
            let mut bytes = Vec::new();
            part.encode(&mut bytes);
            assert_eq!(CountPart::decode(&bytes), Ok(part));
            for end in 0..bytes.len() {
                assert!(CountPart::decode(&bytes[..end]).is_err(), "{end}");
            }
            assert!(CountPart::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn questions_come_back_as_they_were() {
        for has_spans in [false, true] {
            let ask = CountAsk { walk: 7, has_spans };
            let mut bytes = Vec::new();
            ask.encode(&mut bytes);
            assert_eq!(CountAsk::decode(&bytes), Ok(ask));
            assert!((0..bytes.len()).all(|end| CountAsk::decode(&bytes[..end]).is_err()));
            for changed in [(0, 1), (9, 2)] {
                let mut wrong = bytes.clone();
                wrong[changed.0] = changed.1;
                assert!(CountAsk::decode(&wrong).is_err());
            }
        }
    }

    #[test]
    fn numbers_are_summed_and_hosts_beyond_a_hundred_are_summed_up() {
        let mut sum = numbers(5);
        sum.add(numbers(6));
        assert_eq!((sum.states[0], sum.spans[1], sum.spans[5]), (11, 11, u64::MAX));
        assert_eq!((sum.tags["a"], sum.hosts["h:80"], sum.other_hosts), (11, 11, 16));
        for host in 0..150 {
            sum.hosts.insert(format!("host-{host}"), host);
        }
        sum.name_fewer_hosts();
        assert_eq!((sum.hosts.len(), sum.other_hosts), (HOSTS_NAMED_MAX, 16 + 51));
        assert!(sum.hosts.values().all(|timers| *timers >= 50 || *timers == 11));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = CountAsk::decode(&bytes);
            if let Ok(part) = CountPart::decode(&bytes) {
                let mut again = Vec::new();
                part.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
