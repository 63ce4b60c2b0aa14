//! A node whose disk is full now and then. It dies meanwhile, alone or with all others, and starts
//! with the disk still full. Nothing excuses a pop of what was deleted or replaced meanwhile: other
//! nodes have what this one could not write.

use chronos::core::journal::NoSegment;
use kit::simulator::random::Stream;

use super::options::Options;
use super::rarities::Rarity;
use super::story_plan::{Death, Fault};
use super::world::{Event, World};

const MS: u64 = 1_000_000;

impl Options {
    /// Whether a disk is full now and then. One site tells the other once, and may find no room
    /// there.
    pub fn has_full_disks(&self) -> bool {
        self.sites.is_none() && self.rarities.kinds.contains(&Rarity::FullDisk)
    }
}

/// Makes the disk of one node full, again and again.
pub fn full_disks(draw: &mut Stream, options: &Options, made: &mut Vec<(u64, Fault)>) {
    if !options.has_full_disks() {
        return;
    }
    let node = draw.range(0, options.nodes as u64 - 1) as usize;
    let mut at_ms = draw.range(500, 10_000);
    while at_ms < options.safety_ms {
        let ms = draw.pick(&[1_000, 6_000, 25_000, 40_000]);
        made.push((at_ms * MS, Fault::FullDisk { node, ms }));
        let killed_ms = at_ms + draw.range(0, ms);
        let how = draw.pick(&[Death::Process, Death::Power]);
        let for_ms = draw.pick(&[20, 700, 5_000, 12_000]);
        match draw.range(0, 9) {
            0..4 => made.push((killed_ms * MS, Fault::Kill { node, for_ms, how })),
            4..6 => {
                for node in 0..options.nodes {
                    let at_ns = killed_ms * MS + draw.range(0, 5 * MS);
                    made.push((at_ns, Fault::Kill { node, for_ms, how }));
                }
            }
            _ => {}
        }
        at_ms += ms + draw.pick(&[500, 5_000, 20_000]);
    }
}

impl World {
    /// Takes the room of a node's disk for a time.
    pub fn fill_disk(&mut self, node: usize, ms: u64) {
        let until_ns = self.now_ns + ms * MS;
        let full = &mut self.nodes[node];
        let Some(store) = full.store.as_mut() else { return };
        store.room = Some(NoSegment::Full);
        full.full_until_ns = until_ns;
        self.trace.add(self.now_ns, "full", [node as u64, ms, 0, 0]);
        self.schedule(until_ns, Event::Room { node, until_ns });
    }

    /// Gives a disk room again, unless it was filled anew.
    pub fn make_room(&mut self, node: usize, until_ns: u64) {
        let full = &mut self.nodes[node];
        if let Some(store) = full.store.as_mut().filter(|_| full.full_until_ns == until_ns) {
            store.room = None;
        }
    }
}
