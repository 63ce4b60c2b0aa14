//! What clients ask of all timers, and what jobs want done: lists, numbers, deletes.

use std::sync::Arc;

use super::Core;
use crate::base::jobs::JobPlaces;
use crate::base::time::Now;
use crate::cluster::detector::Liveness;
use crate::core::counts::Wanted;
use crate::core::jobs::{BY_JOBS, JobOrder};
use crate::core::lists::ListAsked;
use crate::shard::effects::{Answer, Dialect, Internal, Request, Requester};

impl Core {
    /// Takes a client's question for a page of a list, for numbers or jobs, or the order for a job.
    /// [`Core::replies`] gives the answer.
    pub fn list(&mut self, now: Now, from: Requester, asked: ListAsked) {
        let view = self.peering.view().clone();
        let nodes = view.connected_nodes();
        let others = self.peering.believed().filter(|(peer, ..)| nodes.contains(*peer));
        let others = others.map(|(peer, liveness, dialect)| {
            let can_be_asked = match (liveness, dialect) {
                (Liveness::Alive, Dialect::Frames) => Ok(()),
                (Liveness::Alive, Dialect::Http) => Err("a node of the original service"),
                _ => Err("not reached"),
            };
            (peer, can_be_asked)
        });
        let hello = self.peering.hello();
        let own = (hello.incarnation ^ u64::from(hello.shard) << 32, self.shards);
        let of = (&*view, others);
        let begun = match asked {
            ListAsked::Page(query, by) => self.lists.begin(now, own, of, (from, by), query),
            ListAsked::Count { has_spans } => {
                self.counts.begin(now, own, of, from, Wanted::Numbers { has_spans })
            }
            ListAsked::Jobs(ask) => self.counts.begin(now, own, of, from, Wanted::Jobs(ask)),
            ListAsked::Delete(query, owner) => {
                let (place, table) = (self.job_places.take(&owner), self.shard.jobs_mut());
                self.jobs.begin(now, own.0, table, (query, owner), place).map(|report| {
                    let answer = Answer::Internal(Box::new(Internal::JobBegun(report)));
                    self.outbox.reply(from, answer);
                })
            }
        };
        if let Err(refusal) = begun {
            self.outbox.reply(from, Answer::Refused(refusal));
        }
    }

    /// Does what jobs want done now.
    pub(super) fn jobs_on(&mut self, now: Now) {
        let mut orders = Vec::new();
        self.jobs.tick(now, self.own, self.shard.jobs_mut(), &mut orders);
        for order in orders {
            match order {
                JobOrder::List(from, query) => {
                    self.list(now, from, ListAsked::Page(query, BY_JOBS))
                }
                JobOrder::Delete(from, delete) => {
                    self.request(now, from, Request::Conditional(delete));
                }
            }
        }
    }

    /// Sets the places for jobs, which all cores of the node share.
    pub fn set_job_places(&mut self, places: Arc<JobPlaces>) {
        self.job_places = places;
    }

    /// How many jobs this core runs.
    pub fn jobs_running(&self) -> usize {
        self.jobs.running()
    }
}
