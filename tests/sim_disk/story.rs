//! A story: what clients do and what goes wrong, as lists that are made before the run. The
//! shrinker makes the lists shorter.

use chronos::core::journal::NoSegment;
use kit::simulator::callback_world::Behaviour;
use kit::simulator::random::{Purpose, Stream};

use super::held::{self, Doing};
use super::options::{Options, Trouble};

/// A timer that a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub interval_ms: u64,
    pub repeat_for_ms: u64,
    pub host: u32,
    pub opaque_bytes: u32,
}

/// The timer that an operation is for.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    Chosen(u64),
    /// The id that the create with this name got.
    CreatedBy(usize),
}

/// A request of a client.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Create(Wish),
    Update(Target, Wish),
    Delete(Target),
    Read(Target),
    /// Something is done with a timer of `held`.
    Hold(Target, Doing),
}

/// A request, and when it comes.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub name: usize,
    pub at_ns: u64,
    /// The core that it reaches, of as many as there are.
    pub core: u16,
    pub kind: Kind,
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The process is killed, or the machine loses its power. After a while it starts again, with
    /// this many shards.
    Crash {
        is_power: bool,
        down_ms: u64,
        wall_step_ms: i64,
        shards: u16,
    },
    /// The process stops in order and starts again.
    Stop {
        down_ms: u64,
        shards: u16,
    },
    /// Writes take up to `each_ms` for a while.
    Slow {
        each_ms: u64,
        ms: u64,
    },
    /// No write ends for a while.
    Stall {
        ms: u64,
    },
    /// No new file can be made for a while.
    Full {
        why: NoSegment,
        ms: u64,
    },
    /// The next write fails. The process ends with it, and starts again.
    WriteFails {
        down_ms: u64,
    },
    /// A bit of a file that holds something is turned over.
    Flip {
        key: u64,
    },
    WallClock(i64),
    Host(u32, Behaviour),
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
        let mut at_ns = draw.range(0, options.safety_ms * 1_000_000);
        if draw.chance(40)
            && let Some(last) = made.last()
        {
            at_ns = last.at_ns + draw.pick(&[0, 50_000, 1_000_000, 5_000_000]);
        }
        let core = draw.range(0, 5) as u16;
        let target = target(draw, options, &made);
        let kind = match draw.range(0, 99) {
            0..30 => Kind::Create(wish(draw, options)),
            30..65 => Kind::Update(target, wish(draw, options)),
            65..85 => Kind::Delete(target),
            _ => Kind::Read(target),
        };
        made.push(Operation { name, at_ns, core, kind });
    }
    held::draw_into(&mut made, options);
    made.sort_by_key(|operation| (operation.at_ns, operation.name));
    made
}

fn target(draw: &mut Stream, options: &Options, made: &[Operation]) -> Target {
    let of_create = (!made.is_empty() && draw.chance(40)).then(|| {
        let start = draw.range(0, made.len() as u64 - 1) as usize;
        made[start..].iter().find(|operation| matches!(operation.kind, Kind::Create(_)))
    });
    match of_create.flatten() {
        Some(create) => Target::CreatedBy(create.name),
        None => Target::Chosen(draw.range(0, options.chosen_ids - 1)),
    }
}

fn wish(draw: &mut Stream, options: &Options) -> Wish {
    let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
    let opaque_bytes = match draw.range(0, 9) {
        0..8 => draw.range(0, 60),
        _ => draw.range(0, options.opaque_bytes_max),
    } as u32;
    let interval_ms = match draw.range(0, 9) {
        0 => draw.range(1, 40),
        1..5 => draw.range(40, 1_000),
        _ => draw.range(500, options.interval_ms_max),
    };
    let most = (40_000 / interval_ms).clamp(1, 60);
    let repeat_for_ms = match draw.range(0, 2) {
        0 => interval_ms,
        _ => interval_ms * draw.range(1, most) + draw.range(0, interval_ms - 1),
    };
    Wish { interval_ms, repeat_for_ms, host, opaque_bytes }
}

fn faults(options: &Options) -> Vec<(u64, Fault)> {
    let draw = &mut Stream::new(options.seed, Purpose::Faults);
    let mut made = Vec::new();
    let end_ns = options.safety_ms * 1_000_000;
    for _ in 0..draw.range(1, 6) {
        let at_ns = draw.range(0, end_ns);
        made.push((at_ns, crash(draw, options)));
    }
    if matches!(options.trouble, Trouble::Disk | Trouble::Damage) {
        for _ in 0..draw.range(1, 5) {
            let at_ns = draw.range(0, end_ns);
            made.push((at_ns, disk_fault(draw)));
            if draw.chance(60) {
                // Crashes are the most interesting while the disk is in trouble.
                made.push((at_ns + draw.range(0, 4_000_000_000), crash(draw, options)));
            }
        }
    }
    if options.trouble == Trouble::Damage {
        for _ in 0..draw.range(1, 4) {
            let at_ns = draw.range(0, end_ns);
            made.push((at_ns, Fault::Flip { key: draw.next() }));
            made.push((at_ns + draw.range(1, 2_000_000_000), crash(draw, options)));
        }
    }
    if options.has_steps {
        for _ in 0..draw.range(1, 3) {
            let step = draw.pick(&[-3_600_000, -1_500, -1, 1, 2_000, 3_600_000]);
            made.push((draw.range(0, end_ns), Fault::WallClock(step)));
        }
    }
    if options.host_trouble {
        for _ in 0..draw.range(1, 4) {
            let at_ns = draw.range(0, end_ns);
            let host = draw.range(0, u64::from(options.hosts) - 1) as u32;
            made.push((at_ns, Fault::Host(host, draw.pick(&Behaviour::ALL))));
            let well_ns = at_ns + draw.range(10, 8_000) * 1_000_000;
            made.push((well_ns, Fault::Host(host, Behaviour::Well(3))));
        }
    }
    made.sort_by_key(|(at_ns, _)| *at_ns);
    made
}

fn crash(draw: &mut Stream, options: &Options) -> Fault {
    let down_ms = draw.pick(&[1, 20, 400, 3_000, 15_000]);
    let shards = if draw.chance(25) { draw.pick(&[1, 2, 3]) } else { 0 };
    if draw.chance(15) {
        return Fault::Stop { down_ms, shards };
    }
    let is_power = options.trouble != Trouble::Crashes && draw.chance(60);
    let is_step = options.has_steps && is_power && draw.chance(50);
    let wall_step_ms = match is_step {
        true => draw.pick(&[-3_600_000, -20_000, -1_500, 1, 700, 5_000, 3_600_000]),
        false => 0,
    };
    Fault::Crash { is_power, down_ms, wall_step_ms, shards }
}

fn disk_fault(draw: &mut Stream) -> Fault {
    let ms = draw.pick(&[50, 1_000, 4_000, 10_000]);
    match draw.range(0, 9) {
        0..3 => Fault::Slow { each_ms: draw.pick(&[20, 300, 2_000]), ms },
        3..5 => Fault::Stall { ms },
        5..8 => Fault::Full { why: draw.pick(&[NoSegment::Full, NoSegment::Failed]), ms },
        _ => Fault::WriteFails { down_ms: draw.pick(&[1, 400, 3_000]) },
    }
}
