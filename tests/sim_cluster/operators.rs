//! Operators: nodes join and leave by the procedure of the original (docs/compat/timer-service.md
//! §9.2). Files reach the nodes at slightly different times.

use std::sync::Arc;

use chronos::cluster::view::{Membership, View};

use super::disturbances::Whom;
use super::driver::Input;
use super::model::MS;
use super::network::CoreAt;
use super::nodes::node_name;
use super::options::NODES_MAX;
use super::sites::{Sites, site_name};
use super::world::{Event, World};

/// How long files take to reach all nodes.
const FILES_MS: u64 = 2_000;
/// How long after that nodes take to know each other, and to tell each other what clients did
/// meanwhile.
const KNOWN_MS: u64 = 2_000;
/// How long after the first file was written the operator asks for a resync.
const RESYNC_MS: u64 = 2_500;
/// The operator waits at least this long for the resync, and until there was no trouble for
/// [`CALM_MS`].
const WAITS_MS: u64 = 12_000;
const CALM_MS: u64 = 8_000;

/// What the operator does next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// A node reads its files.
    Reload(usize),
    Resynchronise,
    /// A node that had old files gets the files of the others.
    Release(usize),
    /// The change is over, if there was no trouble.
    Finish,
    /// Nodes that have left are stopped.
    StopLeft(u8),
}

/// The lists of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    pub staying: u8,
    pub joining: u8,
    pub leaving: u8,
}

impl Lists {
    pub fn all(self) -> u8 {
        self.staying | self.joining | self.leaving
    }

    /// Returns on how many of the `running` nodes a write can be placed at least.
    fn places_min(self, running: u8) -> u32 {
        let Self { staying, joining, leaving } = self;
        let count = |nodes: u8| (nodes & running).count_ones();
        count(staying | joining).min(count(staying | leaving))
    }
}

/// The members of the cluster, and the files that say so.
pub struct Members {
    pub sites: Option<Sites>,
    pub lists: Lists,
    /// All files that were ever written.
    pub written: Vec<Lists>,
    /// By node: other files than the others have, and until when.
    pub held: [Option<(Lists, u64)>; NODES_MAX],
    /// When the last such node got the files of the others.
    pub released_ns: Option<u64>,
    /// When the change under way began.
    pub since_ns: Option<u64>,
    /// When the last change ended.
    pub ended_ns: u64,
}

impl Members {
    pub fn new(nodes: usize) -> Self {
        let staying = ((1_u16 << nodes) - 1) as u8;
        let lists = Lists { staying, joining: 0, leaving: 0 };
        Self {
            sites: None,
            lists,
            written: vec![lists],
            held: [None; NODES_MAX],
            released_ns: None,
            since_ns: None,
            ended_ns: 0,
        }
    }

    /// Returns the lists in the files that a node finds.
    pub fn lists_of(&self, node: usize) -> Lists {
        self.held[node].map_or(self.lists, |(lists, _)| lists)
    }

    /// Reports whether a node is on one of the lists and should run.
    pub fn is_member(&self, node: usize) -> bool {
        self.lists.all() >> node & 1 == 1
    }

    /// Returns the nodes that should hold timers.
    pub fn new_cluster(&self) -> u8 {
        self.lists.staying | self.lists.joining
    }

    /// Returns the view that a node makes of its files.
    pub fn view(&self, node: usize, former: Option<&View>) -> Arc<View> {
        let names = |mask: u8| {
            (0..NODES_MAX).filter(|node| mask >> node & 1 == 1).map(node_name).collect::<Vec<_>>()
        };
        let lists = self.lists_of(node);
        let (site, mask) = match self.sites {
            Some(sites) => (sites.site_of(node), sites.masks()[sites.site_of(node)]),
            None => (0, u8::MAX),
        };
        let membership = Membership {
            localhost: node_name(node),
            nodes: names(lists.staying & mask),
            joining: names(lists.joining & mask),
            leaving: names(lists.leaving & mask),
            local_site: site_name(site),
            remote_sites: self.sites.map_or_else(Vec::new, |sites| sites.remote(node)),
            replicate_across_sites: self.sites.is_some(),
        };
        Arc::new(View::build(former, &membership).expect("a good file"))
    }
}

impl World {
    /// Returns the fewest nodes that a write can be placed on, whatever files nodes have.
    pub fn members_min(&self) -> u32 {
        let sites = self.options.sites.map_or(vec![u8::MAX], |sites| sites.masks().to_vec());
        let held = self.members.held.iter().flatten().map(|(lists, _)| *lists);
        let running = self.members.lists.all();
        let places = |lists: Lists| {
            let places = sites.iter().map(|site| lists.places_min(running & site));
            places.min().expect("there is one site at least")
        };
        held.chain([self.members.lists]).map(places).min().expect("there is one file at least")
    }

    pub fn operator_begins(&mut self, joining: u8, leaving: u8) {
        let members = &mut self.members;
        let staying = members.lists.staying;
        let joining = joining & !staying;
        let leaving = leaving & staying;
        // A change must not take the last node from a site.
        let first_site = self.options.sites.map_or(u8::MAX, |sites| (1 << sites.second) - 1);
        let is_emptied = |site: u8| staying & site != 0 && staying & !leaving & site == 0;
        let empties_one = is_emptied(first_site) || is_emptied(!first_site);
        if members.since_ns.is_some() || joining | leaving == 0 || empties_one {
            return;
        }
        members.lists = Lists { staying: staying & !leaving, joining, leaving };
        members.since_ns = Some(self.now_ns);
        self.trace.add(self.now_ns, "change", [u64::from(joining), u64::from(leaving), 0, 0]);
        for node in 0..self.nodes.len() {
            if joining >> node & 1 == 1 {
                self.boot(node).expect("a node that joins has an empty disk");
            }
        }
        let members = self.members_min();
        self.model
            .writes
            .values_mut()
            .for_each(|write| write.replicas = write.replicas.min(members));
        self.reload_all();
        self.schedule(self.now_ns + RESYNC_MS * MS, Event::Operator(Step::Resynchronise));
        self.schedule(self.now_ns + WAITS_MS * MS, Event::Operator(Step::Finish));
    }

    fn reload_all(&mut self) {
        let known_ns = self.now_ns + (FILES_MS + KNOWN_MS) * MS;
        self.model.reloads.push((self.now_ns, known_ns));
        self.members.written.push(self.members.lists);
        for node in 0..NODES_MAX {
            self.note_difference(node);
        }
        for node in 0..self.nodes.len() {
            if self.members.is_member(node) {
                let at_ns = self.now_ns + self.interleaving.range(0, FILES_MS * MS);
                self.schedule(at_ns, Event::Operator(Step::Reload(node)));
            }
        }
    }

    pub fn operator_step(&mut self, step: Step) {
        match step {
            Step::Reload(node) => self.reload(node),
            Step::Resynchronise => {
                for node in 0..self.nodes.len() {
                    self.tell_all_cores(node, || Input::Resynchronise);
                }
            }
            Step::Release(node) => self.release(node),
            Step::Finish => self.finish(),
            Step::StopLeft(mask) => {
                for node in 0..self.nodes.len() {
                    if mask >> node & 1 == 1 {
                        self.stop(node, None);
                    }
                }
            }
        }
    }

    fn reload(&mut self, node: usize) {
        if !self.nodes[node].is_up() || !self.members.is_member(node) {
            return;
        }
        let view = self.members.view(node, Some(&self.nodes[node].view));
        self.nodes[node].view = view.clone();
        self.tell_all_cores(node, || Input::View(view.clone()));
    }

    pub fn tell_all_cores(&mut self, node: usize, input: impl Fn() -> Input) {
        let life = self.nodes[node].life;
        for core in 0..self.options.shards[node] {
            self.deliver(CoreAt { node, life, core }, input());
        }
    }

    fn finish(&mut self) {
        let calm_since_ns = self.now_ns.saturating_sub(CALM_MS * MS);
        let disturbances = &self.model.disturbances;
        let is_calm = self.is_healed || disturbances.is_quiet(calm_since_ns, self.now_ns);
        // The operator looks whether all nodes see the same members.
        let is_known = self.members.held.iter().all(Option::is_none)
            && self.members.released_ns.is_none_or(|at| at + WAITS_MS * MS <= self.now_ns);
        if !is_calm || !is_known {
            return self.schedule(self.now_ns + 2_000 * MS, Event::Operator(Step::Finish));
        }
        let since_ns = self.members.since_ns.take().expect("a change is under way");
        let Lists { staying, joining, leaving: left } = self.members.lists;
        // A node that leaves while it, or the node that takes its timers, is dead keeps its disk to
        // itself.
        self.model.keeps_all &= left == 0 || self.are_all_up();
        if !disturbances.is_quiet(since_ns.saturating_sub(CALM_MS * MS), self.now_ns) {
            for node in (0..self.nodes.len()).filter(|node| left >> node & 1 == 1) {
                self.model.keeps_all = false;
                self.model.disturbances.left(node, since_ns, self.now_ns);
            }
        }
        let staying = staying | joining;
        self.members.lists = Lists { staying, joining: 0, leaving: 0 };
        self.members.ended_ns = self.now_ns;
        self.trace.add(self.now_ns, "changed", [u64::from(staying), 0, 0, 0]);
        self.reload_all();
        let stop_ns = self.now_ns + (FILES_MS + 1_000) * MS;
        self.schedule(stop_ns, Event::Operator(Step::StopLeft(left)));
    }

    /// Makes a node keep its files (`back` is 0), or gives it the files of `back` changes ago,
    /// whatever the others have: the node is not told, or its image is old.
    pub fn hold_files(&mut self, node: usize, back: usize, ms: u64) {
        let written = &self.members.written;
        let lists = match back {
            0 => self.members.lists_of(node),
            _ => written[written.len().saturating_sub(1 + back)],
        };
        // A node does not start with files that do not list the node itself.
        if !self.members.is_member(node) || lists.all() >> node & 1 == 0 {
            return;
        }
        let until_ns = self.now_ns + ms * MS;
        self.members.held[node] = Some((lists, until_ns));
        self.schedule(until_ns, Event::Operator(Step::Release(node)));
        self.note_difference(node);
    }

    /// Tells the model what follows if a node has other files than the others.
    fn note_difference(&mut self, node: usize) {
        let Some((lists, until_ns)) = self.members.held[node] else { return };
        if lists == self.members.lists {
            return;
        }
        let members = self.members.lists;
        let numbers = [lists.staying, lists.joining, lists.leaving].map(u64::from);
        let [staying, joining, leaving] = numbers;
        self.trace.add(self.now_ns, "old files", [node as u64, staying, joining, leaving]);
        let known_ns = until_ns.max(self.now_ns) + (FILES_MS + KNOWN_MS) * MS;
        self.model.reloads.push((self.now_ns, known_ns));
        let places = self.members_min();
        let open = self.model.writes.values_mut().filter(|write| write.closed.is_none());
        open.for_each(|write| write.replicas = write.replicas.min(places));
        for other in
            (0..NODES_MAX).filter(|other| *other != node && members.all() >> other & 1 == 1)
        {
            let is_mutual = lists.all() >> other & 1 == 1
                && self.members.lists_of(other).all() >> node & 1 == 1;
            if !is_mutual {
                self.model.disturbances.add(Whom::Pair(node, other), self.now_ns, known_ns);
            }
        }
    }

    /// Gives a node the files of the others.
    fn release(&mut self, node: usize) {
        let Some((lists, until_ns)) = self.members.held[node] else { return };
        if until_ns > self.now_ns && !self.is_healed {
            return;
        }
        self.members.held[node] = None;
        if lists == self.members.lists {
            return;
        }
        self.trace.add(self.now_ns, "released", [node as u64, 0, 0, 0]);
        self.members.released_ns = Some(self.now_ns);
        self.members.ended_ns = self.now_ns;
        self.reload(node);
        self.schedule(self.now_ns + KNOWN_MS * MS, Event::Operator(Step::Resynchronise));
    }

    /// Gives all nodes the same files.
    pub fn release_all(&mut self) {
        (0..NODES_MAX).for_each(|node| self.release(node));
    }
}
