//! `chronos top`: what a node does, once or live.

mod sample;
mod screen;
mod terminal;
mod view;

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;

use self::sample::{Between, Sample};
use self::screen::screen;
use self::terminal::{Screen, Wish, tell_wishes};
use self::view::Shown;
use super::admin_client::AdminClient;
use super::ending::{Ending, NotDone, end};
use super::exit::{EXIT_FAILURE, EXIT_OK, EXIT_USAGE};
use super::lasting::seconds_in;
use super::service::{Failure, OperatorFlags, Service};
use super::terminal::{failed, is_coloured};

const EXAMPLES: &str = "\
Examples:
  chronos top                                            q ends it
  chronos top --admin https://10.0.0.1:7255 --ca ca.pem  a node elsewhere
  chronos top --once                                     one screen, for scripts
  chronos top --json | jq .hosts

Rates and lateness are those of the last --every seconds. Lateness is told by the bounds of the
node's histogram. A node that does not answer for 3 s is told of, and what is shown is dimmed: it
is old. A host is in trouble if callbacks fail there or its rule pauses it; chronos
destinations list has all hosts. q, Esc and Ctrl-C end it. Without a terminal, and on
one that only writes lines (TERM=dumb) or has no size, one screen is printed, as with --once.
CHRONOS_TOKEN has the token where one is needed; it goes over TLS or to this machine only.

Exit codes:
    0  shown, or ended by a key
    1  the node does not answer
    2  wrong command line";

/// How often the screen is drawn where there is no news: a node that is silent gets older.
const REDRAW_EVERY: Duration = Duration::from_millis(500);

/// Show what a node does, live: cores, rates, lateness, hosts in trouble, peers
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TopFlags {
    #[command(flatten)]
    operator: OperatorFlags,

    /// Print one screen and end
    #[arg(long)]
    once: bool,

    /// Time between two looks
    #[arg(long, value_name = "DURATION", default_value_t = 1.0, value_parser = seconds)]
    every: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    seconds_in(text, &(0.1..=3_600.0))
}

/// Runs the command; returns the exit code.
pub(super) fn run(flags: &TopFlags) -> u8 {
    let OperatorFlags { admin, tls, json } = &flags.operator;
    let client = match AdminClient::new(tls) {
        Ok(client) => client,
        Err(reason) => return failed(*json, &reason, EXIT_USAGE),
    };
    let service = Service::of_operators(&client, admin);
    let every = Duration::from_secs_f64(flags.every);
    let is_live = !flags.once && !json && std::io::stdout().is_terminal();
    // Without keys nothing would end it but a signal.
    match is_live.then(Screen::take) {
        Some(Ok(mut screen)) => live(service, &mut screen, every),
        _ => end(*json, once(&service, every)),
    }
}

fn once(service: &Service, every: Duration) -> Result<Ending, NotDone> {
    let before = Sample::take(service)?;
    std::thread::sleep(every);
    let after = Sample::take(service)?;
    let between = Between::new(&before, &after);
    Ok(Ending::done(screen(&between), between.document()))
}

/// What the screen waits for.
enum News {
    Wish(Wish),
    /// The node is asked from now on.
    Asked,
    Sample(Box<Result<Sample, Failure>>),
}

/// Draws until a key ends it. A node that does not answer is told of, and asked again. Keys and the
/// node are waited for by threads of their own: a node that is slow holds up no key.
fn live(service: Service, screen: &mut Screen, every: Duration) -> u8 {
    let (sender, news) = channel();
    let wisher = sender.clone();
    std::thread::spawn(move || tell_wishes(|wish| wisher.send(News::Wish(wish)).is_ok()));
    std::thread::spawn(move || {
        let ask = || {
            sender.send(News::Asked)?;
            sender.send(News::Sample(Box::new(Sample::take(&service))))
        };
        while ask().is_ok() {
            std::thread::sleep(every);
        }
    });
    let is_coloured = is_coloured();
    let mut shown = Shown::default();
    loop {
        if screen.draw(|frame| shown.draw(frame, is_coloured, Instant::now())).is_err() {
            return EXIT_FAILURE;
        }
        match news.recv_timeout(REDRAW_EVERY) {
            Ok(News::Sample(taken)) => shown.take(*taken),
            Ok(News::Asked) => shown.ask(Instant::now()),
            Ok(News::Wish(Wish::Redraw)) | Err(RecvTimeoutError::Timeout) => {}
            Ok(News::Wish(Wish::End)) | Err(RecvTimeoutError::Disconnected) => return EXIT_OK,
        }
    }
}
