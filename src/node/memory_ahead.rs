//! The thread that takes memory from the kernel before the cores need it, and gives back what they
//! need no more. It fills the sources of each shard: the faster a shard takes chunks, the more are
//! kept ready. What a shard gives back stays ready for a while, as far as the sources may hold it.
//! A core never waits for this thread; where no chunk is ready the core takes memory itself and
//! pays the page faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::node::settings::NodeSettings;
use crate::ring::{discard, populate};
use crate::shard::Stock;
use crate::store::source::Source;

/// Bytes kept ready of each kind of chunk of an idle shard: what 50 ms at 300 000 creates a second
/// take.
const IDLE_BYTES: usize = 1 << 20;
/// Most bytes brought into memory for one source before the next pause, or else one chunk. Where
/// this thread shares its CPU with a core it holds the core up that long: some 0.1 ms for all four
/// sources. With the shortest pause it is enough for 600 000 creates a second.
const ROUND_BYTES_MAX: usize = 64 << 10;
/// Most bytes given to the kernel from one source before the next pause, or else one chunk: some
/// 0.1 ms. With the shortest pause it is 1 GiB a second.
const GIVEN_BYTES_MAX: usize = 1 << 20;
/// The pause after a round: while a source has too few chunks, while shards grow, and else.
const SHORT_PAUSE: Duration = Duration::from_millis(1);
const GROWING_PAUSE: Duration = Duration::from_millis(5);
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// For how many rounds what is ready must last.
const ROUNDS_AHEAD: usize = 8;
/// Rounds without growth after which half of what is ready beyond [`IDLE_BYTES`] is given back.
const IDLE_ROUNDS: u32 = 20;

/// The number of chunks to keep ready in one source.
struct Level {
    chunk_bytes: usize,
    /// Chunks to keep ready, at least and at most.
    least: usize,
    most: usize,
    wanted: usize,
    /// Chunks ready when the last round ended.
    left: usize,
    idle_rounds: u32,
    habit: Habit,
}

/// What is done for a source beside keeping chunks that came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Habit {
    /// Chunks are made ready before they are needed.
    Fill,
    /// None is: the shard takes them rarely, and uses them bit by bit.
    Hold,
    /// None is, and what came back stays ready: the memory was touched at the start.
    Keep,
}

/// What a round has to do for one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// Add this many chunks.
    Add(usize),
    /// Take this many chunks back.
    TakeBack(usize),
}

impl Level {
    fn new(chunk_bytes: usize, bytes_max: usize, habit: Habit) -> Self {
        let most = bytes_max / chunk_bytes;
        let least = if habit == Habit::Fill { (IDLE_BYTES / chunk_bytes).min(most) } else { 0 };
        Self { chunk_bytes, least, most, wanted: least, left: 0, idle_rounds: 0, habit }
    }

    /// Whether the shard has taken chunks of late.
    fn is_growing(&self) -> bool {
        self.idle_rounds < IDLE_ROUNDS
    }

    /// Sets how many chunks are wanted, from how many are ready still.
    fn judge(&mut self, ready: usize) -> Task {
        let taken = self.left.saturating_sub(ready);
        self.idle_rounds = if taken == 0 { self.idle_rounds.saturating_add(1) } else { 0 };
        let asked = taken.saturating_mul(ROUNDS_AHEAD);
        let is_idle = self.idle_rounds > 0 && self.idle_rounds.is_multiple_of(IDLE_ROUNDS);
        if ready > self.left {
            // The shard gave chunks back, and may soon take them again.
            self.wanted = self.wanted.max(ready).min(self.most);
        } else if self.habit != Habit::Fill {
            self.wanted = self.wanted.min(ready);
        }
        if self.habit == Habit::Fill && (asked > self.wanted || (taken > 0 && ready == 0)) {
            self.wanted = asked.max(2 * self.wanted).min(self.most);
        } else if is_idle && self.habit != Habit::Keep {
            self.wanted = (self.wanted / 2).max(self.least);
        }
        match self.wanted.checked_sub(ready) {
            Some(missing) => Task::Add(missing.min((ROUND_BYTES_MAX / self.chunk_bytes).max(1))),
            None => Task::TakeBack(ready - self.wanted),
        }
    }

    /// Does what a round has to do for a source. Returns whether nothing is left to do.
    fn tend<T>(&mut self, source: &Source<T>) -> bool {
        let surplus = match self.judge(source.ready()) {
            Task::Add(chunks) => {
                let _ = (0..chunks).all(|_| source.add(populate));
                0
            }
            Task::TakeBack(chunks) => chunks,
        };
        let is_done = source.discard(surplus, GIVEN_BYTES_MAX, discard);
        self.left = source.ready();
        is_done && self.left >= self.wanted
    }
}

/// The sources of one shard, and how much is kept ready in each.
struct Ahead {
    stock: Stock,
    levels: [Level; 5],
}

impl Ahead {
    fn new(stock: Stock, bytes_max: usize, is_filled: bool) -> Self {
        let (fill, hold) = match is_filled {
            true => (Habit::Fill, Habit::Hold),
            false => (Habit::Keep, Habit::Keep),
        };
        let sources = [
            (stock.records.chunk_bytes(), fill),
            (stock.links.chunk_bytes(), fill),
            (stock.entries.chunk_bytes(), fill),
            (stock.payloads.chunk_bytes(), fill),
            (stock.spans.chunk_bytes(), hold),
        ];
        Self { levels: sources.map(|(chunk, habit)| Level::new(chunk, bytes_max, habit)), stock }
    }

    /// One round. Returns whether nothing is left to do for any source, and whether none is
    /// growing.
    fn round(&mut self) -> (bool, bool) {
        let [records, links, entries, payloads, spans] = &mut self.levels;
        let is_done = [
            records.tend(&self.stock.records),
            links.tend(&self.stock.links),
            entries.tend(&self.stock.entries),
            payloads.tend(&self.stock.payloads),
            spans.tend(&self.stock.spans),
        ];
        (is_done.into_iter().all(|it| it), !self.levels.iter().any(Level::is_growing))
    }
}

/// The sources of all shards, and how much may be ready in each.
pub struct MemoryAhead {
    /// The sources by shard.
    pub stocks: Vec<Stock>,
    /// Most bytes ready in one source.
    share_bytes: usize,
    is_filled: bool,
}

impl MemoryAhead {
    /// The sources of a node with so many shards. Where memory was touched at the start, only what
    /// came back is ready, as many bytes as were touched at most.
    pub fn new(shards: usize, settings: &NodeSettings) -> Self {
        match settings.prefault_bytes {
            0 => Self::with(shards, settings.memory_ahead_bytes, true),
            touched_bytes => Self::with(shards, touched_bytes, false),
        }
    }

    /// Sources in which together at most `bytes_max` bytes are ready. A fifth of a shard's share is
    /// for each kind of chunk.
    fn with(shards: usize, bytes_max: u64, is_filled: bool) -> Self {
        let share_bytes = usize::try_from(bytes_max / 5 / shards as u64).unwrap_or(usize::MAX);
        let stocks = (0..shards).map(|_| Stock::new(share_bytes)).collect();
        Self { stocks, share_bytes, is_filled }
    }

    /// Starts the thread. It ends within 50 ms after `stop` is set.
    pub fn start(self, stop: Arc<AtomicBool>) -> std::io::Result<JoinHandle<()>> {
        let ahead = |stock| Ahead::new(stock, self.share_bytes, self.is_filled);
        let mut shards: Vec<_> = self.stocks.into_iter().map(ahead).collect();
        thread::Builder::new().name("chronos-memory".into()).spawn(move || {
            while !stop.load(Relaxed) {
                let rounds = shards.iter_mut().map(Ahead::round);
                let both = |a: (bool, bool), b: (bool, bool)| (a.0 && b.0, a.1 && b.1);
                thread::sleep(match rounds.fold((true, true), both) {
                    (false, _) => SHORT_PAUSE,
                    (true, false) => GROWING_PAUSE,
                    (true, true) => IDLE_PAUSE,
                });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{NodeInstance, ShardCount, ShardIndex};
    use crate::base::limits::{CallbackLimits, ClusterLimits};
    use crate::base::time::{MonoNs, Now, WallMs};
    use crate::cluster::view::View;
    use crate::ring::thread_usage;
    use crate::shard::effects::{Answer, Event, Outbox, Request, Requester};
    use crate::shard::{Shard, ShardConfig};
    use crate::store::wheel::Geometry;
    use crate::timer::definition::{Definition, encode_content};

    const CHUNK: usize = 16 << 10;
    const MOST: usize = 1024;

    /// A level that has reached what an idle shard keeps: 64 chunks.
    fn idle() -> Level {
        let mut level = Level::new(CHUNK, MOST * CHUNK, Habit::Fill);
        let mut ready = 0;
        while let Task::Add(chunks @ 1..) = level.judge(ready) {
            assert_eq!(chunks, ROUND_BYTES_MAX / CHUNK, "a round is bounded");
            ready += chunks;
            level.left = ready;
        }
        assert_eq!((ready, level.wanted), (64, 64));
        level
    }

    #[test]
    fn what_is_ready_lasts_for_eight_rounds() {
        let mut level = idle();
        level.judge(64 - 20);
        assert_eq!((level.wanted, level.is_growing()), (160, true));
    }

    #[test]
    fn a_source_that_ran_dry_gets_twice_as_much_up_to_its_bound() {
        let mut level = idle();
        let wanted = [128, 256, 512, MOST, MOST].map(|_| {
            level.left = 7;
            level.judge(0);
            level.wanted
        });
        assert_eq!(wanted, [128, 256, 512, MOST, MOST]);
    }

    #[test]
    fn an_idle_shard_gives_back_half_again_and_again() {
        let mut level = idle();
        level.left = 64;
        level.judge(0);
        let mut ready = 512;
        for _ in 0..10 * IDLE_ROUNDS {
            level.left = ready;
            match level.judge(ready) {
                Task::TakeBack(chunks) => ready -= chunks,
                Task::Add(chunks) => assert_eq!(chunks, 0),
            }
        }
        assert_eq!((ready, level.is_growing()), (64, false));
    }

    #[test]
    fn a_share_below_one_chunk_keeps_nothing_ready() {
        let mut level = Level::new(CHUNK, CHUNK - 1, Habit::Fill);
        assert_eq!((level.judge(0), level.most), (Task::Add(0), 0));
    }

    #[test]
    fn the_thread_fills_every_source_and_ends() {
        let ahead = MemoryAhead::with(2, 32 << 20, true);
        let all = ahead.stocks.clone();
        let stop = Arc::<AtomicBool>::default();
        let thread = ahead.start(stop.clone()).expect("a thread can be started");
        let ready_bytes = |stock: &Stock| {
            stock.records.ready() * stock.records.chunk_bytes()
                + stock.links.ready() * stock.links.chunk_bytes()
                + stock.entries.ready() * stock.entries.chunk_bytes()
                + stock.payloads.ready() * stock.payloads.chunk_bytes()
        };
        while all.iter().any(|stock| ready_bytes(stock) < 4 * IDLE_BYTES) {
            thread::sleep(SHORT_PAUSE);
        }
        stop.store(true, Relaxed);
        thread.join().expect("it ended");
        assert!(all.iter().all(|stock| ready_bytes(stock) == 4 * IDLE_BYTES));
    }

    /// The budget of page faults of docs/metrics.md. Large pages make few faults of much memory,
    /// so the faults without memory ahead are counted, too.
    #[test]
    fn a_shard_that_grows_pays_for_one_page_in_two_thousand_creates() {
        const CREATES: u64 = 200_000;
        let (faults, kept) = faults_of(CREATES, 64 << 20);
        assert!(faults <= CREATES / 2_000, "{faults} faults in {CREATES} creates");
        // The allocator first gives what other tests have freed. So all shards are kept until one
        // needs new memory.
        let mut kept = vec![kept];
        let mut without = 0;
        while without <= 4 * faults && kept.len() < 16 {
            let (more, shard) = faults_of(CREATES, 0);
            without = more;
            kept.push(shard);
        }
        assert!(4 * faults < without, "{faults} faults, and {without} without memory ahead");
    }

    /// The page faults of a shard that creates as many timers, after as many as make it warm. It
    /// gets a round of memory ahead where the thread of a node takes one a millisecond.
    fn faults_of(creates: u64, bytes_max: u64) -> (u64, Shard) {
        const WARM: u64 = 20_000;
        const PER_ROUND: u64 = 200;
        let ahead = MemoryAhead::with(1, bytes_max, true);
        let stock = ahead.stocks[0].clone();
        let mut ahead = Ahead::new(stock.clone(), ahead.share_bytes, true);
        while !ahead.round().0 {}
        let at = |number: u64| Now {
            mono: MonoNs(1_000_000 * (1_000 + number / PER_ROUND)),
            wall: WallMs(1_700_000_000_000 + number / PER_ROUND),
        };
        let mut shard = Shard::new(config(stock), at(0));
        let (mut outbox, mut content, mut faults) = (Outbox::default(), Vec::new(), 0);
        encode_content("/calls/0000000000", &[], &[b'o'; 40], &mut content);
        for first in (0..WARM + creates).step_by(PER_ROUND as usize) {
            let before = thread_usage().page_faults;
            for number in first..first + PER_ROUND {
                let definition = Definition {
                    interval_ms: 3_600_000,
                    repeat_for_ms: 3_600_000,
                    factor: None,
                    authority: "127.0.0.1:80",
                    content: &content,
                };
                let request = Request::Create(definition);
                let event = Event::Request { from: FROM, request };
                shard.handle(at(number), event, &mut outbox);
                let reply = outbox.replies.pop().expect("a create is answered");
                assert!(matches!(reply.answer, Answer::Done { .. }), "{:?}", reply.answer);
            }
            if first >= WARM {
                faults += thread_usage().page_faults - before;
            }
            while !ahead.round().0 {}
        }
        (faults, shard)
    }

    const FROM: Requester =
        Requester { shard: ShardIndex(0), connection: 1, generation: 1, request: 1 };

    fn config(stock: Stock) -> ShardConfig {
        ShardConfig {
            own: ShardIndex(0),
            shards: ShardCount::new(1),
            instance: NodeInstance::new(1, 0),
            geometry: Geometry::PRODUCTION,
            authority_tables: 2_048,
            stock,
            hash_seed: 42,
            records_max: 10_000_000,
            store_bytes_max: 1 << 40,
            pops_per_turn_max: 256,
            tags_max: 8,
            callbacks: CallbackLimits::default(),
            cluster: ClusterLimits::default(),
            view: Arc::new(View::alone("127.0.0.1:7253")),
        }
    }
}
