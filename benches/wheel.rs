//! The timer wheel at a steady number of timers: time per operation, and counted work beside it.
//! `CHRONOS_BENCH_TIMERS` sets how many timers (1 000 000 if not set; the documents quote 10 000
//! 000).

use std::hint::black_box;
use std::time::{Duration, Instant};

use chronos::base::ids::{Slot, mix};
use chronos::base::time::Tick;
use chronos::store::links::Links;
use chronos::store::wheel::{Geometry, Wheel};
use criterion::{Criterion, criterion_group, criterion_main};

const HOUR_MS: u64 = 3_600_000;
/// Slots that are filed or taken out between two readings of the clock.
const BATCH: u32 = 10_000;
/// Distance between two slots of a batch: a prime that divides no round number of timers, so that a
/// batch meets no slot twice.
const STRIDE: u64 = 7_919;
/// Ticks turned for the counted figures: two minutes, which are thirty windows of level 1.
const COUNTED_TICKS: u64 = 120_000;

fn timers() -> u32 {
    match std::env::var("CHRONOS_BENCH_TIMERS") {
        Ok(text) => text.parse().expect("CHRONOS_BENCH_TIMERS is a number"),
        Err(_) => 1_000_000,
    }
}

/// A wheel with timers spread evenly over a horizon, in an order that is independent of their due
/// ticks.
struct Bench {
    links: Links,
    wheel: Wheel,
    now: u64,
    horizon_ms: u64,
    timers: u32,
    dice: u64,
    due: Vec<Slot>,
}

impl Bench {
    fn new(timers: u32, horizon_ms: u64) -> Self {
        // Just before a bucket of level 2 begins, so that every drain happens.
        let now = 100 * 4096 * 1024 - COUNTED_TICKS / 2;
        let mut bench = Self {
            links: Links::new(),
            wheel: Wheel::new(Geometry::PRODUCTION, Tick(now)),
            now,
            horizon_ms,
            timers,
            dice: 0,
            due: Vec::new(),
        };
        for slot in 0..timers {
            bench.links.ensure(Slot(slot));
        }
        for slot in 0..timers {
            let after = bench.random_below(horizon_ms);
            bench.wheel.insert(&mut bench.links, Slot(slot), Tick(now + 1 + after));
        }
        bench
    }

    fn random_below(&mut self, bound: u64) -> u64 {
        self.dice += 1;
        mix(self.dice) % bound
    }

    /// Takes one tick and files again at the horizon what fires. Returns the time of the advance
    /// alone, the slots fired and the entries moved.
    fn tick(&mut self) -> (Duration, u64, u64) {
        self.now += 1;
        let begin = Instant::now();
        let advanced =
            self.wheel.advance(&mut self.links, Tick(self.now), usize::MAX, &mut self.due);
        let took = begin.elapsed();
        let fired = self.due.len() as u64;
        while let Some(slot) = self.due.pop() {
            self.wheel.insert(&mut self.links, slot, Tick(self.now + self.horizon_ms));
        }
        (took, fired, advanced.moved)
    }

    /// Takes out `BATCH` timers that lie far apart in memory, then files them within `spread_ms`.
    /// Returns both times.
    fn remove_and_insert_batch(&mut self, spread_ms: u64) -> (Duration, Duration) {
        let first = self.random_below(self.timers.into());
        let batch: Vec<(Slot, Tick)> = (0..u64::from(BATCH))
            .map(|at| {
                let slot = (first + at * STRIDE) % u64::from(self.timers);
                (Slot(slot as u32), Tick(self.now + 1 + self.random_below(spread_ms)))
            })
            .collect();
        let begin = Instant::now();
        for &(slot, _) in &batch {
            self.wheel.remove(&mut self.links, slot);
        }
        let remove = begin.elapsed();
        let begin = Instant::now();
        for &(slot, tick) in &batch {
            self.wheel.insert(&mut self.links, slot, tick);
        }
        (remove, begin.elapsed())
    }
}

/// Times batches until they have `operations` operations. Returns their time, scaled to that
/// number.
fn scaled(operations: u64, mut batch: impl FnMut() -> Duration) -> Duration {
    let batches = operations.div_ceil(u64::from(BATCH));
    let total: Duration = (0..batches).map(|_| batch()).sum();
    total.mul_f64(operations as f64 / (batches * u64::from(BATCH)) as f64)
}

fn operations(criterion: &mut Criterion) {
    let mut bench = Bench::new(timers(), HOUR_MS);
    let mut group = criterion.benchmark_group("wheel");
    // "far" comes first, so that "near" takes its timers from where timers lie in a service at
    // work.
    for (name, spread_ms) in [("far", HOUR_MS), ("near", 4_000)] {
        group.bench_function(format!("remove_then_{name}"), |b| {
            b.iter_custom(|n| scaled(n, || bench.remove_and_insert_batch(spread_ms).0));
        });
        group.bench_function(format!("insert_{name}"), |b| {
            b.iter_custom(|n| scaled(n, || bench.remove_and_insert_batch(spread_ms).1));
        });
    }
    group.bench_function("rearm_later", |b| {
        b.iter(|| {
            let slot = Slot(bench.random_below(bench.timers.into()) as u32);
            let due = bench.wheel.due(&bench.links, slot);
            bench.wheel.rearm(&mut bench.links, slot, due + 1_000);
        });
    });
    group.bench_function("next_wake", |b| b.iter(|| black_box(bench.wheel.next_wake())));
    let mut bench = Bench::new(timers(), HOUR_MS);
    group.bench_function("advance_per_fired", |b| {
        b.iter_custom(|fired_wanted| {
            let (mut took, mut fired) = (Duration::ZERO, 0);
            while fired < fired_wanted {
                let tick = bench.tick();
                took += tick.0;
                fired += tick.1;
            }
            took.mul_f64(fired_wanted as f64 / fired as f64)
        });
    });
    group.finish();
}

/// Prints entries touched per tick, and what an idle core does: figures that do not depend on the
/// machine.
fn counted(_: &mut Criterion) {
    let timers = timers();
    println!("counted work, {timers} timers, {COUNTED_TICKS} ticks:");
    for (name, horizon_ms) in [("1 min", 60_000), ("1 h", HOUR_MS), ("24 h", 24 * HOUR_MS)] {
        let mut bench = Bench::new(timers, horizon_ms);
        let (mut fired, mut moved, mut touched_max, mut moved_max) = (0, 0, 0, 0);
        let (mut took, mut worst) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..COUNTED_TICKS {
            let tick = bench.tick();
            took += tick.0;
            worst = worst.max(tick.0);
            fired += tick.1;
            moved += tick.2;
            touched_max = touched_max.max(tick.1 + tick.2);
            moved_max = moved_max.max(tick.2);
        }
        println!(
            "  horizon {name:>5}: {:.2} fired and {:.2} moved a tick on average; \
             most in one tick: {touched_max} \
             touched, {moved_max} moved; {:.0} ns of advance per fired, worst tick {} us",
            fired as f64 / COUNTED_TICKS as f64,
            moved as f64 / COUNTED_TICKS as f64,
            took.as_nanos() as f64 / fired as f64,
            worst.as_micros(),
        );
    }
    idle(timers);
}

/// Goes from wake to wake for ten hours while all timers are a day away.
fn idle(timers: u32) {
    let mut bench = Bench::new(0, HOUR_MS);
    let begin_ms = bench.now;
    for slot in 0..timers {
        let after = 24 * HOUR_MS + bench.random_below(24 * HOUR_MS);
        bench.links.ensure(Slot(slot));
        bench.wheel.insert(&mut bench.links, Slot(slot), Tick(begin_ms + after));
    }
    for (name, from_h, hours) in [("far", 0, 10), ("coming near", 20, 3)] {
        let (mut wakes, mut moved) = (0_u64, 0_u64);
        bench.now = begin_ms + from_h * HOUR_MS;
        while !bench.wheel.advance(&mut bench.links, Tick(bench.now), 0, &mut bench.due).caught_up {
        }
        let begin = Instant::now();
        while bench.now < begin_ms + (from_h + hours) * HOUR_MS {
            bench.now = bench.wheel.next_wake().expect("timers are filed").0;
            moved += bench
                .wheel
                .advance(&mut bench.links, Tick(bench.now), usize::MAX, &mut bench.due)
                .moved;
            wakes += 1;
        }
        let seconds = (hours * 3_600) as f64;
        println!(
            "  idle, timers {name}: {:.2} wakes and {moved} moved in {hours} h: \
             {:.5} % of a core in the wheel",
            wakes as f64 / seconds,
            begin.elapsed().as_secs_f64() / seconds * 100.0,
        );
    }
}

criterion_group! {
    name = wheel;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = operations, counted
}
criterion_main!(wheel);
