//! Reports: what became of a pop is told to a URI that the timer's client named
//! (`callback.on-success`, `callback.on-failure`).
//!
//! - A report is a timer of its own that pops at once, written before the pop is over. So replicas,
//!   moves, the journal and restarts keep it as they keep any timer, and it is tried again under a
//!   policy of its own.
//! - Its id is made of the timer, the version, the number of the pop and what is reported, and its
//!   version is that of the timer. So two nodes that report the same pop make one timer, with one
//!   `webhook-id`.
//! - A report that is given up is counted. It is never reported in turn, and never becomes a dead
//!   letter.

use crate::base::ids::{PeerSet, Slot};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::Now;
use crate::timer::definition::{encode_with_attributes, with_owner};
use crate::timer::naming::id_of_report;
use crate::timer::version::StateKey;
use crate::wire::attributes::{Attributes, RetryPolicy};
use crate::wire::callback_uri::parse_told_uri;
use crate::wire::dead_letter::GivenUp;
use crate::wire::report::{Report, ReportKind, Reported};

use super::Shard;
use super::effects::{Outbox, Refusal, Target};
use super::parts::writes::{NewWrite, Plan};
use super::records::Record;

/// The reason of a pop whose server ended its timer.
const GONE: &str = "gone";

/// What became of a pop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PopEnd {
    Delivered,
    GivenUp(GivenUp),
    /// The server has ended the timer.
    Gone,
}

impl PopEnd {
    fn kind(self) -> ReportKind {
        match self {
            Self::Delivered => ReportKind::Success,
            Self::GivenUp(_) | Self::Gone => ReportKind::Failure,
        }
    }
}

impl Shard {
    /// Reports a pop, if its timer asks for it. What is known of its last attempt stays known.
    #[cold]
    pub(super) fn report(&mut self, now: Now, slot: Slot, end: PopEnd, outbox: &mut Outbox) {
        let record = *self.records.get(slot);
        let attributes = self.attributes_of(&record);
        if attributes.report.is_some() {
            self.counters.reports_given_up += u64::from(end != PopEnd::Delivered);
            return;
        }
        let uri = match end.kind() {
            ReportKind::Success => attributes.on_success,
            ReportKind::Failure => attributes.on_failure,
        };
        // A letter on its way is no pop: that was reported when it was given up.
        let Some(uri) = uri.filter(|_| attributes.letter.is_none()) else { return };
        if is_planted(Bug::SuccessUnreported) && end == PopEnd::Delivered {
            return;
        }
        let uri = uri.to_owned();
        match self.write_report(now, (&record, end), &uri, outbox) {
            Ok(is_new) => self.counters.reports_made += u64::from(is_new),
            Err(_) => self.counters.reports_without_room += 1,
        }
    }

    /// Writes the timer that makes the report. False: it is there already, as another node has
    /// reported the same pop.
    fn write_report(
        &mut self,
        now: Now,
        (record, end): (&Record, PopEnd),
        uri: &str,
        outbox: &mut Outbox,
    ) -> Result<bool, Refusal> {
        let id = id_of_report(record.id, record.version, record.sequence + 1, end.kind());
        let found = self.find(id).map(|slot| *self.records.get(slot));
        if let Some(found) = found {
            let is_same = found.version == record.version;
            return if is_same { Ok(false) } else { Err(Refusal::OtherName) };
        }
        let factor = self.records.placement_of(record).factor;
        let target = Target { id, factor: Some(factor), filter: None };
        let without = self.own_if_replaced(id, factor);
        let plan = self.plan_known_without(target, factor, None, without);
        let plan = Plan { is_create: true, ..plan };
        let content = self.report_content(now, record, end);
        let there = parse_told_uri(uri).map_err(|_| Refusal::BytesFull)?;
        let content = self.owned_content(record, there.target, &content);
        let new = NewWrite {
            from: None,
            asked_at: now.mono.tick_floor(),
            id,
            slot: None,
            key: StateKey { version: record.version, sequence: 0 },
            start: now.mono.tick_ceil(),
            interval_ms: 0,
            repeat_for_ms: 0,
            body: Some((there.authority, &content)),
            tries: 1,
            refused: PeerSet::EMPTY,
            is_decided: false,
            gives_way: true,
            is_action: false,
        };
        self.write(now, &new, &plan, outbox)?;
        Ok(true)
    }

    /// The body of a report, and its attributes in their encoded form.
    fn report_content(&self, now: Now, record: &Record, end: PopEnd) -> (Vec<u8>, Vec<u8>) {
        let attributes = self.records.content_of(record).attributes();
        // Of a timer that follows the calendar each pop is the only one of a record.
        let done = attributes.cron.map_or(0, |cron| cron.done);
        let sequence = record.sequence + 1 + done;
        let sequence = attributes.replay.map_or(sequence, |replay| replay.sequence);
        let is_delivered = end == PopEnd::Delivered;
        // Failures before are counted already.
        let is_answered = is_delivered || end == PopEnd::Gone;
        let status = self.said.status((record.id, record.version, record.sequence + 1));
        let status = status.filter(|status| (200..300).contains(status) == is_delivered);
        let placement = self.records.placement_of(record);
        let due = self.due_by_wall(now, record, self.records.due(record));
        let report = Report {
            id: record.id,
            factor: placement.factor,
            filter: self.peers.view.filter_of(&placement.replicas),
            name: attributes.name,
            sequence,
            due,
            attempts: u16::from(record.attempts) + u16::from(is_answered),
            status,
            reason: match end {
                PopEnd::Delivered => None,
                PopEnd::GivenUp(reason) => Some(reason.name()),
                PopEnd::Gone => Some(GONE),
            },
        };
        let (mut body, mut encoded) = (Vec::new(), Vec::new());
        report.write(&mut body);
        let attributes = Attributes {
            content_type: Some("application/json"),
            retry: Some(RetryPolicy::default()),
            report: Some(Reported { kind: end.kind(), sequence }),
            ..Attributes::default()
        };
        attributes.write(&mut encoded);
        (body, encoded)
    }

    /// The content of a report. It counts for whoever owns the timer.
    fn owned_content(
        &self,
        record: &Record,
        target: &str,
        (body, encoded): &(Vec<u8>, Vec<u8>),
    ) -> Vec<u8> {
        let mut content = Vec::new();
        encode_with_attributes(target, &[], (encoded, body), &mut content);
        let Some(owner) = self.records.content_of(record).owner() else { return content };
        let mut owned = Vec::new();
        with_owner(&content, owner, &mut owned);
        owned
    }
}

#[cfg(test)]
#[path = "reports_tests.rs"]
mod tests;
