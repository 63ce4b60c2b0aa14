//! Dead letters that are tried again or deleted by a filter: a page of a list is put together, then
//! its letters are used one after the other, as if a client had named each. A letter that is not
//! the one that the page shows is left alone: somebody else was faster.
//!
//! No clock, no socket.

use crate::base::ids::ShardIndex;
use crate::base::slots::{SlotKey, Slots};
use crate::shard::effects::{
    Answer, Internal, ListPage, ListedTimer, Refusal, Reply, Requester, Target,
};
use crate::shard::requesters::LETTERS;
use crate::timer::version::Version;
use crate::wire::dead_letter::LetterUse;

/// What is to be done with a letter, and in whose name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LetterOrder {
    pub from: Requester,
    pub target: Target,
    pub wanted: LetterUse,
    /// The version that the page shows.
    pub version: Version,
}

/// A page whose letters are being used.
#[derive(Debug)]
struct Job {
    to: Requester,
    page: ListPage,
    left: usize,
}

/// All pages of a core whose letters are being used. Each was a page of a list before, of which
/// there are few at a time; so are these.
#[derive(Debug, Default)]
pub(crate) struct LetterJobs {
    jobs: Slots<Job>,
    orders: Vec<LetterOrder>,
}

impl LetterJobs {
    /// Takes a page that is complete. Returns it at once if nothing is to be done with its letters.
    /// Otherwise there are orders.
    pub fn begin(&mut self, own: ShardIndex, reply: Reply) -> Option<Reply> {
        let is_job = |page: &ListPage| {
            matches!(page.letters, Some(LetterUse::Replay | LetterUse::Delete))
                && !page.timers.is_empty()
        };
        let (to, mut page) = match reply.answer {
            Answer::Internal(internal) => match *internal {
                Internal::List(page) if is_job(&page) => (reply.to, page),
                other => {
                    let answer = Answer::Internal(Box::new(other));
                    return Some(Reply { answer, ..reply });
                }
            },
            answer => return Some(Reply { answer, ..reply }),
        };
        let wanted = page.letters.unwrap_or(LetterUse::Show);
        let timers = std::mem::take(&mut page.timers);
        let key = self.jobs.insert(Job { to, page, left: timers.len() });
        let SlotKey { index, generation } = key;
        let from = Requester { shard: own, connection: LETTERS, generation, request: index };
        self.orders.extend(timers.iter().map(|timer| {
            let (target, version) = (target_of(timer), timer.view.version);
            LetterOrder { from, target, wanted, version }
        }));
        None
    }

    /// Whether there are orders.
    #[inline]
    pub fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// Takes the orders.
    pub fn take_orders(&mut self) -> Vec<LetterOrder> {
        std::mem::take(&mut self.orders)
    }

    /// Takes the answer about one letter. Returns the answer about all, if it is the last.
    pub fn take(&mut self, reply: &Reply) -> Option<Reply> {
        let key = SlotKey { index: reply.to.request, generation: reply.to.generation };
        let job = self.jobs.get_mut(key)?;
        job.left = job.left.saturating_sub(1);
        match reply.answer {
            Answer::Done { .. } | Answer::Identified(_) => job.page.used += 1,
            // Somebody else was faster.
            Answer::NotFound | Answer::Refused(Refusal::NoTimer) => {}
            _ => job.page.refused += 1,
        }
        if job.left > 0 {
            return None;
        }
        let job = self.jobs.remove(key)?;
        let answer = Answer::Internal(Box::new(Internal::List(job.page)));
        Some(Reply { to: job.to, answer, after: reply.after })
    }
}

fn target_of(timer: &ListedTimer) -> Target {
    let view = &timer.view;
    Target { id: view.id, factor: Some(view.factor), filter: Some(view.filter) }
}

#[cfg(test)]
#[path = "letter_jobs_tests.rs"]
mod tests;
