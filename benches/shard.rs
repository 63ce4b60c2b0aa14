//! What a request and a pop cost inside the shard: time, allocations and bytes per operation at 10
//! 000 and at 1 000 000 timers in virtual time, bytes per timer, and the most work of a single
//! create while the shard grows from nothing. `CHRONOS_BENCH_TIMERS` sets the larger number.

mod counting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use chronos::base::ids::{NodeInstance, ShardCount, ShardIndex, TimerId, mix};
use chronos::base::limits::{CallbackLimits, ClusterLimits};
use chronos::base::time::{MonoNs, Now, TICK_NS, Tick, WallMs};
use chronos::cluster::view::View;
use chronos::shard::effects::{
    Answer, CallbackOutcome, Event, Outbox, Reply, Request, Requester, Target,
};
use chronos::shard::{Shard, ShardConfig, Stock};
use chronos::store::wheel::Geometry;
use chronos::timer::definition::{Definition, encode_content};
use counting::Asked;
use criterion::{Criterion, criterion_group, criterion_main};

const SMALL: u64 = 10_000;
/// Pops per tick in the steady state. The interval follows from it and from the number of timers.
const POPS_PER_TICK: u64 = 16;
/// Callback hosts that the timers share.
const HOSTS: u64 = 16;
/// Time in ms after which deleted timers are gone: the least that the configuration allows, and a
/// second.
const TOMBSTONE_MS: u64 = 11_000;
/// Creates per virtual millisecond: half of what the ids of one node allow.
const CREATES_PER_MS: u64 = 2_048;
/// Timers that one round deletes and then creates anew; below it the number of rounds.
const BATCH: u64 = 2_000;
const ROUNDS: u64 = 10;
/// A 29-byte path; below it 40 bytes of opaque data.
const TARGET: &str = "/call-id/5f0c1b7a9e?interim=1";
const OPAQUE: [u8; 40] = [b'o'; 40];
const FROM: Requester =
    Requester { shard: ShardIndex(0), connection: 1, generation: 1, request: 1 };

/// Operations of one kind, timed and counted.
#[derive(Default)]
struct Tally {
    operations: u64,
    took: Duration,
    asked: Asked,
}

impl Tally {
    fn add(&mut self, operations: u64, work: impl FnOnce()) {
        let asked = Asked::by_this_thread();
        let begin = Instant::now();
        work();
        self.took += begin.elapsed();
        let asked = Asked::since(asked);
        self.operations += operations;
        self.asked.allocations += asked.allocations;
        self.asked.bytes += asked.bytes;
    }

    fn print(&self, name: &str) {
        println!(
            "  {name}: {:.0} ns, {:.6} allocations and {:.1} bytes asked for an operation \
             ({} in {} operations)",
            self.took.as_nanos() as f64 / self.operations as f64,
            self.asked.allocations as f64 / self.operations as f64,
            self.asked.bytes as f64 / self.operations as f64,
            self.asked.allocations,
            self.operations
        );
    }
}

/// A shard, its clock, and the ids of its timers.
struct Bench {
    shard: Shard,
    outbox: Outbox,
    now_ms: u64,
    ids: Vec<TimerId>,
    content: Vec<u8>,
    hosts: Vec<String>,
    interval_ms: u64,
    dice: u64,
    pops: u64,
}

impl Bench {
    /// An empty shard that will hold `timers` timers.
    fn new(timers: u64) -> Self {
        let config = ShardConfig {
            own: ShardIndex(0),
            shards: ShardCount::new(1),
            instance: NodeInstance::new(1, 0),
            geometry: Geometry::PRODUCTION,
            authority_tables: 2_048,
            stock: Stock::none(),
            hash_seed: 42,
            records_max: 100_000_000,
            store_bytes_max: 1 << 40,
            pops_per_turn_max: 256,
            tags_max: 8,
            callbacks: CallbackLimits { tombstone_ms_max: 0, ..CallbackLimits::default() },
            cluster: ClusterLimits::default(),
            view: Arc::new(View::alone("127.0.0.1:7253")),
        };
        let mut content = Vec::new();
        encode_content(TARGET, &[], &OPAQUE, &mut content);
        let now_ms = 1_700_000_000_000;
        Self {
            shard: Shard::new(config, now(now_ms)),
            outbox: Outbox::default(),
            now_ms,
            ids: Vec::with_capacity(timers as usize + BATCH as usize),
            content,
            hosts: (0..HOSTS).map(|host| format!("10.0.0.{host}:10888")).collect(),
            interval_ms: timers / POPS_PER_TICK,
            dice: 0,
            pops: 0,
        }
    }

    /// A shard that has held `timers` timers for a few rounds, so that every buffer has its size.
    fn steady(timers: u64) -> Self {
        let mut bench = Self::new(timers);
        (0..timers).for_each(|number| bench.create_at_pace(number));
        let interval_ms = bench.interval_ms;
        bench.turn(interval_ms.min(TOMBSTONE_MS));
        for _ in 0..3 {
            bench.delete_batch(&mut Tally::default());
            bench.turn(TOMBSTONE_MS);
            bench.create_batch(&mut Tally::default());
        }
        bench
    }

    fn random_below(&mut self, bound: u64) -> u64 {
        self.dice += 1;
        mix(self.dice) % bound
    }

    /// Creates or updates a timer, with an interval around the mean and repeated for a year.
    fn store(&mut self, known: Option<TimerId>) -> TimerId {
        let interval_ms = self.interval_ms / 2 + self.random_below(self.interval_ms);
        let host = self.random_below(HOSTS) as usize;
        let definition = Definition {
            interval_ms,
            repeat_for_ms: 365 * 24 * 3_600_000,
            factor: None,
            authority: &self.hosts[host],
            content: &self.content,
        };
        let request = match known {
            None => Request::Create(definition),
            Some(id) => Request::Update(target(id), definition),
        };
        let event = Event::Request { from: FROM, request };
        self.shard.handle(now(self.now_ms), event, &mut self.outbox);
        self.answered()
    }

    fn answered(&mut self) -> TimerId {
        match self.outbox.replies.pop() {
            Some(Reply { answer: Answer::Done { id, .. }, .. }) => id,
            other => panic!("expected to be served, got {other:?}"),
        }
    }

    fn create(&mut self) {
        let id = self.store(None);
        self.ids.push(id);
    }

    fn create_at_pace(&mut self, number: u64) {
        self.create();
        if number % CREATES_PER_MS == CREATES_PER_MS - 1 {
            self.turn(1);
        }
    }

    fn update(&mut self) {
        let place = self.random_below(self.ids.len() as u64) as usize;
        let id = self.ids[place];
        assert_eq!(self.store(Some(id)), id);
    }

    fn delete(&mut self) {
        let place = self.random_below(self.ids.len() as u64) as usize;
        let id = self.ids.swap_remove(place);
        let event = Event::Request { from: FROM, request: Request::Delete(target(id)) };
        self.shard.handle(now(self.now_ms), event, &mut self.outbox);
        assert_eq!(self.answered(), id);
    }

    /// Lets `ticks` ticks pass. Every callback is delivered at once.
    fn turn(&mut self, ticks: u64) {
        let end = self.now_ms + ticks;
        while self.now_ms < end {
            self.now_ms += 1;
            let now = now(self.now_ms);
            loop {
                self.shard.tick(now, &mut self.outbox);
                while let Some(attempt) = self.outbox.attempts.pop() {
                    assert!(self.shard.content(&attempt).opaque.len() == OPAQUE.len());
                    self.pops += 1;
                    let outcome = CallbackOutcome::Delivered;
                    let event = Event::CallbackFinished { ticket: attempt.ticket, outcome };
                    self.shard.handle(now, event, &mut self.outbox);
                }
                if self.shard.next_wake() != Some(Tick(0)) {
                    break;
                }
            }
        }
    }

    fn delete_batch(&mut self, tally: &mut Tally) {
        tally.add(BATCH, || (0..BATCH).for_each(|_| self.delete()));
    }

    fn create_batch(&mut self, tally: &mut Tally) {
        self.now_ms += 1;
        tally.add(BATCH, || (0..BATCH).for_each(|_| self.create()));
    }
}

fn target(id: TimerId) -> Target {
    Target { id, factor: None, filter: None }
}

fn now(ms: u64) -> Now {
    Now { mono: MonoNs(ms * TICK_NS), wall: WallMs(ms) }
}

fn timers() -> u64 {
    match std::env::var("CHRONOS_BENCH_TIMERS") {
        Ok(text) => text.parse().expect("CHRONOS_BENCH_TIMERS is a number"),
        Err(_) => 1_000_000,
    }
}

fn operations(criterion: &mut Criterion) {
    for timers in [SMALL, timers()] {
        let mut bench = Bench::steady(timers);
        let mut group = criterion.benchmark_group(format!("shard/{timers}"));
        group.bench_function("update", |b| b.iter(|| bench.update()));
        group.bench_function("pop", |b| {
            b.iter_custom(|wanted| {
                let (before, begin) = (bench.pops, Instant::now());
                while bench.pops - before < wanted {
                    bench.turn(1);
                }
                begin.elapsed().mul_f64(wanted as f64 / (bench.pops - before) as f64)
            });
        });
        group.finish();
        counted(&mut bench, timers);
    }
}

/// Prints the counted work of every operation in the steady state, and the bytes of a timer.
fn counted(bench: &mut Bench, timers: u64) {
    let (mut create, mut update, mut delete, mut pop) = <(Tally, Tally, Tally, Tally)>::default();
    for _ in 0..ROUNDS {
        bench.delete_batch(&mut delete);
        let before = bench.pops;
        pop.add(0, || bench.turn(TOMBSTONE_MS));
        pop.operations += bench.pops - before;
        bench.create_batch(&mut create);
        update.add(BATCH, || (0..BATCH).for_each(|_| bench.update()));
    }
    println!(
        "steady state, {timers} timers, {POPS_PER_TICK} pops and one look at the clock a tick:"
    );
    create.print("create");
    update.print("update");
    delete.print("delete");
    pop.print("pop, its tick and delivery included");
    let counters = bench.shard.counters();
    assert_eq!(counters.timers, timers, "as many timers as before");
    println!("  bytes a timer: {:.1}", bench.shard.bytes() as f64 / timers as f64);
}

/// Grows from nothing and counts the work of every create.
fn growth(_: &mut Criterion) {
    let timers = timers();
    let mut bench = Bench::new(timers);
    let empty = Asked::by_this_thread();
    let (mut slowest, mut allocating) = (Duration::ZERO, 0_u64);
    let (mut most_allocations, mut most_bytes) = ((0, 0), (0, 0));
    let began = Instant::now();
    for number in 0..timers {
        let (asked, begin) = (Asked::by_this_thread(), Instant::now());
        bench.create();
        let took = begin.elapsed();
        let asked = Asked::since(asked);
        slowest = slowest.max(took);
        allocating += u64::from(asked.allocations > 0);
        most_allocations = most_allocations.max((asked.allocations, number));
        most_bytes = most_bytes.max((asked.bytes, number));
        if number % CREATES_PER_MS == CREATES_PER_MS - 1 {
            bench.turn(1);
        }
    }
    let took = began.elapsed();
    let held = Asked::since(empty);
    println!("growth from 0 to {timers} timers, by creates alone:");
    println!(
        "  most work of one create: {} allocations (create {}), {} bytes asked for (create {})",
        most_allocations.0, most_allocations.1, most_bytes.0, most_bytes.1,
    );
    println!(
        "  {allocating} creates allocate at all; slowest {} us in one round on this machine, mean \
         {:.0} ns",
        slowest.as_micros(),
        took.as_nanos() as f64 / timers as f64
    );
    println!(
        "  bytes a timer: {:.1} as the shard counts, {:.1} as the allocator was asked",
        bench.shard.bytes() as f64 / timers as f64,
        (held.bytes - held.freed_bytes) as f64 / timers as f64
    );
}

criterion_group! {
    name = shard;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = operations, growth
}
criterion_main!(shard);
