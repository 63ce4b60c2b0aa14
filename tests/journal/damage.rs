//! Bytes of the journal that changed while the node was down, at every kind of place. The node
//! starts or refuses, tells what is wrong, and serves nothing but what was written.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kit::client::request;
use kit::runner::Story;
use kit::until::{PATIENCE, until};

use super::harness::{Node, body};
use super::restarts::{copy, create_some, look};

pub const STORIES: &[Story] = &[
    ("changed_bytes_are_told_and_never_served", changed_bytes),
    ("files_that_are_missing_or_short_are_told", missing_files),
    ("foreign_files_are_refused", foreign_files),
    ("directories_of_shards_that_are_missing_are_told_and_made_again", missing_shards),
    ("what_is_no_segment_is_told_and_moved_aside", strangers),
    ("a_replica_gives_back_what_damage_took", given_back),
];

const BLOCK: u64 = 4_096;
/// Timers that are created one after the other, each in a write of its own.
const TIMERS: usize = 40;
/// Timers that take more than one segment, and the bytes of each.
const LARGE_TIMERS: usize = 1_200;
const LARGE_BYTES: usize = 60_000;
/// Of these so many are not looked at between two that are.
const LARGE_STEP: usize = 20;

/// A data directory, and the timers in it.
struct Whole {
    node: Node,
    kept: PathBuf,
    /// The path and the opaque data of those timers that are looked at, in the order of their
    /// creation.
    timers: Vec<(String, String)>,
}

/// What became of the timers.
struct Served {
    /// How many are not there.
    missing: Vec<usize>,
    damaged: u64,
    said: String,
}

impl Whole {
    fn new(count: usize, bytes: usize, step: usize) -> Whole {
        let mut node = Node::alone();
        let mut timers = Vec::new();
        node.start();
        for number in 0..count {
            let opaque = format!("opaque-{number}-{}", "x".repeat(bytes));
            let text = body("http://127.0.0.1:9/x", 3_600_000, 1, &opaque, 1);
            let path = node.create(&text);
            if number % step == 0 {
                timers.push((path, opaque));
            }
        }
        node.kill();
        let kept = node.folder().join("whole");
        fs::rename(&node.data, &kept).expect("in one folder");
        Whole { node, kept, timers }
    }

    /// In one segment, a page for each timer.
    fn small() -> Whole {
        Whole::new(TIMERS, 1_000, 1)
    }

    /// In two segments, both of them needed.
    fn large() -> Whole {
        Whole::new(LARGE_TIMERS, LARGE_BYTES, LARGE_STEP)
    }

    /// Puts an undamaged directory in place. Returns its used segments.
    fn restore(&mut self) -> Vec<PathBuf> {
        let _ = fs::remove_dir_all(&self.node.data);
        copy(&self.kept, &self.node.data);
        let segments = self.node.segments(0);
        segments.into_iter().filter(|path| !pages(path).is_empty()).collect()
    }

    /// Starts the node on what is there now and looks at all timers. What is served must be what
    /// was written.
    fn serve(&mut self) -> Served {
        let before = self.node.log().len();
        self.node.start();
        let missing = (0..self.timers.len()).filter(|number| !self.is_served(*number)).collect();
        let damaged = self.node.metric("chronos_journal_damaged").expect("it answers");
        let said = self.node.log().split_off(before);
        self.node.kill();
        Served { missing, damaged, said }
    }

    /// Starts the node again: it takes a new timer, and has it after the next start.
    fn go_on(&mut self) {
        self.node.start();
        let new = self.node.create(&body("http://127.0.0.1:9/x", 3_600_000, 1, "new", 1));
        self.node.kill();
        self.node.start();
        assert_eq!(self.node.request("GET", &new, "").status, 200, "{}", self.node.log());
        self.node.kill();
    }

    /// Starts the node and waits until these files are moved, unless they are already: a node moves
    /// them beside its work, so one that was killed early leaves them to the next.
    fn await_aside(&mut self, names: &[&str]) {
        self.node.start();
        for name in names {
            until(name, PATIENCE, || aside(&self.node, name));
        }
        self.node.kill();
    }

    fn is_served(&self, number: usize) -> bool {
        let (path, opaque) = &self.timers[number];
        let answer = self.node.request("GET", path, "");
        match answer.status {
            200 => {
                let wanted = format!("\"opaque\":\"{opaque}\"");
                let text = answer.body.replace("\": \"", "\":\"");
                assert!(text.contains(&wanted), "{path} was changed: {}", answer.body);
                true
            }
            404 => false,
            status => panic!("{path}: {status}"),
        }
    }
}

/// A page of a segment: where it begins, its length, and the length of its entries.
#[derive(Clone, Copy, Debug)]
struct Page {
    at: u64,
    bytes: u64,
    used: u64,
}

/// The pages of a segment, found by their mark.
fn pages(path: &Path) -> Vec<Page> {
    let bytes = fs::read(path).expect("a segment");
    let mut pages = Vec::new();
    let mut at = 0;
    while let Some(block) = bytes.get(at..at + BLOCK as usize) {
        if block[..4] != *b"Cjpg" {
            at += BLOCK as usize;
            continue;
        }
        let length = u64::from(u16::from_le_bytes([block[6], block[7]])) * BLOCK;
        let used = u32::from_le_bytes([block[8], block[9], block[10], block[11]]);
        pages.push(Page { at: at as u64, bytes: length, used: used.into() });
        at += length as usize;
    }
    pages
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("a segment");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("in the file");
    file.write_all_at(&[byte[0] ^ 0x20], at).expect("written");
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).expect("a segment");
    file.write_all_at(bytes, at).expect("written");
}

/// What a story does to the pages of the first segment.
type Deed = fn(&Path, &[Page]);

fn changed_bytes() {
    let mut whole = Whole::small();
    // Each with the most timers that it may take.
    let deeds: [(&str, usize, Deed); 9] = [
        ("the mark of a page", 1, |path, pages| flip(path, pages[20].at)),
        ("the length of a page", 1, |path, pages| flip(path, pages[20].at + 6)),
        ("the number of a write", 1, |path, pages| flip(path, pages[20].at + 32)),
        ("a checksum", 1, |path, pages| flip(path, pages[20].at + 64)),
        ("an entry", 1, |path, pages| flip(path, pages[20].at + 72 + pages[20].used / 2)),
        ("the padding", 1, |path, pages| flip(path, pages[20].at + pages[20].bytes - 1)),
        ("the first page of a segment", 1, |path, pages| flip(path, pages[0].at + 80)),
        ("a page of zeros", 1, |path, pages| {
            overwrite(path, pages[20].at, &vec![0; pages[20].bytes as usize]);
        }),
        ("a page that was written to another place", 1, |path, pages| {
            let whole = fs::read(path).expect("a segment");
            let from = pages[10].at as usize;
            let page = &whole[from..from + pages[10].bytes as usize];
            overwrite(path, pages[20].at, &page[..BLOCK as usize]);
        }),
    ];
    for (what, most, deed) in deeds {
        let segments = whole.restore();
        let pages = pages(&segments[0]);
        assert!(pages.len() >= TIMERS, "one write for each timer");
        deed(&segments[0], &pages);
        let Served { missing, damaged, said } = whole.serve();
        let is_told = damaged >= 1 && said.contains("ERROR");
        assert!(is_told || missing.is_empty(), "{what} took {missing:?}, untold:\n{said}");
        assert!(missing.len() <= most, "{what} took {missing:?}");
        println!("changed: {what}: {} timers gone, {damaged} places told", missing.len());
    }
    whole.go_on();
    // A write that is damaged at the tail cannot be told from one that was torn.
    let segments = whole.restore();
    let last = segments.last().expect("one");
    let page = *pages(last).last().expect("a page");
    flip(last, page.at + 100);
    let Served { missing, .. } = whole.serve();
    assert_eq!(missing, [TIMERS - 1], "only the last is cut off");
}

fn cut(path: &Path, bytes: u64) {
    File::options().write(true).open(path).and_then(|file| file.set_len(bytes)).expect("cut");
}

/// What a story does to the used segments.
type Blow = fn(&[PathBuf]);

fn missing_files() {
    let mut whole = Whole::large();
    let looked = LARGE_TIMERS / LARGE_STEP;
    let blows: [(&str, usize, Blow); 4] = [
        ("the first segment is gone", looked - 1, |segments| {
            fs::remove_file(&segments[0]).expect("it is there");
        }),
        ("the first segment is cut", looked / 2, |segments| {
            let pages = pages(&segments[0]);
            cut(&segments[0], pages[pages.len() / 2].at);
        }),
        ("the first segment is empty", looked - 1, |segments| cut(&segments[0], 0)),
        ("the last segment is cut", 1, |segments| {
            let pages = pages(&segments[1]);
            cut(&segments[1], pages.last().expect("a page").at + 1_000);
        }),
    ];
    for (what, most, blow) in blows {
        let segments = whole.restore();
        blow(&segments);
        let Served { missing, damaged, said } = whole.serve();
        println!("{what}: {} timers gone, {damaged} places told", missing.len());
        let is_told = damaged >= 1 && said.contains("ERROR");
        assert!(is_told || missing.is_empty(), "{what} took {missing:?}, untold:\n{said}");
        assert!(missing.len() <= most, "{what} took {missing:?}");
    }
    whole.go_on();
}

/// Where the node moved what it did not understand.
fn aside(node: &Node, name: &str) -> Option<PathBuf> {
    let folders = fs::read_dir(&node.data).expect("listed").flatten().map(|entry| entry.path());
    let is_aside = |path: &PathBuf| path.to_string_lossy().contains("/damaged-");
    folders.filter(is_aside).map(|path| path.join("0001-1/0").join(name)).find(|path| path.exists())
}

fn strangers() {
    let mut whole = Whole::small();
    let segments = whole.restore();
    let folder = segments[0].parent().expect("a folder").to_owned();
    let name = |number: u64| format!("{number:016x}.segment");
    // The last that a segment can have, a file of noise, and the names of what is made next.
    fs::create_dir(folder.join(name(1 << 48))).expect("room");
    fs::write(folder.join(name(0x19)), vec![0xa5; 1 << 20]).expect("room");
    for taken in [2, 3] {
        let _ = fs::remove_file(folder.join(name(taken)));
        fs::create_dir(folder.join(name(taken))).expect("room");
        fs::write(folder.join(name(taken)).join("within"), "kept").expect("room");
    }
    fs::create_dir(folder.join("spare-1.tmp")).expect("room");
    fs::write(folder.join("README"), "keep out").expect("room");
    fs::write(whole.node.data.join("0009-77"), "no folder").expect("room");
    let Served { missing, damaged, said } = whole.serve();
    assert_eq!((missing.len(), damaged), (0, 4), "{said}");
    assert!(said.contains("is a directory, and a file was expected. It is moved to"), "{said}");
    whole.await_aside(&[&name(0x19), &name(2)]);
    assert!(aside(&whole.node, &name(2)).is_some_and(|path| path.join("within").exists()));
    assert!(folder.join("README").exists() && whole.node.data.join("0009-77").exists());
    whole.go_on();
    assert_eq!(whole.serve().damaged, 0, "{}", whole.node.log());
    // Nothing of a shard can be read: it is kept for whoever can.
    let segments = whole.restore();
    let length = fs::metadata(&segments[0]).expect("it is there").len() as usize;
    fs::write(&segments[0], vec![0xa5; length]).expect("room");
    whole.go_on();
    whole.await_aside(&[&name(1)]);
    let kept = aside(&whole.node, &name(1)).expect("it is not deleted");
    assert!(fs::read(kept).expect("a file").iter().all(|&byte| byte == 0xa5));
    // A layout of another number of cores is kept, too, if not all of it could be read.
    let segments = whole.restore();
    flip(&segments[0], pages(&segments[0])[20].at + 90);
    whole.node.shards = 2;
    whole.node.start();
    until("the former layout", PATIENCE, || aside(&whole.node, &name(1)));
    assert!(!whole.node.data.join("0001-1").exists());
}

fn foreign_files() {
    let mut whole = Whole::large();
    let mut other = Node::alone();
    other.start();
    other.create(&body("http://127.0.0.1:9/x", 3_600_000, 1, "foreign", 1));
    other.kill();
    let foreign = &other.segments(0)[0];
    let place = |whole: &mut Whole, at: usize| whole.restore()[at].clone();
    let refused = |whole: &mut Whole, what: &str| {
        let (status, said) = whole.node.start_in_vain();
        assert_eq!(status.code(), Some(1), "{what}: {said}");
        assert!(said.contains(".segment is not a segment of this journal"), "{what}: {said}");
        assert!(said.contains("Move it out") && !said.contains("bug"), "{what}: {said}");
    };
    let first = place(&mut whole, 0);
    fs::copy(foreign, &first).expect("room");
    refused(&mut whole, "in front");
    // The operator does as told, and then the segment is missing.
    fs::remove_file(&first).expect("it is there");
    let Served { missing, damaged, said } = whole.serve();
    assert!(!missing.is_empty() && damaged >= 1, "{said}");
    let last = place(&mut whole, 1);
    fs::copy(foreign, last.with_file_name("0000000000000040.segment")).expect("room");
    refused(&mut whole, "behind the last");
    let first = place(&mut whole, 0);
    let (second, aside) = (place(&mut whole, 1), first.with_file_name("aside"));
    fs::rename(&first, &aside).expect("in one folder");
    fs::rename(&second, &first).expect("in one folder");
    fs::rename(&aside, &second).expect("in one folder");
    refused(&mut whole, "two segments that changed places");
}

fn given_back() {
    let mut nodes = Node::cluster(2);
    nodes.iter_mut().for_each(Node::spawn);
    nodes.iter_mut().for_each(Node::await_ready);
    let create = |number: usize| {
        let opaque = format!("opaque-{number}");
        nodes[number % 2].create(&body("http://127.0.0.1:9/x", 3_600_000, 1, &opaque, 2))
    };
    let paths: Vec<String> = (0..TIMERS * 2).map(create).collect();
    nodes[0].kill();
    let segment = nodes[0].segments(0)[0].clone();
    for page in pages(&segment).iter().step_by(2) {
        flip(&segment, page.at + 90);
    }
    nodes[0].start();
    assert!(nodes[0].metric("chronos_journal_damaged") > Some(0), "{}", nodes[0].log());
    until("all copies", PATIENCE, || {
        let held = nodes[0].metric("chronos_timers")?;
        (held >= paths.len() as u64).then_some(())
    });
    nodes[1].kill();
    look_at_all(&nodes[0], &paths);
    // What came back is in the journal of this node, too, as soon as the disk has taken it.
    until("the disk", PATIENCE, || (nodes[0].metric("chronos_journal_lag")? == 0).then_some(()));
    nodes[0].kill();
    nodes[0].start();
    look_at_all(&nodes[0], &paths);
}

/// Looks at all timers of a node that is alone and may still ask for the others.
fn look_at_all(node: &Node, paths: &[String]) {
    for (number, path) in paths.iter().enumerate() {
        let served = || {
            let answer = request(node.address, "GET", path, "").ok()?;
            assert!(answer.status != 404, "{path} is lost");
            (answer.status == 200).then_some(answer.body)
        };
        let text = until("a timer", PATIENCE, served);
        assert!(text.contains(&format!("\"opaque-{number}\"")), "{text}");
    }
}

fn missing_shards() {
    for shards in [2, 3] {
        let mut node = Node::alone();
        node.shards = 2;
        node.start();
        let paths = create_some(&node, 40);
        node.kill();
        let removed = node.segments(1)[0].parent().expect("its directory").to_owned();
        fs::remove_dir_all(&removed).expect("removed by mistake");
        node.shards = shards;
        node.start();
        assert_eq!(node.metric("chronos_journal_damaged"), Some(1), "{}", node.log());
        let told = format!("{} is missing with all that was in it", removed.display());
        node.await_log(&told);
        let is_served = |path: &&String| node.request("GET", path, "").status == 200;
        let served = paths.iter().filter(is_served).count();
        assert!(0 < served && served < paths.len(), "{served} are served");
        // All shards take writes, and have them after the next start.
        let paths = create_some(&node, 20);
        node.kill();
        node.start();
        look(&node, &paths, &[]);
    }
}
