//! A story: what clients do and what goes wrong, as lists that are made before the run. The
//! shrinker makes the lists shorter.

use chronos::base::destinations::Rule;
use chronos::base::limits::INTERVAL_MS_MAX;
use chronos::wire::timer_action::TimerAction;
use kit::simulator::callback_world::Behaviour;
use kit::simulator::random::{Purpose, Stream};

use super::actions;
use super::calendar;
use super::clocks;
use super::driver::PHASES;
use super::extras::Extras;
use super::options::Options;

/// A timer that a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub interval_ms: u64,
    pub repeat_for_ms: u64,
    pub host: u32,
    pub opaque_bytes: u32,
    pub extras: Extras,
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
    Delete(Target),
    Read(Target),
    /// Does something with a timer that is there.
    Act(Target, TimerAction),
}

/// A request, and when and through which core it comes.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The name within the story. It stays when other operations are dropped.
    pub name: usize,
    pub at_ns: u64,
    pub core: u16,
    pub kind: Kind,
}

/// Something that goes wrong in a run.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Host(u32, Behaviour),
    /// The wall clock steps by this many milliseconds.
    WallClock(i64),
    /// A core gets no time for this many milliseconds, from when it next comes to a phase of its
    /// turn.
    Stall {
        core: u16,
        phase: u64,
        ms: u64,
    },
    /// A host gets another rule, or none.
    Rule(u32, Option<Rule>),
}

/// Everything that is done to the node in a run.
#[derive(Clone, Debug)]
pub struct Story {
    pub options: Options,
    pub operations: Vec<Operation>,
    pub faults: Vec<(u64, Fault)>,
}

impl Story {
    pub fn draw(options: Options) -> Self {
        let operations = operations(&options);
        let faults = faults(&options);
        Self { options, operations, faults }
    }
}

fn operations(options: &Options) -> Vec<Operation> {
    let draw = &mut Stream::new(options.seed, Purpose::Clients);
    let mut made: Vec<Operation> = Vec::new();
    for name in 0..options.operations {
        // The timers of a crowd come within a minute and stay.
        let acting_ms = if options.is_crowd { 60_000 } else { options.safety_ms };
        let mut at_ns = draw.range(0, acting_ms * 1_000_000);
        if options.pause_ms > 0 && at_ns > options.safety_ms * 500_000 {
            at_ns += options.pause_ms * 1_000_000;
        }
        if draw.chance(25)
            && let Some(last) = made.last()
        {
            // A burst. Only requests that come together fill a queue of two.
            at_ns = last.at_ns + draw.range(0, 50_000);
        }
        let core = draw.range(0, u64::from(options.shards) - 1) as u16;
        let target = target(draw, options, &made);
        let kind = match draw.range(0, 99) {
            _ if options.is_crowd && draw.chance(95) => Kind::Create(wish(draw, options)),
            0..35 => Kind::Create(wish(draw, options)),
            35..70 => Kind::Update(target, wish(draw, options)),
            70..85 => Kind::Delete(target),
            _ => Kind::Read(target),
        };
        made.push(Operation { name, at_ns, core, kind });
        if draw.chance(options.retry_percent) {
            // The reply got lost, or the client is impatient: the same request comes once more,
            // perhaps before the first is served.
            let at_ns = at_ns + draw.pick(&[5_000, 100_000, 3_000_000, 500_000_000]);
            let name = options.operations + name;
            made.push(Operation { name, at_ns, core, kind });
        }
    }
    for operation in &mut made {
        // A request that comes once more says the same.
        let name = operation.name % options.operations;
        if let Kind::Create(wish) | Kind::Update(_, wish) = &mut operation.kind {
            calendar::draw_into(wish, name, options);
        }
    }
    made.extend(burst(draw, options));
    actions::draw_into(&mut made, options);
    made.sort_by_key(|operation| (operation.at_ns, operation.name));
    made
}

/// Makes creates that only take ids, within two seconds, at the end of the clients' time.
fn burst(draw: &mut Stream, options: &Options) -> Vec<Operation> {
    let end_ns = (options.safety_ms + options.pause_ms) * 1_000_000;
    let extras = Extras::default();
    let never = Wish { interval_ms: 2, repeat_for_ms: 1, host: 0, opaque_bytes: 0, extras };
    (0..options.burst)
        .map(|number| Operation {
            name: 2 * options.operations + number,
            at_ns: end_ns - draw.range(0, 2_000_000_000),
            core: draw.range(0, u64::from(options.shards) - 1) as u16,
            kind: Kind::Create(never),
        })
        .collect()
}

fn target(draw: &mut Stream, options: &Options, made: &[Operation]) -> Target {
    let of_create = (!made.is_empty() && draw.chance(40)).then(|| {
        let start = draw.range(0, made.len() as u64 - 1) as usize;
        made[start..].iter().find(|operation| matches!(operation.kind, Kind::Create(_)))
    });
    match of_create.flatten() {
        Some(create) => Target::CreatedBy(create.name),
        None => {
            let number = draw.range(0, options.chosen_ids - 1);
            Target::Chosen(if number == 0 { u64::MAX } else { number - 1 })
        }
    }
}

fn wish(draw: &mut Stream, options: &Options) -> Wish {
    let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
    let opaque_bytes = match draw.range(0, 19) {
        _ if options.is_crowd => 120,
        0 => 0,
        1..17 => draw.range(1, 60),
        17 | 18 => draw.range(61, 3_000),
        _ => draw.range(65_000, 70_000),
    } as u32;
    let (interval_ms, mut repeat_for_ms) = times(draw, options);
    let mut extras = if options.is_crowd { Extras::default() } else { Extras::draw(draw) };
    extras.has_reports = options.has_reports && interval_ms.is_multiple_of(2);
    if extras.has_time {
        repeat_for_ms = interval_ms;
    }
    Wish { interval_ms, repeat_for_ms, host, opaque_bytes, extras }
}

fn times(draw: &mut Stream, options: &Options) -> (u64, u64) {
    if draw.chance(options.far_percent) {
        let interval = draw.pick(&[INTERVAL_MS_MAX, INTERVAL_MS_MAX - 1, 400_000_000, 800]);
        return (interval, INTERVAL_MS_MAX);
    }
    if options.is_crowd {
        let interval = draw.range(300_000, 1_200_000);
        return (interval, interval * draw.range(2, 100));
    }
    let interval = match draw.range(0, 9) {
        0 => 0,
        1 | 2 => draw.range(1, 20),
        // These lie around the ends of the levels of the tiny wheel.
        3 | 4 => draw.pick(&[15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 256, 511, 512, 513]),
        5..8 => draw.range(20, 900),
        _ => draw.range(900, 9_000),
    };
    let most = (20_000 / interval.max(1)).clamp(1, 24);
    let times = draw.range(1, most);
    let repeat_for = match draw.range(0, 9) {
        0..3 => interval,
        3 => interval.saturating_sub(1),
        4 => interval * times + interval / 2,
        5 => interval * times + interval.saturating_sub(1),
        _ => interval * times,
    };
    if interval == 0 { (0, 0) } else { (interval, repeat_for) }
}

/// Rules that operators order, in some stories.
fn rules(options: &Options) -> Vec<(u64, Fault)> {
    let draw = &mut Stream::new(options.seed, Purpose::Rarities);
    if options.is_crowd || !draw.chance(50) {
        return Vec::new();
    }
    let end_ns = (options.safety_ms + options.pause_ms) * 1_000_000;
    let one = |draw: &mut Stream| {
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        (draw.range(0, end_ns), Fault::Rule(host, super::rules::draw(draw)))
    };
    (0..draw.range(1, 8)).map(|_| one(draw)).collect()
}

fn faults(options: &Options) -> Vec<(u64, Fault)> {
    let draw = &mut Stream::new(options.seed, Purpose::Faults);
    let mut made = Vec::new();
    let end_ns = (options.safety_ms + options.pause_ms) * 1_000_000;
    for _ in 0..options.faults {
        let at_ns = draw.range(0, end_ns);
        let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
        made.push((at_ns, Fault::Host(host, draw.pick(&Behaviour::ALL))));
        if draw.chance(60) {
            let healed_ns = at_ns + draw.range(10, 8_000) * 1_000_000;
            made.push((healed_ns, Fault::Host(host, Behaviour::Well(3))));
        }
        if options.has_stalls && draw.chance(40) {
            let core = draw.range(0, u64::from(options.shards) - 1) as u16;
            let (phase, ms) = (draw.range(0, PHASES - 1), draw.pick(&[1, 20, 300, 3_000]));
            let stall = Fault::Stall { core, phase, ms };
            made.push((draw.range(0, end_ns), stall));
        }
    }
    if options.has_clock_steps {
        for _ in 0..draw.range(1, 5) {
            let step = draw.pick(&[-3_600_000, -1_500, -1, 1, 2_000, 3_600_000]);
            made.push((draw.range(0, end_ns), Fault::WallClock(step)));
        }
    }
    made.extend(rules(options));
    made.extend(calendar::long_stall(options, end_ns));
    made.extend(clocks::lies(options, end_ns));
    made.sort_by_key(|(at_ns, _)| *at_ns);
    made
}
