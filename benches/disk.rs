//! Durable writes of a ring, one in flight, on the disk of the build folder: the time until the disk
//! has the bytes, and the CPU time of a write, with registered files and buffer and without. Beside
//! them, in the same run: writes that append to a file, each with an fdatasync of its own.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use chronos::ring::{
    Completion, DurableFile, Ring, RingConfig, Wait, create_zeroed, process_cpu_ns,
};

/// Bytes of a write, and how many writes of that size make a round.
const SIZES: [(usize, u64); 3] = [(4 << 10, 500), (16 << 10, 500), (1 << 20, 50)];
/// Rounds of each way, in turns. Medians over all writes of all rounds are printed.
const ROUNDS: usize = 7;
/// Bytes of the file. Writes go through it from the start to the end, and begin again.
const FILE_BYTES: u64 = 64 << 20;

/// The times of one way to write.
#[derive(Default)]
struct Times {
    writes: Vec<Duration>,
    cpu_ns: u64,
}

impl Times {
    fn add(&mut self, count: u64, mut write: impl FnMut(u64)) {
        let cpu_ns = process_cpu_ns();
        for number in 0..count {
            let begun = Instant::now();
            write(number);
            self.writes.push(begun.elapsed());
        }
        self.cpu_ns += process_cpu_ns() - cpu_ns;
    }

    fn print(&mut self, name: &str) {
        self.writes.sort_unstable();
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let at = |percent: usize| us(self.writes[(self.writes.len() - 1) * percent / 100]);
        println!(
            "  {name:32} median {:7.1} us, p99 {:8.1} us, CPU {:6.1} us a write",
            at(50),
            at(99),
            self.cpu_ns as f64 / 1e3 / self.writes.len() as f64,
        );
    }
}

fn ring(path: &Path, registers_disk: bool) -> Ring {
    let config = RingConfig { entries: 64, registers_disk, ..RingConfig::default() };
    let mut ring = Ring::new(&config).expect("Linux 6.1 or later with io_uring enabled");
    ring.prepare_disk(1, 1 << 20).expect("1 MiB can be mapped");
    ring.keep_file(0, DurableFile::open(path).expect("it was just made"));
    ring
}

/// Writes and waits for the end.
fn write(ring: &mut Ring, number: u64, bytes: &[u8], completions: &mut Vec<Completion>) {
    let places = FILE_BYTES / bytes.len() as u64;
    ring.write_durably(0, number % places * bytes.len() as u64, bytes);
    while ring.is_writing() {
        ring.turn(Wait::Event, completions).expect("a turn does not fail");
        for completion in completions.drain(..) {
            let is_good = matches!(completion, Completion::Written { result: Ok(()), .. });
            assert!(is_good, "{completion:?}");
        }
    }
}

fn main() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo has made it");
    let path = folder.path().join("segment");
    create_zeroed(&path, FILE_BYTES).expect("64 MiB are free");
    let is_direct = DurableFile::open(&path).expect("it was just made").is_direct();
    let (mut registered, mut plain) = (ring(&path, true), ring(&path, false));
    println!("disk: O_DIRECT {is_direct}, {:?}", registered.disk_registrations());
    let mut completions = Vec::new();
    for (size, count) in SIZES {
        let bytes = vec![7; size];
        let mut times: [Times; 3] = Default::default();
        let mut appended = File::create(folder.path().join("appended")).expect("there is room");
        for _ in 0..ROUNDS {
            times[0].add(count, |at| write(&mut registered, at, &bytes, &mut completions));
            times[1].add(count, |at| write(&mut plain, at, &bytes, &mut completions));
            times[2].add(count, |_| {
                appended.write_all(&bytes).expect("there is room");
                appended.sync_data().expect("the disk works");
            });
        }
        println!("{} KiB:", size >> 10);
        let names = ["registered file and buffer", "plain", "append and fdatasync"];
        for (name, times) in names.into_iter().zip(&mut times) {
            times.print(name);
        }
    }
    let (from, mut to) = (vec![7_u8; 1 << 20], vec![0_u8; 1 << 20]);
    let mut copies = Times::default();
    copies.add(1_000, |_| std::hint::black_box(&mut to).copy_from_slice(&from));
    println!("copy of 1 MiB:");
    copies.print("copy");
}
