//! The options of a run, from the command line.

use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

use super::faults::read_kind;
use super::history::Kind;
use super::network::Layout;
use super::worlds::{World, Worlds};

const HELP: &str = "\
A black-box checker: starts real nodes, writes timers through random ones, kills, freezes, stops,
removes and adds nodes, and holds every answer, every pop and every GET against docs/guarantees.md.

  cargo test --test blackbox -- [OPTIONS]

  --seconds N    how long writes and faults go on (default 20; the end takes some 25 s more)
  --seed N       what is drawn: timers, writes, faults (default 1)
  --seeds N      so many runs, one after the other, from --seed on (default 1)
  --sites NxM    N sites of M nodes each, such as 2x2 or 3x1, each on a network of its own (as root):
                 whole sites are killed, frozen and cut off as well. Not with disk or clocks: the
                 clock of a site orders its writes
  --factor N     replication factor of all timers, 1 to 3 (default: 2 or 3, drawn for each timer)
  --binary PATH  the binary to check (default: the one that cargo built)
  --lateness     also fail where a pop without a fault near it comes more than 100 ms late
  --calm         no faults
  --faults LIST  only these: kill, freeze, stop, resync, members, kill-all, disk, clock, kill-site,
                 empty-site (it comes back without its disks), freeze-site, cut
                 (default: all that the machine and --with allow)
  --with LIST    what there is besides plain timers, with commas between: all, none, or some of
                 journal  nodes keep timers on disk; all nodes are killed at one moment
                 tls      nodes speak TLS with each other
                 names    timers by names
                 cron     timers that follow the calendar
                 actions  timers are paused, resumed and run
                 letters  pops that nobody takes; dead letters are read, deleted, replayed
                 rules    a callback server is paused by operators, at one site or at all
                 jobs     timers are deleted by their tag
                 disk     the disk of a node fills up (with journal; as root)
                 clocks   the wall clock of a node is wrong for a time (Debian's faketime)
                 (default: all but disk)

CHRONOS_BLACKBOX_SECONDS does the same as --seconds. Exit code 0: no violation; 1: a violation,
with the history of the timer.";

/// The options that were given.
pub struct Options {
    pub seconds: u64,
    pub seed: u64,
    pub seeds: u64,
    pub factor: Option<u8>,
    pub layout: Layout,
    pub binary: PathBuf,
    pub judges_lateness: bool,
    pub is_calm: bool,
    pub worlds: Worlds,
    /// The faults that are drawn. Empty: all.
    pub faults: Vec<Kind>,
    /// Whether only the names of the tests are printed.
    pub list: bool,
    /// Names of the tests to run. Empty: all tests.
    pub filters: Vec<String>,
}

impl Options {
    /// Reads the command line. Ends the process if it makes no sense.
    pub fn from_arguments() -> Options {
        let seconds = std::env::var("CHRONOS_BLACKBOX_SECONDS").ok();
        let mut options = Options {
            seconds: seconds.map_or(20, |text| whole("CHRONOS_BLACKBOX_SECONDS", Some(text))),
            seed: 1,
            seeds: 1,
            factor: None,
            layout: Layout::default(),
            binary: PathBuf::from(env!("CARGO_BIN_EXE_chronos")),
            judges_lateness: false,
            is_calm: false,
            worlds: Worlds::default(),
            faults: Vec::new(),
            list: false,
            filters: Vec::new(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--seconds" => options.seconds = whole(&word, words.next()),
                "--seed" => options.seed = whole(&word, words.next()),
                "--seeds" => options.seeds = whole(&word, words.next()).max(1),
                "--factor" => options.factor = Some(whole(&word, words.next()).clamp(1, 3) as u8),
                "--sites" => {
                    let text = words.next().unwrap_or_default();
                    options.layout = text.parse().unwrap_or_else(|error: String| end(&error));
                }
                "--binary" => match words.next() {
                    Some(path) => options.binary = PathBuf::from(path),
                    None => end(&format!("{word} takes a path")),
                },
                "--lateness" => options.judges_lateness = true,
                "--calm" => options.is_calm = true,
                "--faults" => {
                    let list = words.next().unwrap_or_default();
                    let kinds: Result<Vec<_>, _> = list.split(',').map(read_kind).collect();
                    options.faults = kinds.unwrap_or_else(|error| end(&error));
                }
                "--with" => {
                    let list = words.next().unwrap_or_default();
                    options.worlds = Worlds::read(&list).unwrap_or_else(|error| end(&error));
                }
                "--list" => options.list = true,
                "--help" | "-h" => {
                    println!("{HELP}");
                    exit(0);
                }
                // These flags of the standard runner change how it prints.
                "--nocapture" | "--exact" | "--quiet" | "-q" | "--show-output" => {}
                "--test-threads" => drop(words.next()),
                flag if flag.starts_with("--test-threads=") => {}
                flag if flag.starts_with('-') => end(&format!("{flag}: no such option")),
                filter => options.filters.push(filter.to_owned()),
            }
        }
        if options.layout.has_sites() {
            let apart = [World::Disk, World::Clocks];
            options.worlds = apart.into_iter().fold(options.worlds, Worlds::without);
        }
        options
    }

    /// Reports whether a test of this name should run.
    pub fn wants(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter))
    }

    /// Returns how long writes and faults go on.
    pub fn load(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

fn whole(flag: &str, text: Option<String>) -> u64 {
    let number = text.as_deref().and_then(|text| text.parse().ok());
    number.unwrap_or_else(|| end(&format!("{flag} takes a whole number, got {text:?}")))
}

fn end(what: &str) -> ! {
    eprintln!("{what}\n\n{HELP}");
    exit(2);
}
