//! Runs stories side by side and prints the results in the words of the standard test runner.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};
use std::thread;
use std::time::Instant;

/// Most stories that run at one time. Each is a handful of processes that wait most of the time, so
/// two cores bear a dozen of them.
const AT_ONE_TIME: usize = 12;

/// One story: its name, and the function that tells it.
pub type Story = (&'static str, fn());

/// The payload of the panic of a story that cannot run here.
struct CannotRun(String);

/// The payload of the unwinding of a story whose conditions this machine has spoilt.
struct Disturbed(String);

/// How often a story is told at most while the machine disturbs it.
const TELLINGS_MAX: usize = 5;
/// So many tellings run beside other stories. The further ones run alone, so that the suite itself
/// is not what disturbs them.
const TELLINGS_BESIDE_OTHERS: usize = 2;

/// Held for reading by stories that run beside others, for writing by a story that runs alone.
static STAGE: RwLock<()> = RwLock::new(());

/// Ends the story, because this machine lacks something. The reason is printed, and the story
/// counts as ignored.
pub fn cannot_run(reason: impl Into<String>) -> ! {
    // This is no panic: nothing is wrong, and no text of a panic is printed.
    resume_unwind(Box::new(CannotRun(reason.into())))
}

/// Ends this telling of the story, because the machine was away for so long that a condition of the
/// story did not hold (no node was silent for a second; a request came before a pop was due). The
/// story is told again. A story that is disturbed every time fails, because a slow program disturbs
/// its story as a slow machine does.
///
/// Call this only for what the clock of the suite has shown, never for what the program did.
pub fn disturbed(reason: impl Into<String>) -> ! {
    resume_unwind(Box::new(Disturbed(reason.into())))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Ignored,
}

/// Runs the stories that the command line names, or all stories if it names none.
pub fn run(stories: &[Story]) -> ExitCode {
    let asked = Asked::from_arguments();
    let wanted: Vec<Story> = stories.iter().copied().filter(|one| asked.wants(one.0)).collect();
    if asked.list {
        wanted.iter().for_each(|story| println!("{}: test", story.0));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", wanted.len());
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let told = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..asked.threads.min(wanted.len()) {
            scope.spawn(|| {
                while let Some(story) = wanted.get(next.fetch_add(1, SeqCst)) {
                    let verdict = tell(*story);
                    told.lock().expect("nobody panics with it").push((story.0, verdict));
                }
            });
        }
    });
    let told = told.into_inner().expect("nobody panics with it");
    let count = |verdict| told.iter().filter(|one| one.1 == verdict).count();
    let (passed, failed) = (count(Verdict::Passed), count(Verdict::Failed));
    if failed > 0 {
        println!("\nfailures:");
        let names = told.iter().filter(|one| one.1 == Verdict::Failed);
        names.for_each(|one| println!("    {}", one.0));
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed; {} ignored; 0 measured; {} filtered \
         out; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        count(Verdict::Ignored),
        stories.len() - wanted.len(),
        began.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// Tells a story until the machine does not disturb it, at most [`TELLINGS_MAX`] times. Prints and
/// returns the verdict.
fn tell(story: Story) -> Verdict {
    let began = Instant::now();
    let (mut verdict, mut word) = tell_beside_others(story);
    for telling in 2..=TELLINGS_MAX {
        if verdict.is_some() {
            break;
        }
        say(format!("{} is told again ({telling} of {TELLINGS_MAX}): {word}\n", story.0));
        (verdict, word) = match telling {
            ..=TELLINGS_BESIDE_OTHERS => tell_beside_others(story),
            _ => tell_alone(story),
        };
    }
    let verdict = verdict.unwrap_or_else(|| {
        word = format!("FAILED, disturbed {TELLINGS_MAX} times: {word}");
        Verdict::Failed
    });
    say(format!("test {} ... {word} ({:.1} s)\n", story.0, began.elapsed().as_secs_f64()));
    verdict
}

fn tell_beside_others(story: Story) -> (Option<Verdict>, String) {
    let _stage = STAGE.read().expect("nobody panics on the stage");
    tell_once(story)
}

/// Waits until no story runs, and tells this one while no other begins.
fn tell_alone(story: Story) -> (Option<Verdict>, String) {
    let _stage = STAGE.write().expect("nobody panics on the stage");
    tell_once(story)
}

/// Tells a story once, on a thread with the story's name, so that the text of a panic names the
/// story. Returns the verdict and its text. `None`: the machine has disturbed the story.
fn tell_once(story: Story) -> (Option<Verdict>, String) {
    let thread = thread::Builder::new().name(story.0.to_owned());
    let guarded = move || catch_unwind(AssertUnwindSafe(story.1));
    let ended = thread.spawn(guarded).expect("a thread").join().expect("panics are caught");
    let Err(payload) = ended else { return (Some(Verdict::Passed), "ok".to_owned()) };
    if let Some(Disturbed(reason)) = payload.downcast_ref() {
        return (None, reason.clone());
    }
    match payload.downcast_ref() {
        Some(CannotRun(reason)) => {
            (Some(Verdict::Ignored), format!("ignored, CANNOT RUN HERE: {reason}"))
        }
        None => (Some(Verdict::Failed), "FAILED".to_owned()),
    }
}

/// Prints a line in one write, so that lines of stories do not mix.
fn say(line: String) {
    std::io::stdout().write_all(line.as_bytes()).expect("standard output takes a line");
}

/// The command line, as far as the standard runner takes the same.
struct Asked {
    filters: Vec<String>,
    is_exact: bool,
    list: bool,
    threads: usize,
}

impl Asked {
    fn from_arguments() -> Asked {
        let mut asked =
            Asked { filters: Vec::new(), is_exact: false, list: false, threads: AT_ONE_TIME };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--exact" => asked.is_exact = true,
                "--list" => asked.list = true,
                "--test-threads" => {
                    let number = arguments.next().and_then(|text| text.parse().ok());
                    asked.threads = number.expect("--test-threads takes a number");
                }
                flag if flag.starts_with("--test-threads=") => {
                    let number = flag["--test-threads=".len()..].parse();
                    asked.threads = number.expect("--test-threads takes a number");
                }
                // The suite reads this option by itself.
                "--turns" => drop(arguments.next()),
                // The other flags of the standard runner change how it prints.
                flag if flag.starts_with('-') => {}
                filter => asked.filters.push(filter.to_owned()),
            }
        }
        asked.threads = asked.threads.max(1);
        asked
    }

    fn wants(&self, name: &str) -> bool {
        let fits = |filter: &String| {
            if self.is_exact { name == filter } else { name.contains(filter.as_str()) }
        };
        self.filters.is_empty() || self.filters.iter().any(fits)
    }
}
