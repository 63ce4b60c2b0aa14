//! Help, and wrong command lines.

use super::harness::run;

/// Every command that has a help of its own.
const COMMANDS: [&[&str]; 15] = [
    &["timer"],
    &["timer", "create"],
    &["timer", "watch"],
    &["dead-letters"],
    &["dead-letters", "replay"],
    &["destinations"],
    &["destinations", "set"],
    &["jobs"],
    &["doctor"],
    &["top"],
    &["config"],
    &["config", "check"],
    &["cluster"],
    &["cluster", "status"],
    &["backup"],
];

#[test]
fn help_is_short_or_has_examples_and_exit_codes() {
    for command in COMMANDS {
        let short = run(&[command, &["-h"]].concat());
        short.expect(0, "Examples and exit codes: --help");
        assert!(!short.out.contains("Examples:\n"), "{short:?}");
        let long = run(&[command, &["--help"]].concat());
        long.expect(0, "Examples:\n").expect(0, "Exit codes:\n");
    }
    let short = run(&["-h"]);
    assert!(!short.expect(0, "").out.contains("Examples:\n"), "{short:?}");
    run(&["--help"]).expect(0, "Examples:\n").expect(0, "chronos doctor");
}

#[test]
fn a_wrong_command_line_is_told_and_ends_with_2() {
    for (words, told) in [
        (&["timer", "crate"][..], "create"),
        (&["timer", "create", "--intervall", "5"], "--interval"),
        (&["timer", "list", "--limit", "0"], "0 is not in 1..=100000"),
        (&["timer", "create", "--at", "x", "--interval", "5"], "cannot be used with"),
        (&["timer", "get", "x", "--name", "y"], "cannot be used with"),
        (&["timer", "get", "x", "--ca", "/nowhere"], "--ca /nowhere: cannot be read"),
        (&["dead-letters", "show"], "<ID>"),
        (&["destinations", "pause"], "<HOST[:PORT]>"),
        (&["top", "--admin", "x"], "expected host:port"),
        (&["jobs"], "Usage:"),
        (&["jornal"], "did you mean 'chronos journal'?"),
        (&["list"], "there is 'chronos dead-letters list'"),
        (&["frobnicate"], "chronos knows demo, backup, cluster"),
    ] {
        run(words).expect(2, told);
    }
}
