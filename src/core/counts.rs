//! The answer to `GET /timers/count`, put together from the numbers of all shards of all nodes of
//! the site. Each shard is asked until it has its numbers: once, where it is not asked when timers
//! are due and where timers name few hosts.
//!
//! No clock, no socket.

use crate::base::ids::{PeerIndex, ShardCount, ShardIndex, mix};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::{Now, Tick};
use crate::cluster::view::View;
use crate::shard::effects::{Answer, Internal, LISTED, ListCount, Refusal, Reply, Requester};
use crate::wire::timer_count::{CountAsk, CountPart, Numbers};

use crate::core::lists::{Asked, Order, Whom};

/// Answers that one core puts together at a time.
const COUNTS_MAX: usize = 16;
/// A node or a shard that does not have its numbers after this time is left out.
const COUNT_MS: u64 = 2_000;
/// A node that has not answered a question for this long is left out.
const PEER_MS: u64 = 1_000;
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

#[derive(Debug)]
struct Count {
    from: Requester,
    ask: CountAsk,
    begun: Tick,
    sources: Vec<Source>,
    sum: Numbers,
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
        has_spans: bool,
    ) -> Result<(), Refusal> {
        if self.counts.len() >= COUNTS_MAX {
            return Err(Refusal::ListsFull);
        }
        self.begun += 1;
        let ask = CountAsk { walk: mix(seed ^ mix(!self.begun)), has_spans };
        let own = (0..shards.get()).map(|shard| Source::new(Whom::Shard(ShardIndex(shard))));
        let mut count = Count {
            from,
            ask,
            begun: now.mono.tick_floor(),
            sources: own.collect(),
            sum: Numbers::default(),
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
        match part.map(|part| CountPart::decode(&part)) {
            Some(Ok(part)) => count.add(tick, number, part),
            Some(Err(_)) => count.fail(view, number, "its answer makes no sense"),
            None => count.fail(view, number, "down, or of a version that knows no lists"),
        }
        self.finish(now, key)
    }

    /// Appends the questions to ask now, and the answers that end because they take too long.
    pub fn tick(
        &mut self,
        now: Now,
        (own, view): (ShardIndex, &View),
        orders: &mut Vec<Order>,
        replies: &mut Vec<Reply>,
    ) {
        let tick = now.mono.tick_floor();
        for place in 0..self.counts.places() {
            let Some(key) = self.counts.key_at(place) else { continue };
            let Some(count) = self.counts.get_mut(key) else { continue };
            count.give_up_late(tick, view);
            let SlotKey { index, generation } = key;
            for (number, source) in (0_u32..).zip(&mut count.sources) {
                if !source.is_done && source.asked_at.is_none() && source.not_before <= tick {
                    source.asked_at = Some(tick);
                    let request = IS_COUNT | index << 16 | number;
                    let from = Requester { shard: own, connection: LISTED, generation, request };
                    let mut ask = Vec::new();
                    count.ask.encode(&mut ask);
                    orders.push(Order { whom: source.whom, from, ask });
                }
            }
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
        let mut count = self.counts.remove(key)?;
        count.sum.name_fewer_hosts();
        let Count { from, ask, sum, incomplete, .. } = count;
        let has_spans = ask.has_spans;
        let answer = ListCount { numbers: sum, has_spans, incomplete, at: now.wall };
        Some(Reply::at_once(from, Answer::Internal(Box::new(Internal::Count(answer)))))
    }
}

impl Count {
    fn add(&mut self, tick: Tick, number: u16, part: CountPart) {
        let source = &mut self.sources[usize::from(number)];
        if source.is_done {
            return;
        }
        let whom = source.whom;
        source.not_before = if part.is_starved { tick + 1 } else { tick };
        if let Some(numbers) = part.numbers {
            source.is_done = true;
            self.sum.add(numbers);
        }
        let Whom::Peer(peer, _) = whom else { return };
        let is_of = |source: &&Source| matches!(source.whom, Whom::Peer(of, _) if of == peer);
        let asked = self.sources.iter().filter(is_of).count() as u16;
        let more = asked..part.shards;
        self.sources.extend(more.map(|shard| Source::new(Whom::Peer(peer, shard))));
    }

    fn leave_out(&mut self, view: &View, peer: PeerIndex, why: &str) {
        let name = view.name_of(peer);
        self.incomplete.push(format!("{name}: {why}; its timers count where others hold them"));
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

    fn next_wake(&self) -> Tick {
        let open = self.sources.iter().filter(|source| !source.is_done);
        let wakes = open.map(|source| match source.asked_at {
            Some(at) => at + PEER_MS,
            None => source.not_before,
        });
        wakes.min().map_or(self.begun, |wake| wake.min(self.begun + COUNT_MS))
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
