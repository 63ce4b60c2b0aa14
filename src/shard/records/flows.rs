//! The rules of destinations on one core: which hosts each holds for, and when the next callback
//! may begin. A rule counts for all hosts that it holds for together; their lists take turns.
//!
//! - A *moment* is taken from the meter of the node, which spaces moments by the rate. The core
//!   takes one ahead and sleeps until then, so that cores take turns.
//! - A *place* is taken from the meter as well. Where all are taken, the core is noted there. The
//!   core that gives one back wakes it.
//! - While a destination is paused, its pops stay in their lists, and nothing looks at them.

// May panic: indices 2.
// Why it does not: listed 2.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::base::destinations::{Destination, DestinationTable, Share};
use crate::base::ids::{HostId, ShardIndex};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{MonoNs, Now, Tick};
use crate::wire::destination::destination_to;

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

    /// The rule at a place of the table.
    pub(super) fn of(place: usize) -> Self {
        FlowId(place as u16)
    }

    /// Its place in the table.
    pub(super) fn place(self) -> usize {
        self.0.into()
    }
}

/// What one core uses of a rule.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Hosts with waiting pops, in the order of their turns.
    pub lanes: VecDeque<HostId>,
    /// Places of the meter that this core has taken.
    pub taken: u32,
    /// Of these, places without a callback.
    pub kept: u32,
    /// When the next attempt may begin.
    pub moment: Option<MonoNs>,
    /// Since when the core has known that the moment has come.
    pub come_at: Option<MonoNs>,
    pub wakes_at: Option<Tick>,
    pub waits_for_place: bool,
}

/// All rules on one core.
#[derive(Debug)]
pub(super) struct Flows {
    pub own: ShardIndex,
    pub share: Share,
    /// When some rule last ceased to hold.
    pub unruled_at: Tick,
    pub table: Arc<DestinationTable>,
    /// One for each rule, in the order of the table.
    pub flows: Vec<Flow>,
    /// When rules are to be looked at.
    pub wakes: BTreeSet<(Tick, FlowId)>,
    /// Rules that wait for a place.
    pub waiters: Vec<FlowId>,
    /// Cores to be woken.
    pub woken: Vec<ShardIndex>,
}

impl Flows {
    pub fn new(own: ShardIndex) -> Self {
        Self {
            own,
            share: Share::WHOLE,
            unruled_at: Tick(0),
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
        place.map_or(FlowId::NONE, FlowId::of)
    }

    pub fn get(&mut self, flow: FlowId) -> &mut Flow {
        &mut self.flows[flow.place()]
    }

    pub fn destination(&self, flow: FlowId) -> Option<&Destination> {
        self.table.all().get(flow.place())
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

    pub fn is_ready(&mut self, flow: FlowId, now: Now) -> bool {
        let table = Arc::clone(&self.table);
        let Destination { rule, meter, .. } = &table.all()[flow.place()];
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
    pub fn wait_for_place(&mut self, flow: FlowId, tick: Tick) {
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

    pub fn wake_at(&mut self, flow: FlowId, tick: Tick) {
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
    pub fn settle(&mut self, flow: FlowId) {
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
