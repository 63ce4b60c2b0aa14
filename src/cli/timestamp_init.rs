//! `chronos timestamp init`: makes the file that keeps the bound of a standalone server.

use std::path::PathBuf;

use clap::Args;

use super::{EXIT_FAILURE, EXIT_USAGE, environment, fail, print};
use crate::base::time::WallMs;
use crate::control::config_files::ConfigFiles;
use crate::control::timestamp_file::TimestampFile;
use crate::ring::now;
use crate::timestamp::Timestamp;

/// Make the file that keeps the bound above all timestamps handed out
///
/// A server never makes it by itself: a file that was lost, replaced by a new one, could repeat
/// timestamps. Nothing at or below the wall clock of now is handed out from the new file; if
/// timestamps may have been handed out above that, say above which with --above.
#[derive(Debug, Args)]
pub struct InitFlags {
    /// The file [default: [timestamp] file of the configuration]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// A timestamp that is above all that were handed out
    #[arg(long, value_name = "TS")]
    above: Option<u64>,

    /// Configuration file (TOML) that names the file
    #[arg(long, value_name = "FILE", env = "CHRONOS_CONFIG")]
    config: Option<PathBuf>,
}

/// Makes the file; returns the exit code.
pub fn run(flags: &InitFlags) -> u8 {
    let path = match &flags.file {
        Some(file) => file.clone(),
        None => match configured(flags) {
            Ok(path) => path,
            Err(code) => return code,
        },
    };
    if flags.above.is_some_and(|above| i64::try_from(above).is_err()) {
        let problem = std::io::Error::other("--above: a timestamp has at most 63 bits");
        return fail(&problem, EXIT_USAGE);
    }
    let bound = bound_above(now().wall, flags.above);
    match TimestampFile::create(&path, bound) {
        Ok(()) => {
            let ahead_ms = bound.unix_ms().saturating_sub(now().wall.0);
            let slow = match ahead_ms {
                0 => String::new(),
                _ => format!(
                    "That is {ahead_ms} ms ahead of the clock: timestamps go at half speed until \
                     it has caught up.\n"
                ),
            };
            let file = path.display();
            print(&format!(
                "{file} is made; the first timestamp will be above {}.\n{slow}Serve with: chronos \
                 timestamp serve --file {file}\n",
                bound.0
            ))
        }
        Err(error) => fail(&error, EXIT_FAILURE),
    }
}

/// Above what was handed out, and above what the clock may have told so far.
fn bound_above(wall: WallMs, above: Option<u64>) -> Timestamp {
    Timestamp::of_unix_ms(wall.0).max(Timestamp(above.unwrap_or(0)))
}

fn configured(flags: &InitFlags) -> Result<PathBuf, u8> {
    let environment = environment().map_err(|problem| fail(&problem, EXIT_USAGE))?;
    let mut files = ConfigFiles::new(flags.config.as_deref(), None, environment, Vec::new());
    let loaded = files.load().map_err(|error| fail(&error, EXIT_USAGE))?;
    Ok(loaded.config.timestamp.file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_above_the_clock_and_above_what_is_said() {
        let wall = WallMs(1_000);
        assert_eq!(bound_above(wall, None), Timestamp::of_unix_ms(1_000));
        assert_eq!(bound_above(wall, Some(5)), Timestamp::of_unix_ms(1_000));
        let later = Timestamp::of_unix_ms(2_000).0 + 5;
        assert_eq!(bound_above(wall, Some(later)), Timestamp(later));
    }
}
