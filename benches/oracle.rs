//! How fast timestamps are made: `Oracle::take` on one thread, and on two threads that share the
//! oracle, in turns of 64 timestamps with one clock reading and one second look each. Beside it a
//! bare `fetch_add` on one word, which is the most that any shared counter gives.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use chronos::base::time::MonoNs;
use chronos::timestamp::Timestamp;
use chronos::timestamp::clock::ClockLine;
use chronos::timestamp::oracle::{Oracle, Refusal, Terms};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_utils::CachePadded;

/// Timestamps in a turn of a core.
const TURN: u64 = 64;
/// Rounds of the comparison. Their medians are printed.
const ROUNDS: usize = 15;
const TURNS_PER_ROUND: u64 = 20_000;

/// Runs a turn `turns` times on each of `threads` threads. Returns how long the slowest thread
/// took.
fn on_threads(threads: usize, turns: u64, turn: impl Fn() + Sync) -> Duration {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let run = || {
            barrier.wait();
            let begin = Instant::now();
            for _ in 0..turns {
                turn();
            }
            begin.elapsed()
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let took = threads.into_iter().map(|thread| thread.join().expect("nothing panics"));
        took.max().expect("there is a thread")
    })
}

fn oracle() -> Oracle {
    let oracle = Oracle::default();
    let clock = ClockLine { wall_offset_ns: 1_800_000_000_000_000_000, ..ClockLine::ZERO };
    let bound = Timestamp(i64::MAX as u64);
    oracle.begin(Timestamp(0), &Terms { until: MonoNs(u64::MAX), bound, clock });
    oracle
}

/// Takes a turn: the clock once, the timestamps, the clock again. A preempted thread may find that
/// another thread has gone on to the next millisecond. Then it reads the clock once more.
fn take_turn(oracle: &Oracle, epoch: Instant) {
    let clock = || MonoNs(epoch.elapsed().as_nanos() as u64);
    let mut now = clock();
    let mut term = None;
    for _ in 0..TURN {
        let (value, of) = loop {
            match oracle.take(now, 1) {
                Ok(taken) => break taken,
                Err(Refusal::NextMillisecond) => now = clock(),
                Err(refusal) => panic!("{refusal:?}: nothing limits this oracle"),
            }
        };
        black_box(value);
        term = Some(of);
    }
    assert!(oracle.holds(clock(), term.expect("a turn is not empty")));
}

fn add_turn(word: &AtomicU64) {
    for _ in 0..TURN {
        black_box(word.fetch_add(1, Relaxed));
    }
}

/// Returns the nanoseconds for a timestamp, over all threads: the median of the rounds.
fn median_ns(threads: usize, turn: impl Fn() + Sync) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let took = on_threads(threads, TURNS_PER_ROUND, &turn);
            took.as_secs_f64() * 1e9 / (threads as u64 * TURNS_PER_ROUND * TURN) as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn compare() {
    for threads in [1, 2] {
        let (oracle, epoch) = (oracle(), Instant::now());
        let take_ns = median_ns(threads, || take_turn(&oracle, epoch));
        let word = CachePadded::new(AtomicU64::new(0));
        let add_ns = median_ns(threads, || add_turn(&word));
        println!(
            "{threads} thread(s): take {take_ns:.1} ns a value ({:.1} M/s), fetch_add {add_ns:.1} \
             ns: {:.1} x",
            1e3 / take_ns,
            take_ns / add_ns
        );
    }
}

fn bench(criterion: &mut Criterion) {
    compare();
    let mut group = criterion.benchmark_group("oracle");
    group.sample_size(10);
    for threads in [1, 2] {
        group.throughput(Throughput::Elements(TURN * threads as u64));
        let (oracle, epoch) = (oracle(), Instant::now());
        group.bench_function(format!("take, {threads} threads"), |bencher| {
            bencher.iter_custom(|turns| on_threads(threads, turns, || take_turn(&oracle, epoch)));
        });
        let word = CachePadded::new(AtomicU64::new(0));
        group.bench_function(format!("fetch_add, {threads} threads"), |bencher| {
            bencher.iter_custom(|turns| on_threads(threads, turns, || add_turn(&word)));
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
