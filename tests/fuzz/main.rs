//! The fuzz targets as an ordinary test: every seed as it is, then mutations of the seeds from a
//! fixed start, so that a failure comes back on the next run. `CHRONOS_FUZZ_ROUNDS=1000000 cargo
//! test --release --test fuzz` searches longer; `CHRONOS_FUZZ_START=7` searches elsewhere. For a
//! search guided by coverage see libfuzzer/README.md.

mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use targets::{ALL, Target};

/// Mutated inputs per target when the environment does not say.
const ROUNDS_DEFAULT: u64 = 20_000;
/// Mutated inputs do not grow beyond this: the targets' own limits are all below it.
const INPUT_BYTES_MAX: usize = 2_048;
/// Mutations of one input, stacked.
const MUTATIONS_MAX: u64 = 4;

/// Pieces of the formats, so that mutations meet their grammar more often than by chance.
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"0\r\n\r\n",
    b"chunked",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Host: a\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"ffffffffffffffff",
    b"18446744073709551616",
    b"-1",
    b"1e400",
    b"1.5",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00",
    b"null",
    b"true",
    b"\"timing\":",
    b"\"interval\":",
    b"\"http\":{}",
    b"\"type\":\"A\"",
    b"\xff",
    b"\xc3\xa9",
    b"\xed\xa0\x80",
    b"%2D",
    b"%2e%2e",
    b"-2-",
    b"-16",
    b"http://",
    b"https://",
    b"[::1]",
    b"127.0.0.1",
    b"@",
    b":80",
    b":0",
    b"?",
    b"#",
    b"/",
    b"..",
];

/// xorshift64*: all that is needed is that inputs differ and come back.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In `0..bound`; `bound` is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (((self.next() >> 32) * bound as u64) >> 32) as usize
    }
}

#[test]
fn http_head() {
    search("http_head");
}

#[test]
fn chunked_body() {
    search("chunked_body");
}

#[test]
fn timer_json() {
    search("timer_json");
}

#[test]
fn timer_id() {
    search("timer_id");
}

#[test]
fn callback_uri() {
    search("callback_uri");
}

#[test]
fn callback_answer() {
    search("callback_answer");
}

/// A target without seeds, or seeds without a target, would look tested and not be.
#[test]
fn every_target_has_seeds() {
    let mut folders: Vec<_> = std::fs::read_dir(seeds_root())
        .expect("the folder of seeds is checked in")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
        .collect();
    folders.sort();
    let mut names: Vec<_> = ALL.iter().map(|target| target.name).collect();
    names.sort_unstable();
    assert_eq!(folders, names);
    for name in names {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fuzz/libfuzzer/fuzz_targets")
            .join(format!("{name}.rs"));
        assert!(path.is_file(), "{name} has no cargo-fuzz target");
    }
}

fn seeds_root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds")
}

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => {
            text.parse().unwrap_or_else(|_| panic!("{name}: expected a number, got {text}"))
        }
        Err(_) => default,
    }
}

fn search(name: &str) {
    let target = ALL.iter().find(|target| target.name == name).expect("each test names a target");
    let seeds = read_seeds(name);
    for seed in &seeds {
        check(target, seed);
    }
    let start = setting("CHRONOS_FUZZ_START", 1);
    let mut random = Random(start.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..setting("CHRONOS_FUZZ_ROUNDS", ROUNDS_DEFAULT) {
        let mut input = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.next() % MUTATIONS_MAX {
            mutate(&mut input, &seeds, &mut random);
        }
        input.truncate(INPUT_BYTES_MAX);
        check(target, &input);
    }
}

fn read_seeds(name: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(seeds_root().join(name))
        .expect("every target has seeds")
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{name} has no seed");
    paths.iter().map(|path| std::fs::read(path).expect("readable")).collect()
}

/// Runs a target; a panic is told with the input, ready to become a seed.
fn check(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.check)(input))) {
        eprintln!("{} fails on b\"{}\"", target.name, input.escape_ascii());
        std::panic::resume_unwind(panic);
    }
}

fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let bytes = random.below(9).min(input.len() - at);
    match random.next() % 8 {
        0 => {
            input.drain(at..at + bytes);
        }
        1 => input.truncate(at),
        2 if at < input.len() => input[at] ^= 1 << random.below(8),
        3 if at < input.len() => input[at] = random.next() as u8,
        4 => {
            let piece = PIECES[random.below(PIECES.len())];
            input.splice(at..at, piece.iter().copied());
        }
        5 => {
            let piece = PIECES[random.below(PIECES.len())];
            input.splice(at..at + bytes, piece.iter().copied());
        }
        6 => {
            let copy = input[at..at + bytes].to_vec();
            let times = 1 + random.below(40);
            input.splice(at..at, copy.repeat(times));
        }
        _ => {
            let other = &seeds[random.below(seeds.len())];
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}
