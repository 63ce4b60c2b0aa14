//! A story: what clients do, what operators do and what goes wrong, as lists that are made before
//! the run. The shrinker makes the lists shorter.

use chronos::base::destinations::Rule;
use chronos::wire::attributes::RetryPolicy;
use chronos::wire::timer_action::TimerAction;
use kit::simulator::callback_world::Behaviour;
use kit::simulator::random::{Purpose, Stream};

use super::claims::{claims, site_claims};
use super::conditions::{keys, matches};
use super::disks::{a_site_at_once, all_at_once, long_absence};
use super::holds::{ends, holds};
use super::options::{Options, Trouble};
use super::pauses::pauses;
use super::policies::with_policies;
use super::rarities::{Rarity, rare_faults};
use super::silent_starts::silent_starts;

/// A timer that a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub interval_ms: u64,
    pub repeat_for_ms: u64,
    pub host: u32,
    pub factor: u8,
    /// When a pop that failed is tried again, if the client says so.
    pub policy: Option<RetryPolicy>,
}

impl Wish {
    /// Returns how often the timer pops (docs/compat/timer-service.md §4).
    pub fn pops(&self) -> u64 {
        self.repeat_for_ms.checked_div(self.interval_ms).unwrap_or(1)
    }
}

/// The timer that an operation is for.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// An id that the client chose.
    Chosen(u64),
    /// The id that the create with this name got. Until that id is known the operation does
    /// nothing.
    CreatedBy(usize),
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Create(Wish),
    Update(Target, Wish),
    /// A create that is made only if the timer is not there.
    Claim(Target, Wish),
    /// A replacement that is made only if the timer is as somebody last read it.
    Match(Target, Wish),
    /// A create with an idempotency key, which makes the id.
    Once(Target, Wish),
    Delete(Target),
    /// Something that is done with the timer that is there.
    Act(Target, TimerAction),
    Read(Target),
}

/// A request, and when and through which node it comes. It is tried again at the next node if there
/// is no answer.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The name within the story. It stays when other operations are dropped.
    pub name: usize,
    pub at_ns: u64,
    pub node: usize,
    pub kind: Kind,
    pub patience_ms: u64,
    /// Whether the answer to the first try gets lost.
    pub loses_reply: bool,
}

/// A fault, or something that an operator does.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The process dies. It starts again, empty, after `for_ms`.
    Kill {
        node: usize,
        for_ms: u64,
        how: Death,
    },
    /// The process dies as soon as it next does something.
    Doom {
        node: usize,
        for_ms: u64,
        when: Doom,
        how: Death,
    },
    /// The process stops in order.
    Stop {
        node: usize,
        for_ms: u64,
    },
    Freeze {
        node: usize,
        ms: u64,
    },
    /// What one node sends does not arrive at the other; with `is_both`, in both directions.
    Cut {
        from: usize,
        to: usize,
        ms: u64,
        is_both: bool,
    },
    /// Nodes in the mask cannot talk to the others.
    Split {
        mask: u8,
        ms: u64,
    },
    /// All connections between two nodes break.
    Break {
        one: usize,
        other: usize,
    },
    /// A bit of the next bytes changes.
    Corrupt {
        from: usize,
        to: usize,
    },
    /// The next bytes are cut short, and their connection breaks.
    Truncate {
        from: usize,
        to: usize,
    },
    /// The next bytes arrive twice, which TCP would prevent.
    Repeat {
        from: usize,
        to: usize,
    },
    /// The next bytes arrive after those that follow them.
    Reorder {
        from: usize,
        to: usize,
    },
    /// What one node sends to the other over the present connections is lost for good. Neither end
    /// is told.
    HalfOpen {
        from: usize,
        to: usize,
    },
    /// What one node sends to the other takes longer.
    Slow {
        from: usize,
        to: usize,
        ms: u64,
        extra_ms: u64,
    },
    /// A core gets a turn only now and then.
    Starve {
        node: usize,
        core: u16,
        ms: u64,
        pause_ms: u64,
    },
    /// Operators give a host another rule, or none, at one site or at all.
    Rule {
        host: u32,
        rule: Option<Rule>,
        site: Option<usize>,
    },
    /// The disk of a node has no room for another segment.
    FullDisk {
        node: usize,
        ms: u64,
    },
    /// Connections are refused for a time.
    Refuse {
        node: usize,
        ms: u64,
    },
    WallStep {
        node: usize,
        ms: i64,
    },
    Host {
        host: u32,
        behaviour: Behaviour,
    },
    /// An operator lets spares (by mask) join and members leave.
    Change {
        joining: u8,
        leaving: u8,
    },
    /// For a time a second process says that it is this node. The nodes in the mask reach the
    /// second process under the node's addresses. If so told, their connections with the node break
    /// first.
    Twin {
        node: usize,
        mask: u8,
        ms: u64,
        breaks: bool,
    },
    /// A node is not told of changes of its files.
    MissFiles {
        node: usize,
        ms: u64,
    },
    /// A node finds, when it next starts, the files of `back` changes ago.
    OldFiles {
        node: usize,
        back: usize,
        ms: u64,
    },
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// kill -9: the kernel closes its connections.
    Process,
    /// The machine loses power: what it had not sent is lost, and no node is told.
    Power,
}

/// The moment at which a doomed process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doom {
    /// As it answers a client's write.
    Answer,
    /// As it begins a callback.
    Callback,
    /// As it has heard that a callback succeeded.
    Delivered,
}

/// Everything that is done to the cluster in a run.
#[derive(Clone, Debug)]
pub struct Story {
    pub options: Options,
    pub operations: Vec<Operation>,
    pub faults: Vec<(u64, Fault)>,
}

const MS: u64 = 1_000_000;

impl Story {
    pub fn draw(options: Options) -> Self {
        let operations = operations(&options);
        let faults = faults(&options);
        let mut story = Self { options, operations, faults };
        if story.options.trouble == Trouble::Plot {
            plot(&mut story);
        }
        if story.options.rarities.kinds.contains(&Rarity::Pauses) {
            pauses(&mut story);
        }
        if story.options.rarities.kinds.contains(&Rarity::Claims) {
            claims(&mut story);
        }
        site_claims(&mut story);
        matches(&mut story);
        keys(&mut story);
        if story.options.rarities.kinds.contains(&Rarity::Holds) {
            holds(&mut story);
        }
        if story.options.rarities.kinds.contains(&Rarity::Ends) {
            ends(&mut story);
        }
        silent_starts(&mut story);
        long_absence(&mut story);
        all_at_once(&mut story);
        a_site_at_once(&mut story);
        with_policies(&mut story);
        story
    }
}

fn operations(options: &Options) -> Vec<Operation> {
    let draw = &mut Stream::new(options.seed, Purpose::Clients);
    let mut made: Vec<Operation> = Vec::new();
    for name in 0..options.operations {
        let mut at_ns = draw.range(2_000, options.safety_ms) * MS + draw.range(0, MS);
        if draw.chance(30)
            && let Some(last) = made.last()
        {
            at_ns = last.at_ns + draw.pick(&[0, 100_000, 3 * MS, 300 * MS]);
        }
        let node = draw.range(0, options.all_nodes() as u64 - 1) as usize;
        let target = target(draw, options, &made);
        let kind = match draw.range(0, 99) {
            0..40 => Kind::Create(wish(draw, options)),
            40..70 => Kind::Update(target, wish(draw, options)),
            70..85 => Kind::Delete(target),
            _ => Kind::Read(target),
        };
        let patience_ms = draw.pick(&[1_000, 4_000, 8_000]);
        let loses_reply = draw.chance(options.lost_reply_percent);
        made.push(Operation { name, at_ns, node, kind, patience_ms, loses_reply });
    }
    made.sort_by_key(|operation| (operation.at_ns, operation.name));
    made
}

fn target(draw: &mut Stream, options: &Options, made: &[Operation]) -> Target {
    let of_create = (!made.is_empty() && draw.chance(50)).then(|| {
        let start = draw.range(0, made.len() as u64 - 1) as usize;
        made[start..].iter().find(|operation| matches!(operation.kind, Kind::Create(_)))
    });
    match of_create.flatten() {
        Some(create) => Target::CreatedBy(create.name),
        None => Target::Chosen(draw.range(1, options.chosen_ids) * 0x1234_5678_9abd),
    }
}

fn wish(draw: &mut Stream, options: &Options) -> Wish {
    let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
    let factor = draw.range(1, u64::from(options.factor_max)) as u8;
    let interval_ms = match draw.range(0, 9) {
        0 => 0,
        1 => draw.range(1, 300),
        2..4 => draw.range(300, 2_000),
        _ => draw.range(1_000, options.interval_ms_max),
    };
    let most = (60_000 / interval_ms.max(1)).clamp(1, 12);
    let times = draw.range(1, most);
    let extra_ms = if draw.chance(20) { interval_ms / 2 } else { 0 };
    Wish { interval_ms, repeat_for_ms: interval_ms * times + extra_ms, host, factor, policy: None }
}

/// Makes a plot: timers on three nodes, of which one is away. Meanwhile some timers are deleted or
/// replaced, and another node may restart empty, perhaps just as the first is back.
fn plot(story: &mut Story) {
    let options = &story.options;
    let draw = &mut Stream::keyed(options.seed, Purpose::Faults, 1);
    let away = draw.range(0, options.nodes as u64 - 1) as usize;
    let other = (away + 1) % options.nodes;
    let helper = (away + 2) % options.nodes;
    let away_ms = draw.range(4_000, 25_000);
    let begin_ms = draw.range(9_000, 14_000);
    let end_ms = begin_ms + away_ms;
    let mut operate = |name: usize, at_ms: u64, node: usize, kind: Kind| {
        let (at_ns, patience_ms, loses_reply) = (at_ms * MS, 8_000, false);
        let name = options.operations + name;
        let operation = Operation { name, at_ns, node, kind, patience_ms, loses_reply };
        story.operations.push(operation);
    };
    for timer in 0..6 {
        // The factor of a chosen id follows from the id, see `World::operate`.
        let target = Target::Chosen(3 * (1_000 + timer as u64) + 2);
        let is_long = options.rarities.kinds.contains(&Rarity::LongIntervals);
        let interval_ms = draw.range(1_500, 5_000) * if is_long { 8 } else { 1 };
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        let repeat_for_ms = interval_ms * draw.range(8, 40);
        let wish = Wish { interval_ms, repeat_for_ms, host, factor: 3, policy: None };
        operate(2 * timer, draw.range(4_500, 7_000), helper, Kind::Update(target, wish));
        let at_ms = begin_ms + draw.range(300, away_ms);
        match draw.range(0, 3) {
            0 => operate(2 * timer + 1, at_ms, helper, Kind::Update(target, wish)),
            1 => operate(2 * timer + 1, at_ms, helper, Kind::Delete(target)),
            _ => {}
        }
    }
    let mask = 1 << away;
    let fault = match draw.range(0, 2) {
        0 => Fault::Freeze { node: away, ms: away_ms },
        _ => Fault::Split { mask, ms: away_ms },
    };
    story.faults.push((begin_ms * MS, fault));
    let for_ms = draw.pick(&[50, 500, 1_500]);
    let killed_ms = match draw.range(0, 2) {
        0 => None,
        1 => Some(begin_ms + draw.range(3_500, away_ms.max(3_501))),
        _ => Some(end_ms - for_ms + draw.range(0, 1_500)),
    };
    if let Some(killed_ms) = killed_ms {
        let kill = Fault::Kill { node: other, for_ms, how: Death::Process };
        story.faults.push((killed_ms * MS, kill));
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
    story.faults.sort_by_key(|(at_ns, _)| *at_ns);
}

fn faults(options: &Options) -> Vec<(u64, Fault)> {
    let draw = &mut Stream::new(options.seed, Purpose::Faults);
    let mut made = Vec::new();
    match options.trouble {
        Trouble::None | Trouble::Plot => {}
        _ if options.rarities.alone && !options.rarities.kinds.is_empty() => {}
        Trouble::OneAtATime => {
            let mut at_ms = draw.range(1_000, 15_000);
            while at_ms < options.safety_ms {
                let ends_ms = trouble(draw, options, at_ms, &mut made);
                at_ms = ends_ms + draw.pick(&[500, 3_000, 14_000, 30_000]);
            }
        }
        Trouble::Storm => {
            for _ in 0..draw.range(2, 14) {
                let at_ms = draw.range(500, options.safety_ms);
                trouble(draw, options, at_ms, &mut made);
            }
        }
    }
    if options.host_trouble {
        for _ in 0..draw.range(1, 6) {
            let at_ns = draw.range(0, options.safety_ms) * MS;
            let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
            made.push((at_ns, Fault::Host { host, behaviour: draw.pick(&Behaviour::ALL) }));
            let healed_ns = at_ns + draw.range(100, 10_000) * MS;
            made.push((healed_ns, Fault::Host { host, behaviour: Behaviour::Well(3) }));
        }
    }
    if options.has_clock_steps {
        for _ in 0..draw.range(1, 4) {
            let node = draw.range(0, options.nodes as u64 - 1) as usize;
            let ms = draw.pick(&[-5_000, -1_500, -1, 1, 2_000, 5_000]);
            made.push((draw.range(0, options.safety_ms) * MS, Fault::WallStep { node, ms }));
        }
    }
    for change in 0..options.operator_changes as u64 {
        let portion = options.safety_ms / options.operator_changes as u64;
        let at_ms = change * portion + draw.range(1_000, portion.max(10_000) / 2);
        let joining = draw.range(0, 3) as u8 & ((1 << options.spares) - 1);
        let leaving =
            if draw.chance(50) { 1 << draw.range(0, options.nodes as u64 - 1) } else { 0 };
        made.push((at_ms * MS, Fault::Change { joining: joining << options.nodes, leaving }));
    }
    rare_faults(options, &mut made);
    if let Some(sites) = options.sites {
        sites.faults(options, &mut made);
    }
    made.sort_by_key(|(at_ns, _)| *at_ns);
    made
}

/// Makes one piece of trouble from `at_ms` on. Returns when it ends.
fn trouble(draw: &mut Stream, options: &Options, at_ms: u64, made: &mut Vec<(u64, Fault)>) -> u64 {
    let at_ns = at_ms * MS + draw.range(0, MS);
    let nodes = options.nodes as u64;
    let node = draw.range(0, nodes - 1) as usize;
    let other = (node + draw.range(1, (nodes - 1).max(1)) as usize) % options.nodes;
    let for_ms = draw.pick(&[50, 700, 2_000, 5_000, 12_000, 40_000]);
    let ms = draw.pick(&[100, 600, 1_500, 4_000, 9_000, 20_000, 60_000]);
    let mut ends_ms = at_ms;
    let fault = match draw.range(0, 15) {
        0 | 1 => {
            ends_ms += for_ms;
            Fault::Kill { node, for_ms, how: Death::Process }
        }
        2 => {
            ends_ms += for_ms;
            Fault::Kill { node, for_ms, how: Death::Power }
        }
        3..6 => {
            ends_ms += for_ms + 5_000;
            let when = draw.pick(&[Doom::Answer, Doom::Callback, Doom::Delivered]);
            let how = draw.pick(&[Death::Process, Death::Power]);
            Fault::Doom { node, for_ms, when, how }
        }
        6 => {
            ends_ms += for_ms + 2_000;
            Fault::Stop { node, for_ms }
        }
        7 => {
            ends_ms += ms;
            Fault::Freeze { node, ms }
        }
        8..10 => {
            ends_ms += ms;
            Fault::Cut { from: node, to: other, ms, is_both: draw.chance(50) }
        }
        10 => {
            ends_ms += ms;
            Fault::Split { mask: draw.range(1, (1 << nodes) - 1) as u8, ms }
        }
        11 => {
            // The way is cut and open in turns.
            for time in 0..draw.range(2, 8) {
                let flap = Fault::Cut { from: node, to: other, ms: 400, is_both: true };
                made.push((at_ns + time * 900 * MS, flap));
                ends_ms += 900;
            }
            Fault::Break { one: node, other }
        }
        12 => Fault::Break { one: node, other },
        13 => Fault::Corrupt { from: node, to: other },
        14 => Fault::Truncate { from: node, to: other },
        _ => {
            ends_ms += ms;
            Fault::Refuse { node, ms }
        }
    };
    made.push((at_ns, fault));
    ends_ms
}
