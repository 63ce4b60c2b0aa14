//! Everything at random: servers are killed, stopped, frozen and started again for a while.

use std::thread::sleep;
use std::time::{Duration, Instant};

use kit::random::Random;
use kit::runner::Story;

use super::checker::Checker;
use super::servers::{START, Servers};
use super::zookeeper::shared;

pub const STORIES: &[Story] = &[("three_servers_die_at_random", three_servers_die_at_random)];

/// Seconds of the story without `CHRONOS_TIMESTAMPS_LONG_S`.
const SHORT_S: u64 = 30;

fn three_servers_die_at_random() {
    let asked = std::env::var("CHRONOS_TIMESTAMPS_LONG_S");
    let long = asked.map_or(SHORT_S, |text| text.parse().expect("CHRONOS_TIMESTAMPS_LONG_S"));
    let mut servers = Servers::start(3, &shared(), 1_000);
    let checker = Checker::of(&servers.addresses());
    let mut draw = Random::of_this_moment();
    println!("drawing from {draw:?}");
    let begin = Instant::now();
    let (mut killed, mut stopped, mut frozen) = (0, 0, 0);
    let changes = || checker.got().windows(2).filter(|two| two[0].server != two[1].server).count();
    // A slow machine takes longer until another server has taken over.
    let goes_on = || begin.elapsed() < Duration::from_secs(long) || changes() == 0;
    while goes_on() && begin.elapsed() < Duration::from_secs(long) + START {
        let place = draw.below(3);
        let server = &mut servers.all[place];
        if !server.runs() {
            server.spawn();
        } else {
            server.supervise();
            match draw.below(4) {
                0 | 1 => {
                    killed += 1;
                    server.kill();
                }
                2 => {
                    stopped += 1;
                    // The server is not stopped before it listens to signals.
                    server.await_role(&["starting", "backup", "master", "suspended"], START);
                    server.stop();
                }
                _ => {
                    frozen += 1;
                    server.await_role(&["starting", "backup", "master", "suspended"], START);
                    server.process().signal("STOP");
                    sleep(Duration::from_millis(draw.below(3_000) as u64));
                    server.process().signal("CONT");
                }
            }
        }
        sleep(Duration::from_millis(draw.below(1_500) as u64));
        let wrong = checker.wrong();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
    for server in servers.all.iter_mut() {
        if !server.runs() {
            server.spawn();
        }
        server.await_role(&["backup", "master"], START);
    }
    checker.await_reply(Instant::now(), START);
    let masters = changes();
    let ahead_ms = checker.ahead_ms_max();
    let replies = checker.finish();
    println!(
        "{killed} killed, {stopped} stopped, {frozen} frozen: {replies} replies, {masters} changes \
         of the master, at most {ahead_ms} ms ahead of the clock"
    );
    assert!(masters > 0, "nobody ever took over");
    assert!(ahead_ms <= 6_000, "{ahead_ms} ms ahead: failovers must not add up");
}
