//! Operators: nodes join and leave by the procedure of the original (seeds/001), files reach the
//! nodes at slightly different times.

use std::sync::Arc;

use chronos::cluster::view::{Membership, View};

use super::driver::Input;
use super::model::MS;
use super::network::Place;
use super::nodes::node_name;
use super::options::NODES_MAX;
use super::world::{Event, World};

/// Files reach all nodes within this.
const FILES_MS: u64 = 2_000;
/// Then they know each other, and have told each other what clients did meanwhile, within this.
const KNOWN_MS: u64 = 2_000;
/// The operator asks for a resync so long after the first file was written.
const RESYNC_MS: u64 = 2_500;
/// He waits at least so long for it, and until there was no trouble for this time.
const WAITS_MS: u64 = 12_000;
const CALM_MS: u64 = 8_000;

/// What the operator does next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Step {
    /// A node reads its files.
    Reload(usize),
    Resynchronise,
    /// The change is over, if there was no trouble.
    Finish,
    /// Nodes that have left are stopped.
    StopLeft(u8),
}

/// Who is a member.
pub struct Members {
    pub staying: u8,
    pub joining: u8,
    pub leaving: u8,
    /// When the change under way began.
    pub since_ns: Option<u64>,
    /// When the last change ended.
    pub ended_ns: u64,
}

impl Members {
    pub fn new(nodes: usize) -> Self {
        let staying = ((1_u16 << nodes) - 1) as u8;
        Self { staying, joining: 0, leaving: 0, since_ns: None, ended_ns: 0 }
    }

    /// Whether a node is to run.
    pub fn is_member(&self, node: usize) -> bool {
        (self.staying | self.joining | self.leaving) >> node & 1 == 1
    }

    /// The nodes where timers are to be.
    pub fn new_cluster(&self) -> u8 {
        self.staying | self.joining
    }

    /// The files, as a node reads them.
    pub fn view(&self, node: usize, former: Option<&View>) -> Arc<View> {
        let names = |mask: u8| {
            (0..NODES_MAX).filter(|node| mask >> node & 1 == 1).map(node_name).collect::<Vec<_>>()
        };
        let membership = Membership {
            localhost: node_name(node),
            nodes: names(self.staying),
            joining: names(self.joining),
            leaving: names(self.leaving),
            local_site: "site1".into(),
            remote_sites: Vec::new(),
            replicate_across_sites: false,
        };
        Arc::new(View::build(former, &membership).expect("a good file"))
    }
}

impl World {
    /// Fewest nodes that a write can be placed on, whatever files nodes have.
    pub fn members_min(&self) -> u32 {
        let Members { staying, joining, leaving, .. } = self.members;
        (staying | joining).count_ones().min((staying | leaving).count_ones())
    }

    pub fn operator_begins(&mut self, joining: u8, leaving: u8) {
        let members = &mut self.members;
        let joining = joining & !members.staying;
        let leaving = leaving & members.staying;
        if members.since_ns.is_some() || joining | leaving == 0 || members.staying & !leaving == 0 {
            return;
        }
        members.staying &= !leaving;
        (members.joining, members.leaving) = (joining, leaving);
        members.since_ns = Some(self.now_ns);
        self.trace.add(self.now_ns, "change", [u64::from(joining), u64::from(leaving), 0, 0]);
        for node in 0..self.nodes.len() {
            if joining >> node & 1 == 1 {
                self.boot(node);
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

    fn tell_all_cores(&mut self, node: usize, input: impl Fn() -> Input) {
        let life = self.nodes[node].life;
        for core in 0..self.options.shards[node] {
            self.deliver(Place { node, life, core }, input());
        }
    }

    fn finish(&mut self) {
        let calm_since_ns = self.now_ns.saturating_sub(CALM_MS * MS);
        let disturbances = &self.model.disturbances;
        if !self.is_healed && !disturbances.is_quiet(calm_since_ns, self.now_ns) {
            return self.schedule(self.now_ns + 2_000 * MS, Event::Operator(Step::Finish));
        }
        let since_ns = self.members.since_ns.take().expect("a change is under way");
        let left = std::mem::take(&mut self.members.leaving);
        if !disturbances.is_quiet(since_ns.saturating_sub(CALM_MS * MS), self.now_ns) {
            for node in (0..self.nodes.len()).filter(|node| left >> node & 1 == 1) {
                self.model.disturbances.left(node, since_ns, self.now_ns);
            }
        }
        self.members.staying |= std::mem::take(&mut self.members.joining);
        self.members.ended_ns = self.now_ns;
        self.trace.add(self.now_ns, "changed", [u64::from(self.members.staying), 0, 0, 0]);
        self.reload_all();
        let stop_ns = self.now_ns + (FILES_MS + 1_000) * MS;
        self.schedule(stop_ns, Event::Operator(Step::StopLeft(left)));
    }
}
