//! How nodes ask each other for their jobs, and how they answer. A question travels as one for a
//! list does ([`super::timer_list`]) and begins with another kind.
//!
//! ```text
//! ask   kind u8 = 3, which u8 (0: tell of jobs, 1: stop the job as well), job u64 (0: all)
//! part  shards u16, jobs v, then each job:
//!       id u64, state u8 (+ 128: incomplete), seen v, deleted v, failed v, began wall ms v,
//!       ended wall ms v (0: it runs), owner: length v and text, filter
//! ```

use crate::base::limits::SHARDS_MAX;
use crate::base::quota::TOKEN_NAME_BYTES_MAX;
use crate::base::time::WallMs;
use crate::wire::leb128::write_leb128;
use crate::wire::list_query::OwnedFilter;
use crate::wire::peer_message::{PeerMessageError, byte, bytes, chunk, number};
use crate::wire::timer_list::{JOBS_KIND, read_filter};

/// Jobs that a shard tells of.
pub const JOBS_TOLD_MAX: usize = 32;
const IS_INCOMPLETE: u8 = 0x80;

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum JobState {
    /// It goes on.
    Running = 0,
    /// It has gone through all timers.
    Done = 1,
    /// A client has stopped it.
    Stopped = 2,
}

impl JobState {
    const ALL: [JobState; 3] = [Self::Running, Self::Done, Self::Stopped];

    /// The word of answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
        }
    }
}

/// A job that deletes timers, as its node tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobReport {
    /// Its number, by which clients name it. Never 0.
    pub id: u64,
    /// What it does.
    pub state: JobState,
    /// Whether nodes could not be asked for their timers.
    pub is_incomplete: bool,
    /// Timers that it has found.
    pub seen: u64,
    /// Timers that it has deleted.
    pub deleted: u64,
    /// Timers that it could not delete.
    pub failed: u64,
    /// When it began, by the wall clock of its node.
    pub began: WallMs,
    /// When it ended.
    pub ended: Option<WallMs>,
    /// The name of the token that it was ordered with; empty: an operator's order without a token.
    pub owner: Box<str>,
    /// Which timers it deletes.
    pub filter: OwnedFilter,
}

/// A question for jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobsAsk {
    /// The job; `None`: all jobs.
    pub job: Option<u64>,
    /// Whether the job is to stop.
    pub is_stop: bool,
}

impl JobsAsk {
    /// Appends the question.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[JOBS_KIND, u8::from(self.is_stop)]);
        out.extend_from_slice(&self.job.unwrap_or(0).to_le_bytes());
    }

    /// Reads a question, which is all of `input`.
    pub fn decode(mut input: &[u8]) -> Result<Self, PeerMessageError> {
        let input = &mut input;
        let (kind, which) = (byte(input)?, byte(input)?);
        let job = Some(u64::from_le_bytes(chunk(input)?)).filter(|job| *job != 0);
        let is_stop = which == 1;
        let is_good = kind == JOBS_KIND && which <= 1 && (job.is_some() || !is_stop);
        match is_good && input.is_empty() {
            true => Ok(Self { job, is_stop }),
            false => Err(PeerMessageError("expected a question for jobs")),
        }
    }
}

/// A shard's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobsPart {
    /// How many shards the node has.
    pub shards: u16,
    /// The jobs of the shard that were asked for.
    pub jobs: Vec<JobReport>,
}

impl JobsPart {
    /// Appends the answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.shards.to_le_bytes());
        write_leb128(self.jobs.len() as u64, out);
        for job in &self.jobs {
            out.extend_from_slice(&job.id.to_le_bytes());
            out.push(job.state as u8 | if job.is_incomplete { IS_INCOMPLETE } else { 0 });
            let ended = job.ended.map_or(0, |ended| ended.0);
            for n in [job.seen, job.deleted, job.failed, job.began.0, ended] {
                write_leb128(n, out);
            }
            write_leb128(job.owner.len() as u64, out);
            out.extend_from_slice(job.owner.as_bytes());
            job.filter.borrow().encode(out);
        }
    }

    /// Reads an answer, which is all of `input`.
    pub fn decode(mut input: &[u8]) -> Result<Self, PeerMessageError> {
        let input = &mut input;
        let shards = u16::from_le_bytes(chunk(input)?);
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(PeerMessageError("a number of shards that no node has"));
        }
        let beyond = PeerMessageError("more jobs than a shard tells of");
        let count = number(input, JOBS_TOLD_MAX as u64, beyond)?;
        let jobs = (0..count).map(|_| read_job(input)).collect::<Result<_, _>>()?;
        match input.is_empty() {
            true => Ok(Self { shards, jobs }),
            false => Err(PeerMessageError("bytes behind jobs")),
        }
    }
}

fn read_job(input: &mut &[u8]) -> Result<JobReport, PeerMessageError> {
    let id = u64::from_le_bytes(chunk(input)?);
    let first = byte(input)?;
    let state = JobState::ALL.get(usize::from(first & !IS_INCOMPLETE)).copied();
    let state = state.filter(|_| id != 0).ok_or(PeerMessageError("a job that nobody has"))?;
    let is_incomplete = first & IS_INCOMPLETE != 0;
    let mut whole = || number(input, u64::MAX, PeerMessageError("a number of a job out of range"));
    let [seen, deleted, failed] = [whole()?, whole()?, whole()?];
    let (began, ended) = (WallMs(whole()?), Some(WallMs(whole()?)).filter(|at| at.0 != 0));
    let owner = std::str::from_utf8(bytes(input)?).ok();
    let owner = owner.filter(|owner| owner.len() <= TOKEN_NAME_BYTES_MAX);
    let owner = owner.ok_or(PeerMessageError("a job of a name that no token has"))?.into();
    let filter = OwnedFilter::copy(&read_filter(input)?);
    Ok(JobReport { id, state, is_incomplete, seen, deleted, failed, began, ended, owner, filter })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::timer_list::Filter;

    fn job(id: u64) -> JobReport {
        let filter = Filter { tag: Some("CALL"), name_prefix: Some("a"), ..Filter::ALL };
        JobReport {
            id,
            state: JobState::Stopped,
            is_incomplete: id.is_multiple_of(2),
            seen: 900,
            deleted: 800,
            failed: 1,
            began: WallMs(1 << 40),
            ended: Some(WallMs(1 << 41)).filter(|_| id != 3),
            owner: "billing".into(),
            filter: OwnedFilter::copy(&filter),
        }
    }

    #[test]
    fn questions_and_answers_come_back_as_they_were() {
        for (job, is_stop) in [(None, false), (Some(7), false), (Some(u64::MAX), true)] {
            let ask = JobsAsk { job, is_stop };
            let mut bytes = Vec::new();
            ask.encode(&mut bytes);
            assert_eq!(JobsAsk::decode(&bytes), Ok(ask));
            (0..bytes.len()).for_each(|end| assert!(JobsAsk::decode(&bytes[..end]).is_err()));
            assert!(JobsAsk::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
        assert!(JobsAsk::decode(&[3, 1, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "all cannot be stopped");
        for jobs in [vec![], (1..=JOBS_TOLD_MAX as u64).map(job).collect()] {
            let part = JobsPart { shards: 2, jobs };
            let mut bytes = Vec::new();
            part.encode(&mut bytes);
            assert_eq!(JobsPart::decode(&bytes), Ok(part));
            (0..bytes.len()).for_each(|end| assert!(JobsPart::decode(&bytes[..end]).is_err()));
        }
        let mut bytes = Vec::new();
        let jobs = (1..=JOBS_TOLD_MAX as u64 + 1).map(job).collect();
        JobsPart { shards: 2, jobs }.encode(&mut bytes);
        assert!(JobsPart::decode(&bytes).is_err());
    }
}
