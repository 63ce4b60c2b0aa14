//! What the rules of destinations do to the hosts of a core.

// May panic: cuts 1.
// Why it does not: found 1.

use std::sync::Arc;

use crate::base::destinations::{Destination, DestinationTable, Share};
use crate::base::ids::{HostId, ShardIndex};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};

use super::authorities::AuthorityId;
use super::flows::{Flow, FlowId};
use super::hosts::{Host, Hosts};

impl Hosts {
    /// Takes the rules that hold from now on. Lists anew which hosts wait for which rule. Returns
    /// the hosts with waiting pops. Cost: every lane and every rule.
    pub fn set_flow_rules(&mut self, table: Arc<DestinationTable>, tick: Tick) -> Vec<HostId> {
        let flows = &mut self.flows;
        let former = std::mem::replace(&mut flows.table, table);
        let formerly = std::mem::take(&mut flows.flows);
        flows.flows.resize_with(flows.table.all().len(), Flow::default);
        flows.wakes.clear();
        flows.waiters.clear();
        let has_gone = |one: &Destination| flows.table.find(&one.name).is_none();
        if !former.is_hold() && former.all().iter().any(has_gone) {
            flows.unruled_at = tick;
        }
        let mut waiting = Vec::new();
        for (place, host) in (0..).zip(&mut self.places) {
            let Some(host) = host else { continue };
            // A pop that waited for the rules to be known waited for none of them.
            let before = former.all().get(host.flow.place()).filter(|_| !former.is_hold());
            let was_ruled = before.is_some();
            host.flow = self.flows.of(self.authorities.text(host.authority));
            host.is_queued = false;
            let after = self.flows.destination(host.flow);
            let is_paused = |one: Option<&Destination>| one.is_some_and(|one| one.rule.is_paused);
            if is_paused(before) && !is_paused(after) {
                host.resumed_at = tick;
            }
            if was_ruled && !host.has_rule() {
                host.unruled_at = tick;
            }
            if host.flow != FlowId::NONE {
                self.flows.get(host.flow).taken += host.in_flight;
            }
            if !host.ready.is_empty() {
                waiting.push(HostId(place));
            }
        }
        self.keep_moments(&formerly, &former);
        let flows = &self.flows;
        for (flow, destination) in flows.flows.iter().zip(flows.table.all()) {
            destination.meter.add_places(flow.taken);
        }
        for (flow, destination) in formerly.iter().zip(former.all()) {
            destination.meter.give_back(flow.taken);
            destination.meter.stop_waiting(flows.own);
        }
        waiting
    }

    /// Keeps the moments that were taken from rates which go on. If an order about one destination
    /// cost all others a moment, orders that follow each other fast would let none of them call.
    fn keep_moments(&mut self, formerly: &[Flow], former: &DestinationTable) {
        for (flow, before) in formerly.iter().zip(former.all()) {
            let Some(at) = self.flows.table.place(&before.name) else { continue };
            let rate = self.flows.table.all().get(at).and_then(|one| one.rule.per_1000_s);
            if rate == before.rule.per_1000_s && !is_planted(Bug::OrderCostsMoments) {
                let id = FlowId::of(at);
                let entry = self.flows.get(id);
                (entry.moment, entry.come_at) = (flow.moment, flow.come_at);
                if let (Some(moment), None) = (flow.moment, flow.come_at) {
                    // Who does not see it come takes it for one that has just come.
                    self.flows.wake_at(id, moment.tick_ceil());
                }
            }
        }
    }

    /// The rules that hold.
    #[cfg(test)]
    pub fn destinations(&self) -> Arc<DestinationTable> {
        Arc::clone(&self.flows.table)
    }

    /// Sets which share of all rules this node has.
    pub fn set_share(&mut self, share: Share) {
        self.flows.share = share;
    }

    /// Whether there is any rule.
    #[inline]
    pub fn has_rules(&self) -> bool {
        !self.flows.flows.is_empty()
    }

    /// The rule that holds for a host; `None`: there is none.
    #[inline]
    pub fn flow_of(&self, host: HostId) -> Option<FlowId> {
        let flow = self.get(host).flow;
        (flow != FlowId::NONE).then_some(flow)
    }

    /// Whether there is any rule, or was since this core began.
    #[inline]
    pub fn has_ever_had_rules(&self) -> bool {
        self.has_rules() || self.flows.unruled_at > Tick(0)
    }

    /// Whether a pop that was due then waits for a rule, or may have waited for one that was taken
    /// away since. A host without a lane is taken for one of the rule that was taken away last.
    pub fn rules(&self, authority: AuthorityId, due: Tick) -> bool {
        let (has_rule, unruled_at) = match self.host_of(authority) {
            Some(host) => (host.has_rule(), host.unruled_at),
            None => (self.rule_of(authority) != FlowId::NONE, self.flows.unruled_at),
        };
        has_rule || due <= unruled_at
    }

    /// The rule that holds for a host with a lane or without.
    fn rule_of(&self, authority: AuthorityId) -> FlowId {
        match self.host_of(authority) {
            Some(host) => host.flow,
            None => self.flows.of(self.authorities.text(authority)),
        }
    }

    /// Whether the rule of a host with a lane or without lets no attempt begin.
    pub fn pauses_all_of(&self, authority: AuthorityId) -> bool {
        self.pauses(self.rule_of(authority))
    }

    /// Whether a rule holds for a host that no attempt begins at.
    #[inline]
    pub fn is_paused(&self, host: HostId) -> bool {
        self.flow_of(host).is_some_and(|flow| self.pauses(flow))
    }

    fn pauses(&self, flow: FlowId) -> bool {
        let is_paused = |one: &Destination| one.rule.is_paused;
        self.flows.destination(flow).is_some_and(is_paused) && !is_planted(Bug::PauseOverlooked)
    }

    /// Whether the rule of a host, if it has one, lets a callback begin now. If so, the callback
    /// must begin, or [`Hosts::settle`] be called. Nobody goes ahead of hosts that wait.
    #[inline]
    pub fn may_begin(&mut self, host: HostId, now: Now) -> bool {
        match self.flow_of(host) {
            None => true,
            Some(flow) => self.flows.get(flow).lanes.is_empty() && self.flows.is_ready(flow, now),
        }
    }

    /// Whether the rule lets a callback begin now. If so, a callback must begin, or
    /// [`Hosts::settle`] be called. Otherwise the rule wakes the core when it does.
    pub fn is_ready(&mut self, flow: FlowId, now: Now) -> bool {
        self.flows.is_ready(flow, now)
    }

    /// Gives back places that are kept without need.
    pub fn settle(&mut self, flow: FlowId) {
        self.flows.settle(flow);
    }

    /// Gives the place of a callback that has ended to another core that waits for one. Returns
    /// whether one did; then this core waits for its turn.
    pub fn yields(&mut self, flow: FlowId, tick: Tick) -> bool {
        let own = self.flows.own;
        let Some(destination) = self.flows.destination(flow) else { return false };
        let meter = Arc::clone(&destination.meter);
        if destination.rule.max_in_flight.is_none() || !meter.others_wait(own) {
            return false;
        }
        self.flows.settle(flow);
        if !self.flows.get(flow).lanes.is_empty() {
            meter.wait(own);
            self.flows.wait_for_place(flow, tick);
        }
        true
    }

    /// Puts a host with waiting pops into the list of its rule, if it has one.
    pub fn queue(&mut self, host: HostId) {
        let entry = self.get_mut(host);
        if entry.flow == FlowId::NONE || entry.is_queued || entry.ready.is_empty() {
            return;
        }
        entry.is_queued = true;
        let flow = entry.flow;
        self.flows.get(flow).lanes.push_back(host);
    }

    /// The host whose turn it is.
    pub fn next_lane(&mut self, flow: FlowId) -> Option<HostId> {
        self.flows.get(flow).lanes.front().copied()
    }

    /// The host whose turn it is has had it: it goes to the end, or, with `is_over`, out of the
    /// list.
    pub fn end_turn(&mut self, flow: FlowId, is_over: bool) {
        let Some(host) = self.flows.get(flow).lanes.pop_front() else { return };
        if is_over {
            self.get_mut(host).is_queued = false;
        } else {
            self.flows.get(flow).lanes.push_back(host);
        }
    }

    /// Takes a rule that is to be looked at.
    pub fn next_flow(&mut self, tick: Tick) -> Option<FlowId> {
        let flows = &mut self.flows;
        if let Some((at, flow)) = flows.wakes.first().copied()
            && at <= tick
        {
            flows.wakes.pop_first();
            let entry = flows.get(flow);
            entry.wakes_at = None;
            if entry.moment.is_some_and(|moment| moment <= tick.begins()) {
                entry.come_at.get_or_insert(tick.begins());
            }
            return Some(flow);
        }
        let own = flows.own;
        let is_woken = |flow: &FlowId| {
            let meter = flows.table.all().get(flow.place()).map(|one| &one.meter);
            meter.is_some_and(|meter| !meter.is_waiting(own))
        };
        let at = flows.waiters.iter().position(is_woken)?;
        let flow = flows.waiters.swap_remove(at);
        flows.get(flow).waits_for_place = false;
        Some(flow)
    }

    /// Looks at a rule again in a later turn.
    pub fn look_again(&mut self, flow: FlowId, tick: Tick) {
        self.flows.wake_at(flow, tick);
    }

    /// When a rule is to be looked at.
    pub fn flows_wake(&self) -> Option<Tick> {
        self.flows.wakes.first().map(|(tick, _)| *tick)
    }

    /// Takes a core that is to be woken.
    pub fn next_woken(&mut self) -> Option<ShardIndex> {
        self.flows.woken.pop()
    }

    /// Checks that hosts and rules agree.
    pub(super) fn audit_flows(&self) -> Result<(), String> {
        let flows = &self.flows;
        for (at, flow) in flows.flows.iter().enumerate() {
            let of = |host: &&Host| host.flow.place() == at;
            let in_flight: u32 = self.iter().filter(of).map(|host| host.in_flight).sum();
            let queued = self.iter().filter(of).filter(|host| host.is_queued).count();
            if flow.taken != in_flight + flow.kept || flow.kept > 0 {
                let Flow { taken, kept, .. } = flow;
                return Err(format!("rule {at}: {in_flight} run, {taken} taken, {kept} kept"));
            }
            if queued != flow.lanes.len() {
                return Err(format!("rule {at}: {queued} queued, {} listed", flow.lanes.len()));
            }
            let wakes_at = flow.wakes_at.map(|tick| (tick, FlowId::of(at)));
            if wakes_at.is_some_and(|wake| !flows.wakes.contains(&wake)) {
                return Err(format!("rule {at}: is woken at {wakes_at:?}, which is not listed"));
            }
        }
        Ok(())
    }
}
