//! Makes faults, one at a time. The next fault comes only when the cluster says that all is well
//! again, so that a timer always has at least one holder.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kit::simulator::random::Stream;

use super::disk;
use super::history::{Fault, Kind, Ns, Recorder};
use super::nodes::{CLOCK_PLACE, FULL_PLACE, Nodes};
use super::worlds::World;

/// How long the cluster may take to say that all is well after a fault.
const SETTLES: Duration = Duration::from_secs(120);

/// How often each fault comes among a hundred or so.
const SHARES: [(Kind, u64); 12] = [
    (Kind::Kill, 26),
    (Kind::Freeze, 30),
    (Kind::Stop, 18),
    (Kind::Resync, 5),
    (Kind::Join, 10),
    (Kind::KillAll, 8),
    (Kind::Full, 6),
    (Kind::Clock, 8),
    (Kind::KillSite, 24),
    (Kind::EmptySite, 10),
    (Kind::FreezeSite, 14),
    (Kind::Cut, 30),
];

/// Reads the name of a fault.
///
/// # Errors
///
/// A sentence, if there is no such fault.
pub fn read_kind(name: &str) -> Result<Kind, String> {
    Ok(match name {
        "kill" => Kind::Kill,
        "freeze" => Kind::Freeze,
        "stop" => Kind::Stop,
        "resync" => Kind::Resync,
        "members" => Kind::Join,
        "kill-all" => Kind::KillAll,
        "disk" => Kind::Full,
        "clock" => Kind::Clock,
        "kill-site" => Kind::KillSite,
        "empty-site" => Kind::EmptySite,
        "freeze-site" => Kind::FreezeSite,
        "cut" => Kind::Cut,
        _ => return Err(format!("--faults: {name:?} is none of the list")),
    })
}

/// Makes faults until the load is over, and leaves a cluster at rest.
pub struct Faults<'a> {
    pub nodes: &'a Nodes,
    pub recorder: &'a Recorder,
    pub draw: Stream,
    pub is_over: &'a AtomicBool,
    members: Vec<usize>,
    /// The faults that are drawn. Empty: all.
    wanted: &'a [Kind],
}

impl<'a> Faults<'a> {
    pub fn new(
        nodes: &'a Nodes,
        recorder: &'a Recorder,
        draw: Stream,
        is_over: &'a AtomicBool,
        wanted: &'a [Kind],
    ) -> Faults<'a> {
        let layout = nodes.layout();
        let members = (0..layout.sites).flat_map(|site| layout.members_first(site)).collect();
        Faults { nodes, recorder, draw, is_over, members, wanted }
    }

    /// Makes faults until the load is over.
    pub fn run(&mut self) {
        self.pause(1_500, 3_000);
        while !self.is_over.load(Ordering::SeqCst) {
            let node = self.draw.pick(&self.members);
            match self.draw_kind() {
                Kind::KillAll => self.kill_all(),
                Kind::Full => self.fill(),
                Kind::Clock => self.set_clock(),
                Kind::Kill => self.kill(node),
                Kind::Freeze => match self.draw.chance(70) {
                    true => self.freeze(node),
                    false => self.flicker(node),
                },
                Kind::Stop => self.stop(node),
                Kind::Resync => {
                    self.settle_by_resync(Kind::Resync, node, self.recorder.clock.now());
                }
                Kind::Join | Kind::Leave => self.change_members(node),
                Kind::KillSite => self.kill_site(node, Kind::KillSite),
                Kind::EmptySite => self.kill_site(node, Kind::EmptySite),
                Kind::FreezeSite => self.freeze_site(node),
                Kind::Cut => self.cut(),
            }
            self.pause(500, 4_000);
        }
    }

    fn pause(&mut self, least_ms: u64, most_ms: u64) {
        let until = Instant::now() + Duration::from_millis(self.draw.range(least_ms, most_ms));
        while Instant::now() < until && !self.is_over.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets a time pass between both bounds, even if the load is over.
    pub fn wait(&mut self, least_ms: u64, most_ms: u64) {
        thread::sleep(Duration::from_millis(self.draw.range(least_ms, most_ms)));
    }

    /// Draws the next fault from those that are wanted and can be made.
    fn draw_kind(&mut self) -> Kind {
        let (worlds, layout) = (self.nodes.worlds(), self.nodes.layout());
        let can = |kind: Kind| match kind {
            // The only node of a site is the site.
            Kind::Kill | Kind::Freeze if layout.is_single() => false,
            Kind::Stop if layout.is_single() => worlds.has(World::Journal),
            Kind::Join | Kind::Leave => !layout.has_sites(),
            Kind::KillSite => layout.has_sites() && worlds.has(World::Journal),
            Kind::EmptySite | Kind::FreezeSite | Kind::Cut => layout.has_sites(),
            Kind::KillAll => worlds.has(World::Journal),
            Kind::Full => worlds.has(World::Disk) && self.members.contains(&FULL_PLACE),
            Kind::Clock => worlds.has(World::Clocks) && self.members.contains(&CLOCK_PLACE),
            _ => true,
        };
        let is_wanted = |kind: Kind| self.wanted.is_empty() || self.wanted.contains(&kind);
        let fits = |share: &&(Kind, u64)| can(share.0) && is_wanted(share.0);
        let shares: Vec<_> = SHARES.iter().filter(fits).collect();
        let all: u64 = shares.iter().map(|share| share.1).sum();
        if all == 0 {
            return Kind::Resync;
        }
        let mut drawn = self.draw.range(0, all - 1);
        let mut which = shares.iter().filter(|(_, share)| {
            let is_it = drawn < *share;
            drawn = drawn.saturating_sub(*share);
            is_it
        });
        which.next().expect("below the sum").0
    }

    /// Kills all members at one moment. They come back with their journals.
    fn kill_all(&mut self) {
        let from = self.recorder.clock.now();
        let members = self.members.clone();
        for node in &members {
            self.nodes.kill(*node);
            self.nodes.set_serving(*node, false);
        }
        self.wait(0, 3_000);
        members.iter().for_each(|node| self.nodes.spawn(*node));
        members.iter().for_each(|node| self.nodes.await_ready(*node));
        self.settle_by_resync(Kind::KillAll, members[0], from);
    }

    /// Fills the disk of a node until it refuses writes. The node may be killed meanwhile, and comes
    /// back on a disk that is still full.
    fn fill(&mut self) {
        let from = self.recorder.clock.now();
        let disk = self.nodes.disk().expect("there is one");
        let filled = disk::fill(self.nodes, disk, FULL_PLACE);
        self.wait(1_000, 6_000);
        let is_killed = self.draw.chance(40);
        if is_killed {
            self.nodes.kill(FULL_PLACE);
            self.nodes.set_serving(FULL_PLACE, false);
            self.wait(0, 5_000);
            self.nodes.spawn(FULL_PLACE);
            self.nodes.await_answer(FULL_PLACE);
            self.nodes.set_serving(FULL_PLACE, true);
            self.wait(1_000, 4_000);
        }
        if let Err(what) = disk::make_room(self.nodes, disk, FULL_PLACE) {
            self.trouble(what);
        }
        println!("  the disk of node {FULL_PLACE} was full: {filled}, killed: {is_killed}");
        if is_killed {
            self.record(Kind::Kill, FULL_PLACE, from);
        }
        self.settle_by_resync(Kind::Full, FULL_PLACE, from);
        self.settle(FULL_PLACE);
    }

    /// Sets the wall clock of a node wrong for a time.
    fn set_clock(&mut self) {
        let from = self.recorder.clock.now();
        let by = self.draw.pick(&["+3s", "-3s", "+90s", "-90s", "+1h", "-1h", "+400d", "-400d"]);
        let clock = self.nodes.clock().expect("there is one");
        clock.set(by);
        self.wait(500, 8_000);
        clock.set("+0");
        self.record(Kind::Clock, CLOCK_PLACE, from);
        self.settle(CLOCK_PLACE);
    }

    fn kill(&mut self, node: usize) {
        let from = self.recorder.clock.now();
        self.nodes.kill(node);
        self.nodes.set_serving(node, false);
        self.wait(0, 6_000);
        self.nodes.spawn(node);
        self.nodes.await_ready(node);
        self.settle_by_resync(Kind::Kill, node, from);
    }

    fn stop(&mut self, node: usize) {
        let from = self.recorder.clock.now();
        let status = self.nodes.stop(node);
        if !status.success() {
            self.trouble(format!("node {node} stopped in order with {status}"));
        }
        self.nodes.set_serving(node, false);
        self.wait(0, 6_000);
        self.nodes.spawn(node);
        self.nodes.await_ready(node);
        self.settle_by_resync(Kind::Stop, node, from);
    }

    fn freeze(&mut self, node: usize) {
        self.freeze_for(node, 100, 8_000);
        self.settle(node);
    }

    /// Freezes a node several times, each time for a moment.
    fn flicker(&mut self, node: usize) {
        for _ in 0..self.draw.range(2, 8) {
            self.freeze_for(node, 20, 700);
            self.wait(200, 700);
        }
        self.settle(node);
    }

    fn freeze_for(&mut self, node: usize, least_ms: u64, most_ms: u64) {
        let from = self.recorder.clock.now();
        self.nodes.signal(node, "STOP");
        self.nodes.set_serving(node, false);
        self.wait(least_ms, most_ms);
        self.nodes.signal(node, "CONT");
        self.nodes.set_serving(node, true);
        self.record(Kind::Freeze, node, from);
    }

    /// Lets a member leave, or a node that left come back, so that there are three or four members.
    fn change_members(&mut self, node: usize) {
        let from = self.recorder.clock.now();
        let places = self.nodes.layout().places();
        if self.members.len() < places {
            let absent = (0..places).find(|place| !self.members.contains(place));
            let absent = absent.expect("fewer than all");
            if self.draw.chance(50) {
                self.nodes.spawn_alone(absent);
            } else {
                self.nodes.spawn_joining(absent, &self.members);
            }
            self.nodes.await_answer(absent);
            self.order(self.members[0], &["join", &self.nodes.name(absent), "--timeout", "60"]);
            self.members.push(absent);
            self.nodes.has_joined(absent);
            return self.settle_by_resync(Kind::Join, absent, from);
        }
        self.nodes.set_serving(node, false);
        // Requests that the node has taken are answered first.
        self.wait(500, 500);
        self.members.retain(|member| *member != node);
        self.order(self.members[0], &["leave", &self.nodes.name(node), "--timeout", "60"]);
        self.nodes.stop(node);
        self.settle_by_resync(Kind::Leave, node, from);
    }

    fn order(&self, at: usize, words: &[&str]) {
        let deadline = Instant::now() + SETTLES;
        loop {
            let ended = self.nodes.order(at, words);
            if ended.status.success() {
                return;
            }
            if Instant::now() > deadline {
                let said = String::from_utf8_lossy(&ended.stderr).into_owned();
                return self
                    .trouble(format!("chronos cluster {words:?} does not end well: {said}"));
            }
            thread::sleep(Duration::from_millis(500));
        }
    }

    pub fn settle_by_resync(&mut self, kind: Kind, node: usize, from: Ns) {
        let place = self.record(kind, node, from);
        for at in self.heads(None) {
            self.order(at, &["resync", "--timeout", "60"]);
            self.order(at, &["status"]);
        }
        self.recorder.with(|history| history.faults[place].settled = self.recorder.clock.now());
    }

    /// Returns a member of each site, another one than this if there is one.
    fn heads(&self, but: Option<usize>) -> Vec<usize> {
        let layout = self.nodes.layout();
        let head = |site| {
            let of_site = || self.members.iter().filter(|member| layout.site(**member) == site);
            let other = of_site().find(|member| Some(**member) != but);
            other.or_else(|| of_site().next()).copied()
        };
        (0..layout.sites).filter_map(head).collect()
    }

    fn settle(&mut self, node: usize) {
        self.heads(Some(node)).into_iter().for_each(|at| self.order(at, &["status"]));
        let now = self.recorder.clock.now();
        self.recorder.with(|history| {
            let open = history.faults.iter_mut().filter(|fault| fault.settled == Ns::MAX);
            open.for_each(|fault| fault.settled = now);
        });
    }

    pub fn record(&self, kind: Kind, node: usize, from: Ns) -> usize {
        let until = self.recorder.clock.now();
        self.recorder.with(|history| {
            history.faults.push(Fault { kind, node, from, until, settled: Ns::MAX });
            history.faults.len() - 1
        })
    }

    fn trouble(&self, what: String) {
        let now = self.recorder.clock.now();
        self.recorder.with(|history| history.troubles.push((now, what)));
    }
}
