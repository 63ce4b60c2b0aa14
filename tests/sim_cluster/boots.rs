//! The boots of one machine: how far its wall clock was ahead when the newest pages of each boot were
//! written. By these pages a start counts the times of earlier boots
//! (docs/design/journal.md, "Time").

use std::collections::BTreeMap;

/// How much later a start may seem after a boot: clocks are read in whole ms.
const ROUNDED_NS: i64 = 4_000_000;
/// The number of the first boot.
const FIRST: u64 = 7;

/// The least and the most that clocks were ahead.
#[derive(Clone, Copy, Debug)]
struct Range {
    least_ns: i64,
    most_ns: i64,
}

impl Range {
    fn with(former: Option<Self>, ahead_ns: i64) -> Option<Self> {
        let (least_ns, most_ns) =
            former.map_or((ahead_ns, ahead_ns), |range| (range.least_ns, range.most_ns));
        Some(Self { least_ns: least_ns.min(ahead_ns), most_ns: most_ns.max(ahead_ns) })
    }
}

/// What is known of the newest page of a core.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    written: Option<(i64, u64)>,
    under_way: Option<(i64, u64)>,
}

/// All boots of a machine.
#[derive(Clone, Debug, Default)]
pub struct Boots {
    is_any: bool,
    /// How many boots there were before the present one.
    count: u64,
    /// By core.
    newest: BTreeMap<u16, Newest>,
    /// The newest pages of the processes of this boot that died.
    present: Option<Range>,
    /// Those of all earlier boots.
    earlier: Vec<Range>,
    /// The latest wall time of any page, in ms.
    newest_wall_ms: u64,
}

impl Boots {
    /// Makes the first boot. `is_any`: any page may count, because newer ones may be damaged.
    pub fn of(is_any: bool) -> Self {
        Self { is_any, ..Self::default() }
    }

    /// Returns the number of the present boot.
    pub fn number(&self) -> u64 {
        FIRST + self.count
    }

    /// Begins a boot.
    pub fn begin(&mut self) {
        self.count += 1;
        self.earlier.extend(self.present.take());
    }

    /// Notes that a core writes a page: how far the wall clock is ahead, and what it shows.
    pub fn stamped(&mut self, core: u16, ahead_ns: i64, wall_ms: u64) {
        self.newest.entry(core).or_default().under_way = Some((ahead_ns, wall_ms));
        if self.is_any {
            self.present = Range::with(self.present, ahead_ns);
        }
    }

    /// Notes that the page is on the disk.
    pub fn written(&mut self, core: u16) {
        let newest = self.newest.get_mut(&core).expect("it was begun");
        newest.written = newest.under_way.take();
    }

    /// Notes that the process is gone. What was under way may be on the disk.
    pub fn dies(&mut self) {
        for newest in std::mem::take(&mut self.newest).into_values() {
            for (ahead_ns, wall_ms) in newest.written.into_iter().chain(newest.under_way) {
                self.present = Range::with(self.present, ahead_ns);
                self.newest_wall_ms = self.newest_wall_ms.max(wall_ms);
            }
        }
    }

    /// Returns by how much times of earlier boots may at most seem to be longer ago, and less long
    /// ago, than they are, at a start whose wall clock shows `wall_ms` and is `ahead_ns` ahead.
    pub fn shifts(&self, wall_ms: u64, ahead_ns: i64) -> (u64, u64) {
        let behind_ns = self.newest_wall_ms.saturating_sub(wall_ms) as i64 * 1_000_000;
        let early_ns = self.earlier.iter().map(|range| ahead_ns + behind_ns - range.least_ns).max();
        let late_ns = self.earlier.iter().map(|range| range.most_ns - ahead_ns + ROUNDED_NS).max();
        let above_zero = |ns: Option<i64>| ns.unwrap_or(0).max(0) as u64;
        (above_zero(early_ns), above_zero(late_ns))
    }
}
