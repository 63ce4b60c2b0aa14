//! The targets of a journal, with seeds that are made as nodes make them.

use chronos::base::ids::{NodeHash, TimerId};
use chronos::base::ranked::{Replicas, Sites};
use chronos::base::time::WallMs;
use chronos::journal::SegmentNumber;
use chronos::journal::entry::{Entry, Head, State};
use chronos::timer::definition::encode_content;
use chronos::wire::peer_message::{CopyBody, Standing, TimerCopy};
use chronos::wire::timer_json::Tag;

use crate::journal_targets::SEGMENT;
use crate::{fuzz, journal_targets};

/// Kinds of entries, numbers at edges, and the front of a page.
const TOKENS: &[&[u8]] = &[
    &[0],
    &[1],
    &[2],
    &[34],
    &[50],
    &[65, 1, 2, 3, 4, 5, 6, 7, 8],
    &[66, 1, 0, 0, 0, 1, 0],
    &[67],
    &[0x7f],
    &[0x80],
    &[0x80, 1],
    &[0xff; 8],
    &[0xff; 9],
    &[3, 0, 0, 0, 0, 0, 0, 0],
    &[0, 5, 0, 0, 0, 0, 0, 0],
    &[0, 5, 0, 0, 0, 1, 1, 0xc1],
    &[0, 200, 0, 0, 0, 1, 0, 0],
    &[1, 80, 0],
    &[1, 255, 255],
    &[3, 0, 0],
    &[2, 60, 0],
    b"Cjpg\x01\x00\x01\x00",
    b"Cjpg\x01\x00\x04\x00",
    b"Cjpg\x02\x00\xff\xff",
    b"10.0.0.1:7253",
];

fn timer(id: u64, sequence: u64, body: Option<CopyBody<'_>>) -> TimerCopy<'_> {
    let replicas: Replicas = [NodeHash(7), NodeHash(9)].into_iter().collect();
    let list_digest = replicas.digest();
    let id = TimerId(id);
    TimerCopy {
        standing: Standing { id, version: 9 << 40, sequence, actives: 1, list_digest },
        is_write: false,
        replicas,
        factor: 2,
        sites: Sites::new(),
        start_ms: 948_672_000_000,
        interval_ms: 1_000,
        repeat_for_ms: 3_600_000,
        body,
    }
}

fn encoded(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut out));
    out
}

/// The beginning of a segment, and timers in all their states.
fn parts() -> [Vec<u8>; 2] {
    let name = "10.0.0.10:7253";
    let oldest = SegmentNumber(1);
    let head = Entry::Head(Head {
        format: 1,
        shard: 1,
        shards: 2,
        oldest,
        blocks: 64,
        previous_blocks: 9,
        name,
    });
    let owed = vec![NodeHash(1), NodeHash(2)];
    let state = Entry::State(State { oldest, complete_since: WallMs(1 << 40), owed });
    let mut content = Vec::new();
    let tags = [Tag { kind: "CALL", count: 1 }];
    encode_content("/a?b", &tags, b"opaque", &mut content);
    let body = Some(CopyBody { authority: "10.0.0.9:80", content: &content });
    let timers = [
        Entry::Timer(timer(1, 0, body)),
        Entry::Progress(timer(1, 2, None).standing),
        Entry::Timer(timer(2, 3, None)),
        Entry::Forgotten(TimerId(3)),
    ];
    [encoded(&[head, state]), encoded(&timers)]
}

/// What makes a sealed page of these entries: see `journal_targets::segment_of`.
fn sealed(writes: u8, blocks_since_begin: u8, shape: u8, entries: &[u8]) -> Vec<u8> {
    let length = (entries.len() + 5) as u16;
    let place = [0, 0, writes, blocks_since_begin, shape];
    [&[0], &length.to_le_bytes()[..], &place, entries].concat()
}

#[test]
fn journal_entries() {
    let [opening, timers] = parts();
    let all = [&opening[..], &timers].concat();
    fuzz(journal_targets::journal_entries, &[&opening, &timers, &all], TOKENS);
}

#[test]
fn journal_segment() {
    let [opening, timers] = parts();
    let first = sealed(1, 0, 1, &opening);
    let whole = [&first[..], &sealed(0, 1, 1, &timers), &sealed(1, 0, 2, &timers)].concat();
    // Pages of several blocks, a lost block within a write, one behind it, a page of another
    // segment, a newer page.
    let raw = [&[1, 4, 0][..], b"Cjpg"].concat();
    let long = [&first[..], &sealed(1, 0, 0xc1, &timers), &sealed(0, 3, 65, &timers)].concat();
    let torn = [&first[..], &[3, 0, 0], &sealed(0, 2, 1, &timers), &raw, &first].concat();
    let mut other = sealed(1, 0, 1, &opening);
    other[4] = 1;
    let mixed = [&first[..], &other, &raw, &sealed(3, 0, 2, &timers)].concat();
    let number = SEGMENT.0;
    assert!(number > 1, "one segment was before it");
    fuzz(journal_targets::journal_segment, &[&first, &whole, &long, &torn, &mixed], TOKENS);
}
