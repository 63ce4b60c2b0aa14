//! The disturbances of a run: what went wrong when, as far as it can excuse a lost, late or doubled
//! pop.

use super::options::NODES_MAX;
use super::sites::Sites;

/// How long after a disturbance a node counts as one that may lack something.
pub const RECOVERY_NS: u64 = 10_000_000_000;

/// The node, or the pair of nodes, that was disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    Node(usize),
    Pair(usize, usize),
}

/// A time in which something was wrong with a node or between two nodes.
#[derive(Clone, Copy, Debug)]
struct Disturbance {
    whom: Whom,
    from_ns: u64,
    /// When the disturbance ended; `u64::MAX` while it lasts.
    to_ns: u64,
    /// Whether the node was dead all the time. The others get used to that state.
    is_down: bool,
    /// Whether the node only got no time, or stopped in order.
    is_pause: bool,
}

/// All disturbances so far.
#[derive(Default)]
pub struct Disturbances {
    /// The sites of the run. Nodes of two sites that cannot talk lose nothing, because each site
    /// has its timers.
    sites: Option<Sites>,
    /// Whether a node that dies keeps what it holds.
    pub has_disks: bool,
    all: Vec<Disturbance>,
}

impl Disturbances {
    /// Makes an empty list.
    pub fn of(sites: Option<Sites>) -> Self {
        Self { sites, ..Self::default() }
    }

    /// Adds a disturbance that begins and ends at known times.
    pub fn add(&mut self, whom: Whom, from_ns: u64, to_ns: u64) {
        self.all.push(Disturbance { whom, from_ns, to_ns, is_down: false, is_pause: false });
    }

    /// Adds a pause: a node gets no time, or stops in order.
    pub fn pause(&mut self, node: usize, from_ns: u64, to_ns: u64) {
        let whom = Whom::Node(node);
        self.all.push(Disturbance { whom, from_ns, to_ns, is_down: false, is_pause: true });
    }

    /// Reports whether nodes have at most died, stopped, returned or frozen between the two times:
    /// no node that lived was cut off from another.
    pub fn has_only_pauses(&self, from_ns: u64, to_ns: u64) -> bool {
        let is_meant = |one: &&Disturbance| one.from_ns <= to_ns && one.to_ns >= from_ns;
        self.all.iter().filter(is_meant).all(|one| one.is_down || one.is_pause)
    }

    /// Reports whether nodes at most died and returned between the two times, one at a time, and
    /// kept what they hold.
    pub fn has_only_single_deaths(&self, from_ns: u64, to_ns: u64) -> bool {
        let is_meant = |one: &&Disturbance| one.from_ns <= to_ns && one.to_ns >= from_ns;
        self.has_disks
            && self.all.iter().filter(is_meant).all(|one| one.is_down)
            && self.impaired_max(from_ns, to_ns) <= 1
    }

    /// Reports whether nothing was wrong with a node between the two times.
    pub fn is_well(&self, node: usize, from_ns: u64, to_ns: u64) -> bool {
        let is_meant = |one: &Disturbance| {
            let is_its = match one.whom {
                Whom::Node(whom) => whom == node,
                Whom::Pair(a, b) => a == node || b == node,
            };
            is_its && one.from_ns <= to_ns && one.to_ns >= from_ns
        };
        !self.all.iter().any(is_meant)
    }

    /// Notes that a node dies.
    pub fn down(&mut self, node: usize, now_ns: u64) {
        let whom = Whom::Node(node);
        self.all.push(Disturbance {
            whom,
            from_ns: now_ns,
            to_ns: u64::MAX,
            is_down: true,
            is_pause: false,
        });
    }

    /// Notes that a node took with it what it had not moved to other nodes. It counts as dead since
    /// `from_ns`.
    pub fn left(&mut self, node: usize, from_ns: u64, now_ns: u64) {
        let whom = Whom::Node(node);
        self.all.push(Disturbance { whom, from_ns, to_ns: now_ns, is_down: true, is_pause: false });
    }

    /// Notes that two processes were one node since `from_ns`. Whatever only one of the two was
    /// told may be lost, as if the node had been dead.
    pub fn was_doubled(&mut self, node: usize, from_ns: u64, now_ns: u64) {
        let is_meant = |one: &Disturbance| {
            one.whom == Whom::Node(node) && one.from_ns == from_ns && one.to_ns == u64::MAX
        };
        self.all.retain(|one| !is_meant(one));
        self.left(node, from_ns, now_ns);
    }

    /// Notes that a dead node lives again.
    pub fn up(&mut self, node: usize, now_ns: u64) {
        for disturbance in &mut self.all {
            if disturbance.is_down
                && disturbance.whom == Whom::Node(node)
                && disturbance.to_ns == u64::MAX
            {
                disturbance.to_ns = now_ns;
            }
        }
    }

    /// Ends everything that lasts now at the latest, except that dead nodes stay dead.
    pub fn heal(&mut self, now_ns: u64) {
        for disturbance in &mut self.all {
            if !disturbance.is_down {
                disturbance.to_ns = disturbance.to_ns.min(now_ns.max(disturbance.from_ns));
            }
        }
    }

    /// Reports whether nothing changed for the worse or the better between the two times. A node
    /// that is dead all the while is no change.
    pub fn is_quiet(&self, from_ns: u64, to_ns: u64) -> bool {
        self.all.iter().all(|one| {
            if one.is_down {
                let is_within = |at: u64| (from_ns..=to_ns).contains(&at);
                !is_within(one.from_ns) && !is_within(one.to_ns)
            } else {
                one.from_ns > to_ns || one.to_ns < from_ns
            }
        })
    }

    /// The sites of the run, if there are two.
    pub fn sites(&self) -> Option<Sites> {
        self.sites
    }

    /// Reports whether nothing was wrong with two nodes and between them for so long between the
    /// two times.
    pub fn could_talk(
        &self,
        (one, other): (usize, usize),
        (from_ns, to_ns): (u64, u64),
        least_ns: u64,
    ) -> bool {
        let is_theirs = |whom: Whom| match whom {
            Whom::Node(node) => node == one || node == other,
            Whom::Pair(a, b) => [(one, other), (other, one)].contains(&(a, b)),
        };
        let theirs = self.all.iter().filter(|it| is_theirs(it.whom) && it.to_ns >= from_ns);
        let mut spans: Vec<(u64, u64)> = theirs.map(|it| (it.from_ns, it.to_ns)).collect();
        spans.sort_unstable();
        let mut calm_ns = from_ns;
        for (begun_ns, ended_ns) in spans {
            if begun_ns.min(to_ns).saturating_sub(calm_ns) >= least_ns {
                return true;
            }
            calm_ns = calm_ns.max(ended_ns);
        }
        to_ns.saturating_sub(calm_ns) >= least_ns
    }

    /// All deaths: of whom, since when, and until when.
    pub fn deaths(&self) -> impl Iterator<Item = (Whom, u64, u64)> {
        self.all.iter().filter(|one| one.is_down).map(|one| (one.whom, one.from_ns, one.to_ns))
    }

    /// Reports whether nothing was wrong with all nodes of one of two sites between the two times.
    pub fn has_witness(&self, from_ns: u64, to_ns: u64) -> bool {
        let is_well = |site: usize, sites: Sites| {
            let mut nodes = (0..sites.nodes).filter(|node| sites.site_of(*node) == site);
            nodes.all(|node| self.is_well(node, from_ns, to_ns))
        };
        self.sites.is_some_and(|sites| is_well(0, sites) || is_well(1, sites))
    }

    /// Returns when the first process died after `from_ns`.
    pub fn first_death_ns(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let deaths = self.all.iter().filter(|one| one.is_down).map(|one| one.from_ns);
        deaths.filter(|at_ns| (from_ns..=to_ns).contains(at_ns)).min()
    }

    /// Returns when a node has had so much time since `at_ns`, beside its freezes and pauses.
    pub fn has_had_ns(&self, node: usize, at_ns: u64, time_ns: u64) -> u64 {
        let mut lost: Vec<&Disturbance> = self
            .all
            .iter()
            .filter(|one| !one.is_down && one.whom == Whom::Node(node) && one.to_ns >= at_ns)
            .collect();
        lost.sort_by_key(|one| one.from_ns);
        lost.iter().fold(at_ns + time_ns, |ends_ns, one| match one.from_ns <= ends_ns {
            true => ends_ns.saturating_add(one.to_ns - one.from_ns.max(at_ns)),
            false => ends_ns,
        })
    }

    /// Reports whether a process was dead between the two times.
    pub fn has_death(&self, from_ns: u64, to_ns: u64) -> bool {
        self.all.iter().any(|one| one.is_down && one.from_ns <= to_ns && one.to_ns >= from_ns)
    }

    /// Reports whether a node died between the two times, and could not be reached while it lived.
    pub fn has_dead_cut_off(&self, from_ns: u64, to_ns: u64) -> bool {
        let is_meant = |one: &&Disturbance| one.from_ns <= to_ns && one.to_ns >= from_ns;
        let dead = self.all.iter().filter(is_meant).filter(|one| one.is_down);
        let is_cut = |node: usize| {
            let is_its = |one: &Disturbance| match one.whom {
                Whom::Node(whom) => whom == node,
                Whom::Pair(a, b) => a == node || b == node,
            };
            let mut all = self.all.iter().filter(is_meant);
            all.any(|one| is_its(one) && !one.is_down && !one.is_pause)
        };
        dead.into_iter().any(|one| matches!(one.whom, Whom::Node(node) if is_cut(node)))
    }

    /// Reports whether a node paused for at least `least_ns`, without a moment to answer, between
    /// the two times.
    pub fn has_silence(&self, from_ns: u64, to_ns: u64, least_ns: u64) -> bool {
        let is_meant =
            |one: &&Disturbance| one.is_pause && one.from_ns <= to_ns && one.to_ns >= from_ns;
        let mut pauses: Vec<&Disturbance> = self.all.iter().filter(is_meant).collect();
        pauses.sort_by_key(|one| one.from_ns);
        let mut spans: Vec<(Whom, u64, u64)> = Vec::new();
        for one in pauses {
            match spans.iter_mut().find(|span| span.0 == one.whom && one.from_ns <= span.2) {
                Some(span) => span.2 = span.2.max(one.to_ns),
                None => spans.push((one.whom, one.from_ns, one.to_ns)),
            }
        }
        spans.iter().any(|span| span.2 - span.1 >= least_ns)
    }

    /// Returns the first moment at or after `at_ns` at which nothing is wrong with a node.
    pub fn well_again_ns(&self, node: usize, at_ns: u64) -> u64 {
        let mut ends_ns = at_ns;
        while let Some(one) = self.all.iter().find(|one| {
            one.whom == Whom::Node(node) && one.from_ns <= ends_ns && one.to_ns > ends_ns
        }) {
            ends_ns = one.to_ns;
        }
        ends_ns
    }

    /// Returns how many nodes at most could not be counted on at one moment between the two times.
    /// These are the fewest nodes whose trouble explains everything that lasted then, or had ended
    /// less than [`RECOVERY_NS`] before.
    pub fn impaired_max(&self, from_ns: u64, to_ns: u64) -> u32 {
        let moments =
            self.all.iter().map(|one| one.from_ns).filter(|at| (from_ns..=to_ns).contains(at));
        moments.chain([from_ns]).map(|at| self.impaired(at)).max().unwrap_or(0)
    }

    fn impaired(&self, at_ns: u64) -> u32 {
        let lasting: Vec<(Whom, bool)> = self
            .all
            .iter()
            .filter(|one| one.from_ns <= at_ns && at_ns <= one.to_ns.saturating_add(RECOVERY_NS))
            .map(|one| (one.whom, one.is_down || one.is_pause))
            .collect();
        // The death or pause of a node explains no other trouble of that node: what only this node
        // was told while it was cut off is lost with it, or waits for its return.
        let dead = lasting.iter().fold(0_u32, |dead, (whom, is_gone)| match *whom {
            Whom::Node(node) if *is_gone => dead | 1 << node,
            _ => dead,
        });
        let explains = |nodes: u32| {
            lasting.iter().all(|(whom, is_gone)| match *whom {
                Whom::Pair(one, other)
                    if self.sites.is_some_and(|it| it.site_of(one) != it.site_of(other)) =>
                {
                    true
                }
                Whom::Node(node) => *is_gone || nodes >> node & 1 == 1,
                Whom::Pair(one, other) => {
                    let able = nodes & !dead;
                    let both_dead = (dead >> one & dead >> other) & 1 == 1;
                    both_dead || (able >> one | able >> other) & 1 == 1
                }
            })
        };
        let others = (0_u32..1 << NODES_MAX)
            .filter(|nodes| explains(*nodes))
            .map(u32::count_ones)
            .min()
            .expect("all nodes together explain everything");
        dead.count_ones() + others
    }

    /// Returns the longest time within which something lasted without [`SYNC_NS`](Self::SYNC_NS) of
    /// calm. The death of a process counts only if it has a disk: otherwise it brings nothing old
    /// back.
    pub fn longest_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let mut spans: Vec<(u64, u64)> = self
            .all
            .iter()
            .filter(|one| self.has_disks || !one.is_down)
            .map(|one| (one.from_ns, one.to_ns.min(to_ns).saturating_add(Self::SYNC_NS)))
            .filter(|span| span.0 <= to_ns && span.1 >= from_ns)
            .collect();
        spans.sort_unstable();
        let (mut longest, mut present) = (0, (0, 0));
        for span in spans {
            if span.0 <= present.1 {
                present.1 = present.1.max(span.1);
            } else {
                present = span;
            }
            longest = longest.max(present.1 - present.0);
        }
        longest
    }

    /// After a calm of this length, nodes have told each other what they missed.
    pub const SYNC_NS: u64 = 3_000_000_000;
}
