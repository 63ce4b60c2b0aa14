//! The clock of calendars, beside wall clocks that lie and recover.

use super::*;
use crate::base::time::{MonoNs, TICK_NS};

const SKEW_MS: u64 = 60_000;
const HOUR_MS: i64 = 3_600_000;
const START_MS: u64 = 1_000_000_000;
/// The right time is so far ahead of the monotonic clock.
const RIGHT_MS: i64 = 1_700_000_000_000;

/// A node whose wall clock is wrong by `wrong_ms`, and others.
struct Node {
    clock: CalendarClock,
    mono_ms: u64,
    wrong_ms: i64,
    others_ms: Vec<i64>,
    replans: u32,
}

impl Node {
    fn among(others_ms: &[i64]) -> Self {
        Self::starting(0, others_ms)
    }

    fn starting(wrong_ms: i64, others_ms: &[i64]) -> Self {
        let now = now(START_MS, wrong_ms);
        let clock = CalendarClock::new(now, SKEW_MS);
        let others_ms = others_ms.to_vec();
        Self { clock, mono_ms: START_MS, wrong_ms, others_ms, replans: 0 }
    }

    /// Passes time in steps of 250 ms. Returns how wrong the time that counts is then.
    fn pass(&mut self, ms: u64) -> i64 {
        for _ in 0..ms.div_ceil(250) {
            self.mono_ms += 250;
            let now = now(self.mono_ms, self.wrong_ms);
            let mono_ms = self.mono_ms;
            let walls = self
                .others_ms
                .iter()
                .map(|other_ms| WallMs(mono_ms.saturating_add_signed(RIGHT_MS + other_ms)));
            self.replans += u32::from(self.clock.look(now));
            self.replans += u32::from(self.clock.hear(now, walls));
        }
        self.wrong()
    }

    fn step_to(&mut self, wrong_ms: i64) {
        self.wrong_ms = wrong_ms;
    }

    fn wrong(&self) -> i64 {
        let right = now(self.mono_ms, 0).wall.0;
        self.clock.wall(now(self.mono_ms, self.wrong_ms)).0 as i64 - right as i64
    }
}

fn now(mono_ms: u64, wrong_ms: i64) -> Now {
    let wall = WallMs(mono_ms.saturating_add_signed(RIGHT_MS + wrong_ms));
    Now { mono: MonoNs(mono_ms * TICK_NS), wall }
}

#[test]
fn alone_a_clock_that_steps_and_steps_back_leaves_no_trace() {
    for step_ms in [HOUR_MS, -HOUR_MS, 400 * 24 * HOUR_MS, 20_000, -2_000] {
        let mut node = Node::among(&[]);
        node.pass(5_000);
        node.step_to(step_ms);
        assert_eq!(node.pass(29_000), 0);
        assert!(node.clock.is_in_doubt());
        assert_eq!(node.replans, 0);
        node.step_to(0);
        assert_eq!(node.pass(90_000), 0);
        assert!(!node.clock.is_in_doubt());
        assert_eq!(node.replans, 1, "what was taken in between is looked at");
    }
}

#[test]
fn alone_a_clock_that_stays_where_it_was_set_is_followed() {
    let mut node = Node::among(&[]);
    node.step_to(HOUR_MS);
    assert_eq!(node.pass(29_000), 0);
    assert_eq!(node.pass(2_000), HOUR_MS);
    assert_eq!((node.replans, node.clock.is_in_doubt()), (1, false));
    let landed_ms = node.clock.jumped_to().0;
    let shown_ms = now(node.mono_ms, HOUR_MS).wall.0;
    assert!(shown_ms - landed_ms <= 2_000, "{landed_ms} {shown_ms}");
    node.step_to(0);
    node.pass(31_000);
    assert_eq!((node.wrong(), node.replans, node.clock.jumped_to()), (0, 2, WallMs(0)));
}

#[test]
fn a_clock_that_was_set_while_no_process_ran_is_doubted_like_any_other() {
    for step_ms in [HOUR_MS, -HOUR_MS, 400 * 24 * HOUR_MS] {
        for others_ms in [&[][..], &[3, -20], &[step_ms, step_ms + 50]] {
            let mut node = Node::starting(step_ms, others_ms);
            let started = now(node.mono_ms, step_ms);
            assert!(!node.clock.go_on(started, RIGHT_MS));
            assert_eq!((node.wrong(), node.clock.is_in_doubt()), (0, true));
            let follows_others = others_ms.contains(&step_ms);
            assert_eq!(node.pass(1_000), if follows_others { step_ms } else { 0 });
            node.pass(28_000);
            let is_alone = others_ms.is_empty();
            assert_eq!(node.pass(3_000), if follows_others || is_alone { step_ms } else { 0 });
            node.step_to(0);
            node.others_ms = vec![0; others_ms.len()];
            assert_eq!(node.pass(31_000), 0);
            assert!(!node.clock.is_in_doubt());
        }
    }
    let mut node = Node::starting(700, &[]);
    let started = now(node.mono_ms, 700);
    assert!(!node.clock.go_on(started, RIGHT_MS));
    assert_eq!((node.wrong(), node.clock.is_in_doubt()), (700, false), "clocks differ a little");
}

#[test]
fn a_clock_that_goes_on_stepping_is_followed_when_it_stands() {
    let mut node = Node::among(&[]);
    for step in 1..=8 {
        node.step_to(step * HOUR_MS);
        assert_eq!(node.pass(20_000), 0, "after step {step}");
    }
    assert_eq!(node.pass(12_000), 8 * HOUR_MS);
}

#[test]
fn small_changes_are_followed_at_once_and_planned_when_they_add_up() {
    let mut node = Node::among(&[]);
    for step in 1..=10 {
        node.step_to(step * 400);
        assert_eq!(node.pass(1_000), step * 400);
        assert!(!node.clock.is_in_doubt());
    }
    assert_eq!(node.replans, 2, "4 s in all");
}

#[test]
fn a_clock_that_most_others_contradict_decides_nothing_however_long() {
    for step_ms in [HOUR_MS, -HOUR_MS, 400 * 24 * HOUR_MS] {
        let mut node = Node::among(&[3, -20]);
        node.pass(1_000);
        node.step_to(step_ms);
        assert_eq!(node.pass(3_600_000), 0);
        assert!(node.clock.is_in_doubt());
        node.step_to(0);
        assert_eq!(node.pass(1_000), 0);
        assert_eq!((node.replans, node.clock.is_in_doubt()), (1, false));
    }
}

#[test]
fn a_clock_that_is_set_right_as_most_others_say_is_followed_at_once() {
    let mut node = Node::starting(HOUR_MS, &[]);
    node.pass(2_000);
    assert_eq!(node.wrong(), HOUR_MS, "it knows nobody yet");
    node.others_ms = vec![10, -10];
    assert_eq!(node.pass(500), 0, "it goes by the others'");
    assert!(node.clock.is_in_doubt());
    node.step_to(5);
    assert_eq!(node.pass(500), 5);
    assert!(!node.clock.is_in_doubt());
}

#[test]
fn of_two_nodes_the_one_whose_clock_steps_goes_by_what_both_knew() {
    let mut node = Node::among(&[100]);
    node.pass(1_000);
    node.step_to(-HOUR_MS);
    assert_eq!(node.pass(3_600_000), 0);
    // The other one steps as well: now they agree.
    node.others_ms = vec![-HOUR_MS];
    assert_eq!(node.pass(500), -HOUR_MS);
    // Where both differ from all that was known, nobody knows better.
    let mut node = Node::among(&[5 * HOUR_MS]);
    node.pass(1_000);
    node.step_to(HOUR_MS);
    assert_eq!(node.pass(25_000), 0);
    assert_eq!(node.pass(10_000), HOUR_MS);
}

#[test]
fn two_lies_are_not_taken_for_one_that_lasts() {
    let mut node = Node::among(&[]);
    node.step_to(HOUR_MS);
    node.pass(20_000);
    // The core has nothing to do, and does not see that the clock is right for a while.
    node.mono_ms += 15_000;
    assert_eq!(node.pass(20_000), 0);
    node.step_to(0);
    assert_eq!(node.pass(1_000), 0);
}

#[test]
fn a_step_on_top_of_a_step_begins_the_doubt_anew() {
    for (more_ms, follows) in [(STEP_MS as i64 - 1, true), (STEP_MS as i64, false)] {
        let mut node = Node::among(&[]);
        node.step_to(HOUR_MS);
        node.pass(FOLLOW_AFTER_MS);
        assert_eq!(node.wrong(), 0);
        node.step_to(HOUR_MS + more_ms);
        let wrong_ms = if follows { HOUR_MS + more_ms } else { 0 };
        assert_eq!(node.pass(250), wrong_ms, "{more_ms}");
    }
}

#[test]
fn a_longer_pause_than_there_is_between_two_looks_begins_the_doubt_anew() {
    for (pause_ms, wrong_ms) in [(LOOK_EVERY_MS, HOUR_MS), (LOOK_EVERY_MS + 1, 0)] {
        let mut node = Node::among(&[]);
        node.step_to(HOUR_MS);
        node.pass(FOLLOW_AFTER_MS - LOOK_EVERY_MS);
        node.mono_ms += pause_ms - 250;
        assert_eq!(node.pass(250), 0);
        assert_eq!(node.pass(250), wrong_ms, "{pause_ms}");
    }
}

#[test]
fn it_is_looked_at_more_often_while_in_doubt() {
    let mut node = Node::among(&[]);
    node.pass(250);
    let looked_at = Tick(node.mono_ms);
    assert_eq!(node.clock.next_look(), looked_at + 5_000);
    node.step_to(HOUR_MS);
    node.pass(250);
    assert_eq!(node.clock.next_look(), looked_at + 250 + 1_000);
}
