//! Words of the command line that nobody knows: what is near is offered, and nothing that only
//! shares some letters. Otherwise the sentence lists what there is.

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::control::config::suggest::nearest;

/// Makes the tips of an error true. `words` are those of the command line, without the program.
pub(super) fn explained(
    mut error: clap::Error,
    root: &Command,
    words: impl Iterator<Item = String>,
) -> clap::Error {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
                return error;
            };
            let tip = tip_of_command(&word.clone(), root, words);
            error.remove(ContextKind::SuggestedSubcommand);
            set_tip(&mut error, tip);
        }
        ErrorKind::UnknownArgument => {
            let asked = error.get(ContextKind::InvalidArg).map(ToString::to_string);
            let offered = match error.get(ContextKind::SuggestedArg) {
                Some(ContextValue::String(flag)) => Some(flag.clone()),
                _ => None,
            };
            let (Some(asked), Some(offered)) = (asked, offered) else { return error };
            if nearest(bare(&asked), [bare(&offered)].into_iter()).is_none() {
                error.remove(ContextKind::SuggestedArg);
            }
        }
        _ => {}
    }
    error
}

fn set_tip(error: &mut clap::Error, tip: String) {
    let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
    error.insert(ContextKind::Suggested, tip);
}

/// A flag without its dashes and value.
fn bare(flag: &str) -> &str {
    let flag = flag.trim_start_matches('-');
    flag.split(['=', ' ']).next().unwrap_or(flag)
}

/// What to say about a word where a command was expected.
fn tip_of_command(word: &str, root: &Command, words: impl Iterator<Item = String>) -> String {
    let (mut level, mut path) = (root, root.get_name().to_owned());
    for next in words.take_while(|next| next != word) {
        if let Some(inner) = level.find_subcommand(&next) {
            level = inner;
            path += &format!(" {next}");
        }
    }
    let names =
        || level.get_subcommands().filter(|inner| !inner.is_hide_set()).map(Command::get_name);
    if let Some(near) = nearest(word, names()) {
        return format!("did you mean '{path} {near}'?");
    }
    let with_it = level.get_subcommands().filter(|inner| inner.find_subcommand(word).is_some());
    let inside: Vec<String> =
        with_it.map(|inner| format!("'{path} {} {word}'", inner.get_name())).collect();
    if !inside.is_empty() {
        return format!("there is {}", inside.join(", "));
    }
    format!("{path} knows {}", names().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::flags::Flags;

    fn told(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let all = ["chronos".to_owned()].into_iter().chain(words.clone());
        let error = Flags::command().try_get_matches_from(all).expect_err(line);
        explained(error, &Flags::command(), words.into_iter()).to_string()
    }

    #[test]
    fn what_is_near_is_offered() {
        for (line, near) in [
            ("timers", "'chronos timer'"),
            ("jornal check", "'chronos journal'"),
            ("dead-letter list", "'chronos dead-letters'"),
            ("conf", "'chronos config'"),
            ("timer lst", "'chronos timer list'"),
            ("--liste 127.0.0.1:1", "--listen"),
        ] {
            assert!(told(line).contains(near), "{line}: {}", told(line));
        }
    }

    #[test]
    fn what_is_not_near_is_not_offered_and_what_there_is_is_listed() {
        for line in ["start", "frobnicate", "post"] {
            let told = told(line);
            assert!(!told.contains("did you mean") && !told.contains("similar"), "{told}");
            assert!(told.contains("chronos knows demo, backup, cluster,"), "{told}");
        }
        let told_of_timer = told("timer frobnicate");
        assert!(told_of_timer.contains("chronos timer knows create, get, list"), "{told_of_timer}");
        let told_of_flag = told("--frobnicate");
        assert!(!told_of_flag.contains("similar"), "{told_of_flag}");
    }

    #[test]
    fn a_word_of_other_commands_names_them() {
        let told = told("list");
        for there in ["'chronos timer list'", "'chronos jobs list'", "'chronos dead-letters list'"]
        {
            assert!(told.contains(there), "{told}");
        }
        assert!(!told.contains("did you mean"), "{told}");
    }
}
