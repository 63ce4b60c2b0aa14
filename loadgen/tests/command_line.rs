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
