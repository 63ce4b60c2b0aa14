//! Durable writes: the right bytes in the right place of the right file, one end for each write,
//! errors as the kernel tells them, and a disk that stalls holds nobody else up.
//!
//! A pipe that nobody reads from is a disk that stalls: it takes a part of the bytes, and the rest
//! when somebody reads.

use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use chronos::ring::{
    Completion, DiskRegistrations, DurableFile, Errno, Ring, RingConfig, Wait, create_zeroed,
};
use tempfile::TempDir;

use super::harness::*;

const BUFFER_BYTES: usize = 1 << 20;
const FILES: u32 = 4;
const BLOCK: usize = 4096;
const EIO: Errno = Errno(5);
const ENOSPC: Errno = Errno(28);
const NOTHING: DiskRegistrations = DiskRegistrations { files: false, buffer: false };

fn prepared(config: &RingConfig) -> Ring {
    let mut ring = make_ring(config);
    ring.prepare_disk(FILES, BUFFER_BYTES).expect("1 MiB can be mapped");
    ring
}

/// A folder on a real file system.
pub fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("cargo has made it")
}

/// A folder in memory, if this machine has one.
fn folder_in_memory() -> Option<TempDir> {
    let folder = tempfile::tempdir_in("/dev/shm");
    folder.inspect_err(|error| eprintln!("not tested in memory: /dev/shm: {error}")).ok()
}

/// A file of zeros in `folder`, opened for durable writes.
fn zeroed(folder: &Path, name: &str, bytes: usize) -> (PathBuf, DurableFile) {
    let path = folder.join(name);
    create_zeroed(&path, bytes as u64).expect("there is room");
    let file = DurableFile::open(&path).expect("it was just made");
    (path, file)
}

/// A pipe whose end for writing is opened like a file on a disk.
fn stalling() -> (PipeReader, DurableFile) {
    let (reader, writer) = std::io::pipe().expect("two descriptors are free");
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    (reader, DurableFile::open(Path::new(&path)).expect("the kernel opens it again"))
}

/// Bytes of which every 8 differ from all others, as a pipe takes 64 KiB at a time.
fn numbered(length: usize) -> Vec<u8> {
    (0..length as u64 / 8).flat_map(u64::to_be_bytes).collect()
}

/// Waits for the end of the write in flight, which must be all that completes.
fn written(ring: &mut Ring, place: u32) -> Result<(), Errno> {
    let mut told = None;
    drive(ring, |_, completions| {
        for completion in completions.drain(..) {
            match completion {
                Completion::Written { place: of, result } => {
                    assert_eq!(of, place);
                    assert!(told.replace(result).is_none(), "told twice");
                    assert_eq!(Completion::Written { place: of, result }.owner(), None);
                }
                other => panic!("not expected here: {other:?}"),
            }
        }
        told.is_some()
    });
    assert!(!ring.is_writing());
    told.expect("drive ends when it is there")
}

/// Makes writes of many sizes at many offsets, in no order, and compares the whole file each time.
fn write_here_and_there(ring: &mut Ring, folder: &Path) {
    const PLACE: u32 = FILES - 1;
    const FILE_BYTES: usize = 2 * BUFFER_BYTES;
    let (path, file) = zeroed(folder, "segment", FILE_BYTES);
    ring.keep_file(PLACE, file);
    let mut expected = vec![0; FILE_BYTES];
    let writes = [
        (0, BLOCK),
        (BLOCK, 4 * BLOCK),
        (FILE_BYTES - BUFFER_BYTES, BUFFER_BYTES),
        (3 * BLOCK, 7 * BLOCK),
        (FILE_BYTES - BLOCK, BLOCK),
        (0, BUFFER_BYTES),
    ];
    for (seed, (offset, length)) in writes.into_iter().enumerate() {
        let bytes = pattern(seed, length);
        ring.write_durably(PLACE, offset as u64, &bytes);
        assert!(ring.is_writing());
        assert_eq!(written(ring, PLACE), Ok(()));
        expected[offset..offset + length].copy_from_slice(&bytes);
        let found = std::fs::read(&path).expect("it is there");
        assert!(found == expected, "write {seed} of {length} bytes at {offset}");
    }
}

#[test]
fn bytes_land_where_they_belong() {
    for registers_disk in [true, false] {
        for folder in [Some(folder()), folder_in_memory()].into_iter().flatten() {
            let mut ring = prepared(&RingConfig { registers_disk, ..SMALL });
            let registrations = ring.disk_registrations();
            assert!(registers_disk || registrations == Some(NOTHING), "{registrations:?}");
            write_here_and_there(&mut ring, folder.path());
        }
    }
}

#[test]
fn a_ring_that_was_not_prepared_writes_nothing() {
    let ring = make_ring(&SMALL);
    assert_eq!(ring.disk_registrations(), None);
    assert!(!ring.is_writing());
}

#[test]
fn without_room_for_a_table_files_are_named_by_descriptor() {
    const NAME: &str = "disk::without_room_for_a_table_files_are_named_by_descriptor";
    if !is_child(NAME) {
        return run_child(NAME, "ulimit -n 64");
    }
    let folder = folder();
    let mut ring = make_ring(&SMALL);
    ring.prepare_disk(65, BUFFER_BYTES).expect("1 MiB can be mapped");
    let registrations = ring.disk_registrations().expect("it is prepared");
    assert!(!registrations.files, "the kernel has made a table larger than RLIMIT_NOFILE");
    write_here_and_there(&mut ring, folder.path());
}

#[test]
fn without_locked_memory_the_buffer_is_not_registered() {
    const NAME: &str = "disk::without_locked_memory_the_buffer_is_not_registered";
    if !is_child(NAME) {
        // In a user namespace nobody has CAP_IPC_LOCK, which would lift the limit.
        run_child_apart(NAME, "ulimit -l 4096");
        return;
    }
    let folder = folder();
    let mut ring = make_ring(&SMALL);
    ring.prepare_disk(FILES, 8 << 20).expect("8 MiB can be mapped");
    let registrations = ring.disk_registrations().expect("it is prepared");
    assert_eq!(registrations, DiskRegistrations { files: true, buffer: false });
    write_here_and_there(&mut ring, folder.path());
}

/// What has no O_DIRECT is opened without.
#[test]
fn a_full_disk_is_told() {
    for registers_disk in [true, false] {
        let full = DurableFile::open(Path::new("/dev/full")).expect("Linux has it");
        assert!(!full.is_direct(), "a device of characters with O_DIRECT");
        let folder = folder();
        let (path, file) = zeroed(folder.path(), "segment", BLOCK);
        let mut ring = prepared(&RingConfig { registers_disk, ..SMALL });
        ring.keep_file(0, full);
        ring.keep_file(1, file);
        ring.write_durably(0, 0, &pattern(1, BUFFER_BYTES));
        assert_eq!(written(&mut ring, 0), Err(ENOSPC));
        // The ring goes on.
        ring.write_durably(1, 0, &pattern(2, BLOCK));
        assert_eq!(written(&mut ring, 1), Ok(()));
        assert!(std::fs::read(&path).expect("it is there") == pattern(2, BLOCK));
    }
}

/// The room ends in the middle of the write: the kernel writes a part, and says why not more only
/// when the ring asks it to write the rest.
#[test]
fn a_disk_that_gets_full_is_told() {
    const NAME: &str = "disk::a_disk_that_gets_full_is_told";
    let folder = folder();
    if !is_child(NAME) {
        let path = folder.path().to_str().expect("plain");
        let mount = format!("mount -t tmpfs -o size=256k none '{path}' && export SMALL='{path}'");
        run_child_apart(NAME, &mount);
        return;
    }
    let small = PathBuf::from(std::env::var_os("SMALL").expect("the test has set it"));
    let failed = create_zeroed(&small.join("zeros"), 1 << 20).expect_err("it is larger than that");
    assert_eq!(failed.raw_os_error(), Some(ENOSPC.0));
    assert_eq!(std::fs::read_dir(&small).expect("it is there").count(), 0);

    let path = small.join("segment");
    File::create(&path).expect("there is room").set_len(1 << 20).expect("a hole takes no room");
    let mut ring = prepared(&SMALL);
    ring.keep_file(0, DurableFile::open(&path).expect("it was just made"));
    let bytes = pattern(3, 512 << 10);
    ring.write_durably(0, 0, &bytes);
    assert_eq!(written(&mut ring, 0), Err(ENOSPC));
    let found = std::fs::read(&path).expect("it is there");
    assert!(found[..BLOCK] == bytes[..BLOCK], "the first block had room");
    ring.write_durably(0, 0, &bytes[..BLOCK]);
    assert_eq!(written(&mut ring, 0), Ok(()));
}

/// No page is mapped at address 0, and the kernel says so with EIO.
#[test]
fn a_disk_that_fails_is_told() {
    let Ok(file) = DurableFile::open(Path::new("/proc/self/mem")) else {
        eprintln!("not tested, as this process may not write to its own memory");
        return;
    };
    let mut ring = prepared(&SMALL);
    ring.keep_file(0, file);
    ring.write_durably(0, 0, &pattern(4, BLOCK));
    assert_eq!(written(&mut ring, 0), Err(EIO));
}

/// A descriptor that stayed open would be one too many after 64 files.
#[test]
fn replaced_and_dropped_files_are_closed() {
    const NAME: &str = "disk::replaced_and_dropped_files_are_closed";
    if !is_child(NAME) {
        return run_child(NAME, "ulimit -n 64");
    }
    let folder = folder();
    for registers_disk in [true, false] {
        let mut ring = prepared(&RingConfig { registers_disk, ..SMALL });
        for round in 0..100 {
            let name = format!("{registers_disk}-{round}");
            let (path, file) = zeroed(folder.path(), &name, BLOCK);
            ring.keep_file(2, file);
            let bytes = pattern(round, BLOCK);
            ring.write_durably(2, 0, &bytes);
            assert_eq!(written(&mut ring, 2), Ok(()));
            assert!(std::fs::read(&path).expect("it is there") == bytes, "round {round}");
            if round % 3 == 0 {
                ring.drop_file(2);
                ring.drop_file(2);
            }
        }
    }
}

#[test]
fn files_do_not_mix() {
    let folder = folder();
    let mut ring = prepared(&SMALL);
    let paths: Vec<_> = (0..FILES)
        .map(|place| {
            let (path, file) = zeroed(folder.path(), &place.to_string(), 2 * BLOCK);
            ring.keep_file(place, file);
            path
        })
        .collect();
    for place in [2, 0, 3, 1] {
        ring.write_durably(place, BLOCK as u64, &pattern(place as usize, BLOCK));
        assert_eq!(written(&mut ring, place), Ok(()));
    }
    for (place, path) in paths.iter().enumerate() {
        let found = std::fs::read(path).expect("it is there");
        assert!(found[..BLOCK].iter().all(|&byte| byte == 0), "file {place}");
        assert!(found[BLOCK..] == pattern(place, BLOCK), "file {place}");
    }
}

/// The kernel takes what fits into the pipe, and the ring writes the rest. Meanwhile it serves its
/// sockets.
#[test]
fn while_the_disk_stalls_sockets_work_and_then_every_byte_arrives() {
    for registers_disk in [true, false] {
        let (mut reader, file) = stalling();
        let (mut ring, address) = listening(&RingConfig { registers_disk, ..SMALL });
        ring.prepare_disk(FILES, BUFFER_BYTES).expect("1 MiB can be mapped");
        ring.keep_file(0, file);
        let bytes = numbered(BUFFER_BYTES);
        ring.write_durably(0, 0, &bytes);
        let mut echo = Echo::default();
        std::thread::scope(|scope| {
            let client = scope.spawn(move || exchange(address, 20, |seed| 1 + seed * 1000));
            drive(&mut ring, |ring, completions| {
                echo.step(ring, completions);
                echo.served == 20 && ring.sockets() == 0
            });
            submit(&mut ring);
            client.join().expect("the client is content");
        });
        assert!(ring.is_writing(), "a pipe that nobody reads from has no room for 1 MiB");
        let disk = std::thread::spawn(move || {
            let mut found = Vec::new();
            let mut part = vec![0; 64 << 10];
            while found.len() < BUFFER_BYTES {
                let count = reader.read(&mut part).expect("the ring writes");
                found.extend_from_slice(&part[..count]);
            }
            found
        });
        assert_eq!(written(&mut ring, 0), Ok(()));
        assert!(disk.join().expect("it has read all") == bytes);
    }
}

#[test]
fn a_ring_that_is_dropped_ends_its_write() {
    let folder = folder();
    for is_submitted in [true, false] {
        let name = is_submitted.to_string();
        let (path, file) = zeroed(folder.path(), &name, BUFFER_BYTES);
        let mut ring = prepared(&SMALL);
        ring.keep_file(0, file);
        let bytes = pattern(6, BUFFER_BYTES);
        ring.write_durably(0, 0, &bytes);
        if is_submitted {
            ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
        }
        drop(ring);
        assert!(std::fs::read(&path).expect("it is there") == bytes, "submitted: {is_submitted}");
    }
}

#[test]
fn a_disk_that_stalls_does_not_keep_a_ring_from_being_dropped() {
    for registers_disk in [true, false] {
        let (mut reader, file) = stalling();
        let mut ring = prepared(&RingConfig { registers_disk, ..SMALL });
        ring.keep_file(0, file);
        let bytes = numbered(BUFFER_BYTES);
        ring.write_durably(0, 0, &bytes);
        ring.turn(Wait::Poll, &mut Vec::new()).expect("a turn does not fail");
        let begun = Instant::now();
        drop(ring);
        assert!(begun.elapsed() < PATIENCE);
        // What the kernel reads after the drop is still the buffer.
        let (mut found, mut part) = (0, vec![0; 64 << 10]);
        loop {
            let count = reader.read(&mut part).expect("the pipe is open");
            if count == 0 {
                break;
            }
            assert!(part[..count] == bytes[found..found + count], "other memory after {found}");
            found += count;
        }
        assert!(found < BUFFER_BYTES, "the disk did not stall");
    }
}

/// Bytes of addresses that this process has mapped.
fn mapped_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc is mounted");
    let pages: usize = statm.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    pages * 4096
}

/// The kernel may read the buffer of a write that has not completed, whoever gets the memory next.
#[test]
fn the_buffer_of_a_write_that_stalls_is_never_freed() {
    const NAME: &str = "disk::the_buffer_of_a_write_that_stalls_is_never_freed";
    const LARGE_BYTES: usize = 32 << 20;
    if !is_child(NAME) {
        return run_child(NAME, "true");
    }
    for stalls in [false, true] {
        let before = mapped_bytes();
        let (reader, file) = stalling();
        let mut ring = make_ring(&SMALL);
        ring.prepare_disk(1, LARGE_BYTES).expect("32 MiB can be mapped");
        ring.keep_file(0, file);
        // 4 KiB fit into any pipe.
        ring.write_durably(0, 0, &numbered(if stalls { BUFFER_BYTES } else { BLOCK }));
        drop(ring);
        drop(reader);
        let after = mapped_bytes();
        assert_eq!(after >= before + LARGE_BYTES, stalls, "{before} bytes, then {after}");
    }
}

#[test]
#[should_panic(expected = "one durable write at a time")]
fn a_second_write_is_a_bug_of_the_caller() {
    let (_reader, file) = stalling();
    let mut ring = prepared(&SMALL);
    ring.keep_file(0, file);
    ring.write_durably(0, 0, &[1; BLOCK]);
    ring.write_durably(0, 0, &[2; BLOCK]);
}

#[test]
#[should_panic(expected = "a file stays at its place until its write has completed")]
fn a_file_is_not_replaced_under_its_write() {
    let folder = folder();
    let mut ring = prepared(&SMALL);
    ring.keep_file(0, zeroed(folder.path(), "first", BLOCK).1);
    ring.write_durably(0, 0, &[1; BLOCK]);
    ring.keep_file(0, zeroed(folder.path(), "second", BLOCK).1);
}

#[test]
#[should_panic(expected = "no file is at place 1")]
fn a_write_to_a_free_place_is_a_bug_of_the_caller() {
    prepared(&SMALL).write_durably(1, 0, &[1; BLOCK]);
}

#[test]
fn a_write_that_is_not_of_whole_blocks_is_a_bug_of_the_caller() {
    let folder = folder();
    let mut ring = prepared(&SMALL);
    ring.keep_file(0, zeroed(folder.path(), "segment", BLOCK).1);
    for (offset, length) in [(0, 0), (0, 1), (1, BLOCK), (0, BUFFER_BYTES + BLOCK)] {
        let bytes = vec![1; length];
        let write = std::panic::AssertUnwindSafe(|| ring.write_durably(0, offset, &bytes));
        let panicked = std::panic::catch_unwind(write).expect_err("it is refused");
        let told = panicked.downcast_ref::<String>().expect("a sentence");
        assert!(told.contains("durable write"), "{told}");
        assert!(!ring.is_writing());
    }
}

/// A file is opened by one thread and given to the thread of a ring.
#[test]
fn files_travel_between_threads() {
    let folder = folder();
    let path = folder.path().to_owned();
    let opened = std::thread::spawn(move || zeroed(&path, "segment", BLOCK).1);
    let mut ring = prepared(&SMALL);
    ring.keep_file(0, opened.join().expect("it is opened"));
    ring.write_durably(0, 0, &[8; BLOCK]);
    assert_eq!(written(&mut ring, 0), Ok(()));
}

#[test]
fn a_file_that_is_not_there_is_not_made() {
    let folder = folder();
    let path = folder.path().join("nothing");
    let error = DurableFile::open(&path).expect_err("it is not there");
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(!path.exists());
    File::create(&path).and_then(|mut file| file.write_all(b"kept")).expect("there is room");
    DurableFile::open(&path).expect("it is there");
    assert_eq!(std::fs::read(&path).expect("it is there"), b"kept");
}
