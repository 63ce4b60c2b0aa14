//! `completions` and `man`: what a shell completes and what `man` shows, made from the definition
//! of the command line itself. The load generator has the same two commands.

use std::io::Result;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use super::exit::{EXIT_FAILURE, EXIT_OK};
use super::terminal::{fail, print};

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  chronos completions bash > /usr/share/bash-completion/completions/chronos
  chronos completions zsh  > /usr/share/zsh/vendor-completions/_chronos
  chronos completions fish > /usr/share/fish/vendor_completions.d/chronos.fish
  source <(chronos completions bash)         for this shell alone

Packages have these files.";

/// Print what makes a shell complete commands and flags
#[derive(Args, Clone, Debug)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsFlags {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write the manual pages
#[derive(Args, Clone, Debug)]
pub struct ManFlags {
    /// Folder for a page of each command [default: print the page of the program]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl CompletionsFlags {
    /// Prints the completions of a command line. Returns the exit code.
    pub fn run(&self, mut command: Command) -> u8 {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        print(&String::from_utf8_lossy(&script))
    }
}

impl ManFlags {
    /// Prints or writes the pages of a command line. Returns the exit code.
    pub fn run(&self, command: Command) -> u8 {
        let Some(folder) = &self.out else {
            return match render(&command) {
                Ok(page) => print(&page),
                Err(error) => fail(&error, EXIT_FAILURE),
            };
        };
        match write_pages(command, folder) {
            Ok(()) => EXIT_OK,
            Err(error) => fail(&format!("{}: {error}", folder.display()), EXIT_FAILURE),
        }
    }
}

/// Writes a page of each command that help shows: `chronos.1`, `chronos-cluster.1`,
/// `chronos-cluster-join.1`.
fn write_pages(command: Command, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut command = command.disable_help_subcommand(true);
    // Gives each command its whole name.
    command.build();
    write_page(&command, folder)
}

fn write_page(command: &Command, folder: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_page(below, folder)?;
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    std::fs::write(folder.join(format!("{name}.1")), render(command)?)
}

fn render(command: &Command) -> Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(with_examples(&String::from_utf8_lossy(&page)))
}

/// Examples and exit codes are lines as they are, and no paragraphs to be filled.
fn with_examples(page: &str) -> String {
    let Some((before, rest)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let end = rest.find("\n.SH ").map_or(rest.len(), |at| at + 1);
    let (examples, behind) = rest.split_at(end);
    format!("{before}.SH EXAMPLES\n.nf\n{}\n.fi\n{behind}", examples.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Command {
        let hidden = Command::new("hidden").hide(true);
        let join = Command::new("join").about("Add nodes");
        let cluster = Command::new("cluster").about("Members").subcommand(join);
        let command = Command::new("example").about("An example").after_help("  a\n  b");
        command.version("1").subcommand(cluster).subcommand(hidden)
    }

    #[test]
    fn each_command_that_help_shows_has_a_page_under_its_whole_name() {
        let folder = tempfile::tempdir().expect("a folder");
        write_pages(example(), folder.path()).expect("written");
        let entries = std::fs::read_dir(folder.path()).expect("readable");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
        names.sort();
        assert_eq!(names, ["example-cluster-join.1", "example-cluster.1", "example.1"]);
        let page = std::fs::read_to_string(folder.path().join("example-cluster-join.1"));
        assert!(page.expect("readable").contains("Add nodes"));
        let page = render(&example()).expect("memory");
        let (_, examples) = page.split_once(".SH EXAMPLES\n.nf\n").expect("the section");
        let (examples, behind) = examples.split_once(".fi\n").expect("its end");
        assert!(examples.contains("a\n  b\n") && behind.starts_with(".SH VERSION"), "{page}");
    }
}
