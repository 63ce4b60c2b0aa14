//! A *report*: what became of a pop, for a URI that the timer's client named. It is the body of a
//! callback of its own, and an attribute (`wire::attributes`) of the timer that makes that
//! callback:
//!
//! ```text
//! outcome u8 (1: delivered, 2: not delivered), sequence of the pop v
//! ```
//!
//! The number marked `v` is LEB128.

use crate::base::ids::TimerId;
use crate::base::time::WallMs;
use crate::wire::json::{write_number, write_string};
use crate::wire::leb128::{read_leb128, write_leb128};
use crate::wire::timer_path::write_public_id;
use crate::wire::wall_time::write_wall_time;

/// Which reports a timer asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ReportKind {
    /// Of pops that were delivered.
    Success = 1,
    /// Of pops that were not.
    Failure = 2,
}

impl ReportKind {
    /// The word of answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }
}

/// Marks a timer as a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reported {
    /// What is reported.
    pub kind: ReportKind,
    /// The sequence number of the pop: `X-Sequence-Number`.
    pub sequence: u64,
}

impl Reported {
    /// Appends the mark.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        write_leb128(self.sequence, out);
    }

    /// Reads a mark, which is all of `value`.
    pub fn read(value: &[u8]) -> Option<Self> {
        let (&kind, mut rest) = value.split_first()?;
        let kind = [ReportKind::Success, ReportKind::Failure]
            .into_iter()
            .find(|known| *known as u8 == kind)?;
        let sequence = read_leb128(&mut rest)?;
        rest.is_empty().then_some(Self { kind, sequence })
    }
}

/// What a report says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report<'a> {
    /// The timer.
    pub id: TimerId,
    /// Its replication factor, for the id.
    pub factor: u8,
    /// The filter of its replicas, for the id.
    pub filter: u64,
    /// Its name.
    pub name: Option<&'a str>,
    /// The sequence number of the pop.
    pub sequence: u64,
    /// When the pop was due.
    pub due: WallMs,
    /// Attempts by the node that reports.
    pub attempts: u16,
    /// The status of the last answer; `None`: there was none, or it is not known any more.
    pub status: Option<u16>,
    /// Why the pop was not delivered; `None`: it was.
    pub reason: Option<&'static str>,
}

impl Report<'_> {
    /// Appends the report as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":\"");
        write_public_id(self.id, self.factor, self.filter, out);
        out.push(b'"');
        if let Some(name) = self.name {
            out.extend_from_slice(b",\"name\":");
            write_string(name, out);
        }
        out.extend_from_slice(b",\"sequence-number\":");
        write_number(self.sequence, out);
        out.extend_from_slice(b",\"due\":\"");
        write_wall_time(self.due, out);
        out.extend_from_slice(b"\",\"attempts\":");
        write_number(self.attempts.into(), out);
        if let Some(status) = self.status {
            out.extend_from_slice(b",\"status\":");
            write_number(status.into(), out);
        }
        if let Some(reason) = self.reason {
            out.extend_from_slice(b",\"reason\":");
            write_string(reason, out);
        }
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_short_json() {
        let text = |report: &Report<'_>| {
            let mut out = Vec::new();
            report.write(&mut out);
            String::from_utf8(out).expect("text")
        };
        let delivered = Report {
            id: TimerId(0x687e_bc01_f940_0001),
            factor: 2,
            filter: 0x8010_0084_0080,
            name: None,
            sequence: 3,
            due: WallMs(1_796_115_600_250),
            attempts: 1,
            status: Some(204),
            reason: None,
        };
        assert_eq!(
            text(&delivered),
            concat!(
                r#"{"id":"687ebc01f9400001-2-0000801000840080","sequence-number":3,"#,
                r#""due":"2026-12-01T09:00:00.250Z","attempts":1,"status":204}"#,
            )
        );
        let given_up =
            Report { name: Some("a \"b\""), status: None, reason: Some("age"), ..delivered };
        assert_eq!(
            text(&given_up),
            concat!(
                r#"{"id":"687ebc01f9400001-2-0000801000840080","name":"a \"b\"","#,
                r#""sequence-number":3,"due":"2026-12-01T09:00:00.250Z","attempts":1,"#,
                r#""reason":"age"}"#,
            )
        );
    }

    #[test]
    fn a_mark_comes_back_as_it_was_and_nothing_else_is_one() {
        for kind in [ReportKind::Success, ReportKind::Failure] {
            for sequence in [0, 1, 127, 128, u64::MAX] {
                let mark = Reported { kind, sequence };
                let mut out = Vec::new();
                mark.write(&mut out);
                assert_eq!(Reported::read(&out), Some(mark));
                assert_eq!(Reported::read(&out[..out.len() - 1]), None);
                out.push(0);
                assert_eq!(Reported::read(&out), None);
            }
        }
        assert!(Reported::read(&[0, 1]).is_none() && Reported::read(&[3, 1]).is_none());
        assert!(Reported::read(&[]).is_none());
    }
}
