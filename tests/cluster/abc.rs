//! The story of A, B and C (docs/compat/timer-service.md §8), with real processes: A dies, B and C
//! split, the split heals, A returns empty.

use std::thread;
use std::time::{Duration, Instant};

use kit::noise;
use kit::runner::{Story, disturbed};

use super::harness::{Setup, until};
use super::placement;
use super::proxies::{Network, Way};
use super::sink::Sink;
use super::timers::{Order, STALLED, ranks_between};

pub const STORIES: &[Story] = &[
    ("the_story_of_a_b_and_c_without_promotion", without_promotion),
    ("the_story_of_a_b_and_c_with_promotion", with_promotion),
];

const THREE: [usize; 3] = [0, 1, 2];
const POPS: u64 = 6;

/// Second for second as the document tells the story.
fn without_promotion() {
    // (seconds after the start, sequence number)
    let told = [(20, 1), (42, 2), (62, 3), (64, 3), (82, 4), (102, 5), (120, 6)];
    tell("\n[cluster]\npromotion = false\n", &told);
}

/// The same with ranks that move up. Only two pops differ from the plan: the pop after the death is
/// late, and one pop is doubled because of the split.
fn with_promotion() {
    let told = [(20, 1), (42, 2), (60, 3), (62, 3), (80, 4), (100, 5), (120, 6)];
    tell("", &told);
}

fn tell(local: &str, told: &[(u64, u64)]) {
    let setup = Setup { local: local.to_owned(), ..Setup::default() };
    let (mut cluster, network) = Network::around(setup);
    cluster.begin(&THREE);
    let sink = Sink::ok();
    // An id whose replicas are nodes 1, 2 and 3 in this order.
    let names: Vec<&str> = cluster.names[..3].iter().map(String::as_str).collect();
    let wanted = |id: &u64| placement::replicas(&names, *id, 3) == THREE;
    let id = (0x0005_0000_0000_0000..).find(wanted).expect("one id in six");
    let path = format!("/timers/{id:016x}-3");
    let document = Order::once(20_000).times(POPS).factor(3).document(&sink.uri("/abc"), "abc");
    // The write goes to all replicas once all nodes believe each other alive.
    cluster.await_alive(&THREE);
    let begun = Instant::now();
    cluster.request(1, "PUT", &path, &document).location();
    let wait = |seconds: f64| {
        let at = begun + Duration::from_secs_f64(seconds);
        if Instant::now() >= at {
            disturbed(format!("{seconds} s were over too soon"));
        }
        thread::sleep(at.saturating_duration_since(Instant::now()));
    };
    wait(25.0);
    cluster.kill(0);
    wait(52.0);
    network.set_both(1, 2, Way::Cut);
    wait(72.0);
    network.set_both(1, 2, Way::Open);
    wait(92.0);
    cluster.start(0);
    wait(126.5);
    // Each pop comes at its second, or so soon after it that no further rank can have made it.
    let pops = sink.pops();
    let sequences: Vec<_> = pops.iter().map(|pop| pop.sequence).collect();
    let is_told = sequences == told.iter().map(|one| one.1).collect::<Vec<_>>()
        && pops.iter().zip(told).all(|(pop, (seconds, _))| {
            let due = begun + Duration::from_secs(*seconds);
            pop.at >= due && ranks_between(due, pop.at) == 0
        });
    let (came, stalled) = (
        pops.iter().map(|pop| (pop.at - begun, pop.sequence)).collect::<Vec<_>>(),
        noise::since(begun),
    );
    if !is_told && stalled >= STALLED {
        disturbed(format!("{came:?}, stalls {stalled:?}"));
    }
    assert!(is_told, "{came:?}, and {told:?} is told; stalls {stalled:?}");
    // No node has the timer any more.
    THREE.iter().for_each(|place| {
        until("the timer's end", || {
            (cluster.request(*place, "GET", &path, "").status == 404).then_some(())
        });
    });
}
