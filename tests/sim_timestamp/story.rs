//! A story: what users do and what goes wrong, as lists that are made before the run. The shrinker
//! makes the lists shorter.

use kit::simulator::random::{Purpose, Stream};

use super::options::{Options, Trouble};

/// The calls of one user, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The name within the story. It stays when other operations are dropped.
    pub name: usize,
    pub at_ns: u64,
    /// The server that the user stays with, whatever it answers. `None`: the user goes to the
    /// server that answered last.
    pub stays_with: Option<usize>,
    pub count: u32,
    pub calls: u32,
    pub gap_ns: u64,
}

/// A point at which a process stops for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A core has read the clock, and has not looked for requests yet.
    ClockRead,
    /// The core has made values.
    Made,
    /// The core has looked at the clock again.
    Checked,
    /// The keeper has read the clock.
    KeeperClockRead,
    /// The keeper has decided, and none of its decisions is carried out yet.
    KeeperDecided,
}

/// Something that goes wrong in a run.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Kill {
        server: usize,
        for_ms: u64,
    },
    /// The process stops in order.
    Stop {
        server: usize,
        for_ms: u64,
    },
    Freeze {
        server: usize,
        ms: u64,
    },
    /// The process freezes when it next comes to this point.
    FreezeAt {
        server: usize,
        point: Point,
        ms: u64,
    },
    /// Only the keeper of the process gets no time.
    Starve {
        server: usize,
        ms: u64,
    },
    /// The server's wall clock is set. It may be set right again later.
    WallStep {
        server: usize,
        ms: i64,
        right_after_ms: Option<u64>,
    },
    /// The server does not reach the ensemble.
    Isolate {
        server: usize,
        ms: u64,
    },
    /// The server's connection to the ensemble breaks.
    Break {
        server: usize,
    },
    /// The peer that the server is connected to is cut off from the leader, and goes on answering
    /// for a while.
    Cut {
        server: usize,
        answers_ms: u64,
        ms: u64,
    },
    /// What the leader sends to that peer is stuck, or what the peer sends to the leader. Then the
    /// peer is cut off.
    Stall {
        server: usize,
        is_from_leader: bool,
        ms: u64,
        answers_ms: Option<u64>,
    },
    /// The leader gets no time. Then that peer is cut off.
    LeaderFreeze {
        server: usize,
        ms: u64,
        answers_ms: Option<u64>,
    },
    /// Another leader is elected. The old one may go on answering for a while.
    LeaderChange {
        election_ms: u64,
        answers_ms: Option<u64>,
    },
    /// A person deletes the master's node.
    DeleteMaster,
    /// A person writes the bound, `ahead_ms` above its value.
    WriteBound {
        ahead_ms: u64,
    },
    /// A person deletes the bound. An operator makes it anew after `for_ms`.
    DeleteBound {
        for_ms: u64,
    },
    /// The next stores of a file take this long, or fail.
    Disk {
        ms: u64,
        fails: bool,
        stores: u32,
    },
}

/// Stands for the server that is master when the fault comes.
pub const MASTER: usize = usize::MAX;

/// Everything that is done in a run.
#[derive(Clone, Debug)]
pub struct Story {
    pub options: Options,
    pub operations: Vec<Operation>,
    pub faults: Vec<(u64, Fault)>,
}

const MS: u64 = 1_000_000;
const HOUR_MS: i64 = 3_600_000;

impl Story {
    pub fn draw(options: Options) -> Self {
        let mut story =
            Self { operations: operations(&options), faults: faults(&options), options };
        if story.options.trouble == Trouble::Plot {
            plot(&mut story);
        }
        story
    }
}

/// Makes a plot: each server has a user that asks no other server, and the master loses its place
/// again and again.
fn plot(story: &mut Story) {
    let options = &story.options;
    let draw = &mut Stream::keyed(options.seed, Purpose::Faults, 1);
    for server in 0..options.servers {
        story.operations.push(Operation {
            name: story.operations.len(),
            at_ns: 2_000 * MS + draw.range(0, MS),
            stays_with: Some(server),
            count: draw.range(1, options.range_max) as u32,
            calls: 1_000,
            gap_ns: draw.pick(&[15 * MS, 50 * MS]),
        });
    }
    story.faults.clear();
    let mut at_ms = draw.range(2_000, 5_000);
    while at_ms < options.safety_ms {
        let session_ms = options.session_ms;
        let mut add = |after_ms: u64, fault: Fault| {
            story.faults.push(((at_ms + after_ms) * MS + draw.range(0, MS), fault));
        };
        let draw = &mut Stream::keyed(options.seed, Purpose::Faults, at_ms);
        let (server, long_ms) = (MASTER, draw.range(session_ms / 2, 3 * session_ms));
        match draw.range(0, 6) {
            0 => add(0, Fault::Isolate { server, ms: long_ms }),
            // The request was acknowledged, but the server learns of that late and sends nothing
            // any more.
            1 => {
                let ms = draw.range(session_ms / 4, session_ms * 9 / 10);
                add(0, Fault::Freeze { server, ms });
                let from_ms = draw.range(1, ms / 2);
                add(from_ms, Fault::Isolate { server, ms: ms + 2 * session_ms });
            }
            2 | 3 => {
                let points = [Point::ClockRead, Point::ClockRead, Point::Made, Point::Checked];
                add(0, Fault::FreezeAt { server, point: draw.pick(&points), ms: long_ms });
            }
            4 | 5 if options.has_deletions => add(0, Fault::DeleteMaster),
            // What the leader sends comes late, and it receives nothing.
            _ => {
                let ms = draw.range(session_ms / 4, session_ms * 9 / 10);
                let answers_ms = Some(draw.range(0, 2 * session_ms));
                add(0, Fault::Stall { server, is_from_leader: true, ms, answers_ms });
                let late_ms = ms + 1_000;
                let stall =
                    Fault::Stall { server, is_from_leader: false, ms: late_ms, answers_ms: None };
                add(ms / 2, stall);
            }
        }
        at_ms += draw.range(2, 4) * session_ms;
    }
    story.faults.sort_by_key(|fault| fault.0);
}

fn operations(options: &Options) -> Vec<Operation> {
    let draw = &mut Stream::new(options.seed, Purpose::Clients);
    let mut made: Vec<Operation> = (0..options.operations)
        .map(|name| Operation {
            name,
            at_ns: draw.range(100, options.safety_ms) * MS + draw.range(0, MS),
            stays_with: draw.chance(50).then(|| draw.range(0, options.servers as u64 - 1) as usize),
            count: draw.range(1, options.range_max) as u32,
            calls: draw.pick(&[1, 10, 50, 100]),
            gap_ns: draw.pick(&[0, MS / 10, 10 * MS, 100 * MS]),
        })
        .collect();
    made.sort_by_key(|operation| (operation.at_ns, operation.name));
    made
}

fn faults(options: &Options) -> Vec<(u64, Fault)> {
    let draw = &mut Stream::new(options.seed, Purpose::Faults);
    let mut faults = Vec::new();
    let mut at_ms = draw.range(1_000, 5_000);
    while options.trouble != Trouble::None && at_ms < options.safety_ms {
        let fault = fault(draw, options);
        faults.push((at_ms * MS + draw.range(0, MS), fault));
        if matches!(fault, Fault::DeleteBound { .. }) && draw.chance(50) {
            // The server that comes back does not know of a bound.
            let kill = Fault::Kill { server: MASTER, for_ms: 20 };
            faults.push(((at_ms + draw.range(0, 100)) * MS + MS, kill));
        }
        at_ms += match options.trouble {
            Trouble::Storm => draw.range(0, 3_000),
            _ => draw.range(3, 6) * options.session_ms,
        };
    }
    faults
}

fn wall_step(draw: &mut Stream, server: usize) -> Fault {
    let ms = draw.pick(&[HOUR_MS, -HOUR_MS, 20_000, -20_000, 700, -700]);
    let right_after_ms = draw.chance(70).then_some(draw.range(10, 10_000));
    Fault::WallStep { server, ms, right_after_ms }
}

fn fault(draw: &mut Stream, options: &Options) -> Fault {
    let is_master = draw.chance(50);
    let any = draw.range(0, options.servers as u64 - 1) as usize;
    let server = if is_master { MASTER } else { any };
    let session_ms = options.session_ms;
    let long_ms = draw.pick(&[session_ms / 4, session_ms / 2, session_ms, 2 * session_ms]);
    let ms = draw.range(1, long_ms + 1);
    // A peer gives its leader up within a few ticks.
    let answers_ms = draw.range(0, 5 * options.tick_ms);
    let maybe_answers_ms = draw.chance(60).then_some(answers_ms);
    let kinds = if options.is_standalone { 7 } else { 17 };
    if options.trouble == Trouble::OneAtATime && draw.chance(30) {
        // These are the faults that users of a quiet cluster see most.
        let for_ms = draw.pick(&[20, 1_000, 10_000]);
        let (kill, stop) = (Fault::Kill { server, for_ms }, Fault::Stop { server, for_ms });
        return draw.pick(&[kill, stop]);
    }
    if options.is_standalone && options.has_clock_steps && draw.chance(30) {
        // A standalone server learns the time from no other clock.
        return wall_step(draw, server);
    }
    match draw.range(0, kinds) {
        0 => Fault::Kill { server, for_ms: draw.pick(&[20, 1_000, 10_000]) },
        1 => Fault::Stop { server, for_ms: draw.pick(&[20, 1_000, 10_000]) },
        2 => Fault::Freeze { server, ms },
        3 | 4 => {
            let points = [
                Point::ClockRead,
                Point::Made,
                Point::Checked,
                Point::KeeperClockRead,
                Point::KeeperDecided,
            ];
            Fault::FreezeAt { server, point: draw.pick(&points), ms }
        }
        5 if options.has_clock_steps => wall_step(draw, server),
        5 => Fault::Starve { server, ms },
        6 | 7 if options.is_standalone => {
            let ms = draw.pick(&[0, 300, 5_000]);
            Fault::Disk { ms, fails: draw.chance(50), stores: draw.range(1, 3) as u32 }
        }
        6 | 7 => Fault::Isolate { server, ms: draw.range(1, 4 * session_ms) },
        8 => Fault::Break { server },
        9 | 10 => Fault::Cut { server, answers_ms, ms: draw.range(answers_ms, 4 * session_ms) },
        11 | 12 => Fault::Stall {
            server,
            is_from_leader: draw.chance(70),
            ms: draw.range(1, session_ms),
            answers_ms: maybe_answers_ms,
        },
        13 => Fault::LeaderFreeze { server, ms, answers_ms: maybe_answers_ms },
        14 => Fault::LeaderChange {
            election_ms: draw.pick(&[200, 2_000, 60_000]),
            answers_ms: maybe_answers_ms,
        },
        15 if options.has_deletions => Fault::DeleteMaster,
        16 if options.has_foreign_bounds => {
            Fault::WriteBound { ahead_ms: draw.pick(&[0, 100, 5_000]) }
        }
        17 if options.has_lost_bounds => {
            Fault::DeleteBound { for_ms: draw.pick(&[20, 2_000, 8_000]) }
        }
        _ => Fault::Isolate { server, ms: draw.range(1, 4 * session_ms) },
    }
}
