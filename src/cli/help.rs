//! `-h` and `--help`: the first is short, the second has examples and exit codes.

use clap::Command;

/// What `-h` ends with.
const MORE: &str = "Examples and exit codes: --help";

/// Moves what stands behind the flags of each command to `--help`.
pub(super) fn with_short_help(command: Command) -> Command {
    let command = match command.get_after_help().cloned() {
        Some(examples) => command.after_long_help(examples).after_help(MORE),
        None => command,
    };
    command.mut_subcommands(with_short_help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stand_in_the_long_help_alone() {
        let inner = Command::new("inner").after_help("Examples:\n  inner");
        let command = Command::new("outer").after_help("Examples:\n  outer").subcommand(inner);
        let mut command = with_short_help(command);
        let inner = command.find_subcommand_mut("inner").expect("kept");
        assert!(inner.render_help().to_string().contains("exit codes: --help"));
        assert!(!inner.render_help().to_string().contains("Examples:"));
        assert!(inner.render_long_help().to_string().contains("Examples:\n  inner"));
        assert!(command.render_long_help().to_string().contains("Examples:\n  outer"));
    }
}
