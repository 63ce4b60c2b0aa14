//! Which nodes and sites a timer is given to: plans of writes, placements, and what two lists of
//! nodes have in common.

use crate::base::ids::{PeerSet, Slot, TimerId};
use crate::base::planted::{Bug, is_planted};
use crate::base::ranked::{Replicas, Sites};

use super::Shard;
use super::effects::Target;
use super::parts::peers::FULL_REMEMBERED_MS;
use super::parts::writes::Plan;
use super::records::{Placement, Record};

impl Shard {
    /// The plan of a timer that no node holds yet: live nodes. Nodes without room are named only
    /// where the others do not suffice.
    #[inline(always)]
    pub(super) fn plan_create(&self, id: TimerId, factor: u8) -> Plan {
        let (view, members) = (&self.peers.view, self.peers.not_dead());
        let roomy = members.minus(self.full());
        let suffice = roomy == members
            || view.place(id, factor, roomy).len() == view.place(id, factor, members).len();
        let plan = self.plan_among(id, factor, if suffice { roomy } else { members });
        Plan { is_create: true, ..plan }
    }

    /// The plan of a new timer: live nodes.
    pub(super) fn plan_new(&self, id: TimerId, factor: u8) -> Plan {
        self.plan_among(id, factor, self.peers.not_dead())
    }

    pub(super) fn plan_among(&self, id: TimerId, factor: u8, members: PeerSet) -> Plan {
        let view = &self.peers.view;
        let mut replicas = view.place(id, factor, members);
        if replicas.is_empty() {
            replicas = view.place(id, factor, view.new_nodes());
        }
        let placement = self.placement(replicas, view.sites(), factor);
        Plan { placement, extras: PeerSet::EMPTY, is_create: false }
    }

    /// The plan of a timer that may have been held before. It concerns all nodes, too, that may
    /// know the timer from then (docs/compat/timer-service.md §9.1).
    pub(super) fn plan_known(&self, target: Target, factor: u8, held: Option<&Record>) -> Plan {
        self.plan_known_without(target, factor, held, PeerSet::EMPTY)
    }

    /// The same as [`Shard::plan_known`], where nodes of the list have refused the timer.
    pub(super) fn plan_known_without(
        &self,
        target: Target,
        factor: u8,
        held: Option<&Record>,
        refused: PeerSet,
    ) -> Plan {
        let mut plan = self.plan_among(target.id, factor, self.peers.not_dead().minus(refused));
        if self.peers.is_alone() {
            return plan;
        }
        let view = &self.peers.view;
        let mut extras = view.peers_of(&view.place(target.id, factor, view.new_nodes()));
        if view.is_changing() {
            extras = extras.union(view.peers_of(&view.place_old(target.id, factor)));
        }
        if let Some(filter) = target.filter {
            extras = extras.union(view.matching(filter).intersection(view.connected_nodes()));
        }
        if let Some(held) = held {
            extras = extras.union(self.acting_meanwhile(held));
            let held = self.records.placement_of(held);
            extras = extras.union(view.peers_of(&held.replicas));
            plan = self.of_sites(plan, &held.sites);
        }
        let away = self.lately_full().union(self.peers.back_lately(self.turns.at));
        if !away.is_empty() {
            let members = self.peers.not_dead().minus(away);
            extras = extras.union(view.peers_of(&view.place(target.id, factor, members)));
        }
        let told = view.peers_of(&plan.placement.replicas).with(view.own());
        plan.extras = extras.minus(told);
        plan
    }

    /// The same plan with the sites that a version of the timer has, in their order, as far as they
    /// are configured. The first site pops first. So whoever writes a version once more, or tells
    /// it on, takes the sites that were given to it: two orders, and two sites would pop.
    pub(super) fn of_sites(&self, plan: Plan, sites: &Sites) -> Plan {
        if sites.is_empty() {
            return plan;
        }
        let Placement { replicas, factor, .. } = plan.placement;
        Plan { placement: self.placement(replicas, self.present_sites(sites), factor), ..plan }
    }

    /// Members that have had no room in the last minutes, this node included: other nodes may stand
    /// in for them.
    pub(super) fn lately_full(&self) -> PeerSet {
        let full = self.peers.lately_full(self.turns.at);
        let is_own = self.full_at.is_some_and(|at| self.turns.at - at < FULL_REMEMBERED_MS);
        if is_own { full.with(self.peers.own()) } else { full }
    }

    /// The list with the stand-in for this node, if this node has had no room lately.
    pub(super) fn standing_in_for_own(&self, id: TimerId, factor: u8) -> Option<Replicas> {
        let full = self.lately_full();
        let members = self.peers.not_dead().minus(full);
        let is_meant = full.contains(self.peers.own());
        is_meant.then(|| self.peers.view.place(id, factor, members))
    }

    /// A placement in which all ranks act.
    pub(super) fn placement(&self, replicas: Replicas, sites: Sites, factor: u8) -> Placement {
        Placement {
            replicas,
            sites,
            factor,
            actives: replicas.all_ranks(),
            confirmed: 0,
            own: replicas.rank_of(self.peers.own_hash()),
            sites_ahead: self.peers.view.sites_ahead(&sites),
        }
    }

    /// The list that the configuration means, whoever lives.
    pub(super) fn configured(&self, held: &Record) -> Replicas {
        let view = &self.peers.view;
        let factor = self.records.placement_of(held).factor;
        view.place(held.id, factor, view.new_nodes())
    }

    /// The nodes that act for those of a timer's list that hold it and do not act yet, this node
    /// among them: the timer moves with its next pop, which may be long in coming. These nodes are
    /// not on the list that a write has, and would go on with what it replaces.
    pub(super) fn acting_meanwhile(&self, held: &Record) -> PeerSet {
        let placement = self.records.placement_of(held);
        let idle = placement.replicas.all_ranks() & !placement.actives;
        let is_idle = held.is_live() && placement.own.is_some_and(|own| idle >> own & 1 == 1);
        if !is_idle || is_planted(Bug::MovingTimerLeftToActing) {
            return PeerSet::EMPTY;
        }
        let idle = self.peers_at(&placement.replicas, idle);
        let view = &self.peers.view;
        let members = self.peers.not_dead().minus(idle);
        view.peers_of(&view.place(held.id, placement.factor, members)).without(self.peers.own())
    }

    /// The nodes of these ranks of a list.
    pub(super) fn peers_at(&self, list: &Replicas, ranks: u16) -> PeerSet {
        let nodes = list.as_slice().iter().enumerate();
        let nodes = nodes.filter(|(rank, _)| ranks >> rank & 1 == 1);
        let peers = nodes.filter_map(|(_, node)| self.peers.view.peer_of(*node));
        peers.fold(PeerSet::EMPTY, PeerSet::with)
    }

    /// Whether a move to a list is under way: a live rank of the list does not act yet. Until the
    /// move is finished, the ranks of the former list act.
    pub(super) fn is_under_way(&self, list: &Replicas, actives: u16) -> bool {
        actives | self.ranks_of(list, self.peers.dead()) != list.all_ranks()
    }

    /// The sites of a timer that is held already: those that are configured. Where timers are not
    /// replicated to other sites any more, those that it has.
    pub(super) fn present_sites(&self, held: &Sites) -> Sites {
        let sites = self.peers.view.next_sites(held);
        if sites.is_empty() { *held } else { sites }
    }

    /// Gives a timer the sites that are configured, if these have changed. A site that was added is
    /// to hold it, too.
    pub(super) fn follow_sites(&mut self, slot: Slot) {
        let held = *self.records.placement_of(self.records.get(slot));
        let sites = self.present_sites(&held.sites);
        let sites_ahead = self.peers.view.sites_ahead(&sites);
        if (sites, sites_ahead) != (held.sites, held.sites_ahead) {
            self.place(slot, &Placement { sites, sites_ahead, ..held });
        }
    }

    /// Members that have no room for one more timer, this node included.
    pub(super) fn full(&self) -> PeerSet {
        let full = self.peers.full(self.turns.at);
        if self.write_refusal.is_some() { full.with(self.peers.own()) } else { full }
    }

    /// This node, if its disk takes nothing and as many others can hold a timer without it.
    pub(super) fn own_if_replaced(&self, id: TimerId, factor: u8) -> PeerSet {
        let (view, members) = (&self.peers.view, self.peers.not_dead());
        let count = |members| view.place(id, factor, members).len();
        let is_replaced =
            self.write_refusal.is_some() && count(members.minus(self.full())) == count(members);
        if is_replaced { PeerSet::EMPTY.with(self.peers.own()) } else { PeerSet::EMPTY }
    }

    /// The ranks of the nodes of `list` that are in `set`.
    pub(super) fn ranks_of(&self, list: &Replicas, set: PeerSet) -> u16 {
        list.as_slice().iter().enumerate().fold(0, |ranks, (rank, &node)| {
            let peer = self.peers.view.peer_of(node);
            ranks | u16::from(peer.is_some_and(|peer| set.contains(peer))) << rank
        })
    }

    /// The ranks of `list` whose nodes act in the former placement.
    pub(super) fn carried_actives(&self, former: &Placement, list: &Replicas) -> u16 {
        let acting = former.actives | former.confirmed;
        list.as_slice().iter().enumerate().fold(0, |actives, (rank, &node)| {
            let acts = former.replicas.rank_of(node).is_some_and(|held| acting >> held & 1 == 1);
            actives | u16::from(acts) << rank
        })
    }
}
