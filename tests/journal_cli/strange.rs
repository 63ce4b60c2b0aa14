//! What stands under the name of a segment and is none: folders, files that were cut to nothing or
//! written by nobody, and files that the disk does not give.

use std::fs;
use std::io;
use std::path::PathBuf;

use chronos::journal::recovery::Flaw;
use chronos::journal::{BLOCK_BYTES, JournalId, SegmentNumber};
use chronos::node::journal::directory::{SegmentFile, ShardDirectory};
use chronos::node::journal::pieces::Bytes;
use chronos::node::journal::reading::{Files, ReadError, ShardReport, read_shard, stamps};

use crate::disk::{Data, Shard, cut, flip, stamp};
use crate::tools::journal;

fn report(shard: &Shard) -> ShardReport {
    read_shard(&shard.directory, &mut ()).expect("it can be read")
}

/// What `chronos journal check` calls each damage, and what it says.
fn told(data: &Data) -> Vec<(String, String)> {
    let ended = journal("check", data.path(), &["--json"]);
    let document = ended.json();
    let damage = document["damage"].as_array().expect("a list");
    assert_eq!(ended.code, i32::from(!damage.is_empty()), "{document:#}");
    let text = |of: &serde_json::Value| of.as_str().expect("text").to_owned();
    damage.iter().map(|one| (text(&one["what"]), text(&one["text"]))).collect()
}

#[test]
fn a_folder_with_the_name_of_a_segment_is_told() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    // In a journal without a segment, in the place of one, and behind the last.
    fs::create_dir(shard.path(1)).expect("made");
    let [(what, text)] = &told(&data)[..] else { panic!("{:?}", told(&data)) };
    assert_eq!(what, "foreign");
    assert!(text.contains("is a directory; a file was expected"), "{text}");
    assert!(text.contains("moves it aside"), "{text}");
    fs::remove_dir(shard.path(1)).expect("removed");
    shard.fill(3, 1);
    assert_eq!(told(&data), []);
    fs::remove_file(shard.path(2)).expect("removed");
    fs::create_dir(shard.path(2)).expect("made");
    std::os::unix::fs::symlink("nowhere", shard.path(0x77)).expect("made");
    let flaws = report(&shard).flaws;
    let no_file = |number, what| Flaw::NoFile(SegmentNumber(number), what);
    let link = "a link that leads nowhere";
    assert_eq!(flaws, [no_file(2, "a directory"), no_file(0x77, link)]);
    assert_eq!(told(&data).len(), 2);
    let repaired = journal("repair", data.path(), &["--yes"]);
    assert_eq!((repaired.code, told(&data)), (0, Vec::new()), "{}", repaired.out);
}

#[test]
fn a_file_without_its_length_is_told_unless_nothing_can_have_stood_in_it() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    fs::write(shard.path(1), "").expect("written");
    let [(what, text)] = &told(&data)[..] else { panic!("{:?}", told(&data)) };
    assert!(what == "short" && text.contains("the file is empty"), "{what}: {text}");
    fs::remove_file(shard.path(1)).expect("removed");
    // Files 4 and 5 are made ahead, and 4 was cut.
    shard.fill(3, 1);
    cut(&shard.path(4), 2 * BLOCK_BYTES as u64);
    let [(what, text)] = &told(&data)[..] else { panic!("{:?}", told(&data)) };
    assert!(what == "short" && text.contains("122880 bytes shorter"), "{what}: {text}");
    // A restart goes on behind it: no write is missing, so none was in it.
    let mut later = Shard::begin(shard.directory.clone(), report(&shard).continuation);
    later.append_timers(900..910);
    later.write(stamp(2, 1));
    cut(&shard.path(4), 0);
    assert_eq!(told(&data), []);
    // The oldest file, with a restart behind it, which tells nothing of its length.
    let data = Data::new(1);
    let mut shard = data.shard(0);
    shard.append_timers(1..5);
    shard.write(stamp(1, 1));
    let mut later = Shard::begin(shard.directory.clone(), report(&shard).continuation);
    later.append_timers(5..10);
    later.write(stamp(2, 1));
    cut(&shard.path(1), 0);
    assert_eq!(told(&data).len(), 1);
}

#[test]
fn what_nobody_understands_and_nobody_needs_is_known() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    shard.fill(3, 1);
    let found = report(&shard);
    assert_eq!((found.strange, found.flaws), (vec![], vec![]));
    // Behind the last: noise. One in which a former life stands is none, whatever is behind that.
    let length = crate::disk::SIZES.segment_bytes() as usize;
    fs::write(shard.path(0x30), vec![0xa5; length]).expect("written");
    let mut reused = fs::read(shard.path(3)).expect("there");
    reused[9 * BLOCK_BYTES..].fill(0xa5);
    fs::write(shard.path(0x31), reused).expect("written");
    assert_eq!(report(&shard).strange, [SegmentNumber(0x30)]);
    // Before the oldest that is needed: what was emptied is known by its first page.
    shard.append_state(3);
    shard.fill(6, 1);
    let found = report(&shard);
    assert_eq!((found.oldest, found.strange), (SegmentNumber(3), vec![SegmentNumber(0x30)]));
    flip(&shard.path(2), 80);
    let found = report(&shard);
    assert_eq!(found.strange, [2, 0x30].map(SegmentNumber));
    assert!(!found.is_damaged(), "nobody needs it");
}

/// A directory on a disk that does not give a segment from some byte on.
struct Faulty {
    directory: ShardDirectory,
    segment: SegmentNumber,
    good: usize,
    errno: i32,
}

impl Files for Faulty {
    fn owner(&self) -> (JournalId, &str) {
        self.directory.owner()
    }

    fn shard(&self) -> (u16, u16) {
        (self.directory.shard, self.directory.shards)
    }

    fn directory(&self) -> PathBuf {
        self.directory.directory()
    }

    fn path_of(&self, number: SegmentNumber) -> PathBuf {
        self.directory.path_of(number)
    }

    fn list(&self) -> Result<Option<Vec<SegmentFile>>, ReadError> {
        self.directory.list()
    }

    fn beginning(&self, file: &SegmentFile) -> Result<Vec<u8>, ReadError> {
        if file.number == self.segment && self.good < BLOCK_BYTES {
            let path = file.path.display().to_string();
            return Err(ReadError::File { path, source: io::Error::from_raw_os_error(self.errno) });
        }
        self.directory.beginning(file)
    }

    fn with_bytes<T>(
        &self,
        files: &[(&SegmentFile, u64)],
        work: impl FnOnce(&mut dyn Bytes) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let bytes = |(file, most): &(&SegmentFile, u64)| {
            let mut bytes = fs::read(&file.path).expect("there");
            bytes.truncate(usize::try_from(*most).unwrap_or(usize::MAX));
            let error = (file.number == self.segment && bytes.len() > self.good).then(|| {
                bytes.truncate(self.good);
                self.errno
            });
            (bytes, error)
        };
        let files: Vec<_> = files.iter().map(bytes).collect();
        work(&mut Pieces { files, at: 0, skipped: 0 })
    }
}

/// Files that are given in one piece each, with the error behind it.
struct Pieces {
    files: Vec<(Vec<u8>, Option<i32>)>,
    at: usize,
    skipped: usize,
}

impl Bytes for Pieces {
    fn bytes(&self) -> &[u8] {
        &self.files[self.at - 1].0[self.skipped..]
    }

    fn is_end(&self) -> bool {
        self.files[self.at - 1].1.is_none()
    }

    fn skip(&mut self, bytes: usize) {
        self.skipped += bytes;
    }

    fn fetch(&mut self, is_new: bool) -> io::Result<()> {
        if is_new {
            (self.at, self.skipped) = (self.at + 1, 0);
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(self.files[self.at - 1].1.expect("it was no end")))
    }
}

#[test]
fn a_segment_that_the_disk_does_not_give_ends_no_reading() {
    let data = Data::new(1);
    let mut shard = data.shard(0);
    shard.fill(4, 1);
    let whole = report(&shard);
    let faulty = |segment, good, errno| Faulty {
        directory: shard.directory.clone(),
        segment: SegmentNumber(segment),
        good,
        errno,
    };
    // All of it, a part, the last, and one behind the last.
    for (segment, blocks) in [(1, 0), (2, 0), (2, 7), (3, 1), (4, 0), (4, 2), (5, 0)] {
        let files = faulty(segment, blocks * BLOCK_BYTES, libc::EIO);
        let found = read_shard(&files, &mut ()).expect("the others can be read");
        assert!(found.is_damaged(), "{segment} {blocks}");
        assert_eq!(found.flaws, [], "{segment} {blocks}: it is told once");
        let damaged: Vec<_> = found.segments.iter().filter(|read| read.is_damaged()).collect();
        let [read] = damaged[..] else { panic!("{segment} {blocks}: {damaged:?}") };
        let unreadable = read.unreadable.as_ref().expect("it is told");
        assert_eq!((read.file.number.0, unreadable.block as usize), (segment, blocks));
        assert!(unreadable.why.contains("os error 5"), "{}", unreadable.why);
        assert!(read.report.damaged.is_empty() && read.lacks_bytes == 0, "it is told once");
        let others = found.segments.iter().zip(&whole.segments);
        assert!(others.filter(|(read, _)| read.unreadable.is_none()).all(|(a, b)| a == b));
        assert!(stamps(&files).is_ok());
    }
    // What is no fault of the disk: the node is not to go on as if all of it were lost.
    let denied = read_shard(&faulty(2, 0, libc::EACCES), &mut ()).expect_err("nothing is lost");
    assert!(denied.to_string().contains("0000000000000002.segment"), "{denied}");
}
