//! A second process that says it is one of the nodes: started from a copy of its image, or reached
//! because an address means two machines. It has that node's name, files and instance bits, and a
//! life, a memory and clocks of its own. Some of the other nodes reach the second process under the
//! node's name. The second process reaches all of them.

use kit::simulator::random::{Purpose, Stream};

use super::clocks::Clocks;
use super::disturbances::Whom;
use super::model::{Checked, MS, broken};
use super::nodes::{Node, node_name};
use super::story_plan::Death;
use super::world::{Event, World};

/// How long connections that broke as the second process began take to be made again.
const BEGINS_NS: u64 = 1_500 * MS;
/// How long after that a node may take to notice the second process.
const NOTICED_NS: u64 = 2_000 * MS;

/// The second process of a node.
pub struct Twin {
    /// The index of the process.
    pub process: usize,
    /// The node that the process says it is.
    member: usize,
    /// The nodes that reach the process under that name.
    mask: u8,
    since_ns: u64,
}

impl World {
    /// Returns the member that a process says it is.
    pub fn member_of(&self, process: usize) -> usize {
        self.twin
            .as_ref()
            .filter(|twin| twin.process == process)
            .map_or(process, |twin| twin.member)
    }

    /// Returns the second process of a node, or the only one.
    pub fn twin_of(&self, node: usize) -> usize {
        let twin = self.twin.as_ref().filter(|twin| twin.member == node);
        twin.filter(|twin| self.nodes[twin.process].is_up()).map_or(node, |twin| twin.process)
    }

    /// Returns the process that a node reaches when it dials another.
    pub fn twin_reached(&self, from: usize, target: usize) -> usize {
        let is_reached = self.twin.as_ref().is_some_and(|twin| twin.mask >> from & 1 == 1);
        if is_reached { self.twin_of(target) } else { target }
    }

    pub fn twin_begins(&mut self, member: usize, mask: u8, ms: u64, breaks: bool) {
        let process = self.options.all_nodes();
        let is_free = self.nodes.get(process).is_none_or(|twin| !twin.is_up());
        if !self.members.is_member(member) || !is_free {
            return;
        }
        let draw = &mut Stream::keyed(self.options.seed, Purpose::Rarities, self.now_ns);
        let clocks = Clocks::new(draw, self.options.drift_ppm_max, self.options.skew_ms_max);
        let life = self.nodes.get(process).map_or(0, |twin| twin.life);
        self.nodes.truncate(process);
        self.nodes.push(Node { life, ..Node::with_clocks(node_name(member), clocks) });
        self.twin = Some(Twin { process, member, mask, since_ns: self.now_ns });
        self.trace.add(self.now_ns, "twin", [member as u64, u64::from(mask), ms, 0]);
        self.model.disturbances.add(Whom::Node(member), self.now_ns, u64::MAX);
        self.boot(process).expect("it has no disk");
        let life = self.nodes[process].life;
        self.schedule(self.now_ns + ms * MS, Event::TwinEnds(life));
        for other in (0..self.options.nodes).filter(|other| breaks && mask >> other & 1 == 1) {
            self.break_connections(member, other);
        }
    }

    /// Stops the second process, which the operator has found.
    pub fn twin_ends(&mut self, life: u64) -> Checked {
        let Some(Twin { process, member, since_ns, .. }) = self.twin else { return Ok(()) };
        if !self.nodes[process].is_up() || self.nodes[process].life != life {
            return Ok(());
        }
        let from_ns = since_ns + BEGINS_NS;
        self.model.disturbances.was_doubled(member, since_ns, self.now_ns);
        // The nodes that the second process knows, and so dials.
        let known = |node: &usize| self.nodes[process].view.node_named(&node_name(*node)).is_some();
        let others =
            (0..process).filter(|node| *node != member && self.nodes[*node].is_up() && known(node));
        let is_calm = self.model.is_steady(from_ns, self.now_ns - 1)
            && from_ns + NOTICED_NS < self.now_ns
            && others.count() > 0
            && self.nodes[member].is_up();
        let twins: u64 = self
            .nodes
            .iter()
            .flat_map(|node| node.cores.iter().flatten())
            .map(|core| core.core.peer_counters().twins)
            .sum();
        if is_calm && twins == 0 {
            return broken("twins", format!("nobody noticed two processes of node {member}"));
        }
        self.kill(process, Death::Process, None);
        Ok(())
    }
}
