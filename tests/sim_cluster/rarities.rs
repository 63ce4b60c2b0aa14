//! Rare faults, which most seeds do without. Each has an option and a random stream of its own: a
//! new kind changes no seed that has not drawn it.

use kit::simulator::random::{Purpose, Stream};

use super::disturbances::Whom;
use super::full_disks::full_disks;
use super::nodes::Starved;
use super::options::{Options, Trouble};
use super::policies::failures;
use super::rules;
use super::story_plan::{Death, Fault};
use super::world::World;

const MS: u64 = 1_000_000;

/// How many seeds in a hundred have a rare fault of one kind.
const PERCENT: u64 = 4;
/// How many in a hundred have it of the seeds that a kind is meant for.
const PERCENT_OF_SOME: u64 = 25;
/// How many in a hundred have rules of destinations of the seeds in which nothing else goes wrong.
const RULES_PERCENT: u64 = 60;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rarity {
    /// A node keeps the files of before a change, or starts again with them.
    OldFiles = 1,
    /// Two processes say that they are the same node.
    Twins = 2,
    /// Nodes are started one after the other.
    LateStarts = 3,
    /// A core gets too little time.
    Starved = 4,
    /// Connections lose bytes without a sign.
    HalfOpen = 5,
    /// Links are slow now and then.
    Slow = 6,
    /// Something between the nodes repeats or exchanges bytes.
    Exchanged = 7,
    /// A plot with timers that do not pop for long, so that no node learns by the next pop that one
    /// is gone.
    LongIntervals = 8,
    /// Nodes stop, die, freeze and return, and nothing else is wrong, while clients repeat their
    /// writes (see `pauses.rs`).
    Pauses = 9,
    /// A node has room for few timers.
    NoRoom = 20,
    /// A wall clock is wrong by minutes or an hour for a time.
    WrongClock = 21,
    /// Timers have retry policies, and hosts fail for long (see `policies.rs`).
    Policies = 22,
    /// Operators limit what callback hosts are asked, and pause them. Nothing else goes wrong.
    Rules = 23,
    /// Clients create timers on condition that they are not there (see `claims.rs`).
    Claims = 24,
    /// Clients replace timers that are as they last read them (see `conditions.rs`).
    Matches = 25,
    /// Clients create timers with idempotency keys (see `conditions.rs`).
    Keys = 26,
    /// Clients pause timers, resume them and run them (see `holds.rs`).
    Holds = 27,
    /// Clients pause timers whose servers want no more of them (see `holds.rs`).
    Ends = 28,
    /// The disk of a node is full now and then (see `full_disks.rs`).
    FullDisk = 29,
    /// All nodes die at once, and one that is back first gets no time as the others start. Nothing
    /// else goes wrong (see `silent_starts.rs`).
    SilentStarts = 30,
    /// Clients create timers through both sites at once, where nothing goes wrong (see
    /// `claims.rs`).
    SiteClaims = 31,
}

impl Rarity {
    /// All kinds but the one that only two sites have ([`Rarities::of_sites`]).
    const ALL: [Self; 20] = [
        Self::OldFiles,
        Self::Twins,
        Self::LateStarts,
        Self::Starved,
        Self::HalfOpen,
        Self::Slow,
        Self::Exchanged,
        Self::LongIntervals,
        Self::Pauses,
        Self::NoRoom,
        Self::WrongClock,
        Self::Policies,
        Self::Rules,
        Self::Claims,
        Self::Matches,
        Self::Keys,
        Self::Holds,
        Self::Ends,
        Self::FullDisk,
        Self::SilentStarts,
    ];
}

/// The rare faults of a run.
#[derive(Clone, Debug, Default)]
pub struct Rarities {
    pub kinds: Vec<Rarity>,
    /// Whether nothing else goes wrong.
    pub alone: bool,
}

impl Rarities {
    pub fn draw(seed: u64, trouble: Trouble, has_operator: bool) -> Self {
        let is_drawn = |kind: &Rarity| {
            let percent = match (kind, trouble) {
                (Rarity::LongIntervals, Trouble::Plot) => PERCENT_OF_SOME,
                (
                    Rarity::Claims | Rarity::Matches | Rarity::Keys | Rarity::Holds | Rarity::Ends,
                    Trouble::None,
                ) => PERCENT_OF_SOME,
                (Rarity::Keys, Trouble::OneAtATime) if !has_operator => 2 * PERCENT,
                (Rarity::Keys | Rarity::Matches | Rarity::Ends, _) => 0,
                (Rarity::FullDisk, Trouble::None) => 2 * PERCENT,
                (Rarity::FullDisk, Trouble::OneAtATime) if !has_operator => PERCENT,
                (Rarity::FullDisk, _) => 0,
                (Rarity::SilentStarts, Trouble::OneAtATime) if !has_operator => PERCENT,
                (Rarity::SilentStarts, _) => 0,
                (Rarity::LongIntervals, _) | (_, Trouble::Plot) => 0,
                (Rarity::Pauses, Trouble::OneAtATime) if !has_operator => PERCENT_OF_SOME,
                (Rarity::Pauses, _) => 0,
                (Rarity::OldFiles, _) if has_operator => PERCENT_OF_SOME,
                // Beside other faults and changes copies may stay with several stand-ins.
                (Rarity::NoRoom, Trouble::Storm) => 0,
                (Rarity::NoRoom, _) if has_operator => 0,
                (Rarity::Policies | Rarity::Holds, _) => 2 * PERCENT,
                (Rarity::NoRoom | Rarity::WrongClock, _) => PERCENT,
                (Rarity::Rules, Trouble::None) if !has_operator => RULES_PERCENT,
                (Rarity::Rules, Trouble::OneAtATime) if !has_operator => PERCENT,
                (Rarity::Rules, _) => 0,
                (Rarity::OldFiles, _) | (_, Trouble::None) => 0,
                _ => PERCENT,
            };
            Stream::keyed(seed, Purpose::Rarities, *kind as u64).chance(percent)
        };
        let mut kinds: Vec<Rarity> = Rarity::ALL.into_iter().filter(is_drawn).collect();
        if kinds.contains(&Rarity::Rules) {
            kinds = vec![Rarity::Rules];
        }
        if kinds.contains(&Rarity::SilentStarts) {
            kinds = vec![Rarity::SilentStarts];
        }
        if kinds.contains(&Rarity::Pauses) {
            kinds.retain(|kind| *kind != Rarity::NoRoom);
        }
        if kinds.contains(&Rarity::FullDisk) {
            let others = [Rarity::NoRoom, Rarity::WrongClock, Rarity::Twins];
            kinds.retain(|kind| !others.contains(kind));
        }
        let alone = Stream::keyed(seed, Purpose::Rarities, 0).chance(60);
        Self { kinds, alone }
    }

    /// Adds what only two sites have.
    pub fn of_sites(&mut self, seed: u64, trouble: Trouble) {
        let draw = &mut Stream::keyed(seed, Purpose::Rarities, Rarity::SiteClaims as u64);
        if trouble == Trouble::None && draw.chance(PERCENT_OF_SOME) {
            self.kinds.push(Rarity::SiteClaims);
        }
    }

    /// Returns how many timers and tombstones a core of the node has room for, if the node has
    /// little room.
    pub fn room_of(&self, seed: u64, (node, nodes): (usize, usize)) -> Option<u64> {
        let draw = &mut Stream::keyed(seed, Purpose::Rarities, 200 + Rarity::NoRoom as u64);
        let has_little = draw.range(0, nodes as u64 - 1) as usize == node;
        let records = draw.pick(&[0, 1, 3, 10]);
        (has_little && self.kinds.contains(&Rarity::NoRoom)).then_some(records)
    }

    pub fn has(&self, name: &str) -> bool {
        self.kinds.iter().any(|kind| format!("{kind:?}") == name)
    }
}

/// Adds the rare faults of a run.
pub fn rare_faults(options: &Options, made: &mut Vec<(u64, Fault)>) {
    for kind in &options.rarities.kinds {
        // The key differs from that of the option.
        let draw = &mut Stream::keyed(options.seed, Purpose::Rarities, 100 + *kind as u64);
        match kind {
            Rarity::OldFiles => old_files(draw, options, made),
            Rarity::Twins => in_turn(draw, options, made, twin),
            Rarity::LateStarts => late_starts(draw, options, made),
            Rarity::Starved => in_turn(draw, options, made, starved),
            Rarity::HalfOpen => in_turn(draw, options, made, half_open),
            Rarity::Slow => in_turn(draw, options, made, slow),
            Rarity::Exchanged => in_turn(draw, options, made, exchanged),
            Rarity::WrongClock => wrong_clock(draw, options, made),
            Rarity::Policies => failures(draw, options, made),
            Rarity::Rules => rules::orders(draw, options, made),
            Rarity::FullDisk => full_disks(draw, options, made),
            // The plots and the limits of the node make these.
            Rarity::LongIntervals | Rarity::Pauses | Rarity::NoRoom => {}
            Rarity::Claims | Rarity::Matches | Rarity::Keys => {}
            Rarity::Holds | Rarity::Ends | Rarity::SilentStarts | Rarity::SiteClaims => {}
        }
    }
}

/// Makes faults one after the other, with time to recover after each.
fn in_turn(
    draw: &mut Stream,
    options: &Options,
    made: &mut Vec<(u64, Fault)>,
    mut make: impl FnMut(&mut Stream, &Options) -> (Fault, u64),
) {
    let mut at_ms = draw.range(500, 15_000);
    while at_ms < options.safety_ms {
        let (fault, lasts_ms) = make(draw, options);
        made.push((at_ms * MS + draw.range(0, MS), fault));
        at_ms += lasts_ms + draw.pick(&[500, 5_000, 14_000, 30_000]);
    }
}

fn twin(draw: &mut Stream, options: &Options) -> (Fault, u64) {
    let node = draw.range(0, options.nodes as u64 - 1) as usize;
    let ms = draw.pick(&[500, 4_000, 9_000, 20_000]);
    let mask = draw.range(0, (1 << options.nodes) - 1) as u8 & !(1 << node);
    (Fault::Twin { node, mask, ms, breaks: draw.chance(60) }, ms)
}

/// Makes one of the nodes miss each change, or start again with the files of before.
fn old_files(draw: &mut Stream, options: &Options, made: &mut Vec<(u64, Fault)>) {
    let changes = made.iter().filter(|(_, fault)| matches!(fault, Fault::Change { .. }));
    let changes: Vec<u64> = changes.map(|(at_ns, _)| *at_ns).collect();
    for change_ns in changes {
        let node = draw.range(0, options.nodes as u64 - 1) as usize;
        let ms = draw.pick(&[700, 3_000, 9_000, 25_000]);
        if draw.chance(40) {
            let at_ns = change_ns.saturating_sub(draw.range(0, 3_000) * MS);
            made.push((at_ns, Fault::MissFiles { node, ms }));
            continue;
        }
        let at_ns = change_ns + draw.range(100, 35_000) * MS;
        let for_ms = draw.pick(&[50, 700, 5_000]);
        let kill = Fault::Kill { node, for_ms, how: Death::Process };
        made.push((
            at_ns,
            Fault::OldFiles { node, back: draw.range(1, 3) as usize, ms: ms + for_ms },
        ));
        made.push((at_ns, kill));
    }
}

/// Kills some nodes at the start, before they have done anything. They start again later.
fn late_starts(draw: &mut Stream, options: &Options, made: &mut Vec<(u64, Fault)>) {
    for node in 0..options.nodes {
        if !draw.chance(60) {
            continue;
        }
        let for_ms = draw.pick(&[100, 1_500, 4_000, 15_000]);
        let how = draw.pick(&[Death::Process, Death::Power]);
        made.push((0, Fault::Kill { node, for_ms, how }));
    }
}

fn starved(draw: &mut Stream, options: &Options) -> (Fault, u64) {
    let node = draw.range(0, options.nodes as u64 - 1) as usize;
    let core = draw.range(0, u64::from(options.shards[node]) - 1) as u16;
    let ms = draw.pick(&[1_000, 6_000, 20_000]);
    let pause_ms = draw.pick(&[20, 200, 900, 1_800, 4_000]);
    (Fault::Starve { node, core, ms, pause_ms }, ms + pause_ms)
}

/// Sets a clock wrong, and right again. Now and then the node restarts meanwhile.
fn wrong_clock(draw: &mut Stream, options: &Options, made: &mut Vec<(u64, Fault)>) {
    let mut at_ms = draw.range(500, 15_000);
    while at_ms < options.safety_ms {
        let node = draw.range(0, options.nodes as u64 - 1) as usize;
        let ms = draw.pick(&[3_600_000, -3_600_000, 100_000, -100_000]);
        let for_ms = draw.pick(&[300, 2_000, 8_000, 25_000]);
        made.push((at_ms * MS, Fault::WallStep { node, ms }));
        if draw.chance(30) {
            let killed_ms = at_ms + draw.range(0, for_ms);
            let kill = Fault::Kill { node, for_ms: 700, how: Death::Process };
            made.push((killed_ms * MS, kill));
        }
        at_ms += for_ms;
        made.push((at_ms * MS, Fault::WallStep { node, ms: -ms }));
        at_ms += draw.pick(&[500, 5_000, 14_000, 30_000]);
    }
}

fn pair(draw: &mut Stream, options: &Options) -> (usize, usize) {
    let nodes = options.nodes as u64;
    let from = draw.range(0, nodes - 1);
    (from as usize, ((from + draw.range(1, (nodes - 1).max(1))) % nodes) as usize)
}

fn half_open(draw: &mut Stream, options: &Options) -> (Fault, u64) {
    let (from, to) = pair(draw, options);
    (Fault::HalfOpen { from, to }, 4_000)
}

fn slow(draw: &mut Stream, options: &Options) -> (Fault, u64) {
    let (from, to) = pair(draw, options);
    let ms = draw.pick(&[1_000, 6_000, 20_000]);
    let extra_ms = draw.pick(&[50, 300, 900, 2_500]);
    (Fault::Slow { from, to, ms, extra_ms }, ms + extra_ms)
}

fn exchanged(draw: &mut Stream, options: &Options) -> (Fault, u64) {
    let (from, to) = pair(draw, options);
    let fault =
        if draw.chance(50) { Fault::Repeat { from, to } } else { Fault::Reorder { from, to } };
    (fault, 4_000)
}

/// The silence after which a connection is closed, and the time to make another.
const DEAF_MS: u64 = 3_000 + 1_500;

impl World {
    /// Carries out the rare faults that need no more than this.
    pub fn rare_fault(&mut self, fault: Fault) {
        let now_ns = self.now_ns;
        let disturbances = &mut self.model.disturbances;
        match fault {
            Fault::HalfOpen { from, to } if from != to => {
                self.network.deafen(from, to);
                disturbances.add(Whom::Pair(from, to), now_ns, now_ns + DEAF_MS * MS);
            }
            Fault::Slow { from, to, ms, extra_ms } if from != to => {
                let until_ns = now_ns + ms * MS;
                self.network.slow.push((from, to, until_ns, extra_ms * MS));
                disturbances.add(Whom::Pair(from, to), now_ns, until_ns + extra_ms * MS);
            }
            Fault::Starve { node, core, ms, pause_ms } => {
                let (until_ns, pause_ns) = (now_ns + ms * MS, pause_ms * MS);
                self.nodes[node].starved = Some(Starved { core, until_ns, pause_ns });
                disturbances.add(Whom::Node(node), now_ns, until_ns + pause_ns);
            }
            _ => {}
        }
    }
}
