//! Stories of pauses: nodes stop, die, freeze and come back, one at a time or some at once. Just
//! then clients write what they wrote before: deletes, updates, and ids that existed. Timers come
//! due around each return. Nothing else is wrong, so that little is excused. And what pauses may double.

use chronos::shard::effects::CallbackOutcome;
use kit::simulator::random::{Purpose, Stream};

use super::disturbances::RECOVERY_NS;
use super::model::{Attempted, Checked, MS, Model, Write, broken};
use super::network::CoreAt;
use super::options::Options;
use super::story_plan::{Death, Fault, Kind, Operation, Story, Target, Wish};

/// How many timers are written around each pause.
const TIMERS: u64 = 8;

/// Replaces the faults of a story by pauses.
pub fn pauses(story: &mut Story) {
    let options = story.options.clone();
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 209);
    story.faults.clear();
    let mut at_ms = draw.range(4_000, 9_000);
    let mut round = 0;
    while at_ms + 5_000 < options.safety_ms {
        let node = draw.range(0, options.nodes as u64 - 1) as usize;
        let for_ms = draw.pick(&[300, 700, 950, 1_200, 1_600, 2_600, 3_400, 5_600, 9_000]);
        let fault = match draw.range(0, 5) {
            0 | 1 => Fault::Stop { node, for_ms },
            2 => Fault::Kill { node, for_ms, how: Death::Process },
            _ => Fault::Freeze { node, ms: for_ms },
        };
        story.faults.push((at_ms * MS + draw.range(0, MS), fault));
        let is_frozen = matches!(fault, Fault::Freeze { .. });
        if is_frozen && draw.chance(40) {
            moments(draw, &options, at_ms, for_ms, &mut story.faults);
        }
        write_around(draw, story, round, (at_ms, for_ms, node));
        round += 1;
        at_ms += for_ms + draw.pick(&[600, 2_500, 12_000]);
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
    story.faults.sort_by_key(|(at_ns, _)| *at_ns);
}

/// Makes other nodes freeze for moments during a pause.
fn moments(
    draw: &mut Stream,
    options: &Options,
    at_ms: u64,
    for_ms: u64,
    made: &mut Vec<(u64, Fault)>,
) {
    for _ in 0..draw.range(1, 6) {
        let node = draw.range(0, options.nodes as u64 - 1) as usize;
        let ms = draw.pick(&[200, 600, 900, 1_100, 2_200]);
        made.push(((at_ms + draw.range(0, for_ms + 2_500)) * MS, Fault::Freeze { node, ms }));
    }
}

/// Makes timers that exist before a pause, are written during the pause, and come due as it ends.
fn write_around(
    draw: &mut Stream,
    story: &mut Story,
    round: u64,
    (at_ms, for_ms, node): (u64, u64, usize),
) {
    let options = story.options.clone();
    let nodes = options.nodes as u64;
    let end_ms = at_ms + for_ms;
    let mut operate = |draw: &mut Stream, at_ms: u64, kind: Kind| {
        let another = (node as u64 + draw.range(1, (nodes - 1).max(1))) % nodes;
        let operation = Operation {
            name: options.operations + 100 + story.operations.len(),
            at_ns: at_ms * MS + draw.range(0, MS),
            node: another as usize,
            kind,
            patience_ms: 8_000,
            loses_reply: false,
        };
        story.operations.push(operation);
    };
    for timer in 0..TIMERS {
        // Half of the ids existed in the round before.
        let existed = if draw.chance(50) { round } else { round.saturating_sub(1) };
        let target = Target::Chosen(0x7000 + existed * TIMERS + timer);
        let factor = 0;
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        let before_ms = at_ms.saturating_sub(draw.range(100, 1_900));
        // The timer is due as the pause ends, or every so often.
        let until_ms = end_ms + draw.range(0, 900) - before_ms;
        let interval_ms = draw.pick(&[until_ms, until_ms, 500, 700, 1_500]).max(200);
        let times = draw.pick(&[1, 3, 20]);
        let repeat_for_ms = interval_ms * times;
        let wish = Wish { interval_ms, repeat_for_ms, host, factor, policy: None };
        operate(draw, before_ms, Kind::Update(target, wish));
        let during_ms = at_ms + draw.range(0, for_ms + 200);
        match draw.range(0, 4) {
            0 | 1 => operate(draw, during_ms, Kind::Delete(target)),
            2 => {
                let later = Wish { interval_ms: 30_000, repeat_for_ms: 30_000, ..wish };
                operate(draw, during_ms, Kind::Update(target, later));
            }
            _ => {}
        }
    }
}

impl Model {
    /// Checks that nodes that stop, are killed or come back double no pop.
    ///
    /// - A pop that was under way as its node died may be doubled.
    /// - A node that froze doubles no pop once it has told the others of it.
    pub fn is_no_double_of_a_pause(
        &self,
        write: &Write,
        (place, now_ns): (CoreAt, u64),
        others: &[Attempted],
        text: &impl Fn() -> String,
    ) -> Checked {
        let wish = write.wish.expect("a pop has one");
        let from_ns = now_ns.saturating_sub(RECOVERY_NS + wish.interval_ms * MS);
        if !self.has_only_pauses(from_ns, now_ns)
            || !self.host_is_well(wish.host, from_ns, now_ns)
            || write.acknowledged_ns().is_none_or(|done_ns| done_ns + self.talk_ns > now_ns)
            || self.may_be_unknown(write, now_ns)
            || self.may_return(write, write.sent_ns, now_ns)
            || self.may_be_damaged(write)
            || self.acknowledges_first
            || self.crowded_from.is_some()
        {
            return Ok(());
        }
        let is_told = |other: &Attempted| {
            let told_ns = match other.told {
                Some((told_ns, CallbackOutcome::Delivered)) => told_ns,
                _ => return false,
            };
            let is_own = (other.place.node, other.place.life) == (place.node, place.life);
            // A node that froze meanwhile hears of the pop, or can ask, when it is back.
            let heard_ns = self.disturbances.well_again_ns(place.node, told_ns);
            let heard_ns = heard_ns.saturating_add(self.talk_ns);
            let was_able = self.disturbances.is_well(other.place.node, told_ns, heard_ns);
            is_own || was_able && heard_ns < now_ns
        };
        if others.iter().any(is_told) { broken("T3 pause", text()) } else { Ok(()) }
    }
}
