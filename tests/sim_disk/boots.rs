//! The clocks of a machine over its boots, and how wrong its wall clock has been.

use std::collections::BTreeMap;

use kit::simulator::random::Stream;

/// The wall clock at which runs begin.
const WALL_MS: u64 = 1_800_000_000_000;
/// What production adds to the clock of the kernel: thirty years, so that no due time is below 0.
const BASE_NS: u64 = 946_080_000_000_000_000;

/// A stamp of a page: the time of the world and the wall time in it.
#[derive(Clone, Copy, Debug)]
struct Stamped {
    at_ns: u64,
    wall_ms: u64,
}

/// One boot.
#[derive(Clone, Debug, Default)]
struct Boot {
    number: u64,
    base_ns: u64,
    began_ns: u64,
    /// By core: the newest stamp on the disk, and one that may be.
    stamps: BTreeMap<u16, (Option<Stamped>, Option<Stamped>)>,
    /// Stamps of processes that died.
    former: Vec<Stamped>,
    /// The stamp with which times of this boot seem to be the longest ago.
    least_ahead: Option<Stamped>,
}

/// All boots of a machine.
#[derive(Clone, Debug)]
pub struct Boots {
    boots: Vec<Boot>,
    newest_wall_ms: u64,
}

impl Boots {
    pub fn new(draw: &mut Stream) -> Self {
        let mut boots = Self { boots: Vec::new(), newest_wall_ms: 0 };
        boots.begin(draw, 0);
        boots
    }

    /// Begins a boot.
    pub fn begin(&mut self, draw: &mut Stream, now_ns: u64) {
        let base_ns = BASE_NS + draw.range(1, 1 << 45);
        let number = draw.next().max(1);
        self.boots.push(Boot { number, base_ns, began_ns: now_ns, ..Boot::default() });
    }

    pub fn index(&self) -> usize {
        self.boots.len() - 1
    }

    fn present(&self) -> &Boot {
        self.boots.last().expect("there is one")
    }

    pub fn number(&self) -> u64 {
        self.present().number
    }

    pub fn mono(&self, now_ns: u64) -> u64 {
        self.present().base_ns + now_ns - self.present().began_ns
    }

    pub fn when(&self, mono_ns: u64) -> u64 {
        mono_ns.saturating_sub(self.present().base_ns) + self.present().began_ns
    }

    /// The true wall time.
    pub fn wall(&self, now_ns: u64) -> u64 {
        WALL_MS + now_ns / 1_000_000
    }

    /// A page of a core gets these clocks.
    pub fn stamped(&mut self, core: u16, at_ns: u64, wall_ms: u64) {
        let boot = self.boots.last_mut().expect("there is one");
        let stamped = Stamped { at_ns, wall_ms };
        boot.stamps.entry(core).or_default().1 = Some(stamped);
        let ahead = |stamped: &Stamped| stamped.wall_ms as i64 - (stamped.at_ns / 1_000_000) as i64;
        boot.least_ahead = boot.least_ahead.into_iter().chain([stamped]).min_by_key(ahead);
    }

    /// The page is on the disk.
    pub fn written(&mut self, core: u16) {
        let stamps = &mut self.boots.last_mut().expect("there is one").stamps;
        let (on_disk, maybe) = stamps.get_mut(&core).expect("it was begun");
        *on_disk = maybe.take();
    }

    /// The process is gone.
    pub fn dies(&mut self) {
        let boot = self.boots.last_mut().expect("there is one");
        for (on_disk, maybe) in std::mem::take(&mut boot.stamps).into_values() {
            boot.former.extend(on_disk.into_iter().chain(maybe));
        }
        let newest = boot.former.iter().map(|stamped| stamped.wall_ms).max();
        self.newest_wall_ms = self.newest_wall_ms.max(newest.unwrap_or(0));
    }

    /// By how many ms at least and at most times of each earlier boot seem to be longer ago than
    /// they are, by a wall clock that shows `wall_ms`. `is_damaged`: the newest pages may be gone,
    /// so that the clocks of any page may count.
    pub fn shifts(&self, now_ns: u64, wall_ms: u64, is_damaged: bool) -> Vec<(i64, i64)> {
        let believed_ms = wall_ms.max(self.newest_wall_ms);
        let shift = |boot: &Boot| {
            let shift = |wall_ms: u64, stamped: &Stamped| {
                let seems_ms = wall_ms.saturating_sub(stamped.wall_ms) as i64;
                seems_ms - ((now_ns - stamped.at_ns) / 1_000_000) as i64
            };
            let least = boot.former.iter().map(|stamped| shift(wall_ms, stamped)).min();
            let older = boot.least_ahead.iter().filter(|_| is_damaged);
            let any = boot.former.iter().chain(older);
            let most = any.map(|stamped| shift(believed_ms, stamped)).max();
            (least.unwrap_or(0) - 1, most.unwrap_or(0) + 1)
        };
        self.boots[..self.index()].iter().map(shift).collect()
    }
}
