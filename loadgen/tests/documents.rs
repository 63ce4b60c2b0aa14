//! The documents against the load generator: every flag in a command that they show exists.

use kit::documents::{Program, commands, documents, expect_none, read, unknown_flags};

const LOADGEN: Program =
    Program { name: "chronos-loadgen", binary: env!("CARGO_BIN_EXE_chronos-loadgen") };

#[test]
fn commands_use_flags_that_exist() {
    let mut count = 0;
    for name in documents() {
        let document = read(&name);
        expect_none(&unknown_flags(&name, &document, LOADGEN));
        count += commands(&document).iter().filter(|line| line.contains(LOADGEN.name)).count();
    }
    assert!(count > 10, "{count} commands are found");
    let planted = "    chronos-loadgen post \\\n        --interval 1\n";
    assert_eq!(unknown_flags("a", planted, LOADGEN).len(), 1);
}
