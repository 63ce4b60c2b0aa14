//! Flow control: pops that wait because of the rule of their destination (`records::flows`).
//!
//! - A pop that waits has not failed. While it waits, nothing is done for it.
//! - When its turn comes, the pops of its timer that are over by then are given up and counted: a
//!   repeating timer makes its present pop, not those that it missed. So it is, too, when the rule
//!   is taken away.
//! - The rank that a pop waits at keeps it while it lives, however long that takes: two ranks that
//!   wait for one pop would make it at the same time, or in another order. The other ranks ask
//!   whether it is at it, and come again later. While the destination is paused they do not even
//!   ask. So do other sites ([`crate::shard::sites`]), whatever their own rules are.

use std::sync::Arc;

use crate::base::destinations::DestinationTable;
use crate::base::ids::{HostId, PeerIndex, ShardIndex, Slot};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::{Now, Tick};
use crate::wire::dead_letter::GivenUp;
use crate::wire::peer_message::{PeerMessage, PeerRefusal, PeerResult};

use super::Shard;
use super::effects::{HostState, Outbox, Purpose};
use super::parts::peers::Teller;
use super::records::{FlowId, Host, Next, Record};

/// Most pops of a rule that are looked at in one turn. Most of them begin or are left to the next
/// rank.
const LOOKS_PER_TURN_MAX: usize = 256;
/// Most messages with orders that are passed on in a turn.
const ORDERS_PER_TURN_MAX: usize = 128;

impl Shard {
    /// Takes the rules of destinations that hold from now on. What they let start starts in the
    /// next tick. The driver shares them with other shards.
    pub fn set_flow_rules(&mut self, now: Now, table: Arc<DestinationTable>) {
        let tick = now.mono.tick_floor();
        let waiting = self.records.hosts_mut().set_flow_rules(table, tick);
        self.pops.released = waiting;
    }

    /// Takes a core that waits for what this one gave back, to be woken.
    #[inline]
    pub fn next_woken(&mut self) -> Option<ShardIndex> {
        if !self.records.hosts().has_rules() {
            return None;
        }
        self.records.hosts_mut().next_woken()
    }

    /// Lets a pop, whose slot is in no list, wait for its host.
    pub(super) fn wait_at_host(&mut self, slot: Slot, host: HostId) {
        self.counters.held_by_rule += u64::from(self.records.hosts().get(host).has_rule());
        self.records.transition(slot, Next::Ready(host));
        self.records.hosts_mut().queue(host);
        self.list_if_short(host);
    }

    /// Starts waiting pops of a host that has a rule, and of others that have the same rule.
    #[inline(never)]
    pub(super) fn start_by_rule(
        &mut self,
        now: Now,
        host: HostId,
        flow: FlowId,
        outbox: &mut Outbox,
    ) {
        let hosts = self.records.hosts_mut();
        hosts.queue(host);
        if !hosts.yields(flow, now.mono.tick_floor()) {
            self.start_flow(now, flow, outbox);
        }
        self.records.hosts_mut().list_if_troubled(host);
        self.list_if_short(host);
    }

    /// Starts waiting pops as far as a rule and the places of its hosts allow.
    pub(super) fn start_flow(&mut self, now: Now, flow: FlowId, outbox: &mut Outbox) {
        let tick = now.mono.tick_floor();
        let mut looks = LOOKS_PER_TURN_MAX;
        while !self.pops.is_stopping
            && let Some(host) = self.records.hosts_mut().next_lane(flow)
        {
            let hosts = self.records.hosts_mut();
            if hosts.get(host).waiting() == 0 || !hosts.may_start(host, tick) {
                hosts.end_turn(flow, true);
                hosts.list_if_troubled(host);
                self.list_if_short(host);
                continue;
            }
            if looks == 0 {
                hosts.look_again(flow, tick + 1);
                break;
            }
            looks -= 1;
            if !hosts.is_ready(flow, now) {
                break;
            }
            hosts.end_turn(flow, false);
            let Some(slot) = self.records.next_waiting(host) else { continue };
            let record = self.skip_missed(tick, slot);
            if record.attempts > 0 && self.is_too_old(tick, &record) {
                self.give_up(now, slot, GivenUp::Age, outbox);
            } else if !self.is_doubtful(tick, slot, &record, outbox) {
                self.attempt(now, slot, &record, host, outbox);
            }
        }
        self.records.hosts_mut().settle(flow);
    }

    /// Whether a pop whose turn has come waits for what other nodes say of it. They were asked
    /// whether they make it before it was put into the list. A rank that said no leaves it to this
    /// one ever after. So they are asked again only if this core was away since.
    fn is_doubtful(
        &mut self,
        tick: Tick,
        slot: Slot,
        record: &Record,
        outbox: &mut Outbox,
    ) -> bool {
        self.is_unheard(slot, record.id) && self.waits_for_others(tick, slot, outbox)
    }

    /// Whether a pop whose destination is paused waits at a rank or at a site that comes before
    /// this one. Then nothing is to be done for it here. What that one did is asked when the pause
    /// is over.
    #[inline(never)]
    pub(super) fn is_left_while_paused(&self, tick: Tick, slot: Slot, record: &Record) -> bool {
        let before = || self.ranks_before(record).union(self.sites_before(tick, record));
        record.attempts == 0
            && self.records.hosts().pauses_all_of(record.authority)
            && !self.peers.is_alone()
            && !before().minus(self.peers.dead()).is_empty()
            && !self.is_unheard(slot, record.id)
    }

    /// Whether a pop was not tried and may be waiting at another rank because of a rule.
    pub(super) fn waits_by_rule(&self, record: &Record) -> bool {
        let host = self.records.hosts().host_of(record.authority);
        record.attempts == 0 && host.is_some_and(Host::has_rule)
    }

    /// The record of a pop whose turn has come where no rule holds. If the pop may have waited for
    /// a rule that was taken away since, the pops that its timer missed are given up first, as
    /// where a rule holds.
    #[inline]
    pub(super) fn without_missed(&mut self, tick: Tick, slot: Slot) -> Record {
        let record = *self.records.get(slot);
        let host = self.records.hosts().host_of(record.authority);
        let unruled_at = host.map_or(Tick(0), |host| host.unruled_at);
        if unruled_at == Tick(0)
            || self.records.pops_at(&record) > unruled_at
            || is_planted(Bug::RuleGoneKeepsMissed)
        {
            return record;
        }
        self.skip_missed(tick, slot)
    }

    /// Gives up the pops of a timer whose next pop is due here as well. Returns the record as it is
    /// then.
    pub(super) fn skip_missed(&mut self, tick: Tick, slot: Slot) -> Record {
        let record = *self.records.get(slot);
        let schedule = record.schedule();
        let delay_ms = self.records.pops_at(&record) - self.records.due(&record);
        let present = schedule.present(Tick(tick.0.saturating_sub(delay_ms)));
        if present <= record.sequence + 1 {
            return record;
        }
        self.counters.given_up += present - 1 - record.sequence;
        self.records.reach(slot, present - 1)
    }

    /// Sets what nodes that return are told of orders. Returns whether these are the first.
    pub fn set_orders(&mut self, messages: Arc<Vec<Box<[u8]>>>) -> bool {
        self.orders.replace(messages).is_none()
    }

    /// Tells a node that returns all orders, and that these are all.
    pub(super) fn tell_orders(&self, peer: PeerIndex, outbox: &mut Outbox) {
        let Some(orders) = &self.orders else { return };
        if !self.peers.view.connected_nodes().contains(peer) {
            return;
        }
        for lines in orders.iter().map(|lines| &**lines).chain([&[][..]]) {
            let bytes = outbox.encode(&PeerMessage::Orders(lines));
            outbox.tell(peer, Purpose::Hint, bytes);
        }
    }

    /// Passes on what a node of this site tells of orders. Each site has its own.
    pub(super) fn take_orders(
        &mut self,
        teller: Teller,
        lines: &[u8],
        outbox: &mut Outbox,
    ) -> PeerResult<'static> {
        let members = self.peers.view.connected_nodes();
        let Some(peer) = teller.peer.filter(|peer| members.contains(*peer)) else {
            return PeerResult::Refused(PeerRefusal::Malformed);
        };
        if outbox.orders.len() >= ORDERS_PER_TURN_MAX {
            return PeerResult::Busy;
        }
        outbox.orders.push((peer, lines.into()));
        PeerResult::Held
    }

    /// Appends how a portion of the hosts with lanes are, from the place `from` on. Returns where
    /// the next portion begins; `None`: this was the last.
    pub fn survey(
        &self,
        now: Now,
        (from, portion): (usize, usize),
        is_asked: impl Fn(&str) -> bool,
        found: &mut Vec<HostState>,
    ) -> Option<usize> {
        let (tick, hosts) = (now.mono.tick_floor(), self.records.hosts());
        for host in hosts.portion(from, portion) {
            if host.waiting() == 0 && host.in_flight() == 0 && host.failures() == 0 {
                continue;
            }
            let authority = hosts.authority_of(host);
            if !is_asked(authority) {
                continue;
            }
            let is_in_trouble = host.is_in_trouble();
            found.push(HostState {
                authority: authority.into(),
                waiting: host.waiting(),
                in_flight: host.in_flight(),
                failures: host.failures(),
                attempts_per_second: host.attempts_per_second(tick),
                next_probe_ms: is_in_trouble.then(|| host.probe_at - tick),
            });
        }
        let next = from + portion;
        (next < hosts.places()).then_some(next)
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
