//! The command line: a subcommand for each scenario, with defaults that fit the scenario, and a
//! subcommand for each other job.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::flags::{
    AgainstFlags, BulkFlags, ClusterFlags, HandshakeFlags, JournalFlags, ListFlags, RatioFlags,
    ReferenceFlags, ScenarioFlags, SinkFlags, TimestampFlags,
};
use crate::scenario::kind::Scenario;
use chronos::cli::manual::{CompletionsFlags, ManFlags};

const ABOUT: &str = "Puts load on a timer service and tells how it bears it: requests per second, \
latency, lateness of every pop, what was early, lost or doubled, and what it cost the server.";

const EXAMPLES: &str = "\
Examples (start a node first: `chronos`):
  How many timers can it create? One thread, 64 connections, as fast as it answers:
      chronos-loadgen post --server-pid $(pidof chronos)
  Is it on time? 20 000 pops a second for a minute, and a page with the histograms:
      chronos-loadgen accuracy --rate 20k --duration-s 60 --html accuracy.html
  A million timers due at once, while requests go on:
      chronos-loadgen herd --timers 1000000
  What does it cost beside the bare ring? Runs both by itself, nothing to start:
      chronos-loadgen ratio --pipeline 1,16
  How does it stand beside what one would use instead? Those that are installed, in turn:
      chronos-loadgen against beanstalkd,redis,nginx
  What does it cost that timers survive a restart, and how long does the restart take?
      chronos-loadgen journal --against beanstalkd,redis
      chronos-loadgen journal --restart --timers 10000000
  What do replication, a dead node and a new one cost? Starts clusters by itself:
      chronos-loadgen cluster --measure post,kill
  What does a site lose or repeat that is killed and comes back? Starts two sites by itself:
      chronos-loadgen cluster --measure site-back --site-away-s 5,60
  What does TLS cost, and what do 10 000 handshakes at once (CA: the node's authority)?
      chronos-loadgen against nginx --connections 64 --tls
      chronos-loadgen handshakes --ca CA
  What do lists of a million timers cost, and what do they do to pops? Starts a node by itself:
      chronos-loadgen list
  How fast are timestamps, beside the bare ring? Runs both by itself:
      chronos-loadgen timestamps --connections 64 --pipeline 16

On two or more cores give the load its own: --core 1 --sink-core 1, the node on core 0.
Exit status: 0 all well, 1 the run failed or pops were early, lost or doubled, 2 wrong usage.";

/// The job that a command line asks for.
#[derive(Clone, Debug)]
pub enum Job {
    /// Run a scenario against a running node.
    Scenario(Scenario, ScenarioFlags),
    /// Run only the callback sink.
    Sink(SinkFlags),
    /// Run only the reference.
    Reference(ReferenceFlags),
    /// Measure the node and the reference in turn.
    Ratio(RatioFlags),
    /// Measure the figures of a cluster.
    Cluster(ClusterFlags),
    /// Ask for timestamps over Thrift.
    Timestamps(TimestampFlags),
    /// Compare servers under one ordinary client.
    Against(AgainstFlags),
    /// Measure what a journal costs.
    Journal(JournalFlags),
    /// Compare creates of a line each with creates of a request each.
    Bulk(BulkFlags),
    /// List all timers beside pops.
    List(ListFlags),
    /// Begin many handshakes of TLS at once.
    Handshakes(HandshakeFlags),
    /// Print what a shell completes.
    Completions(CompletionsFlags),
    /// Write the manual pages.
    Man(ManFlags),
}

impl Job {
    /// Whether it prints JSON. Then it shows no progress.
    pub fn is_json(&self) -> bool {
        match self {
            Job::Scenario(_, flags) => flags.json,
            Job::Ratio(flags) => flags.json,
            Job::Cluster(flags) => flags.json,
            Job::Timestamps(flags) => flags.json,
            Job::Against(flags) => flags.json,
            Job::Journal(flags) => flags.json,
            Job::Bulk(flags) => flags.json,
            Job::List(flags) => flags.json,
            Job::Handshakes(flags) => flags.json,
            Job::Sink(_) | Job::Reference(_) | Job::Completions(_) | Job::Man(_) => false,
        }
    }
}

/// The whole command line, with the defaults of every scenario.
pub fn command() -> Command {
    let mut root = Command::new("chronos-loadgen")
        .version(chronos::base::version::VERSION)
        .about(ABOUT)
        .after_help(EXAMPLES)
        .subcommand_required(true)
        .arg_required_else_help(true);
    for scenario in Scenario::ALL {
        root = root.subcommand(scenario_command(scenario));
    }
    // `augment_args` sets the doc comment of the flags as the command's text, so `about` comes
    // after it.
    let sink = SinkFlags::augment_args(Command::new("sink"))
        .about("Only the callback sink: counts callbacks until stopped");
    let reference = ReferenceFlags::augment_args(Command::new("reference"))
        .about("Only the reference: what the ring costs without a timer service on it");
    let ratio = RatioFlags::augment_args(Command::new("ratio")).about(
        "Runs the node and the reference in turn under the same load; prints CPU per request of \
         each and their ratio, the figure that noise does not spoil",
    );
    let cluster = ClusterFlags::augment_args(Command::new("cluster")).about(
        "Starts clusters of nodes on 127.0.0.11 to 127.0.0.15 and measures what replication, the \
         death of a node and its joining cost, and what sites keep that go and come",
    );
    let timestamps = TimestampFlags::augment_args(Command::new("timestamps")).about(
        "Asks for timestamps over Thrift, in a closed loop, and checks their order; against a \
         server that runs, or against the node and the bare ring in turn",
    );
    let against = AgainstFlags::augment_args(Command::new("against")).about(
        "Runs this service, the bare ring and other servers in turn under the same closed loop of \
         one ordinary client (epoll); prints CPU, rate, latency and memory of each",
    );
    let journal = JournalFlags::augment_args(Command::new("journal")).about(
        "Runs the node without a journal and with one in turn under the same closed loop of one \
         ordinary client; or fills a journal, kills the node and measures the start",
    );
    let bulk = BulkFlags::augment_args(Command::new("bulk")).about(
        "Measures a node that gets timers a line each (POST /timers/bulk) and a request each, in \
         turn, with the same short document",
    );
    let list = ListFlags::augment_args(Command::new("list")).about(
        "Fills a node and lists all timers by pages again and again while others pop; tells how \
         long a list takes, what it costs, and the lateness of pops without and with it",
    );
    let handshakes = HandshakeFlags::augment_args(Command::new("handshakes")).about(
        "Connections that stand all begin TLS at once; tells how long the handshakes take. Run \
         `accuracy` at the same time to see what that does to pops",
    );
    let completions = CompletionsFlags::augment_args(Command::new("completions"))
        .about("Prints what makes a shell complete commands and flags")
        .after_help("Example:\n  source <(chronos-loadgen completions bash)");
    let man = ManFlags::augment_args(Command::new("man")).about("Writes the manual pages");
    root.subcommand(completions)
        .subcommand(man)
        .subcommand(sink)
        .subcommand(bulk)
        .subcommand(list)
        .subcommand(handshakes)
        .subcommand(journal)
        .subcommand(against)
        .subcommand(reference)
        .subcommand(ratio)
        .subcommand(cluster)
        .subcommand(timestamps)
}

fn scenario_command(scenario: Scenario) -> Command {
    let mut command = ScenarioFlags::augment_args(Command::new(scenario.name()))
        .about(scenario.about())
        .after_help(format!("Example:\n  chronos-loadgen {}", scenario.example()));
    for (flag, value) in scenario.defaults() {
        command = command.mut_arg(flag, |arg: Arg| arg.required(false).default_value(value));
    }
    for flag in scenario.unused() {
        command = command.mut_arg(flag, |arg: Arg| arg.hide(true));
    }
    command
}

/// The job that these matches ask for. Error: a flag has a wrong value.
pub fn job(matches: &ArgMatches) -> Result<Job, clap::Error> {
    let (name, matches) = matches.subcommand().expect("a subcommand is required");
    match name {
        "sink" => SinkFlags::from_arg_matches(matches).map(Job::Sink),
        "reference" => ReferenceFlags::from_arg_matches(matches).map(Job::Reference),
        "ratio" => RatioFlags::from_arg_matches(matches).map(Job::Ratio),
        "cluster" => ClusterFlags::from_arg_matches(matches).map(Job::Cluster),
        "against" => AgainstFlags::from_arg_matches(matches).map(Job::Against),
        "bulk" => BulkFlags::from_arg_matches(matches).map(Job::Bulk),
        "list" => ListFlags::from_arg_matches(matches).map(Job::List),
        "handshakes" => HandshakeFlags::from_arg_matches(matches).map(Job::Handshakes),
        "journal" => JournalFlags::from_arg_matches(matches).map(Job::Journal),
        "completions" => CompletionsFlags::from_arg_matches(matches).map(Job::Completions),
        "man" => ManFlags::from_arg_matches(matches).map(Job::Man),
        "timestamps" => TimestampFlags::from_arg_matches(matches).map(Job::Timestamps),
        _ => {
            let scenario = Scenario::ALL.into_iter().find(|each| each.name() == name);
            let scenario = scenario.expect("every other subcommand is made from a scenario");
            ScenarioFlags::from_arg_matches(matches).map(|flags| Job::Scenario(scenario, flags))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::arrival::Rate;

    fn parse(line: &str) -> Result<Job, clap::Error> {
        job(&command().try_get_matches_from(line.split_whitespace())?)
    }

    #[test]
    fn the_command_line_is_sound_and_every_example_parses() {
        command().debug_assert();
        for scenario in Scenario::ALL {
            let line = format!("chronos-loadgen {}", scenario.example());
            assert!(matches!(parse(&line), Ok(Job::Scenario(found, _)) if found == scenario));
        }
        let examples = EXAMPLES.lines().filter(|line| line.trim().starts_with("chronos-loadgen"));
        for line in examples {
            let line = line.replace("$(pidof chronos)", "1");
            assert!(parse(&line).is_ok(), "{line}");
        }
    }

    #[test]
    fn help_says_what_each_command_does() {
        let root = command().render_long_help().to_string();
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for scenario in Scenario::ALL {
            assert!(squeezed(&root).contains(&squeezed(scenario.about())), "{scenario:?}\n{root}");
        }
        assert!(!root.contains("Flags of"), "{root}");
    }

    #[test]
    fn defaults_differ_by_scenario_and_flags_override_them() {
        let Ok(Job::Scenario(_, flags)) = parse("x accuracy --duration-s 2.5") else { panic!() };
        assert_eq!(flags.rate, Rate::PerSecond(2000.0));
        assert_eq!(flags.duration_s, Duration::from_millis(2500));
        let Ok(Job::Scenario(_, flags)) = parse("x post --rate 5k") else { panic!() };
        assert_eq!((flags.rate, flags.connections), (Rate::PerSecond(5000.0), 64));
        let Ok(Job::Cluster(flags)) = parse("x cluster --site-away-s 0.5,60") else { panic!() };
        assert_eq!(flags.site_away_s, [500, 60_000].map(Duration::from_millis));
        let Ok(Job::Ratio(flags)) = parse("x ratio --pipeline 1,16") else { panic!() };
        assert_eq!((flags.pipeline, flags.rounds), (vec![1, 16], 5));
    }

    #[test]
    fn wrong_usage_exits_with_two() {
        for line in [
            "x",
            "x nothing",
            "x post --rate fast",
            "x post --connections 0",
            "x post --duration-s -1",
            "x reference",
            "x sink --sink-mode loud",
            "x ratio --scenario ralf",
            "x against postgres",
            "x handshakes",
            "x cluster --site-away-s soon",
            "x cluster --site-journal fast",
            "x timestamps --range 0",
            "x timestamps --serve node",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
