//! The file of a standalone server. A store may take long, fail, or be lost with the process. In
//! the last case the file holds the old bound or the new one.

use chronos::timestamp::Timestamp;
use chronos::timestamp::standalone::{FileEffect, FileEvent};
use kit::simulator::random::Stream;

use super::model::MS;
use super::servers::{Decided, Keeper, News};
use super::world::World;

#[derive(Debug, Default)]
pub struct Disk {
    /// The bound after the last store that succeeded.
    old: Timestamp,
    /// The bounds that the file may hold since.
    news: Vec<Timestamp>,
    /// The next stores: how long each takes, and whether it fails.
    pub troubles: Vec<(u64, bool)>,
}

impl Disk {
    pub fn new(content: Timestamp) -> Self {
        Self { old: content, ..Self::default() }
    }

    /// Returns the bound that a process finds that starts now.
    pub fn content(&mut self, draw: &mut Stream) -> Timestamp {
        self.news.push(self.old);
        self.old = draw.pick(&self.news);
        self.news.clear();
        self.old
    }

    /// Returns the least bound that a process could find that starts now.
    pub fn least(&self) -> Timestamp {
        self.news.iter().copied().fold(self.old, Timestamp::min)
    }

    pub fn crash(&mut self) {
        self.troubles.clear();
    }
}

impl World {
    pub fn file_effect(&mut self, server: usize, effect: FileEffect) {
        let now = self.servers[server].clocks.now(self.now_ns);
        let one = &mut self.servers[server];
        match effect {
            FileEffect::Store(bound) => {
                let usual_ms = self.interleaving.range(0, 20);
                let trouble = one.disk.troubles.pop();
                let (ms, fails) = trouble.unwrap_or((usual_ms, false));
                one.disk.news.push(bound);
                self.trace.add(self.now_ns, "store", [bound.0, ms, u64::from(fails), 0]);
                let event = if fails { FileEvent::StoreFailed } else { FileEvent::Stored };
                if fails && self.interleaving.chance(50) {
                    self.servers[server].disk.news.pop();
                }
                self.news(server, ms * MS + 1_000, News::File(event));
            }
            FileEffect::Begin(floor, terms) => {
                self.trace.add(self.now_ns, "begins", [server as u64, floor.0, 0, 0]);
                one.oracle.begin(floor, &terms);
                self.model.begins(server, now.mono < terms.until);
            }
            FileEffect::Publish(terms) => one.oracle.publish(&terms),
            FileEffect::Revoke => {
                let last = one.oracle.revoke();
                let Keeper::File(keeper) = &mut one.keeper else { return };
                let mut effects = Vec::new();
                keeper.handle(now, FileEvent::Revoked { last }, &mut effects);
                self.carry_out(server, Decided::File(effects));
            }
            FileEffect::Clock(_) => {}
            FileEffect::Stopped => self.stopped(server),
        }
    }

    /// Notes that a store has succeeded, so the file holds its bound.
    pub fn file_is_stored(&mut self, server: usize) {
        let disk = &mut self.servers[server].disk;
        if let Some(new) = disk.news.last().copied() {
            disk.old = new;
            disk.news.clear();
        }
    }
}
