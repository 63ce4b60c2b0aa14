//! What the load generator refuses before it begins.

use std::process::Command;

#[test]
fn a_process_that_is_no_chronos_is_not_measured() {
    for (pid, told) in
        [(std::process::id(), "`command_line"), (u32::MAX, "there is no such process")]
    {
        let pid = pid.to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_chronos-loadgen"));
        let output = command.args(["post", "--server-pid", &pid]).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(told) && errors.contains("pidof chronos"), "{errors}");
    }
}

#[test]
fn what_cannot_be_done_at_the_end_is_refused_at_the_start() {
    for (arguments, told) in [
        (&["--html", "/nonexistent/x"][..], "cannot write /nonexistent/x"),
        (&["--delete", "--admin", "127.0.0.1:1"], "--delete could not delete"),
        (&["--target", "10.0.0.1:7253", "--token", "chr_secret"], "in the clear"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chronos-loadgen"));
        let output = command.arg("post").args(arguments).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(told) && !errors.contains("chr_secret"), "{errors}");
    }
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronos-loadgen"));
    let output = command.arg("--help").stdout(full).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot write to standard output"), "{errors}");
}
