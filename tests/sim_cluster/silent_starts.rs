//! All nodes die at once. One is back first, makes pops alone, and gets no time from then on. The
//! others start beside it, with what their disks have. Its machine takes their dials: so they wait
//! for it, for a while, and no number falls at a host.

use kit::simulator::random::{Purpose, Stream};

use super::model::{Checked, MS, Model, Write, broken};
use super::network::CoreAt;
use super::options::Options;
use super::rarities::Rarity;
use super::story_plan::{Death, Fault, Kind, Operation, Story, Target, Wish};

/// How many timers are written before each time.
const TIMERS: u64 = 8;
/// How long such a time takes, until all have settled.
const ROUND_MS: u64 = 40_000;
/// A node that has started waits for so long, less what it takes to start, for a process that says
/// nothing (docs/guarantees.md, "Ask before a pop").
const PATIENCE_NS: u64 = 7_500 * MS;

impl Options {
    /// Whether the story is of silent processes beside starts.
    pub fn has_silent_starts(&self) -> bool {
        let is_drawn = self.rarities.kinds.contains(&Rarity::SilentStarts);
        is_drawn && self.nodes > 1 && self.sites.is_none()
    }
}

/// Replaces what goes wrong in a story.
pub fn silent_starts(story: &mut Story) {
    if !story.options.has_silent_starts() {
        return;
    }
    let options = story.options.clone();
    let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 230);
    story.faults.clear();
    let mut at_ms = draw.range(5_000, 8_000);
    let mut round = 0;
    while at_ms + ROUND_MS / 2 < options.safety_ms {
        let silent = draw.range(0, options.nodes as u64 - 1) as usize;
        let back_ms = at_ms + draw.pick(&[5_500, 8_000, 12_000]);
        for node in 0..options.nodes {
            let for_ms = match node == silent {
                true => draw.pick(&[20, 400]),
                false => back_ms - at_ms + draw.range(0, 2_000),
            };
            let at_ns = at_ms * MS + draw.range(0, 5 * MS);
            story.faults.push((at_ns, Fault::Kill { node, for_ms, how: Death::Process }));
        }
        let frozen_ms = back_ms - draw.range(0, 1_500);
        let until_ms = back_ms + draw.pick(&[2_000, 4_000, 5_500, 7_000]);
        let freeze = Fault::Freeze { node: silent, ms: until_ms - frozen_ms };
        story.faults.push((frozen_ms * MS, freeze));
        write_before(draw, story, round, at_ms);
        round += 1;
        at_ms += ROUND_MS + draw.range(0, 5_000);
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
    story.faults.sort_by_key(|(at_ns, _)| *at_ns);
}

/// Makes timers that pop on and on.
fn write_before(draw: &mut Stream, story: &mut Story, round: u64, at_ms: u64) {
    let options = story.options.clone();
    for timer in 0..TIMERS {
        let interval_ms = draw.pick(&[500, 900, 2_000]);
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        let repeat_for_ms = 60 * interval_ms;
        let wish = Wish { interval_ms, repeat_for_ms, host, factor: 0, policy: None };
        let before_ms = at_ms - draw.range(500, 2_500);
        story.operations.push(Operation {
            name: options.operations + 100 + story.operations.len(),
            at_ns: before_ms * MS + draw.range(0, MS),
            node: draw.range(0, options.nodes as u64 - 1) as usize,
            kind: Kind::Update(Target::Chosen(0x8000 + round * TIMERS + timer), wish),
            patience_ms: 8_000,
            loses_reply: false,
        });
    }
}

/// The processes of a run with silent ones: by node the number of the process, and when it started.
#[derive(Default)]
pub struct Processes(Vec<Option<(u64, u64)>>);

impl Processes {
    /// Notes that a process starts.
    pub fn start(&mut self, node: usize, life: u64, now_ns: u64) {
        self.0.resize(self.0.len().max(node + 1), None);
        self.0[node] = Some((life, now_ns));
    }

    /// Notes that the process of a node is gone.
    pub fn end(&mut self, node: usize) {
        self.0.iter_mut().skip(node).take(1).for_each(|process| *process = None);
    }

    fn lives(&self, place: CoreAt) -> bool {
        self.started_ns(place).is_some()
    }

    fn started_ns(&self, place: CoreAt) -> Option<u64> {
        let process = self.0.get(place.node).copied().flatten();
        process.filter(|process| process.0 == place.life).map(|process| process.1)
    }
}

impl Model {
    /// Checks T5 beside silent processes: a node that has just started makes no pop below one that
    /// a process has begun which lives, whether that one gets time or not.
    pub fn keeps_order_at_starts(
        &self,
        write: &Write,
        (place, now_ns): (CoreAt, u64),
        (sequence, highest): (u64, u64),
    ) -> Checked {
        let Some(processes) = &self.processes else { return Ok(()) };
        let started_ns = processes.started_ns(place).unwrap_or(0);
        let wish = write.wish.expect("a pop has one");
        if sequence >= highest
            || now_ns > started_ns + PATIENCE_NS
            || write.acknowledged_ns().is_none()
            || write.replicas < 2
            || self.acknowledges_first
            || !self.is_current(write, now_ns)
            || !self.has_only_pauses(started_ns, now_ns)
            || !self.host_is_well(wish.host, write.sent_ns, now_ns)
        {
            return Ok(());
        }
        let begun = self.pops.get(&(write.name, highest)).into_iter().flatten();
        let mut others = begun.filter(|other| other.place.node != place.node);
        match others.find(|other| processes.lives(other.place)) {
            Some(other) => broken(
                "T5 start",
                format!(
                    "{sequence} after {highest} of {other:?} by {place:?}: {write:?} at {now_ns}"
                ),
            ),
            None => Ok(()),
        }
    }
}
