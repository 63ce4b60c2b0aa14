//! Pages of timers for nodes that ask for them: the windows that pages are taken from, the parts
//! under way, and the new holders that have taken timers over.

// May panic: expectations 1, indices 5, cuts 1.
// Why it does not: found 7.

use std::collections::{BTreeSet, VecDeque};

use ahash::AHashMap;

use crate::base::ids::{NodeHash, Slot};
use crate::base::time::Tick;
use crate::shard::effects::{PageAsk, PagePart, PagePlace, Requester};
use crate::timer::version::StateKey;

/// Timers in a window: 24 B each and the tree around them, 3 MiB at most.
pub const WINDOW_MAX: usize = 1 << 16;
/// Windows at a time: if more nodes ask at once, a new window takes the place of another.
const WINDOWS_MAX: usize = 8;
/// A window that no node has asked for in this time is given up.
const WINDOW_MS: u64 = 60_000;
/// Parts of pages under way.
pub const ASKS_MAX: usize = 64;
/// Timers that some of their new holders are known to have taken over. This node itself moves a
/// timer that finds no place here.
pub const TAKEN_MAX: usize = 1 << 16;

/// The earliest timers from some instant on that a node is to hold.
#[derive(Debug)]
pub struct Window {
    pub node: NodeHash,
    from: PagePlace,
    /// All timers before this place are in the window; `None`: all timers are.
    pub until: Option<PagePlace>,
    pub timers: BTreeSet<PagePlace>,
    /// Where the walk through the records goes on; `None`: the walk is done.
    pub next: Option<Slot>,
    used_at: Tick,
}

impl Window {
    fn new(node: NodeHash, from: PagePlace, used_at: Tick) -> Self {
        let next = Some(Slot(0));
        Self { node, from, until: None, timers: BTreeSet::new(), next, used_at }
    }

    /// Whether a timer at this place belongs in the window.
    pub fn covers(&self, place: PagePlace) -> bool {
        self.from <= place && self.until.is_none_or(|until| place < until)
    }

    /// Takes a timer in. In a full window the last timer gives way.
    pub fn insert(&mut self, place: PagePlace) {
        self.timers.insert(place);
        if self.timers.len() > WINDOW_MAX {
            self.until = self.timers.pop_last();
        }
    }
}

/// A part of a page under way.
#[derive(Debug)]
pub struct Asked {
    /// Where the part goes.
    pub from: Requester,
    pub ask: PageAsk,
    /// The last timer looked at in the window.
    pub at: Option<PagePlace>,
    pub part: PagePart,
    /// Bytes of the timers in the part.
    pub part_bytes: usize,
}

/// New holders that are known to have taken a timer over, by their ranks.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub key: StateKey,
    pub list_digest: u32,
    pub ranks: u16,
}

/// All that a shard does for nodes that ask.
#[derive(Debug, Default)]
pub struct Collect {
    pub windows: Vec<Window>,
    pub asked: VecDeque<Asked>,
    /// By the ids of their timers.
    pub taken: AHashMap<u64, Taken>,
}

impl Collect {
    /// When there is work again, given that nothing arrives.
    pub fn next_wake(&self) -> Option<Tick> {
        if !self.asked.is_empty() {
            return Some(Tick(0));
        }
        self.windows.iter().map(|window| window.used_at + WINDOW_MS).min()
    }

    /// Forgets what was found for other nodes, because they are to hold other timers.
    pub fn forget_windows(&mut self) {
        self.windows.clear();
        self.taken.clear();
        for asked in &mut self.asked {
            asked.at = None;
            asked.part.timers.clear();
            asked.part_bytes = 0;
        }
    }

    /// Gives windows up that no node has asked for lately.
    pub fn end_windows(&mut self, tick: Tick) {
        self.windows.retain(|window| tick - window.used_at < WINDOW_MS);
    }

    /// The window that a node's timers from `from` on are taken from.
    pub fn window(&mut self, tick: Tick, node: NodeHash, from: PagePlace) -> &mut Window {
        let is_of = |window: &Window| window.node == node;
        let place = match self.windows.iter().position(is_of) {
            Some(place) => {
                if !self.windows[place].covers(from) {
                    self.windows[place] = Window::new(node, from, tick);
                }
                place
            }
            None => {
                if self.windows.len() >= WINDOWS_MAX {
                    let oldest = (0..WINDOWS_MAX).min_by_key(|&place| self.windows[place].used_at);
                    self.windows.swap_remove(oldest.expect("there are some"));
                }
                self.windows.push(Window::new(node, from, tick));
                self.windows.len() - 1
            }
        };
        self.windows[place].used_at = tick;
        &mut self.windows[place]
    }
}
