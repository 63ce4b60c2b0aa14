//! Faults of whole sites: they are killed, frozen, cut off from each other.

use super::faults::Faults;
use super::history::Kind;

/// How long writes that were answered are given to reach the other sites, before a site loses its
/// disks: "a write is answered when the site that took it has it".
const TOLD_MS: u64 = 3_000;

impl Faults<'_> {
    /// Kills all nodes of a node's site at one moment. They come back with their journals, or with
    /// nothing.
    pub fn kill_site(&mut self, node: usize, kind: Kind) {
        let layout = self.nodes.layout();
        let places = layout.places_of(layout.site(node));
        let is_emptied = kind == Kind::EmptySite;
        if is_emptied {
            places.iter().for_each(|place| self.set_known(*place, false));
            self.wait(TOLD_MS, TOLD_MS);
        }
        let from = self.recorder.clock.now();
        for place in &places {
            self.nodes.kill(*place);
            self.nodes.set_serving(*place, false);
        }
        self.wait(0, 12_000);
        for place in &places {
            if is_emptied {
                self.nodes.lose_journal(*place);
            }
            self.nodes.spawn(*place);
        }
        for place in &places {
            self.nodes.await_ready(*place);
            self.nodes.set_stranger(*place, false);
        }
        self.settle_by_resync(kind, places[0], from);
    }

    fn set_known(&self, place: usize, is_known: bool) {
        self.nodes.set_serving(place, is_known);
        self.nodes.set_stranger(place, !is_known);
    }

    /// Freezes all nodes of a node's site.
    pub fn freeze_site(&mut self, node: usize) {
        let layout = self.nodes.layout();
        let places = layout.places_of(layout.site(node));
        let from = self.recorder.clock.now();
        for place in &places {
            self.nodes.signal(*place, "STOP");
            self.nodes.set_serving(*place, false);
        }
        self.wait(100, 8_000);
        for place in &places {
            self.nodes.signal(*place, "CONT");
            self.nodes.set_serving(*place, true);
        }
        self.settle_by_resync(Kind::FreezeSite, places[0], from);
    }

    /// Cuts two sites from each other, or one from the other.
    pub fn cut(&mut self) {
        let sites: Vec<usize> = (0..self.nodes.layout().sites).collect();
        let one = self.draw.pick(&sites);
        let others: Vec<usize> = sites.into_iter().filter(|site| *site != one).collect();
        let other = self.draw.pick(&others);
        let is_both = self.draw.chance(70);
        let from = self.recorder.clock.now();
        for is_cut in [true, false] {
            self.nodes.network().set_cut(one, other, is_cut);
            if is_both {
                self.nodes.network().set_cut(other, one, is_cut);
            }
            if is_cut {
                self.wait(100, 15_000);
            }
        }
        let first = self.nodes.layout().places_of(one)[0];
        self.settle_by_resync(Kind::Cut, first, from);
    }
}
