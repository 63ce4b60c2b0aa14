//! Checks of the checker: histories that keep every promise, and for each rule a history that
//! breaks it.

use super::history::{
    Act, Action, Clock, Counted, Fault, Handling, History, Kind, LetterUse, MS, Ns, Outcome, Pop,
    Read, RulePause, SECOND, Timer, Wish, Write,
};
use super::judge::judge;
use super::network::Layout;

/// Breaks a promise in a history that keeps it.
type Break = fn(&mut History);

/// Runs all checks. Panics where a rule does not find a violation, or finds one that is none.
pub fn run() {
    let rules = |history: &History| -> Vec<&str> {
        judge(history, true).iter().map(|violation| violation.rule).collect()
    };
    assert_eq!(rules(&good()), Vec::<&str>::new());
    let broken: [(&str, Break); 20] = [
        ("never early", |history| history.pops[0].at = 1_900 * MS),
        ("none lost", |history| history.pops.truncate(2)),
        ("none doubled", |history| history.pops.push(pop(0, 0, 3, 6_010))),
        ("sequence numbers never fall", |history| {
            history.pops.push(pop(0, 0, 1, 4_500));
            history.pops.remove(0);
        }),
        ("late by milliseconds", |history| history.pops[1].at = 4_300 * MS),
        ("as many pops as repeat-for holds", |history| history.pops.push(pop(0, 0, 4, 8_003))),
        ("the body is the opaque text", |history| history.pops[0].is_whole = false),
        ("nothing pops after a later write", |history| history.pops.push(pop(1, 0, 1, 5_001))),
        ("only timers pop", |history| history.pops.push(pop(1, 1, 1, 5_001))),
        ("GET tells the last write", |history| history.timers[0].reads.push(get(1_000, 404, None))),
        ("GET tells the last write", |history| {
            history.timers[1].reads.push(get(3_000, 200, Some(0)));
        }),
        ("GET tells the last write", |history| {
            history.timers[0].reads.push(get(12_000, 200, Some(0)));
        }),
        ("a paused timer does not pop", |history| {
            history.timers[2].actions.push(action(Act::Pause, 1_000));
            history.pops.push(pop(2, 0, 1, 5_001));
        }),
        ("none lost", |history| {
            history.timers[2].actions.push(action(Act::Pause, 1_000));
            history.timers[2].actions.push(action(Act::Resume, 7_000));
            history.pops.retain(|pop| pop.timer != 2);
        }),
        ("never early", |history| {
            history.timers[2].actions.push(action(Act::RunNow, 3_000));
            history.pops.push(pop(2, 0, 1, 2_000));
        }),
        ("no callback begins at a paused server", |history| {
            history.rule_pauses = vec![rule_pause(1_000, 9_000)];
        }),
        ("a dead letter is kept", |history| {
            history.timers[3].letters.push(letter(Handling::Look, 20_000, 404));
        }),
        ("a dead letter is used once", |history| {
            history.timers[3].letters.push(letter(Handling::Delete, 9_000, 200));
            history.timers[3].letters.push(letter(Handling::Look, 20_000, 200));
        }),
        ("a replay is made", |history| {
            history.timers[3].letters.push(letter(Handling::Replay, 9_000, 200));
        }),
        ("every copy is held", |history| {
            history.copies = Some(Counted { held: 3, expected: 4 });
        }),
    ];
    for (rule, break_it) in broken {
        let mut history = good();
        break_it(&mut history);
        assert!(rules(&history).contains(&rule), "{rule}: found {:?}", rules(&history));
    }
    excuses_are_those_of_the_page();
    sites_may_differ_until_they_have_told_each_other();
    a_rule_of_a_site_holds_what_the_site_makes();
}

/// A doubled pop is excused if a node was killed just then, but not if a node stopped in order.
fn excuses_are_those_of_the_page() {
    for (kind, is_excused) in [(Kind::Kill, true), (Kind::Freeze, true), (Kind::Stop, false)] {
        let mut history = good();
        let at = 4 * SECOND;
        let fault = Fault { kind, node: 0, from: at, until: at, settled: at + SECOND };
        history.faults.push(fault);
        history.pops.push(pop(0, 0, 2, 6_001));
        history.pops.sort_by_key(|pop| pop.at);
        let doubles = judge(&history, false);
        let doubled = doubles.iter().any(|violation| violation.rule == "none doubled");
        assert_eq!(doubled, !is_excused, "{kind:?}: {doubles:?}");
    }
}

/// What one site has done binds the others 2 s later, or when all is well again after a cut.
fn sites_may_differ_until_they_have_told_each_other() {
    let layout: Layout = "2x2".parse().expect("sites");
    let found = |change: &dyn Fn(&mut History)| {
        let mut history = History { layout, ..good() };
        change(&mut history);
        history.pops.sort_by_key(|pop| pop.at);
        judge(&history, false).iter().map(|violation| violation.rule).collect::<Vec<_>>()
    };
    assert_eq!(found(&|_| {}), Vec::<&str>::new());
    // The timer was deleted at 2 s.
    let late = "nothing pops after a later write";
    let pops_at = |history: &mut History, ms| {
        history.timers[1].writes[0].wish =
            Wish::Timer { interval_ms: 3_500, pops: 1, factor: 2, is_ruled: false };
        history.pops.push(pop(1, 0, 1, ms));
    };
    assert_eq!(found(&|history| pops_at(history, 3_600)), Vec::<&str>::new());
    assert_eq!(found(&|history| pops_at(history, 6_000)), [late]);
    let pops_in_cut = |history: &mut History, ms| {
        history.faults.push(cut(1_500, 7_000));
        pops_at(history, ms);
    };
    assert_eq!(found(&|history| pops_in_cut(history, 7_900)), Vec::<&str>::new());
    assert_eq!(found(&|history| pops_in_cut(history, 12_000)), [late]);
    let pops_twice = |history: &mut History| history.pops.push(pop(0, 0, 2, 8_001));
    assert_eq!(found(&pops_twice), ["none doubled", "sequence numbers never fall"]);
    let in_cut = |history: &mut History| {
        history.faults.push(cut(3_000, 5_000));
        pops_twice(history);
    };
    assert_eq!(found(&in_cut), Vec::<&str>::new());
    // A client pauses what a site holds that does not know the last write.
    let is_undone = |history: &mut History, via| {
        let wish = Wish::Timer { interval_ms: 50_000, pops: 1, factor: 2, is_ruled: false };
        history.timers[2].writes.push(write(wish, 2_000));
        let pause = Action { via, write: 1, ..action(Act::Pause, 2_500) };
        history.timers[2].actions.push(pause);
        history.timers[2].reads.push(get(9_000, 200, Some(0)));
    };
    assert_eq!(found(&|history| is_undone(history, 2)), Vec::<&str>::new());
    let both = [late, "GET tells the last write"];
    assert_eq!(found(&|history| is_undone(history, 1)), both);
    // The other site does not know the delete yet.
    let reads = |history: &mut History, via, ms| {
        history.timers[1].reads.push(Read { via, ..get(ms, 200, Some(0)) });
    };
    assert_eq!(found(&|history| reads(history, 2, 2_500)), Vec::<&str>::new());
    assert_eq!(found(&|history| reads(history, 1, 2_500)), ["GET tells the last write"]);
    assert_eq!(found(&|history| reads(history, 2, 4_500)), ["GET tells the last write"]);
}

/// A rule of a site binds its own pops, and those that it keeps from another site.
fn a_rule_of_a_site_holds_what_the_site_makes() {
    let found = |by: usize, via: usize, paused: usize, is_cut: bool| {
        let mut history = History { layout: "2x2".parse().expect("sites"), ..good() };
        // The ruled timer, which pops at 5 s.
        history.timers[2].writes[0].via = via;
        let popped = history.pops.iter_mut().find(|pop| pop.timer == 2);
        popped.expect("it pops").site = by;
        history.rule_pauses = vec![RulePause { site: paused, ..rule_pause(1_000, 9_000) }];
        if is_cut {
            history.faults.push(cut(500, 7_000));
        }
        judge(&history, false).iter().map(|violation| violation.rule).collect::<Vec<_>>()
    };
    let begins = "no callback begins at a paused server";
    assert_eq!(found(0, 0, 0, false), [begins], "by the site that has the rule");
    assert_eq!(found(1, 0, 0, false), [begins], "what the site with the rule keeps");
    assert_eq!(found(1, 2, 0, false), Vec::<&str>::new(), "of the other site");
    assert_eq!(found(1, 0, 0, true), Vec::<&str>::new(), "they cannot ask each other");
}

/// Returns a history of two timers: one pops three times, the other is deleted before it pops.
fn good() -> History {
    let timer = Wish::Timer { interval_ms: 2_000, pops: 3, factor: 2, is_ruled: false };
    let once = Wish::Timer { interval_ms: 5_000, pops: 1, factor: 2, is_ruled: false };
    let ruled = Wish::Timer { interval_ms: 5_000, pops: 1, factor: 2, is_ruled: true };
    let dead = Wish::Letter { interval_ms: 5_000, factor: 2 };
    let of = |wish| Timer { writes: vec![write(wish, 0)], ..Timer::default() };
    History {
        timers: vec![
            Timer { reads: vec![get(1_000, 200, Some(0))], ..of(timer) },
            Timer {
                writes: vec![write(once, 0), write(Wish::Delete, 2_000)],
                reads: vec![get(1_000, 200, Some(0)), get(2_500, 404, None)],
                ..Timer::default()
            },
            of(ruled),
            of(dead),
        ],
        pops: vec![
            pop(0, 0, 1, 2_002),
            pop(0, 0, 2, 4_002),
            pop(0, 0, 3, 6_002),
            pop(2, 0, 1, 5_002),
            Pop { status: 500, ..pop(3, 0, 1, 5_002) },
        ],
        ended: 60 * SECOND,
        ..History::new(Clock::start(), Layout::default())
    }
}

fn write(wish: Wish, sent_ms: u64) -> Write {
    let (sent, ended) = (sent_ms * MS, (sent_ms + 1) * MS);
    Write { wish, via: 0, sent, ended, outcome: Outcome::Acknowledged }
}

fn pop(timer: usize, write: usize, sequence: u64, at_ms: u64) -> Pop {
    let site = 0;
    Pop { timer, write, site, sequence, replay: 0, at: at_ms * MS, status: 200, is_whole: true }
}

fn action(act: Act, sent_ms: u64) -> Action {
    let (sent, ended) = (sent_ms * MS, (sent_ms + 1) * MS);
    Action { act, write: 0, via: 0, sent, ended, outcome: Outcome::Acknowledged }
}

fn letter(handling: Handling, sent_ms: u64, status: u16) -> LetterUse {
    let (sent, ended) = (sent_ms * MS, (sent_ms + 1) * MS);
    let outcome = match status {
        200 => Outcome::Acknowledged,
        _ => Outcome::Refused(status, String::new()),
    };
    LetterUse { handling, write: 0, via: 0, sent, ended, outcome }
}

fn cut(from_ms: u64, until_ms: u64) -> Fault {
    let (from, until) = (from_ms * MS, until_ms * MS);
    Fault { kind: Kind::Cut, node: 0, from, until, settled: until + SECOND }
}

fn rule_pause(from_ms: u64, until_ms: u64) -> RulePause {
    let (from, until) = (from_ms * MS, until_ms * MS);
    RulePause { site: 0, from, acknowledged: from + MS, released: until, until: until + MS }
}

fn get(sent_ms: u64, status: u16, write: Option<usize>) -> Read {
    let (sent, ended): (Ns, Ns) = (sent_ms * MS, (sent_ms + 1) * MS);
    Read { via: 0, sent, ended, status: Some(status), write }
}
