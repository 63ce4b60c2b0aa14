//! What sites keep: a site that dies and comes back with its journals, one that is added beside
//! many timers, and one that is taken out and added again without its data.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::figures::{add_pops, scenario_flags};
use super::nodes::Nodes;
use super::rebalance::{LOOK, Load, PATIENCE, fill, held, look};
use super::round::Round;
use crate::client::{Outcome, Plan};
use crate::clock::clock_ns;
use crate::creator::{Creator, Due};
use crate::flags::ClusterFlags;
use crate::frames::Head;
use crate::ledger::Ledger;
use crate::recorder::Operation;
use crate::report::Percentiles;
use crate::request::{Template, TimerShape, append_delete};
use crate::scenario::setup::{fill_plan, run_client};
use crate::server::ServerThread;
use crate::sessions::Location;
use crate::sink::{Sink, SinkMode};
use crate::workload::{Next, Workload};

/// The places of the sites.
const SITES: [&[usize]; 3] = [&[0, 1], &[2, 3], &[4]];
/// Replicas of each timer at each site.
const FACTOR: u8 = 2;
/// How long a site waits for each site ahead of it.
const TURN: Duration = Duration::from_secs(2 * FACTOR as u64);
/// How long timers come due after a site is back.
const AFTER: Duration = Duration::from_secs(12);
/// How long a site is away that is taken out and added again.
const OUT: Duration = Duration::from_secs(20);
/// Time to start and to tell all sites of timers, and how much longer it takes with each timer.
const LEAD: Duration = Duration::from_secs(12);
const LEAD_EACH_NS: u64 = 200_000;
/// Timers are changed so long before they are due, or not at all.
const MARGIN_NS: u64 = 1_000_000_000;

/// The nodes of all sites.
struct Sites<'a> {
    nodes: Nodes,
    journal: &'a str,
}

impl Sites<'_> {
    fn new(flags: &ClusterFlags) -> Result<Sites<'_>> {
        Ok(Sites { nodes: Nodes::new(flags, false)?, journal: &flags.site_journal })
    }

    /// Starts these sites, which name each other, and waits until they have met.
    fn start(&mut self, sites: &[usize]) -> Result<()> {
        for &site in sites {
            self.write(site, sites)?;
            self.nodes.start_with_toml(SITES[site])?;
        }
        self.await_all(sites, 0)
    }

    /// Writes the files of a site's nodes, which name these sites.
    fn write(&self, site: usize, sites: &[usize]) -> Result<()> {
        let name = |place: &usize| self.nodes.name(*place);
        let members: Vec<_> = SITES[site].iter().map(|at| format!("\"{}\"", name(at))).collect();
        let others = sites.iter().filter(|other| **other != site);
        let remote = others.flat_map(|other| SITES[*other].iter().map(move |at| (other, at)));
        let remote: Vec<_> =
            remote.map(|(other, at)| format!("\"site{other}={}\"", name(at))).collect();
        for &place in SITES[site] {
            let text = format!(
                "[node]\nlisten = \"{}\"\ninstance_id = {}\n\n[admin]\nlisten = \"{}\"\n\n\
                 [journal]\ndata_dir = \"{}\"\nmode = \"{}\"\n\n[cluster]\nnodes = [{}]\n\n\
                 [sites]\nlocal = \"site{site}\"\nremote = [{}]\nreplicate_across = true\n",
                self.nodes.addresses[place],
                place + 1,
                self.nodes.admins[place],
                self.nodes.file(place, "data").display(),
                self.journal,
                members.join(", "),
                remote.join(", "),
            );
            self.nodes.write(place, "toml", &text)?;
        }
        Ok(())
    }

    /// Changes the sites that a running site names.
    fn rename(&self, site: usize, sites: &[usize]) -> Result<()> {
        self.write(site, sites)?;
        SITES[site].iter().try_for_each(|place| self.nodes.signal(*place, "HUP"))
    }

    /// Waits until each node of these sites holds so many timers, reaches the other sites, and has
    /// nothing left to offer them.
    fn await_all(&self, sites: &[usize], timers: u64) -> Result<()> {
        let began = Instant::now();
        let mut places = sites.iter().flat_map(|site| SITES[*site]);
        while !places.clone().all(|place| self.is_whole(*place, sites.len() - 1, timers)) {
            if began.elapsed() > PATIENCE {
                let told = |place: &usize| {
                    let admin = self.nodes.admins[*place];
                    let sites = look(admin, "/cluster").map(|cluster| cluster["sites"].to_string());
                    format!("{admin}: {:?}, {sites:?}", held(admin))
                };
                let told: Vec<_> = places.by_ref().map(told).collect();
                bail!("sites are not whole within {PATIENCE:?}:\n{}", told.join("\n"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn is_whole(&self, place: usize, others: usize, timers: u64) -> bool {
        let admin = self.nodes.admins[place];
        // A node that starts may not answer yet.
        let (Ok(cluster), Ok(held)) = (look(admin, "/cluster"), held(admin)) else { return false };
        let Some(sites) = cluster["sites"].as_array() else { return false };
        let mut all = sites.iter();
        held >= timers
            && all.len() == others
            && all.all(|site| site["liveness"] == "alive" && site["to_offer"] == 0)
    }

    /// Waits until no node holds more than so many timers, and reports those that do not hold so
    /// many.
    fn check_held(
        &self,
        name: &str,
        sites: &[usize],
        timers: u64,
        round: &mut Round,
    ) -> Result<()> {
        let began = Instant::now();
        let has_more = |place: &usize| held(self.nodes.admins[*place]).is_ok_and(|it| it > timers);
        while sites.iter().flat_map(|site| SITES[*site]).any(has_more) && began.elapsed() < PATIENCE
        {
            std::thread::sleep(LOOK);
        }
        for place in sites.iter().flat_map(|site| SITES[*site]) {
            let held = held(self.nodes.admins[*place])?;
            if held != timers {
                let text = format!("{name}: node {place} holds {held} timers, not {timers}");
                round.problems.push(text);
            }
        }
        Ok(())
    }
}

/// Adds a third site beside two that hold many timers, while others pop.
pub fn added(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let name = "site-added";
    let timers = u64::from(flags.site_held_timers);
    let mut sites = Sites::new(flags)?;
    sites.start(&[0, 1])?;
    fill(flags, sites.nodes.addresses[0], flags.site_held_timers, round)?;
    sites.await_all(&[0, 1], timers)?;
    // It runs, and the others do not know it.
    sites.write(2, &[0, 1, 2])?;
    sites.nodes.start_with_toml(SITES[2])?;
    let load = Load::start(flags, sites.nodes.addresses[SITES[0][1]], flags.pops_per_s)?;
    load.await_split();
    let began = Instant::now();
    sites.rename(0, &[0, 1, 2])?;
    sites.rename(1, &[0, 1, 2])?;
    sites.await_all(&[0, 1, 2], timers)?;
    round.add(format!("{name}: until it holds all"), "s", began.elapsed().as_secs_f64());
    load.finish(name, 2 * TURN + Duration::from_secs(1), round)?;
    sites.check_held(name, &[0, 1, 2], timers, round)
}

/// Kills all nodes of a site, and starts them again with their journals, after each absence.
pub fn back(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    for away in &flags.site_away_s {
        let name = format!("site-back {} s", away.as_secs_f64());
        let mut sites = Sites::new(flags)?;
        sites.start(&[0, 1])?;
        let mut absence = Absence::prepare(flags, &sites, [0, 1], &[0, 1], *away)?;
        sleep_until(absence.leave_ns);
        SITES[0].iter().try_for_each(|place| sites.nodes.kill(*place))?;
        let changing = absence.change(sites.nodes.addresses[SITES[1][0]])?;
        sleep_until(absence.return_ns);
        sites.nodes.start_with_toml(SITES[0])?;
        absence.finish(&name, changing, (&sites, &[0, 1]), round)?;
    }
    Ok(())
}

/// Stops a site and takes it out of the files of the others, and adds it again without its data,
/// while timers pop.
pub fn removed(flags: &ClusterFlags, round: &mut Round) -> Result<()> {
    let name = "site-removed";
    let mut sites = Sites::new(flags)?;
    sites.start(&[0, 1, 2])?;
    let mut absence = Absence::prepare(flags, &sites, [2, 0], &[0, 1, 2], OUT)?;
    let load = Load::start(flags, sites.nodes.addresses[SITES[1][0]], flags.pops_per_s)?;
    sleep_until(absence.leave_ns);
    for place in SITES[2] {
        sites.nodes.stop(*place)?;
    }
    sites.rename(0, &[0, 1])?;
    sites.rename(1, &[0, 1])?;
    let changing = absence.change(sites.nodes.addresses[SITES[0][0]])?;
    sleep_until(absence.return_ns);
    for place in SITES[2] {
        std::fs::remove_dir_all(sites.nodes.file(*place, "data")).context("no data")?;
    }
    sites.nodes.start_with_toml(SITES[2])?;
    let began = Instant::now();
    sites.rename(0, &[0, 1, 2])?;
    sites.rename(1, &[0, 1, 2])?;
    sites.await_all(&[0, 1, 2], 0)?;
    round.add(format!("{name}: until it is back"), "s", began.elapsed().as_secs_f64());
    sleep_until(absence.return_ns + ns(AFTER));
    load.finish(name, 2 * TURN + Duration::from_secs(1), round)?;
    absence.finish(name, changing, (&sites, &[0, 1, 2]), round)
}

/// What becomes of a timer while a site is away. Each kind has a quarter of the timers, half of
/// them taken by the site that goes, half by one that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It comes due.
    Due,
    /// It is deleted.
    Deleted,
    /// It is replaced.
    Replaced,
    /// Nothing: it comes due afterwards.
    Later,
}

const KINDS: [Kind; 4] = [Kind::Due, Kind::Deleted, Kind::Replaced, Kind::Later];

/// One absence of a site.
struct Absence {
    ledger: Arc<Ledger>,
    sink: ServerThread<Sink>,
    leave_ns: u64,
    return_ns: u64,
    /// Timers that were created. The definition that replaces timer k has number `timers` + k.
    timers: u64,
    /// The timers to delete and to replace, by their due times.
    changes: Vec<Change>,
}

impl Absence {
    /// Creates the timers, a half through the site that goes, the other through one that stays, and
    /// waits until all sites hold them.
    fn prepare(
        flags: &ClusterFlags,
        sites: &Sites<'_>,
        [going, staying]: [usize; 2],
        all: &[usize],
        away: Duration,
    ) -> Result<Absence> {
        let each = u64::from(flags.site_timers) / 8;
        let timers = each * 8;
        let ledger = Arc::new(Ledger::new(2 * timers as usize, 1, 1));
        let sink = Sink::new(SinkMode::Ok, Some(Arc::clone(&ledger)));
        let sink = sink.start(SocketAddr::from(([127, 0, 0, 1], 0)), flags.core)?;
        let leave_ns = clock_ns() + ns(LEAD) + timers * LEAD_EACH_NS;
        let return_ns = leave_ns + ns(away);
        ledger.split_at(return_ns);
        let mut it = Absence { ledger, sink, leave_ns, return_ns, timers, changes: Vec::new() };
        let shares = KINDS.into_iter().flat_map(|kind| [(kind, going), (kind, staying)]);
        for (first, (kind, site)) in (0..).step_by(each as usize).zip(shares) {
            it.create(kind, sites.nodes.addresses[SITES[site][0]], first..first + each)?;
        }
        it.changes.sort_by_key(|change| change.due_ns);
        sites.await_all(all, timers)?;
        if clock_ns() + ns(LEAD) / 2 > leave_ns {
            bail!("to create {timers} timers took too long; give --site-timers a smaller number");
        }
        Ok(it)
    }

    /// Creates timers of a kind with these numbers.
    fn create(&mut self, kind: Kind, target: SocketAddr, numbers: Range<u64>) -> Result<()> {
        let away_ns = self.return_ns - self.leave_ns;
        let (at_ns, spread_ns) = match kind {
            // Not at the moment of the kill: what is being called then is called again.
            Kind::Due => (self.leave_ns + MARGIN_NS / 2, away_ns),
            Kind::Later => (self.return_ns, ns(AFTER)),
            Kind::Deleted | Kind::Replaced => {
                (self.leave_ns + away_ns / 2 + 2 * MARGIN_NS, away_ns / 2 + ns(AFTER))
            }
        };
        let count = numbers.end - numbers.start;
        let due = Due::At { at_ns, spread_ns };
        let shape = shape(target, self.sink.address);
        let creator = Creator::new(&shape, due, count, Some(Arc::clone(&self.ledger)))
            .locating(numbers.start);
        let about = Duration::from_nanos(count * LEAD_EACH_NS);
        let (creator, outcome) = run_client("creating timers", client(target)?, about, creator)?;
        if let Some((failure, count)) = outcome.recorder.failures.first_key_value() {
            bail!("{count} timers not created: {}", failure.name());
        }
        if matches!(kind, Kind::Deleted | Kind::Replaced) {
            for (number, location) in numbers.clone().zip(creator.into_locations()) {
                let location = location.context("an answer without a Location that fits")?;
                let share = u128::from(spread_ns) * u128::from(number - numbers.start);
                let due_ns = at_ns + (share / u128::from(count)) as u64;
                self.changes.push(Change { number, due_ns, kind, location, is_certain: false });
            }
        }
        Ok(())
    }

    /// Begins to delete and to replace, by requests to `target`.
    fn change(&mut self, target: SocketAddr) -> Result<Changing> {
        let interval_ns = self.return_ns - self.leave_ns + ns(AFTER) / 2;
        let interval_ms = Some(interval_ns / 1_000_000);
        let changer = Changer {
            target,
            put: Template::put(&TimerShape { interval_ms, ..shape(target, self.sink.address) }),
            interval_ns,
            offset: self.timers,
            changes: std::mem::take(&mut self.changes),
            next: 0,
            last_due_ns: self.return_ns + ns(AFTER) + 2 * MARGIN_NS,
            ledger: Arc::clone(&self.ledger),
        };
        let plan = client(target)?;
        Ok(std::thread::spawn(move || run_client("changing timers", plan, AFTER, changer)))
    }

    /// Waits until all pops have come that may come, and counts them.
    fn finish(
        self,
        name: &str,
        changing: Changing,
        (sites, all): (&Sites<'_>, &[usize]),
        round: &mut Round,
    ) -> Result<()> {
        let joined = changing.join().unwrap_or_else(|_| bail!("the client's thread panicked"));
        let (changer, outcome) = joined?;
        for (failure, count) in &outcome.recorder.failures {
            round.problems.push(format!("{name}: {count} changes failed: {}", failure.name()));
        }
        sleep_until(changer.last_due_ns);
        sites.check_held(name, all, 0, round)?;
        std::thread::sleep(TURN);
        let (sink, _) = self.sink.stop()?;
        let tally = sink.into_tally().context("the sink has a ledger")?;
        round.add(format!("{name}: changes took"), "s", outcome.seconds);
        for (kind, word) in [(Kind::Deleted, "deleted"), (Kind::Replaced, "replaced")] {
            let certain = changer.changes.iter().filter(|it| it.kind == kind && it.is_certain);
            let popped = certain.clone().filter(|it| tally.has_popped(it.number)).count();
            round.add(format!("{name}: {word}"), "", certain.count() as f64);
            count_wrong(round, name, &format!("popped although {word}"), popped as u64);
        }
        round.add(format!("{name}: pops owed"), "", self.ledger.owed() as f64);
        let lost = tally.lost(&self.ledger);
        for (word, count) in [("lost", lost), ("doubled", tally.doubled), ("early", tally.early)] {
            count_wrong(round, name, word, count);
        }
        add_pops(
            round,
            &format!("{name}: due before its return, late"),
            &Percentiles::of(&tally.before),
        );
        add_pops(
            round,
            &format!("{name}: due after its return, late"),
            &Percentiles::of(&tally.after),
        );
        Ok(())
    }
}

fn count_wrong(round: &mut Round, name: &str, word: &str, count: u64) {
    round.add(format!("{name}: {word}"), "", count as f64);
    if count > 0 {
        round.problems.push(format!("{name}: {count} pops {word}"));
    }
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn sleep_until(ns: u64) {
    std::thread::sleep(Duration::from_nanos(ns.saturating_sub(clock_ns())));
}

fn shape(target: SocketAddr, callback: SocketAddr) -> TimerShape {
    TimerShape {
        target,
        callback,
        interval_ms: None,
        pops_each: 1,
        opaque_bytes: 40,
        headers: 0,
        replication_factor: FACTOR,
        ralf: false,
        token: None,
    }
}

/// A client that sends as fast as a node answers, until all is sent.
fn client(target: SocketAddr) -> Result<Plan> {
    let (_, fill) = scenario_flags(["x", "fill", "--target", &target.to_string()])?;
    Ok(fill_plan(&fill))
}

type Changing = JoinHandle<Result<(Changer, Outcome)>>;

/// A timer to delete or to replace.
struct Change {
    number: u64,
    due_ns: u64,
    kind: Kind,
    location: Location,
    /// Whether it was answered with 200 before the timer was due.
    is_certain: bool,
}

/// Deletes and replaces timers, each in time before it is due.
struct Changer {
    target: SocketAddr,
    put: Template,
    interval_ns: u64,
    offset: u64,
    changes: Vec<Change>,
    next: usize,
    last_due_ns: u64,
    ledger: Arc<Ledger>,
}

impl Workload for Changer {
    fn next(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Next {
        let is_in_time = |change: &Change| now_ns + MARGIN_NS < change.due_ns;
        let Some(ahead) = self.changes[self.next..].iter().position(is_in_time) else {
            return Next::Finished;
        };
        let index = self.next + ahead;
        self.next = index + 1;
        let Change { number, kind, location, .. } = &self.changes[index];
        if *kind == Kind::Deleted {
            append_delete(self.target, location.as_bytes(), out);
            return Next::Sent(Operation::Delete, index as u64);
        }
        let due_ns = now_ns + self.interval_ns;
        self.last_due_ns = self.last_due_ns.max(due_ns);
        self.ledger.ask(self.offset + number, due_ns);
        self.put.append_on(location.as_bytes(), self.offset + number, out);
        Next::Sent(Operation::Update, index as u64)
    }

    fn answered(&mut self, operation: Operation, tag: u64, _head: &Head<'_>) {
        let change = &mut self.changes[tag as usize];
        change.is_certain = clock_ns() < change.due_ns;
        self.ledger.revoke(change.number);
        if operation == Operation::Update {
            self.ledger.acknowledge(self.offset + change.number);
        }
    }

    fn failed(&mut self, _operation: Operation, tag: u64) {
        // Nobody knows whether it is in force.
        self.ledger.revoke(self.changes[tag as usize].number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_changed_in_time_or_left_and_what_was_answered_is_owed() {
        let ledger = Arc::new(Ledger::new(6, 1, 1));
        let location = Location::new(b"/timers/a-1").expect("it fits");
        let far_ns = clock_ns() + 3600 * MARGIN_NS;
        let kinds = [(Kind::Deleted, 5), (Kind::Deleted, far_ns), (Kind::Replaced, far_ns)];
        let changes = (0..).zip(kinds).map(|(number, (kind, due_ns))| {
            ledger.ask(number, due_ns);
            ledger.acknowledge(number);
            Change { number, due_ns, kind, location, is_certain: false }
        });
        let target = SocketAddr::from(([127, 0, 0, 1], 9));
        let mut changer = Changer {
            target,
            put: Template::put(&TimerShape { interval_ms: Some(7_000), ..shape(target, target) }),
            interval_ns: 7 * MARGIN_NS,
            offset: 3,
            changes: changes.collect(),
            next: 0,
            last_due_ns: 0,
            ledger: Arc::clone(&ledger),
        };
        let mut out = Vec::new();
        assert_eq!(changer.next(4, &mut out), Next::Sent(Operation::Delete, 1));
        assert!(out.starts_with(b"DELETE /timers/a-1 "), "the first one is due too soon");
        out.clear();
        assert_eq!(changer.next(4, &mut out), Next::Sent(Operation::Update, 2));
        let text = String::from_utf8_lossy(&out);
        assert!(text.starts_with("PUT ") && text.contains("/pop/0000000005"), "{text}");
        assert_eq!(changer.next(4, &mut out), Next::Finished);
        changer.answered(Operation::Delete, 1, &Head::default());
        assert_eq!(ledger.owed(), 2);
        changer.answered(Operation::Update, 2, &Head::default());
        assert_eq!((ledger.owed(), changer.last_due_ns), (2, 4 + 7 * MARGIN_NS));
        let certain: Vec<_> = changer.changes.iter().map(|change| change.is_certain).collect();
        assert_eq!(certain, [false, true, true]);
    }
}
