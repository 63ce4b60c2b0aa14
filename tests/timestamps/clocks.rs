//! The wall clock of a server is set, with the library of Debian's package `faketime`.

use kit::children::{Tied, command};
use kit::faketime::WrongClock;
use kit::runner::{Story, cannot_run};

use super::checker::Checker;
use super::processes::until;
use super::servers::{START, Server};

pub const STORIES: &[Story] =
    &[("a_clock_that_is_set_right_again_is_followed", a_clock_is_set_right_again)];

fn a_clock_is_set_right_again() {
    let folder = tempfile::Builder::new().prefix("chronos-ts-").tempdir().expect("room");
    let Some(clock) = WrongClock::right(&folder.path().join("wrong")) else {
        cannot_run("it takes libfaketime: apt-get install faketime")
    };
    let file = folder.path().join("timestamp").display().to_string();
    let binary = env!("CARGO_BIN_EXE_chronos");
    let mut init = command(binary);
    init.args(["timestamp", "init", "--file", &file]).env_remove("CHRONOS_CONFIG");
    assert!(init.output_tied().expect("it runs").status.success());
    let mut server = Server::new(folder.path(), "log", &["--file", &file]);
    for (key, value) in clock.environment() {
        server.set(key, &value);
    }
    server.start();
    let checker = Checker::of(&[server.address]);
    let figure = |server: &Server, name: &str| server.status()?[name].as_u64();

    // A step back that is larger than the largest step forward that is followed.
    clock.set("-20");
    until("a step back", START, || (server.count("clock_set_back") > 0).then_some(()));
    until("values ahead", START, || (figure(&server, "ahead_ms")? > 10_000).then_some(()));
    clock.set("+0");
    until("the correction to be followed", START, || {
        (figure(&server, "ahead_ms")? < 100 && figure(&server, "behind_ms")? < 100).then_some(())
    });
    assert_eq!(server.count("clock_refusals"), 0);

    // A step forward that is too large. It is told as well, soon after the other.
    clock.set("+3600");
    until("a refusal", START, || (server.count("clock_refusals") > 0).then_some(()));
    until("a figure of it", START, || (figure(&server, "behind_ms")? > 3_500_000).then_some(()));
    assert!(checker.ahead_ms_max() < 1_000_000, "it is not followed");
    clock.set("+0");
    until("the end of it", START, || (figure(&server, "behind_ms")? < 100).then_some(()));
    for told in ["was set back by", "and is not followed", "is followed again"] {
        until(told, START, || server.process().logged().contains(told).then_some(()));
    }
    checker.finish();
}
