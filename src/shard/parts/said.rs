//! What callback servers said last to pops that are tried again: it stands in the dead letter, if
//! the pop is given up. A table of fixed size: a pop may push out what was said to another one, and
//! then that letter says less.

use crate::base::ids::{TimerId, mix};
use crate::shard::effects::Ticket;
use crate::timer::version::Version;
use crate::wire::dead_letter::Failure;

/// Pops of which this is remembered, at most. With answers of the longest kind that is 1 MiB.
const PLACES: usize = 4_096;

/// How the last attempt at a pop failed.
#[derive(Clone, Debug, Default)]
pub struct Last {
    pub failure: Failure,
    /// The status of the answer; `None`: there was none.
    pub status: Option<u16>,
    /// The first bytes of the answer.
    pub answer: Box<[u8]>,
}

#[derive(Debug)]
struct Entry {
    pop: Pop,
    last: Last,
}

/// A pop: timer, version, number.
type Pop = (TimerId, Version, u64);

/// What was said to pops.
#[derive(Debug, Default)]
pub struct Said {
    /// Empty until something was said.
    entries: Vec<Option<Entry>>,
}

impl Said {
    fn place(pop: &Pop) -> usize {
        (mix(pop.0.0) as usize) % PLACES
    }

    /// Notes the answer to an attempt. If that failed, [`Said::failed`] follows.
    pub fn note(&mut self, ticket: &Ticket, status: u16, answer: &[u8]) {
        let last = Last {
            failure: Failure::Status,
            status: (100..=999).contains(&status).then_some(status),
            answer: answer.into(),
        };
        self.put((ticket.id, ticket.version, ticket.sequence), last);
    }

    /// Notes how an attempt failed. An answer that was noted for it stays.
    pub fn failed(&mut self, pop: Pop, failure: Failure) {
        if failure != Failure::Status || self.get(&pop).is_none() {
            self.put(pop, Last { failure, ..Last::default() });
        }
    }

    fn put(&mut self, pop: Pop, last: Last) {
        if self.entries.is_empty() {
            self.entries.resize_with(PLACES, || None);
        }
        if let Some(place) = self.entries.get_mut(Self::place(&pop)) {
            *place = Some(Entry { pop, last });
        }
    }

    fn get(&self, pop: &Pop) -> Option<&Entry> {
        let entry = self.entries.get(Self::place(pop)).and_then(Option::as_ref);
        entry.filter(|entry| entry.pop == *pop)
    }

    /// The status that a pop was answered with last; `None`: there was none, or it is not known any
    /// more.
    pub fn status(&self, pop: Pop) -> Option<u16> {
        self.get(&pop).and_then(|entry| entry.last.status)
    }

    /// Takes what is known of the last attempt at a pop.
    pub fn take(&mut self, pop: Pop) -> Last {
        let place = self.entries.get_mut(Self::place(&pop));
        let entry = place.and_then(|place| place.take_if(|entry| entry.pop == pop));
        entry.map(|entry| entry.last).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{HostId, Slot};

    #[test]
    fn the_last_failure_of_a_pop_is_remembered_once() {
        let mut said = Said::default();
        let pop = (TimerId(7), Version(1), 2);
        let ticket =
            Ticket { slot: Slot(0), host: HostId(0), id: pop.0, version: pop.1, sequence: pop.2 };
        said.note(&ticket, 503, b"busy");
        said.failed(pop, Failure::Status);
        assert_eq!(said.take((pop.0, pop.1, 3)).failure, Failure::Unknown, "another pop");
        assert_eq!((said.status(pop), said.status((pop.0, pop.1, 3))), (Some(503), None));
        let last = said.take(pop);
        assert_eq!((last.status, &*last.answer), (Some(503), &b"busy"[..]));
        assert_eq!(said.take(pop).failure, Failure::Unknown);
        said.note(&ticket, 503, b"busy");
        said.failed(pop, Failure::TimedOut);
        let last = said.take(pop);
        assert_eq!((last.failure, last.status, last.answer.len()), (Failure::TimedOut, None, 0));
    }
}
