//! A turn sleeps as long as it is told, and wakes when it is told.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use chronos::base::time::MonoNs;
use chronos::ring::{Completion, RingConfig, Wait, now, set_timer_slack_ns};

use super::harness::*;

#[test]
fn siblings_and_wakers_end_a_sleep() {
    let (addresses, receiver) = mpsc::channel();
    let sleeper = thread::spawn(move || {
        let mut ring = make_ring(&SMALL);
        addresses.send((ring.mailbox(), ring.waker())).expect("the test waits for it");
        let mut completions = Vec::new();
        let mut wakes = 0;
        while wakes < 200 {
            ring.turn(Wait::Event, &mut completions).expect("a turn does not fail");
            for completion in &completions {
                assert!(matches!(completion, Completion::Woken), "{completion:?}");
                wakes += 1;
            }
        }
    });
    let (mailbox, waker) = receiver.recv().expect("the sleeper tells its address");
    let mut ring = make_ring(&SMALL);
    let begun = Instant::now();
    // Wakes coalesce, so more than 200 may be needed. Without wakes the sleeper would never end.
    for number in 0.. {
        if sleeper.is_finished() {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "the sleeper sleeps on");
        if number % 2 == 0 {
            ring.wake(mailbox);
        } else {
            waker.wake();
        }
        ring.turn(soon(1), &mut Vec::new()).expect("a turn does not fail");
    }
    sleeper.join().expect("the sleeper is content");
    // The sleeper's ring is gone. Neither wake may do harm.
    ring.wake(mailbox);
    waker.wake();
    let mut completions = Vec::new();
    ring.turn(soon(1), &mut completions).expect("a turn does not fail");
    assert!(completions.iter().all(|completion| matches!(completion, Completion::Woken)));
}

#[test]
fn a_single_wake_from_each_side_suffices() {
    for from_sibling in [true, false] {
        let (addresses, receiver) = mpsc::channel();
        let sleeper = thread::spawn(move || {
            let mut ring = make_ring(&SMALL);
            addresses.send((ring.mailbox(), ring.waker())).expect("the test waits for it");
            let mut completions = Vec::new();
            while completions.is_empty() {
                ring.turn(Wait::Event, &mut completions).expect("a turn does not fail");
            }
            assert!(matches!(completions[..], [Completion::Woken]), "{completions:?}");
        });
        let (mailbox, waker) = receiver.recv().expect("the sleeper tells its address");
        if from_sibling {
            let mut ring = make_ring(&SMALL);
            ring.wake(mailbox);
            ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
            sleeper.join().expect("the sleeper is content");
        } else {
            waker.wake();
            sleeper.join().expect("the sleeper is content");
        }
    }
}

#[test]
fn a_wait_is_never_early() {
    set_timer_slack_ns(1).expect("one's own slack can be set");
    for shares_waits in [true, false] {
        let mut ring = make_ring(&RingConfig { shares_waits, ..SMALL });
        let mut completions = Vec::new();
        ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
        for _ in 0..100 {
            let due = MonoNs(now().mono.0 + 1_500_000);
            ring.turn(Wait::Until(due), &mut completions).expect("a turn does not fail");
            let woken = now().mono;
            assert!(woken >= due, "{} ns early", due.since_ns(woken));
            assert!(completions.is_empty());
        }
    }
}

#[test]
fn idle_polls_do_not_enter_the_kernel() {
    let mut ring = make_ring(&SMALL);
    let mut completions = Vec::new();
    ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
    let enters = ring.enters();
    for _ in 0..1000 {
        ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
        ring.turn(Wait::Until(MonoNs(1)), &mut completions).expect("a turn does not fail");
    }
    assert_eq!(ring.enters(), enters);
    ring.turn(soon(1), &mut completions).expect("a turn does not fail");
    assert_eq!(ring.enters(), enters + 1);
}

#[test]
fn a_poll_sees_what_arrived_meanwhile() {
    let (mut ring, address) = listening(&SMALL);
    let waker = ring.waker();
    let mut completions = Vec::new();
    ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
    let _client = connect(address);
    waker.wake();
    let (mut accepted, mut woken) = (false, false);
    let begun = Instant::now();
    while !(accepted && woken) {
        assert!(begun.elapsed() < PATIENCE, "polls see nothing");
        ring.turn(Wait::Poll, &mut completions).expect("a turn does not fail");
        for completion in &completions {
            accepted |= matches!(completion, Completion::Accepted { .. });
            woken |= matches!(completion, Completion::Woken);
        }
    }
}
