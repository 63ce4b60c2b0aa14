//! `-h` and `--help`: the first is short, the second has examples and exit codes.

use clap::Command;
use clap::builder::StyledStr;

/// What `-h` ends with.
const MORE: &str = "Examples and exit codes: --help";

/// Moves what stands behind the flags of each command to `--help`. A command that has nothing there
/// gets what the command has that it belongs to.
pub(super) fn with_short_help(command: Command) -> Command {
    let command = command.mut_subcommands(|tool| with_examples(tool, None));
    with_own_examples(command, None)
}

fn with_examples(command: Command, of_parent: Option<&StyledStr>) -> Command {
    let own = command.get_after_help().or(of_parent).cloned();
    let command = command.mut_subcommands(|inner| with_examples(inner, own.as_ref()));
    with_own_examples(command, of_parent)
}

fn with_own_examples(command: Command, of_parent: Option<&StyledStr>) -> Command {
    match command.get_after_help().or(of_parent).cloned() {
        Some(examples) => command.after_long_help(examples).after_help(MORE),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stand_in_the_long_help_alone() {
        let innermost = Command::new("innermost");
        let inner = Command::new("inner").after_help("Examples:\n  inner").subcommand(innermost);
        let command = Command::new("outer").after_help("Examples:\n  outer").subcommand(inner);
        let mut command = with_short_help(command);
        let inner = command.find_subcommand_mut("inner").expect("kept");
        assert!(inner.render_help().to_string().contains("exit codes: --help"));
        assert!(!inner.render_help().to_string().contains("Examples:"));
        assert!(inner.render_long_help().to_string().contains("Examples:\n  inner"));
        let innermost = inner.find_subcommand_mut("innermost").expect("kept");
        assert!(innermost.render_long_help().to_string().contains("Examples:\n  inner"));
        assert!(command.render_long_help().to_string().contains("Examples:\n  outer"));
    }
}
