//! The rules of destinations on one core: which hosts each holds for, and when the next callback
//! may begin. A rule counts for all hosts that it holds for together; their lists take turns.
//!
//! - A *moment* is taken from the meter of the node, which spaces moments by the rate. The core
//!   takes one ahead and sleeps until then, so that cores take turns.
//! - A *place* is taken from the meter as well. Where all are taken, the core is noted there. The
//!   core that gives one back wakes it.
//! - While a destination is paused, its pops stay in their lists, and nothing looks at them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::base::destinations::{Destination, DestinationTable, Share};
use crate::base::ids::{HostId, ShardIndex};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{MonoNs, Now, Tick};
use crate::wire::destination::destination_to;

use super::hosts::Hosts;

/// A moment that the core has not used for so long since it saw that it had come is left unused.
const MOMENT_LASTS_MS: u64 = 20;
/// How often a core that waits for a place looks by itself. It is woken before, unless the core
/// that was to have the place hangs.
const LOOK_FOR_PLACE_MS: u64 = 250;

/// A rule, as a core numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowId(u16);

impl FlowId {
    /// No rule.
    pub const NONE: FlowId = FlowId(u16::MAX);
}

/// What one core uses of a rule.
#[derive(Debug, Default)]
struct Flow {
    /// Hosts with waiting pops, in the order of their turns.
    lanes: VecDeque<HostId>,
    /// Places of the meter that this core has taken.
    taken: u32,
    /// Of these, places without a callback.
    kept: u32,
    /// When the next attempt may begin.
    moment: Option<MonoNs>,
    /// Since when the core has known that the moment has come.
    come_at: Option<MonoNs>,
    wakes_at: Option<Tick>,
    waits_for_place: bool,
}

/// All rules on one core.
#[derive(Debug)]
pub(super) struct Flows {
    own: ShardIndex,
    share: Share,
    table: Arc<DestinationTable>,
    /// One for each rule, in the order of the table.
    flows: Vec<Flow>,
    /// When rules are to be looked at.
    wakes: BTreeSet<(Tick, FlowId)>,
    /// Rules that wait for a place.
    waiters: Vec<FlowId>,
    /// Cores to be woken.
    woken: Vec<ShardIndex>,
}

impl Flows {
    pub fn new(own: ShardIndex) -> Self {
        Self {
            own,
            share: Share::WHOLE,
            table: Arc::default(),
            flows: Vec::new(),
            wakes: BTreeSet::new(),
            waiters: Vec::new(),
            woken: Vec::new(),
        }
    }

    /// The rule that holds for an authority.
    pub fn of(&self, authority: &str) -> FlowId {
        if self.flows.is_empty() {
            return FlowId::NONE;
        }
        let place = self.table.place_for(&destination_to(authority));
        place.map_or(FlowId::NONE, |place| FlowId(place as u16))
    }

    fn get(&mut self, flow: FlowId) -> &mut Flow {
        &mut self.flows[usize::from(flow.0)]
    }

    fn destination(&self, flow: FlowId) -> Option<&Destination> {
        self.table.all().get(usize::from(flow.0))
    }

    /// A callback begins, for which [`Flows::is_ready`] has kept moment and place.
    pub fn take(&mut self, flow: FlowId) {
        let entry = self.get(flow);
        entry.kept -= 1;
        if !is_planted(Bug::MomentUsedTwice) {
            (entry.moment, entry.come_at) = (None, None);
        }
    }

    /// A callback has ended: its place is kept for the next.
    pub fn keep(&mut self, flow: FlowId) {
        self.get(flow).kept += 1;
    }

    pub fn unqueue(&mut self, flow: FlowId, host: HostId) {
        self.get(flow).lanes.retain(|lane| *lane != host);
    }

    fn is_ready(&mut self, flow: FlowId, now: Now) -> bool {
        let table = Arc::clone(&self.table);
        let Destination { rule, meter, .. } = &table.all()[usize::from(flow.0)];
        if rule.is_paused && !is_planted(Bug::PauseOverlooked) {
            return false;
        }
        let (own, share) = (self.own, self.share);
        let entry = self.get(flow);
        if let Some(rate) = rule.per_1000_s {
            let lasts = entry.come_at.is_none_or(|at| at.plus_ms(MOMENT_LASTS_MS) >= now.mono);
            let kept = entry.moment.filter(|_| lasts);
            let moment = kept.unwrap_or_else(|| meter.reserve(now.mono, share.pause_ns(rate)));
            entry.moment = Some(moment);
            if kept.is_none() {
                entry.come_at = None;
            }
            if moment > now.mono {
                self.wake_at(flow, moment.tick_ceil());
                return false;
            }
            entry.come_at.get_or_insert(now.mono);
        }
        let entry = self.get(flow);
        let max = rule.max_in_flight.map(|max| share.places(max));
        // Before the rule, or the death of a node, more may have begun.
        if entry.kept > 0 && max.is_none_or(|max| meter.places() <= max) {
            return true;
        }
        let kept = std::mem::take(&mut entry.kept);
        entry.taken -= kept;
        meter.give_back(kept);
        match max {
            None => meter.add_places(1),
            Some(max) if meter.take_place(max) => {}
            Some(max) => {
                meter.wait(own);
                if !meter.take_place(max) {
                    self.wait_for_place(flow, now.mono.tick_floor());
                    return false;
                }
            }
        }
        entry.kept += 1;
        entry.taken += 1;
        self.wait_no_more(flow);
        true
    }

    /// Notes that the core waits for a place, and has been noted in the meter.
    fn wait_for_place(&mut self, flow: FlowId, tick: Tick) {
        if !std::mem::replace(&mut self.get(flow).waits_for_place, true) {
            self.waiters.push(flow);
        }
        self.wake_at(flow, tick + LOOK_FOR_PLACE_MS);
    }

    fn wait_no_more(&mut self, flow: FlowId) {
        if std::mem::replace(&mut self.get(flow).waits_for_place, false) {
            self.waiters.retain(|waiter| *waiter != flow);
        }
        let own = self.own;
        if let Some(destination) = self.destination(flow)
            && destination.rule.max_in_flight.is_some()
        {
            destination.meter.stop_waiting(own);
        }
    }

    fn wake_at(&mut self, flow: FlowId, tick: Tick) {
        let former = self.get(flow).wakes_at;
        if former.is_some_and(|former| former <= tick) {
            return;
        }
        if let Some(former) = former {
            self.wakes.remove(&(former, flow));
        }
        self.get(flow).wakes_at = Some(tick);
        self.wakes.insert((tick, flow));
    }

    /// Gives back places that are kept without need, and wakes a core that waits for one.
    fn settle(&mut self, flow: FlowId) {
        let own = self.own;
        let kept = std::mem::take(&mut self.get(flow).kept);
        self.get(flow).taken -= kept;
        if self.get(flow).lanes.is_empty() {
            self.wait_no_more(flow);
        }
        let share = self.share;
        let Some(Destination { rule, meter, .. }) = self.destination(flow) else { return };
        if kept > 0 {
            meter.give_back(kept);
        }
        let Some(max) = rule.max_in_flight else { return };
        let is_free = meter.places() < share.places(max);
        let next = if is_free { meter.next_waiting(own) } else { None };
        self.woken.extend(next);
    }
}

/// What rules do to hosts.
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
        let mut waiting = Vec::new();
        for (place, host) in (0..).zip(&mut self.places) {
            let Some(host) = host else { continue };
            let before = former.all().get(usize::from(host.flow.0));
            host.flow = self.flows.of(self.authorities.text(host.authority));
            host.is_queued = false;
            let after = self.flows.destination(host.flow);
            let is_paused = |one: Option<&Destination>| one.is_some_and(|one| one.rule.is_paused);
            if is_paused(before) && !is_paused(after) {
                host.resumed_at = tick;
            }
            if host.flow != FlowId::NONE {
                self.flows.get(host.flow).taken += host.in_flight;
            }
            if !host.ready.is_empty() {
                waiting.push(HostId(place));
            }
        }
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

    /// The rules that hold.
    #[cfg(test)]
    pub fn destinations(&self) -> Arc<DestinationTable> {
        Arc::clone(&self.flows.table)
    }

    /// Sets which share of all rules this node has.
    pub fn set_share(&mut self, share: Share) {
        self.flows.share = share;
    }

    /// The rule that holds for a host; `None`: there is none.
    #[inline]
    pub fn flow_of(&self, host: HostId) -> Option<FlowId> {
        let flow = self.get(host).flow;
        (flow != FlowId::NONE).then_some(flow)
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
            let meter = flows.table.all().get(usize::from(flow.0)).map(|one| &one.meter);
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
            let of = |host: &&super::hosts::Host| usize::from(host.flow.0) == at;
            let in_flight: u32 = self.iter().filter(of).map(|host| host.in_flight).sum();
            let queued = self.iter().filter(of).filter(|host| host.is_queued).count();
            if flow.taken != in_flight + flow.kept || flow.kept > 0 {
                let Flow { taken, kept, .. } = flow;
                return Err(format!("rule {at}: {in_flight} run, {taken} taken, {kept} kept"));
            }
            if queued != flow.lanes.len() {
                return Err(format!("rule {at}: {queued} queued, {} listed", flow.lanes.len()));
            }
            let wakes_at = flow.wakes_at.map(|tick| (tick, FlowId(at as u16)));
            if wakes_at.is_some_and(|wake| !flows.wakes.contains(&wake)) {
                return Err(format!("rule {at}: is woken at {wakes_at:?}, which is not listed"));
            }
        }
        Ok(())
    }
}
