//! Answers to `GET /timers/count`, put together from the numbers of all shards of all nodes of the
//! site. Each shard is asked until it has its numbers: once, where it is not asked when timers are
//! due and where timers name few hosts. Answers about jobs are put together in the same way.
//!
//! No clock, no socket.

// May panic: indices 4.
// Why it does not: found 4.
// Reads the wall clock: told 1.

use crate::base::ids::{PeerIndex, ShardCount, ShardIndex, mix};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::{Now, Tick};
use crate::cluster::view::View;
use crate::shard::effects::{Answer, Internal, JobList, ListCount, Refusal, Reply, Requester};
use crate::wire::jobs::{JobReport, JobsAsk, JobsPart};
use crate::wire::peer_message::PeerMessageError;
use crate::wire::timer_count::{CountAsk, CountPart, Numbers};

use crate::core::asking::{Asked, Order, PEER_MS, Whole, Whom, ask_all};

/// Answers that one core puts together at a time.
const COUNTS_MAX: usize = 16;
/// A node or a shard that does not have its numbers after this time is left out.
const COUNT_MS: u64 = 2_000;
/// In the number of a request: the answer is for counts.
pub(crate) const IS_COUNT: u32 = 1 << 31;

#[derive(Debug)]
struct Source {
    whom: Whom,
    is_done: bool,
    /// When the question that is not answered yet was asked.
    asked_at: Option<Tick>,
    not_before: Tick,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// Numbers; whether it is asked when timers are due.
    Numbers { has_spans: bool },
    /// Jobs.
    Jobs(JobsAsk),
}

/// What has come so far.
#[derive(Debug)]
enum Sum {
    Numbers(Numbers, CountAsk),
    Jobs(Vec<JobReport>, JobsAsk),
}

#[derive(Debug)]
struct Count {
    from: Requester,
    begun: Tick,
    sources: Vec<Source>,
    sum: Sum,
    incomplete: Vec<String>,
}

/// All answers that one core puts together.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    counts: Slots<Count>,
    begun: u64,
}

impl Counts {
    /// Begins an answer. `seed` tells this core from all others.
    pub fn begin(
        &mut self,
        now: Now,
        (seed, shards): (u64, ShardCount),
        (view, peers): (&View, impl Iterator<Item = Asked>),
        from: Requester,
        wanted: Wanted,
    ) -> Result<(), Refusal> {
        if self.counts.len() >= COUNTS_MAX {
            return Err(Refusal::ListsFull);
        }
        self.begun += 1;
        let walk = mix(seed ^ mix(!self.begun));
        let sum = match wanted {
            Wanted::Numbers { has_spans } => {
                Sum::Numbers(Numbers::default(), CountAsk { walk, has_spans })
            }
            Wanted::Jobs(ask) => Sum::Jobs(Vec::new(), ask),
        };
        let own = (0..shards.get()).map(|shard| Source::new(Whom::Shard(ShardIndex(shard))));
        let mut count = Count {
            from,
            begun: now.mono.tick_floor(),
            sources: own.collect(),
            sum,
            incomplete: Vec::new(),
        };
        for (peer, can_be_asked) in peers {
            match can_be_asked {
                Ok(()) => count.sources.push(Source::new(Whom::Peer(peer, 0))),
                Err(why) => count.leave_out(view, peer, why),
            }
        }
        self.counts.insert(count);
        Ok(())
    }

    /// Takes a shard's answer. Returns the whole answer if it is complete with it.
    pub fn take(&mut self, now: Now, view: &View, reply: Reply) -> Option<Reply> {
        let (index, number) = ((reply.to.request & !IS_COUNT) >> 16, reply.to.request as u16);
        let key = SlotKey { index, generation: reply.to.generation };
        let count = self.counts.get_mut(key)?;
        let source = count.sources.get_mut(usize::from(number))?;
        source.asked_at = None;
        let tick = now.mono.tick_floor();
        let part = match reply.answer {
            Answer::Internal(internal) => match *internal {
                Internal::ListPart(part) => part,
                _ => None,
            },
            // A sibling's queue is full for a moment.
            _ => {
                source.not_before = tick + 1;
                return None;
            }
        };
        match part.map(|part| count.add(tick, number, &part)) {
            Some(Ok(())) => {}
            Some(Err(_)) => count.fail(view, number, "its answer makes no sense"),
            None => count.fail(view, number, "down, or of a version that knows no lists"),
        }
        self.finish(now, key)
    }

    /// Appends the questions to ask now, and the answers that end because they take too long.
    pub fn tick(
        &mut self,
        now: Now,
        of: (ShardIndex, &View),
        orders: &mut Vec<Order>,
        replies: &mut Vec<Reply>,
    ) {
        for key in ask_all(&mut self.counts, now.mono.tick_floor(), of, IS_COUNT, orders) {
            replies.extend(self.finish(now, key));
        }
    }

    /// Whether no answer is being put together.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// When [`Counts::tick`] has work next.
    pub fn next_wake(&self) -> Option<Tick> {
        self.counts.iter().map(|(_, count)| count.next_wake()).min()
    }

    fn finish(&mut self, now: Now, key: SlotKey) -> Option<Reply> {
        if !self.counts.get(key)?.sources.iter().all(|source| source.is_done) {
            return None;
        }
        let Count { from, sum, incomplete, .. } = self.counts.remove(key)?;
        let answer = match sum {
            Sum::Numbers(mut numbers, CountAsk { has_spans, .. }) => {
                numbers.name_fewer_hosts();
                Internal::Count(ListCount { numbers, has_spans, incomplete, at: now.wall })
            }
            Sum::Jobs(mut jobs, ask) => {
                jobs.sort_by_key(|job| (job.began, job.id));
                Internal::Jobs(JobList { jobs, is_of_one: ask.job.is_some(), incomplete })
            }
        };
        Some(Reply::at_once(from, Answer::Internal(Box::new(answer))))
    }
}

impl Count {
    fn add(&mut self, tick: Tick, number: u16, part: &[u8]) -> Result<(), PeerMessageError> {
        let source = &mut self.sources[usize::from(number)];
        if source.is_done {
            return Ok(());
        }
        let whom = source.whom;
        let shards = match &mut self.sum {
            Sum::Numbers(sum, _) => {
                let part = CountPart::decode(part)?;
                source.not_before = if part.is_starved { tick + 1 } else { tick };
                if let Some(numbers) = part.numbers {
                    source.is_done = true;
                    sum.add(numbers);
                }
                part.shards
            }
            Sum::Jobs(all, _) => {
                let part = JobsPart::decode(part)?;
                source.is_done = true;
                all.extend(part.jobs);
                part.shards
            }
        };
        let Whom::Peer(peer, _) = whom else { return Ok(()) };
        let is_of = |source: &&Source| matches!(source.whom, Whom::Peer(of, _) if of == peer);
        let asked = self.sources.iter().filter(is_of).count() as u16;
        let more = asked..shards;
        self.sources.extend(more.map(|shard| Source::new(Whom::Peer(peer, shard))));
        Ok(())
    }

    fn leave_out(&mut self, view: &View, peer: PeerIndex, why: &str) {
        let name = view.name_of(peer);
        let what = match self.sum {
            Sum::Numbers(..) => "its timers count where others hold them",
            Sum::Jobs(..) => "its jobs are missing",
        };
        self.incomplete.push(format!("{name}: {why}; {what}"));
    }

    fn fail(&mut self, view: &View, number: u16, why: &str) {
        match self.sources[usize::from(number)].whom {
            Whom::Peer(peer, _) => {
                let is_of =
                    |source: &Source| matches!(source.whom, Whom::Peer(of, _) if of == peer);
                if self.sources.iter().any(|source| is_of(source) && !source.is_done) {
                    self.leave_out(view, peer, why);
                }
                let its = self.sources.iter_mut().filter(|source| is_of(source));
                its.for_each(|source| source.is_done = true);
            }
            Whom::Shard(ShardIndex(shard)) => {
                self.incomplete.push(format!("shard {shard} of this node: {why}"));
                self.sources[usize::from(number)].is_done = true;
            }
        }
    }

    fn next_wake(&self) -> Tick {
        let open = self.sources.iter().filter(|source| !source.is_done);
        let wakes = open.map(|source| match source.asked_at {
            Some(at) => at + PEER_MS,
            None => source.not_before,
        });
        wakes.min().map_or(self.begun, |wake| wake.min(self.begun + COUNT_MS))
    }
}

impl Whole for Count {
    fn give_up_late(&mut self, tick: Tick, view: &View) {
        let is_over = tick - self.begun >= COUNT_MS;
        for number in 0..self.sources.len() {
            let source = &self.sources[number];
            let is_silent = matches!(source.whom, Whom::Peer(..))
                && source.asked_at.is_some_and(|at| tick - at >= PEER_MS);
            if !source.is_done && is_silent {
                self.fail(view, number as u16, "no answer within a second");
            } else if !source.is_done && is_over {
                self.fail(view, number as u16, "so many timers that counting takes too long");
            }
        }
    }

    fn ask(&mut self, tick: Tick, order: &mut dyn FnMut(u32, Whom, Vec<u8>)) {
        for (number, source) in (0_u32..).zip(&mut self.sources) {
            if !source.is_done && source.asked_at.is_none() && source.not_before <= tick {
                source.asked_at = Some(tick);
                let mut ask = Vec::new();
                match &self.sum {
                    Sum::Numbers(_, count) => count.encode(&mut ask),
                    Sum::Jobs(_, jobs) => jobs.encode(&mut ask),
                }
                order(number, source.whom, ask);
            }
        }
    }
}

impl Source {
    fn new(whom: Whom) -> Self {
        Self { whom, is_done: false, asked_at: None, not_before: Tick(0) }
    }
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
