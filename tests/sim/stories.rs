//! Stories that broke an invariant, shortened and kept.

use chronos::base::ids::{ShardCount, ShardIndex, TimerId};
use chronos::base::limits::CallbackLimits;
use kit::simulator::callback_world::Behaviour;
use kit::simulator::shrink::judge;

use super::OneNode;
use super::clients::{Fault, Kind, Operation, Story, Target, Wish};
use super::driver::REQUESTS;
use super::extras::Extras;
use super::options::Options;

const MS: u64 = 1_000_000;

fn options() -> Options {
    let callbacks = CallbackLimits {
        timeout_ms: 200,
        retry_first_ms: 100,
        retry_max_ms: 100,
        give_up_ms: 1_000,
        ..CallbackLimits::default()
    };
    Options { callbacks, interleaved_percent: 100, ..Options::crowd(1, 100, 60_000) }
}

/// Returns an id that the second of two cores owns.
fn id_of_second() -> Target {
    let owner = |id: &u64| ShardCount::new(2).owner(TimerId(*id));
    Target::Chosen((0..).find(|id| owner(id) == ShardIndex(1)).expect("half of them"))
}

fn wish(interval_ms: u64) -> Wish {
    Wish {
        interval_ms,
        repeat_for_ms: interval_ms,
        host: 0,
        opaque_bytes: 10,
        extras: Extras::default(),
    }
}

fn operation(name: usize, at_ms: u64, core: u16, kind: Kind) -> Operation {
    Operation { name, at_ns: at_ms * MS, core, kind }
}

/// The second core reads its clock, gets no time for 300 ms, and then finds a request that came
/// meanwhile. The timer counts from the request, not from the clock as the core had read it.
#[test]
fn a_core_that_stalls_within_its_turn_pops_nothing_early() {
    let story = Story {
        options: Options { has_stalls: true, ..options() },
        operations: vec![
            operation(1, 1_000, 1, Kind::Read(Target::Chosen(7))),
            operation(2, 1_033, 0, Kind::Update(id_of_second(), wish(1_000))),
        ],
        faults: vec![(900 * MS, Fault::Stall { core: 1, phase: REQUESTS, ms: 300 })],
    };
    let report = judge::<OneNode>(&story).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert_eq!(report.pops, 1);
}

/// A host fails and recovers unseen; half a minute later its core stalls for longer than a pop is
/// retried. The pop is tried once before it is given up.
#[test]
fn a_pop_that_is_overdue_when_first_looked_at_is_tried() {
    let story = Story {
        options: Options { has_stalls: true, shards: 1, ..options() },
        operations: vec![
            operation(1, 500, 0, Kind::Update(Target::Chosen(1), wish(1_000))),
            operation(2, 500, 0, Kind::Update(Target::Chosen(2), wish(1_000))),
            operation(3, 500, 0, Kind::Update(Target::Chosen(3), wish(1_000))),
            operation(4, 30_000, 0, Kind::Update(Target::Chosen(4), wish(5))),
        ],
        faults: vec![
            (1_000 * MS, Fault::Host(0, Behaviour::Refuses)),
            (20_000 * MS, Fault::Host(0, Behaviour::Well(3))),
            (29_000 * MS, Fault::Stall { core: 0, phase: REQUESTS, ms: 3_000 }),
        ],
    };
    let report = judge::<OneNode>(&story).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert_eq!((report.delivered, report.given_up), (1, 3));
}
