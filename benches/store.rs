//! Records, index, payloads and links together, as one create and one delete use them: time per
//! operation, the slowest single insert while they grow from nothing, its counted work, and bytes
//! per timer. `CHRONOS_BENCH_TIMERS` sets how many timers (1 000 000 if not set; the documents
//! quote 10 000 000).

use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use chronos::base::ids::{Slot, mix};
use chronos::store::index::Index;
use chronos::store::links::Links;
use chronos::store::payloads::{PayloadRef, Payloads};
use chronos::store::slab::Slab;
use chronos::store::source::Source;
use criterion::{Criterion, criterion_group, criterion_main};

/// How often growth is timed. Each insert counts with its best time: work of the structures comes
/// again at the same insert, work of the kernel and of other programs comes elsewhere.
const ROUNDS: u32 = 3;
/// A 42-byte URI and 40 bytes of opaque data.
const PAYLOAD: [u8; 82] = [b'x'; 82];

/// Stands for a timer's record: 48 bytes with its key and its payload.
#[derive(Clone, Copy)]
struct Record {
    key: u64,
    payload: PayloadRef,
    _rest: [u64; 4],
}

const _: () = assert!(size_of::<Record>() == 48);

fn timers() -> u64 {
    match std::env::var("CHRONOS_BENCH_TIMERS") {
        Ok(text) => text.parse().expect("CHRONOS_BENCH_TIMERS is a number"),
        Err(_) => 1_000_000,
    }
}

struct Store {
    records: Slab<Record>,
    index: Index,
    payloads: Payloads,
    links: Links,
    /// How many keys the index has read back.
    asked: Cell<u64>,
}

impl Store {
    fn new() -> Self {
        Self {
            records: Slab::new(),
            index: Index::new(Source::none(Index::CHUNK_LEN), 42),
            payloads: Payloads::alone(),
            links: Links::new(),
            asked: Cell::new(0),
        }
    }

    fn filled(timers: u64) -> Self {
        let mut store = Self::new();
        (0..timers).for_each(|number| store.insert(key_of(number)));
        store
    }

    fn insert(&mut self, key: u64) {
        let payload = self.payloads.insert(&PAYLOAD);
        let slot = self.records.insert(Record { key, payload, _rest: [0; 4] });
        self.links.ensure(slot);
        let (records, asked) = (&self.records, &self.asked);
        self.index.insert(key, slot, |slot| {
            asked.set(asked.get() + 1);
            records.get(slot).key
        });
    }

    fn slot_of(&self, key: u64) -> Slot {
        self.index.get(key, |slot| self.records.get(slot).key).expect("the key was inserted")
    }

    fn get(&self, key: u64) -> &[u8] {
        self.payloads.get(self.records.get(self.slot_of(key)).payload)
    }

    fn remove(&mut self, key: u64) {
        let records = &self.records;
        let slot =
            self.index.remove(key, |slot| records.get(slot).key).expect("the key was inserted");
        let record = self.records.remove(slot);
        self.payloads.remove(record.payload);
    }

    /// Returns the bytes of each part: records, index, payloads, links.
    fn bytes(&self) -> [usize; 4] {
        [self.records.bytes(), self.index.bytes(), self.payloads.bytes(), self.links.bytes()]
    }
}

/// Returns keys in the order of creation, as the service makes them: a time above, a counter below.
fn key_of(number: u64) -> u64 {
    0x0123_4567_0000_0000 + number
}

fn operations(criterion: &mut Criterion) {
    let timers = timers();
    let mut store = Store::filled(timers);
    let mut group = criterion.benchmark_group("store");
    let mut dice = 0;
    let mut any_key = move || {
        dice += 1;
        key_of(mix(dice) % timers)
    };
    group.bench_function("get", |b| b.iter(|| black_box(store.get(any_key())[0])));
    group.bench_function("remove_and_insert", |b| {
        b.iter(|| {
            let key = any_key();
            store.remove(key);
            store.insert(key);
        });
    });
    group.finish();
}

/// Grows from nothing, first timed, then counted.
fn growth(_: &mut Criterion) {
    let timers = timers();
    let mut took_ns = vec![u32::MAX; timers as usize];
    for _ in 0..ROUNDS {
        let mut store = Store::new();
        for (number, best_ns) in (0..timers).zip(&mut took_ns) {
            let begin = Instant::now();
            store.insert(key_of(number));
            *best_ns = u128::from(*best_ns).min(begin.elapsed().as_nanos()) as u32;
        }
    }
    let mean = took_ns.iter().map(|&ns| u64::from(ns)).sum::<u64>() / timers;
    took_ns.sort_unstable();
    let quantile = |share: f64| took_ns[((timers - 1) as f64 * share) as usize];
    println!("growth from 0 to {timers} timers, one insert into slab, index, payloads and links:");
    println!(
        "  every insert the best of {ROUNDS} rounds: mean {mean} ns, \
         p99.9 {} ns, p99.999 {} ns, slowest {} us",
        quantile(0.999),
        quantile(0.99999),
        quantile(1.0) / 1_000
    );
    let per_timer = |bytes: usize| bytes as f64 / timers as f64;
    let store = Store::filled(timers);
    let [records, index, payloads, links] = store.bytes();
    println!(
        "  bytes a timer: records {:.1}, links {:.1}, index {:.1}, \
         payload of {} {:.1}; together {:.1}",
        per_timer(records),
        per_timer(links),
        per_timer(index),
        PAYLOAD.len(),
        per_timer(payloads),
        per_timer(records + index + payloads + links),
    );
    drop(store);

    let mut store = Store::new();
    let (mut asked_max, mut index_bytes_max, mut all_bytes_max, mut before) =
        (0, 0, 0, store.bytes());
    for number in 0..timers {
        store.asked.set(0);
        store.insert(key_of(number));
        asked_max = asked_max.max(store.asked.get());
        let after = store.bytes();
        index_bytes_max = index_bytes_max.max(after[1].saturating_sub(before[1]));
        all_bytes_max =
            all_bytes_max.max(after.iter().sum::<usize>() - before.iter().sum::<usize>());
        before = after;
    }
    println!(
        "  most work of one insert: {} entries of 8 bytes moved, {asked_max} records read, \
         {all_bytes_max} bytes reserved (chunks are not initialised)",
        // A table that grows by a third moves 4/5 as many entries as it had places.
        index_bytes_max / 8 * 3 * 4 / 5,
    );
}

criterion_group! {
    name = store;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = operations, growth
}
criterion_main!(store);
