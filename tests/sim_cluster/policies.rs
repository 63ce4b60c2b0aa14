//! Timers with a retry policy: which faults they meet, and what clients may count on (docs/api.md,
//! "Retry policy"). One node makes all attempts at a pop, as its policy says, while it lives and is
//! connected. Another one goes on soon after it died.

use chronos::shard::effects::CallbackOutcome;
use chronos::shard::inspect::Held;
use chronos::wire::attributes::{Attributes, RetryPolicy};
use kit::simulator::callback_world::Behaviour;
use kit::simulator::random::{Purpose, Stream};

use super::disturbances::RECOVERY_NS;
use super::model::{Attempted, Checked, MS, Model, RANK_NS, TALK_NS, Write, broken};
use super::network::CoreAt;
use super::options::{Options, Trouble};
use super::rarities::Rarity;
use super::story_plan::{Death, Fault, Kind, Story};
use super::world::{Event, World};

/// How long a dead node may be taken for alive, and the others may take to ask each other.
const NOTICED_NS: u64 = 5_000 * MS;

/// Gives most timers of a story a policy, if its seed has drawn them.
pub fn with_policies(story: &mut Story) {
    if !story.options.rarities.kinds.contains(&Rarity::Policies) {
        return;
    }
    for operation in &mut story.operations {
        let key = 1_000 + operation.name as u64;
        let draw = &mut Stream::keyed(story.options.seed, Purpose::Rarities, key);
        if let Kind::Create(wish) | Kind::Update(_, wish) = &mut operation.kind
            && draw.chance(75)
        {
            wish.policy = Some(RetryPolicy {
                max_attempts: draw.pick(&[2, 5, 100]),
                max_age_ms: draw.pick(&[15_000, 40_000]),
                initial_ms: draw.pick(&[200, 1_000, 4_000]),
                max_ms: draw.pick(&[1_000, 8_000]),
                multiplier_milli: draw.pick(&[1_000, 2_000]),
                jitter_milli: draw.pick(&[0, 200]),
            });
        }
    }
}

/// Makes hosts fail for longer than the ranks take to ask, and nodes die meanwhile.
pub fn failures(draw: &mut Stream, options: &Options, made: &mut Vec<(u64, Fault)>) {
    for host in 0..options.hosts {
        let begin_ms = draw.range(2_000, 10_000);
        let lasts_ms = draw.range(5_000, 45_000);
        let behaviour = match draw.range(0, 5) {
            0 => Behaviour::Refuses,
            1 => Behaviour::Hangs,
            _ => Behaviour::Broken,
        };
        made.push((begin_ms * MS, Fault::Host { host, behaviour }));
        let well = Fault::Host { host, behaviour: Behaviour::Well(3) };
        made.push(((begin_ms + lasts_ms) * MS, well));
        if options.trouble != Trouble::None && draw.chance(60) {
            let at_ms = begin_ms + draw.range(1_000, lasts_ms);
            let node = draw.range(0, options.nodes as u64 - 1) as usize;
            let how = draw.pick(&[Death::Process, Death::Power]);
            made.push((at_ms * MS, Fault::Kill { node, for_ms: draw.range(200, 60_000), how }));
        }
    }
}

/// The attributes of the timer of a write with this policy and this digest of the body of its key,
/// encoded.
pub fn attributes_of(write: usize, policy: Option<RetryPolicy>, once: Option<u64>) -> Vec<u8> {
    let mut encoded = Vec::new();
    let headers = headers_of(write, policy.as_ref());
    Attributes { retry: policy, once, headers, ..Attributes::default() }.write(&mut encoded);
    encoded
}

/// The headers of the timer of a write. Many timers with a policy have the same.
pub fn headers_of(write: usize, policy: Option<&RetryPolicy>) -> &'static str {
    match policy.map(|_| write % 3) {
        Some(0) => "X-Tenant: the-first-of-the-tenants\r\n",
        Some(1) => "X-Tenant: the-second-one\r\nAuthorization: of-the-second-one\r\n",
        _ => "",
    }
}

fn is_by(attempted: &Attempted, place: CoreAt) -> bool {
    (attempted.place.node, attempted.place.life) == (place.node, place.life)
}

fn has_failed(attempted: &Attempted) -> bool {
    use CallbackOutcome::{Rejected, TimedOut, Unreachable};
    matches!(attempted.told, Some((_, Rejected | Unreachable | TimedOut)))
}

impl Model {
    /// Checks T11 for an attempt that begins: it is made by the node that made the others, after
    /// its pause, and there are not more than the policy allows.
    pub fn keeps_policy(&self, place: CoreAt, now_ns: u64, name: usize, sequence: u64) -> Checked {
        let Some(write) = self.writes.get(&name) else { return Ok(()) };
        let Some(policy) = write.wish.and_then(|wish| wish.policy) else { return Ok(()) };
        let Some(others) = self.pops.get(&(name, sequence)) else { return Ok(()) };
        let Some(first_ns) = others.iter().map(|other| other.begun_ns).min() else { return Ok(()) };
        let interval_ns = write.wish.map_or(0, |wish| wish.interval_ms) * MS;
        let from_ns = first_ns.saturating_sub(RECOVERY_NS + interval_ns);
        if !self.is_steady(from_ns, now_ns)
            || !self.is_certain(write, (first_ns, now_ns))
            || write.acknowledged_ns().is_none_or(|done_ns| done_ns + TALK_NS > first_ns)
        {
            return Ok(());
        }
        let text = || format!("pop {sequence} of {write:?} at {now_ns} by {place:?}: {others:?}");
        if !others.iter().all(|other| is_by(other, place)) {
            return broken("T11 node", text());
        }
        let failed = others.iter().filter(|other| has_failed(other)).count() as u64;
        if failed >= u64::from(policy.max_attempts) {
            return broken("T11 attempts", text());
        }
        let told = others.iter().filter(|other| has_failed(other)).filter_map(|other| other.told);
        let Some(last_ns) = told.map(|(at_ns, _)| at_ns).max() else { return Ok(()) };
        let is_stale = others
            .last()
            .is_some_and(|last| matches!(last.told, Some((_, CallbackOutcome::Stale))));
        let longer = policy.multiplier_milli / 1_000;
        let pause_ms = (1..failed).fold(policy.initial_ms, |pause_ms, _| {
            (pause_ms * u64::from(longer)).min(policy.max_ms)
        });
        // Clocks differ in speed by a thousandth at most, and tell whole milliseconds.
        let pause_ns = pause_ms.min(policy.max_ms) * (MS - MS / 500);
        if !is_stale && now_ns + 2 * MS < last_ns + pause_ns {
            return broken("T11 pause", text());
        }
        Ok(())
    }

    /// Whether a write counts, all nodes that are to have it do, and no client did anything else
    /// with its timer since the first attempt at a pop.
    fn is_certain(&self, write: &Write, (first_ns, now_ns): (u64, u64)) -> bool {
        !self.has_sites
            && self.crowded_from.is_none()
            && self.is_current(write, now_ns)
            && !write.id.is_some_and(|id| self.is_acted_on_since(id, first_ns))
    }

    /// The pops that a process that dies now has begun, that failed so far, and until when another
    /// one must go on.
    pub fn left_behind(&self, node: usize, life: u64, now_ns: u64) -> Vec<(usize, u64, u64)> {
        let place = |attempted: &Attempted| (attempted.place.node, attempted.place.life);
        let mut left = Vec::new();
        for (&(name, sequence), attempts) in &self.pops {
            let write = &self.writes[&name];
            let Some(due_ns) = write.wish.and_then(|wish| wish.policy).and_then(|_| {
                write.acknowledged_ns()?;
                attempts.iter().map(|attempted| attempted.begun_ns).min()
            }) else {
                continue;
            };
            let is_open = attempts.iter().all(|attempted| attempted.served_ns.is_none());
            let has_begun = attempts.last().is_some_and(|last| place(last) == (node, life));
            if is_open && has_begun {
                let look_ns = ((now_ns - due_ns) / 4).clamp(1_000 * MS, 30_000 * MS);
                let ranks_ns = u64::from(write.replicas) * RANK_NS;
                left.push((name, sequence, now_ns + look_ns + ranks_ns + NOTICED_NS));
            }
        }
        left
    }

    /// Checks T12: another process has gone on with a pop whose process died.
    pub fn is_taken_over(
        &self,
        (name, sequence): (usize, u64),
        died_ns: u64,
        now_ns: u64,
    ) -> Checked {
        let write = &self.writes[&name];
        let Some((wish, policy)) = write.wish.and_then(|wish| Some((wish, wish.policy?))) else {
            return Ok(());
        };
        let seen = |sequence| self.pops.get(&(name, sequence)).into_iter().flatten();
        let mut after = seen(sequence).chain(seen(sequence + 1));
        let attempts = || seen(sequence);
        let begun_ns = attempts().map(|attempted| attempted.begun_ns).min().unwrap_or(0);
        let from_ns = begun_ns.saturating_sub(RECOVERY_NS);
        // Who failed so often has given the pop up.
        let failed = attempts().filter(|attempted| has_failed(attempted)).count() as u64;
        let has_slack = |after_ms: u64| begun_ns + after_ms * MS > now_ns + 1_000 * MS;
        let is_last = sequence == wish.pops();
        let had_answers = self.pops.iter().all(|((other, _), all)| {
            let same_host = self.writes[other].wish.is_some_and(|it| it.host == wish.host);
            !same_host || all.iter().all(|one| one.begun_ns < from_ns || one.is_answered())
        });
        if after.any(|attempted| attempted.begun_ns > died_ns)
            || failed >= u64::from(policy.max_attempts)
            || !self.is_certain(write, (begun_ns, now_ns))
            || write.replicas < 2
            || self.acknowledges_first
            || !self.has_only_pauses(from_ns, now_ns)
            || self.disturbances.impaired_max(from_ns, now_ns) > 1
            || self.may_be_unknown(write, now_ns)
            || !has_slack(policy.max_age_ms)
            || !is_last && !has_slack(wish.interval_ms)
            || !had_answers
        {
            return Ok(());
        }
        let what = format!("pop {sequence} of {write:?}, died at {died_ns}, now {now_ns}");
        broken("T12 takeover", what)
    }
}

impl Attempted {
    /// Whether the host answered, whatever it answered.
    fn is_answered(&self) -> bool {
        use CallbackOutcome::{TimedOut, Unreachable};
        !matches!(self.told, Some((_, TimedOut | Unreachable)))
    }
}

impl World {
    /// Checks T13: a last pop all of whose attempts failed is a dead letter on the nodes that are
    /// to hold its timer, as far as they run: `down` members do not.
    pub fn is_in_a_letter(
        &self,
        write: &Write,
        (holders, down): (&[(usize, Held)], u32),
    ) -> Checked {
        let (model, now_ns) = (&self.model, self.now_ns);
        let Some((wish, policy)) = write.wish.and_then(|wish| Some((wish, wish.policy?))) else {
            return Ok(());
        };
        let Some(attempts) = model.pops.get(&(write.name, wish.pops())) else { return Ok(()) };
        let Some(first) = attempts.first() else { return Ok(()) };
        let failed = attempts.iter().filter(|attempted| has_failed(attempted));
        let failed_ns: Vec<u64> = failed.filter_map(|it| it.told.map(|(at_ns, _)| at_ns)).collect();
        let given_up_ns = failed_ns.iter().max().copied().unwrap_or(now_ns);
        let is_by_one = attempts.iter().all(|attempted| is_by(attempted, first.place));
        let from_ns = first.begun_ns.saturating_sub(RECOVERY_NS);
        if failed_ns.len() as u64 != u64::from(policy.max_attempts)
            || failed_ns.len() != attempts.len()
            || !is_by_one
            || given_up_ns + TALK_NS > now_ns
            || !model.is_steady(from_ns, now_ns)
            || !model.is_certain(write, (first.begun_ns, now_ns))
            || !self.options.has_room()
        {
            return Ok(());
        }
        let letters = holders.iter().filter(|(_, held)| held.is_parked).count() as u32;
        if letters < write.replicas.saturating_sub(down) {
            let text = format!("given up at {given_up_ns}: {write:?} {attempts:?} {holders:#?}");
            return broken("T13 letter", text);
        }
        Ok(())
    }

    /// Schedules the checks of pops that a process that dies leaves behind.
    pub fn leave_pops(&mut self, node: usize, life: u64) {
        for (name, sequence, until_ns) in self.model.left_behind(node, life, self.now_ns) {
            let died_ns = self.now_ns;
            self.schedule(until_ns, Event::Takeover { name, sequence, died_ns });
        }
    }
}
