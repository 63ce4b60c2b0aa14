//! Looks into the shards: which node holds which timer (T10, C1, C2, C4), and what is left at the
//! end.

use chronos::base::ids::TimerId;
use chronos::shard::inspect::Held;

use super::clocks::WALL_MS;
use super::disturbances::{Disturbances, RECOVERY_NS};
use super::model::{Checked, MS, Write, broken};
use super::network::CoreAt;
use super::story_plan::{Kind, Operation, Target};
use super::world::{CLEANINGS_AT_ONE_NODE, World};
use chronos::shard::effects::CallbackOutcome;
use kit::simulator::random::{Purpose, Stream};

/// How far a clock is off at most that is not wrong.
const SKEW_MS: i64 = 40_000;

impl World {
    /// Returns what every running node holds of a timer.
    pub fn holders(&self, id: u64) -> Vec<(usize, Held)> {
        let id = TimerId(id);
        let mut held = Vec::new();
        for (number, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up()) {
            let found = node.cores.iter().flatten().find_map(|core| core.core.shard().held(id));
            held.extend(found.map(|found| (number, found)));
        }
        held
    }

    /// Notes which of the timers that a process popped it no longer holds. If all nodes that have
    /// such a timer fail, the process may get an older copy back.
    pub fn note_forgotten(&mut self, place: CoreAt) {
        let cores = &self.nodes[place.node].cores;
        let holds = |id: u64| {
            cores.iter().flatten().any(|core| core.core.shard().held(TimerId(id)).is_some())
        };
        self.model.forget_unless(place, holds);
    }

    /// Returns the nodes that a timer should be on when all members live.
    fn placed(&self, id: u64, factor: u8) -> u8 {
        let masks = self.options.sites.map_or(vec![u8::MAX], |sites| sites.masks().to_vec());
        let placed = |mask: u8| self.placed_in(mask & self.members.new_cluster(), id, factor);
        masks.into_iter().map(placed).fold(0, |all, placed| all | placed)
    }

    fn placed_in(&self, site: u8, id: u64, factor: u8) -> u8 {
        let is_up = |node: &usize| self.nodes[*node].is_up() && site >> node & 1 == 1;
        let Some(up) = (0..self.nodes.len()).find(is_up) else { return 0 };
        let view = &self.nodes[up].view;
        let list = view.place(TimerId(id), factor, view.new_nodes());
        let name_of = |peer| view.name_of(peer).to_owned();
        let names: Vec<String> = view.peers_of(&list).iter().map(name_of).collect();
        (0..self.options.all_nodes())
            .filter(|node| names.contains(&self.nodes[*node].name))
            .fold(0, |mask, node| mask | 1 << node)
    }

    /// Checks T10, C1, C2 and C4: at quiet times, nodes hold what they should.
    pub fn agree(&self) -> Checked {
        let now_ns = self.now_ns;
        let disturbances = &self.model.disturbances;
        if !disturbances.is_quiet(now_ns.saturating_sub(RECOVERY_NS), now_ns) {
            return Ok(());
        }
        for (id, names) in &self.model.timers {
            let current = names.iter().map(|name| &self.model.writes[name]).find(|write| {
                write.acknowledged_ns().is_some_and(|at| at + self.model.talk_ns < now_ns)
                    && self.model.is_current(write, now_ns)
            });
            // What only a node has that is down is not lost, and on no node that is up.
            let is_gone = |write: &&Write| match self.are_all_up() {
                true => self.model.may_be_lost(write, now_ns),
                false => self.model.may_be_unknown(write, now_ns),
            };
            if let Some(write) = current.filter(|write| !is_gone(write))
                && !self.model.is_acted_on(*id, now_ns)
            {
                self.agree_on(*id, write, disturbances)?;
            }
        }
        Ok(())
    }

    /// Reports whether all members run.
    pub fn are_all_up(&self) -> bool {
        let members = (0..self.nodes.len()).filter(|node| self.members.is_member(*node));
        members.into_iter().all(|node| self.nodes[node].is_up())
    }

    /// How many members do not run.
    fn down(&self) -> u32 {
        let is_down = |node: &usize| self.members.is_member(*node) && !self.nodes[*node].is_up();
        (0..self.nodes.len()).filter(is_down).count() as u32
    }

    fn agree_on(&self, id: u64, write: &Write, disturbances: &Disturbances) -> Checked {
        let now_ns = self.now_ns;
        let holders = self.holders(id);
        let newest = holders.iter().map(|(_, held)| held.version).max();
        let text = || format!("{id:x} {write:?} at {} ms: {holders:#?}", now_ns / MS);
        let lives = |held: &Held| held.is_live && Some(held.version) == newest;
        if write.wish.is_none() {
            let from_ns = write.sent_ns.saturating_sub(2 * RECOVERY_NS);
            let earlier = self.model.timers[&id].iter().map(|name| &self.model.writes[name]);
            let earlier = earlier.filter(|earlier| earlier.wish.is_some());
            let may_return =
                earlier.into_iter().any(|it| self.model.may_return(it, from_ns, now_ns));
            let steady_ns = now_ns.saturating_sub(RECOVERY_NS / 2);
            if !self.model.is_steady(steady_ns, now_ns) {
                return Ok(());
            }
            if !may_return && holders.iter().any(|(_, held)| held.is_live) {
                return broken("T6", text());
            }
            return Ok(());
        }
        let down = self.down();
        if self.model.may_be_over(write, now_ns) {
            return self.is_in_a_letter(write, (&holders, down));
        }
        let live = holders.iter().filter(|(_, held)| lives(held)).count() as u32;
        let is_known = self
            .model
            .reloads
            .iter()
            .all(|reload| reload.1 < now_ns || write.acknowledged_ns() < Some(reload.0));
        // A node that comes back without room leaves the timers to the other nodes.
        let lacking =
            u32::from(self.model.is_crowded(write.wish.map_or(1, |wish| wish.factor), true));
        let replicas = write.replicas.saturating_sub(down);
        if is_known && live < replicas.saturating_sub(lacking).max(replicas.min(1)) {
            return broken("C2", format!("{live} of {}: {}", write.replicas, text()));
        }
        if !self.model.is_steady(now_ns.saturating_sub(RECOVERY_NS / 2), now_ns) {
            return Ok(());
        }
        if holders.iter().any(|(_, held)| held.is_live && !lives(held)) {
            return broken("T10", text());
        }
        let sites = holders.iter().filter(|(_, held)| lives(held)).map(|(_, held)| held.sites);
        let sites: Vec<_> = sites.collect();
        if sites.iter().any(|other| *other != sites[0]) {
            return broken("T10 sites", text());
        }
        let pops = self.model.pops.range((write.name, 0)..=(write.name, u64::MAX));
        let told = pops.filter(|(_, seen)| {
            seen.iter().any(|one| {
                matches!(one.told, Some((at, CallbackOutcome::Delivered)) if at + self.model.talk_ns < now_ns)
            })
        });
        let told = told.map(|(key, _)| key.1).max().unwrap_or(0);
        if holders.iter().any(|(_, held)| lives(held) && held.sequence < told) {
            return broken("T10", format!("{told} was told: {}", text()));
        }
        let calm_ns = now_ns.saturating_sub(RECOVERY_NS + 5_000 * MS);
        let is_settled = down == 0
            && self.options.has_room()
            && self.members.since_ns.is_none()
            && self.members.ended_ns < calm_ns
            && disturbances.is_quiet(calm_ns, now_ns);
        if is_settled { self.is_where_it_belongs(id, write, &holders) } else { Ok(()) }
    }

    /// Checks C1: the live copies of a timer are on the nodes of its list.
    fn is_where_it_belongs(&self, id: u64, write: &Write, holders: &[(usize, Held)]) -> Checked {
        let placed = self.placed(id, write.wish.map_or(1, |wish| wish.factor));
        let live = holders.iter().filter(|(_, held)| held.is_live);
        let holding = live.fold(0_u8, |mask, (node, _)| mask | 1 << node);
        if placed != holding {
            let text = format!("{id:x} {write:?} at {} ms: {holders:#?}", self.now_ns / MS);
            return broken("C1", format!("on {holding:05b}, not {placed:05b}: {text}"));
        }
        Ok(())
    }

    /// How far ahead of the world's the clocks of the other site are by what a node knows of them.
    /// It goes by what it has heard last, also in a cut, and nodes that can talk hear each other
    /// within seconds.
    fn known_ahead_ms(&self, node: usize, sent_ns: u64) -> i64 {
        let Some(sites) = self.options.sites else { return 0 };
        let from_ns = sent_ns.saturating_sub(RECOVERY_NS);
        let heard_ns = if self.model.is_steady(from_ns, self.now_ns) { from_ns } else { 0 };
        let others = (0..sites.nodes).filter(|other| sites.site_of(*other) != sites.site_of(node));
        others.map(|other| self.nodes[other].clocks.most_ahead_ms(heard_ns)).max().unwrap_or(0)
    }

    /// Checks V1: a new timer's version tells the time, as long as its node's clock is right, or
    /// the time of the other site, if that is later. No clock has learnt from a wrong clock of its
    /// site.
    fn is_of_its_time(&self, name: usize) -> Checked {
        let (write, asked) = (&self.model.writes[&name], &self.asked[&name]);
        let is_right = self.nodes[asked.node].clocks.is_right_since(write.sent_ns);
        let Some(id) = write.id.filter(|_| asked.ask.id.is_none() && is_right) else {
            return Ok(());
        };
        let skew_ms = self.options.cluster.clock_skew_max_ms as i64;
        let ahead_ms = self.known_ahead_ms(asked.node, write.sent_ns).max(SKEW_MS);
        let latest_ms = WALL_MS + (self.now_ns / MS) as i64 + skew_ms + ahead_ms;
        let holders = self.holders(id);
        match holders.iter().find(|(_, held)| held.version.wall().0 as i64 > latest_ms) {
            Some(holder) => broken("V1", format!("{name} at {} ms: {holder:?}", self.now_ns / MS)),
            None => Ok(()),
        }
    }

    /// Checks C2 and T10: when a write is acknowledged and nothing is wrong, all its replicas have
    /// it.
    pub fn answer_checks(&self, name: usize) -> Checked {
        self.is_of_its_time(name)?;
        let write = &self.model.writes[&name];
        let from_ns = write.sent_ns.saturating_sub(RECOVERY_NS);
        let is_alone = self.model.is_current(write, self.now_ns);
        let Some(id) = write.id else { return Ok(()) };
        if !self.model.is_steady(from_ns, self.now_ns)
            || self.options.cluster.acknowledge == chronos::base::limits::Acknowledge::First
            || !is_alone
            || write.pops() == 0
            || self.model.pops.contains_key(&(name, 1))
            || self.model.is_acted_on(id, self.now_ns)
        {
            return Ok(());
        }
        let holders = self.holders(id);
        // Another site finds an end that a wrong clock has made to be earlier when it hears of the
        // write.
        let skew_ms = self.options.cluster.clock_skew_max_ms as i64 + SKEW_MS;
        let latest_ms = WALL_MS + (self.now_ns / MS) as i64 + skew_ms;
        let is_end_of_wrong_clock =
            |held: &Held| !held.is_live && held.version.wall().0 as i64 > latest_ms;
        let known = holders.iter().map(|(_, held)| held);
        let known = known.filter(|held| !self.model.has_sites || !is_end_of_wrong_clock(held));
        let newest = known.map(|held| held.version).max();
        let down = self.down();
        let have =
            holders.iter().filter(|(_, held)| held.is_live && Some(held.version) == newest).count()
                as u32;
        if have < write.replicas.saturating_sub(down) {
            return broken("C2", format!("{name} acknowledged on {have}: {write:?} {holders:#?}"));
        }
        Ok(())
    }

    /// Deletes timers that would live on.
    pub fn clean(&mut self, round: u64) {
        let mut ids: Vec<TimerId> = Vec::new();
        for core in self.nodes.iter().flat_map(|node| node.cores.iter().flatten()) {
            ids.extend(core.core.shard().live_ids());
        }
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            self.cleaned += 1;
            let up: Vec<usize> =
                (0..self.nodes.len()).filter(|node| self.nodes[*node].takes_requests()).collect();
            let draw = &mut Stream::keyed(self.options.seed, Purpose::Cleaning, id.0);
            let mut node = draw.pick(&up);
            if round >= CLEANINGS_AT_ONE_NODE {
                node = up[id.0.wrapping_add(round) as usize % up.len()];
            }
            let operation = Operation {
                name: 1_000_000 + self.cleaned,
                at_ns: self.now_ns,
                node,
                kind: Kind::Delete(Target::Chosen(id.0)),
                patience_ms: 5_000,
                loses_reply: false,
            };
            self.operate(operation, 0, node);
        }
    }

    /// Checks T6, T10 and R2 when nothing moves any more.
    pub fn at_rest(&self) -> Checked {
        // While a node is away, tombstones of several sites stay for a day.
        let is_one_away = self.nodes.iter().any(|node| !node.is_up());
        let are_kept = is_one_away && self.options.sites.is_some();
        for (number, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_up()) {
            for core in node.cores.iter().flatten() {
                let shard = core.core.shard();
                if let Err(what) = shard.audit() {
                    return broken("T10", format!("node {number}: {what}"));
                }
                let held = shard.counters();
                // A key is remembered for longer than a run lasts.
                let ended = match are_kept {
                    true => 0,
                    false => held.tombstones.saturating_sub(self.model.versions.keys()),
                };
                if (held.timers, ended, held.in_flight, held.waiting) != (0, 0, 0, 0) {
                    let ids = self.model.timers.keys();
                    let left: Vec<_> =
                        ids.filter(|id| shard.held(TimerId(**id)).is_some()).collect();
                    return broken("T6 leak", format!("node {number}: {left:?}, {held:?}"));
                }
            }
        }
        if let Some((_, name)) = self.unanswered.iter().find(|(_, name)| {
            let asked = &self.asked[name];
            Some(self.nodes[asked.node].life) == asked.life && self.nodes[asked.node].is_up()
        }) {
            return broken("R2", format!("request {name} is never answered"));
        }
        Ok(())
    }
}
