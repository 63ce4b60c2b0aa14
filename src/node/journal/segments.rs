//! The thread that makes segments for the journals of all cores and takes those back that are
//! empty. A new file takes tens of milliseconds, so segments are made ahead, and a file that is
//! empty is used again: its blocks are there already.

// May panic: indices 6.
// Why it does not: cores 6.
// Reads the wall clock: reboot 1.

use std::collections::VecDeque;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_queue::SegQueue;
use tracing::{error, info, warn};

use crate::core::journal::{NoSegment, Order};
use crate::journal::SegmentNumber;
use crate::journal::writer::Sizes;
use crate::node::journal::aside::Aside;
use crate::node::journal::backup::{BackedUp, BackupError, Snapshot, Target, Written};
use crate::node::journal::directory::{DataDirectory, Generation, SPARE, ShardDirectory};
use crate::node::journal::place::Place;
use crate::ring::{DurableFile, Waker, create_zeroed, now, sync_directory};

/// Most empty files of a shard that are kept to be used again. With the two segments that are made
/// ahead and the one that is filled, they are the four of the bound of the disk.
const KEPT_MAX: usize = 1;
/// How often the directories are looked at. What was written since the last look, and is
/// acknowledged, is lost if a directory has gone meanwhile. Costs five calls of the kernel for each
/// core, on a thread that has nothing else to do.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The newest segments that are looked at: the one that is filled and those made ahead.
const LOOKED_AT: usize = 3;

/// What became of a segment that a core asked for.
#[derive(Debug)]
pub enum Made {
    /// It is there, and its name is on the disk.
    Segment(SegmentNumber, DurableFile),
    /// It could not be made.
    None(NoSegment),
    /// Whether the files of the journal are no longer where a start looks for them.
    Away(bool),
}

enum Asked {
    Order(usize, Order),
    /// Which segments this core needs.
    Keep(usize, Needed),
    /// A core needs nothing any more.
    Gone,
    /// The next [`Order::BackUp`] of each core is for this backup.
    BackUp(Sender<SnapshotNews>),
}

/// Which files a core needs after it has read them.
#[derive(Debug)]
pub struct Needed {
    /// The first and the last segment. All others were emptied, or made ahead by an earlier
    /// process, and are removed.
    pub used: (SegmentNumber, SegmentNumber),
    /// Segments that are moved aside and not removed, if they are not needed, and not used again.
    pub damaged: Vec<SegmentNumber>,
    /// Whether older layouts are moved aside and not removed when no core needs them any more.
    pub is_older_damaged: bool,
}

/// What is told of a snapshot for a backup: `None` once it has begun, then the snapshot.
type SnapshotNews = Result<Option<Snapshot>, BackupError>;

/// Makes backups, from any thread.
#[derive(Clone, Debug)]
pub struct Backups {
    asked: Sender<Asked>,
    data: PathBuf,
}

impl Backups {
    /// Makes a backup in `directory`. Waits for the disk that it goes to; the thread that makes
    /// segments does not. `begin` has every core begin the backup
    /// ([`Command::BackUp`](crate::node::commands::Command::BackUp)).
    pub fn make<T>(
        &self,
        directory: &Path,
        written: &Written,
        mut begin: impl FnMut() -> T,
    ) -> Result<BackedUp, BackupError> {
        let target = Target::take(directory, &self.data)?;
        let (answer, news) = channel();
        // Without the thread, `answer` is dropped, and so the receiver sees the end.
        let _ = self.asked.send(Asked::BackUp(answer));
        loop {
            match news.recv() {
                Ok(Ok(Some(snapshot))) => return snapshot.write_to(&target, written),
                Ok(Ok(None)) => _ = begin(),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(BackupError::Stopped),
            }
        }
    }
}

/// What the cores and the thread share.
struct Inbox {
    made: SegQueue<Made>,
    waker: Waker,
}

/// A core's end.
pub struct Segments {
    core: usize,
    asked: Sender<Asked>,
    inboxes: Arc<[Inbox]>,
}

impl Segments {
    /// Gives an order. What is made comes later from [`Segments::next`], and the core is woken.
    pub fn order(&self, order: Order) {
        // The thread ends after the last core.
        let _ = self.asked.send(Asked::Order(self.core, order));
    }

    /// Has all files removed that are not needed. What has the name of a segment and is no file is
    /// moved aside, needed or not.
    pub fn keep_only(&self, needed: Needed) {
        let _ = self.asked.send(Asked::Keep(self.core, needed));
    }

    /// The next segment that was made for this core, or was not.
    pub fn next(&self) -> Option<Made> {
        self.inboxes[self.core].made.pop()
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        let _ = self.asked.send(Asked::Gone);
    }
}

/// The files of one shard.
struct Shard {
    directory: ShardDirectory,
    /// Empty files that can be used again.
    kept: Vec<PathBuf>,
    /// Files that are not used again.
    damaged: Vec<SegmentNumber>,
    /// Numbers the names of files that are no segments yet.
    files: u64,
    /// Whether the last segment could not be made. It is told once.
    is_failing: bool,
    /// Where it is; `None`: it was missing at the start, and no segment was made since.
    place: Option<Place>,
    /// The segments that were made last, the newest at the end.
    made: VecDeque<SegmentNumber>,
    /// Whether the core was told that files are away.
    is_away: bool,
}

/// The thread.
struct Maker {
    data: DataDirectory,
    place: Place,
    aside: Aside,
    present: Generation,
    older: Vec<Generation>,
    shards: Vec<Shard>,
    /// The snapshot that is being made, and who waits for it.
    snapshot: Option<(Snapshot, Sender<SnapshotNews>)>,
    /// Whether a backup is being made.
    backup: Weak<()>,
    /// Whether older generations are moved aside and not removed.
    keeps_older: bool,
    /// Cores that have nothing in older generations.
    moved: usize,
    inboxes: Arc<[Inbox]>,
}

/// Starts the thread. It ends when all ends of cores are gone; until then the directory is in use.
/// `older`: generations that hold timers, until every core has appended what it took from them.
pub fn start(
    data: DataDirectory,
    present: Generation,
    older: Vec<Generation>,
    wakers: Vec<Waker>,
) -> io::Result<(Vec<Segments>, Backups, JoinHandle<()>)> {
    let (asked, orders) = channel();
    let inboxes: Arc<[Inbox]> =
        wakers.into_iter().map(|waker| Inbox { made: SegQueue::new(), waker }).collect();
    let shards = data.shards(present).map(Shard::new).collect();
    let (place, path) = (Place::take(data.path())?, data.path().to_owned());
    let ends = (0..inboxes.len())
        .map(|core| Segments { core, asked: asked.clone(), inboxes: inboxes.clone() })
        .collect();
    let aside = Aside::new(data.path(), now().wall);
    let mut maker = Maker {
        data,
        place,
        aside,
        present,
        older,
        shards,
        snapshot: None,
        backup: Weak::new(),
        keeps_older: false,
        moved: 0,
        inboxes,
    };
    let thread = thread::Builder::new().name("chronos-segments".to_owned());
    let thread = thread.spawn(move || maker.run(&orders))?;
    Ok((ends, Backups { asked, data: path }, thread))
}

impl Maker {
    fn run(&mut self, orders: &Receiver<Asked>) {
        let mut gone = 0;
        let mut look_at = Instant::now() + LOOK_EVERY;
        // Whoever may ask for a backup has an end, too, and keeps it after the last core.
        while gone < self.shards.len() {
            let asked = orders.recv_timeout(look_at.saturating_duration_since(Instant::now()));
            if Instant::now() >= look_at {
                self.look();
                look_at = Instant::now() + LOOK_EVERY;
            }
            match asked {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(asked) => gone += usize::from(self.obey(asked)),
            }
        }
    }

    /// Does what is asked for. Returns whether a core has gone.
    fn obey(&mut self, asked: Asked) -> bool {
        match asked {
            Asked::Gone => return true,
            Asked::Order(core, Order::Prepare { segment, syncs_directory }) => {
                let made = self.shards[core].prepare(segment, syncs_directory, &mut self.aside);
                self.tell(core, made);
            }
            Asked::Order(core, Order::Retire(segment)) => {
                self.shards[core].retire(segment, &mut self.aside);
            }
            Asked::Order(_, Order::Moved) => self.moved(),
            Asked::Order(core, Order::BackUp { oldest, last }) => {
                self.back_up(core, oldest, last);
            }
            Asked::BackUp(answer) => {
                // An error means that nobody waits any more.
                let _ = answer.send(self.begin_backup(answer.clone()).map(|()| None));
            }
            Asked::Keep(core, needed) => {
                self.keeps_older |= needed.is_older_damaged;
                self.shards[core].remove_leftovers(needed, &mut self.aside);
            }
        }
        false
    }

    fn tell(&self, core: usize, made: Made) {
        let inbox = &self.inboxes[core];
        inbox.made.push(made);
        inbox.waker.wake();
    }

    /// Tells each core whether its files are where a start looks for them.
    fn look(&mut self) {
        let all = (!self.place.is_there()).then(|| self.place.path().to_owned());
        let mut news = Vec::new();
        for (core, shard) in self.shards.iter_mut().enumerate() {
            let missed = all.clone().or_else(|| shard.missed());
            let is_away = missed.is_some();
            if std::mem::replace(&mut shard.is_away, is_away) == is_away {
                continue;
            }
            match missed.map(|path| path.display().to_string()) {
                Some(path) => error!(
                    "{path} is not there any more, or is another one: it was moved, removed or \
                     unmounted. Clients' writes are refused until it is back; pops and reads go \
                     on. Put it back as it was: what was acknowledged is in it, and a start \
                     without it begins with nothing"
                ),
                None => info!("journal of shard {core}: its files are back, writes are taken"),
            }
            news.push((core, is_away));
        }
        news.into_iter().for_each(|(core, is_away)| self.tell(core, Made::Away(is_away)));
    }

    fn begin_backup(&mut self, answer: Sender<SnapshotNews>) -> Result<(), BackupError> {
        if self.backup.strong_count() > 0 {
            return Err(BackupError::Busy);
        }
        if !self.older.is_empty() {
            return Err(BackupError::Moving);
        }
        let snapshot = Snapshot::begin(&self.data, self.present)?;
        self.backup = snapshot.watch();
        self.snapshot = Some((snapshot, answer));
        Ok(())
    }

    /// Adds the files of one core, and hands the snapshot over with those of the last core.
    fn back_up(&mut self, core: usize, oldest: SegmentNumber, last: SegmentNumber) {
        let Some((mut snapshot, answer)) = self.snapshot.take() else { return };
        let added = snapshot.add(&self.shards[core].directory, oldest, last);
        if added.is_ok() && snapshot.shards() < self.shards.len() {
            self.snapshot = Some((snapshot, answer));
            return;
        }
        let _ = answer.send(added.map(|()| Some(snapshot)));
    }

    /// Removes older generations when no core needs them any more.
    fn moved(&mut self) {
        self.moved += 1;
        if self.moved < self.shards.len() {
            return;
        }
        for generation in self.older.drain(..) {
            let name = generation.name();
            if self.keeps_older {
                let path = self.data.path().join(name);
                // What goes wrong is told.
                let _ = move_aside(&path, "is damaged and not needed any more", &mut self.aside);
                continue;
            }
            match self.data.remove_generation(generation) {
                Ok(()) => info!("journal: all timers are in the new layout; {name} is removed"),
                Err(error) => warn!("journal: {name} is not needed any more and stays: {error}"),
            }
        }
    }
}

impl Shard {
    fn new(directory: ShardDirectory) -> Self {
        // The first segment makes a directory that is missing.
        let place = Place::take(&directory.path).ok();
        Self {
            directory,
            kept: Vec::new(),
            damaged: Vec::new(),
            files: 0,
            is_failing: false,
            place,
            made: VecDeque::new(),
            is_away: false,
        }
    }

    /// What is not where it was made: the directory, or one of the newest segments.
    fn missed(&self) -> Option<PathBuf> {
        let place = self.place.as_ref()?;
        if !place.is_there() {
            return Some(place.path().to_owned());
        }
        let mut segments = self.made.iter().map(|&segment| self.directory.segment_path(segment));
        segments.find(|path| fs::symlink_metadata(path).is_err())
    }

    fn prepare(
        &mut self,
        segment: SegmentNumber,
        syncs_directory: bool,
        aside: &mut Aside,
    ) -> Made {
        match self.make(segment, syncs_directory, aside) {
            Ok(file) => {
                if std::mem::take(&mut self.is_failing) {
                    info!("journal of shard {}: segments can be made again", self.directory.shard);
                }
                Made::Segment(segment, file)
            }
            Err(failure) => {
                let is_full =
                    matches!(failure.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
                if !std::mem::replace(&mut self.is_failing, true) {
                    let path = self.directory.segment_path(segment);
                    let path = path.display();
                    let remedy = match is_full {
                        true => "Free some room on that disk",
                        false => "Look at that path and at the disk (ls -l, dmesg)",
                    };
                    error!(
                        "{path} cannot be made: {failure}. Clients' writes are refused as soon as \
                         the present segment is full; pops and reads go on. {remedy}"
                    );
                }
                Made::None(if is_full { NoSegment::Full } else { NoSegment::Failed })
            }
        }
    }

    fn make(
        &mut self,
        segment: SegmentNumber,
        syncs_directory: bool,
        aside: &mut Aside,
    ) -> io::Result<DurableFile> {
        if self.is_away {
            return Err(io::Error::new(ErrorKind::NotFound, "its directory is not there"));
        }
        self.make_directory()?;
        let path = self.directory.segment_path(segment);
        if fs::symlink_metadata(&path).is_ok() {
            // Files that nobody needs were removed at the start: somebody else made this.
            let to = aside.take(&path)?;
            let (name, to) = (path.display(), to.display());
            warn!("{name} stood where a segment is to be made. It is {to} now");
        }
        let spare = match self.kept.pop() {
            Some(kept) => kept,
            None => {
                let spare = self.spare_path();
                create_zeroed(&spare, Sizes::PRODUCTION.segment_bytes())?;
                spare
            }
        };
        fs::rename(&spare, &path)?;
        if syncs_directory {
            sync_directory(&self.directory.path)?;
        }
        let file = DurableFile::open(&path)?;
        self.made.push_back(segment);
        if self.made.len() > LOOKED_AT {
            self.made.pop_front();
        }
        Ok(file)
    }

    /// Makes the shard's directory if somebody has removed it: its loss was told, or is when the
    /// node starts again.
    fn make_directory(&mut self) -> io::Result<()> {
        let path = &self.directory.path;
        match fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => {
                warn!("{} was missing and is made again", path.display());
                path.parent().map_or(Ok(()), sync_directory)?;
            }
        }
        if self.place.is_none() {
            self.place = Some(Place::take(path)?);
        }
        Ok(())
    }

    fn retire(&mut self, segment: SegmentNumber, aside: &mut Aside) {
        self.made.retain(|made| *made != segment);
        let path = self.directory.segment_path(segment);
        let found = fs::metadata(&path);
        // A file that a backup shares is not written again, nor one that was cut, or that the disk
        // does not give.
        let bytes = Sizes::PRODUCTION.segment_bytes();
        let is_good = !self.damaged.contains(&segment);
        let is_reusable = |found: &Metadata| is_good && found.nlink() == 1 && found.len() == bytes;
        let done = if found.as_ref().is_ok_and(|found| !found.is_file()) {
            move_aside(&path, "has the name of a segment and is no file", aside)
        } else if self.kept.len() < KEPT_MAX && found.is_ok_and(|found| is_reusable(&found)) {
            let spare = self.spare_path();
            fs::rename(&path, &spare).map(|()| self.kept.push(spare))
        } else {
            fs::remove_file(&path)
        };
        // A number may have no file: it was made ahead by an earlier process and never written.
        if let Err(error) = done
            && error.kind() != ErrorKind::NotFound
        {
            warn!("{} is empty and cannot be removed: {error}", path.display());
        }
    }

    fn spare_path(&mut self) -> PathBuf {
        loop {
            self.files += 1;
            let path = self.directory.path.join(format!("{SPARE}{}.tmp", self.files));
            // Something that could not be removed may have the name.
            if fs::symlink_metadata(&path).is_err() {
                return path;
            }
        }
    }

    /// Removes files that an earlier process made ahead, and segments that it had emptied. What may
    /// be more than that is moved aside: files that are `damaged`, and what is no file.
    fn remove_leftovers(&mut self, needed: Needed, aside: &mut Aside) {
        self.damaged = needed.damaged;
        let (oldest, last) = needed.used;
        let no_files = self.directory.no_files().unwrap_or_default();
        let no_files = no_files.into_iter().map(|(number, _)| self.directory.segment_path(number));
        for path in no_files {
            // What goes wrong is told.
            let _ = move_aside(&path, "has the name of a segment and is no file", aside);
        }
        let Ok(entries) = fs::read_dir(&self.directory.path) else { return };
        let spares = entries.flatten().map(|entry| entry.path()).filter(|path| is_spare(path));
        let segments = self.directory.segments().ok().flatten().unwrap_or_default();
        let is_unneeded = |number| number < oldest || number > last;
        let unneeded = segments.into_iter().filter(|file| is_unneeded(file.number));
        let (strange, unneeded): (Vec<_>, Vec<_>) =
            unneeded.partition(|file| self.damaged.contains(&file.number));
        for file in strange {
            let _ = move_aside(&file.path, "is not needed and cannot be understood", aside);
        }
        for path in spares.chain(unneeded.into_iter().map(|file| file.path)) {
            if let Err(error) = fs::remove_file(&path) {
                warn!("{} is not needed and cannot be removed: {error}", path.display());
            }
        }
    }
}

/// Moves something out of the way and says so.
fn move_aside(path: &Path, why: &str, aside: &mut Aside) -> io::Result<()> {
    let name = path.display();
    match aside.take(path) {
        Ok(to) => {
            let to = to.display();
            warn!("{name} {why}. It is {to} now: delete it there if nobody misses it");
            Ok(())
        }
        Err(error) => {
            warn!("{name} {why} and cannot be moved aside: {error}. Move it out of that directory");
            Err(error)
        }
    }
}

fn is_spare(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("spare-") && name.ends_with(".tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::journal::directory::SNAPSHOT;
    use crate::ring::{Ring, RingConfig};

    #[test]
    fn a_name_that_is_taken_keeps_no_segment_from_being_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = DataDirectory::create_or_open(folder.path(), "10.0.0.1:7253").expect("new");
        let directory = data.shard(data.begin_generation(1).expect("begun"), 0);
        let segment = |number| directory.segment_path(SegmentNumber(number));
        let mut aside = Aside::new(folder.path(), now().wall);
        let mut shard = Shard::new(directory.clone());
        for taken in [segment(1), segment(2), directory.path.join("spare-1.tmp")] {
            fs::create_dir(taken).expect("made");
        }
        let made = shard.prepare(SegmentNumber(1), true, &mut aside);
        assert!(matches!(made, Made::Segment(SegmentNumber(1), _)), "{made:?}");
        assert!(segment(1).is_file() && segment(2).is_dir());
        // A folder is not used again as a file, nor is a file that was cut.
        shard.retire(SegmentNumber(2), &mut aside);
        assert!(!segment(2).exists() && shard.kept.is_empty());
        fs::write(segment(3), "short").expect("written");
        shard.retire(SegmentNumber(3), &mut aside);
        assert!(!segment(3).exists() && shard.kept.is_empty());
        shard.retire(SegmentNumber(1), &mut aside);
        assert_eq!(shard.kept.len(), 1, "it has its length");
        let place = aside.take(&shard.kept[0]).expect("moved");
        let place = place.parent().expect("a folder");
        assert!([1, 2].iter().all(|n| place.join(format!("{n:016x}.segment")).is_dir()));
    }

    #[test]
    fn only_what_is_understood_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = DataDirectory::create_or_open(folder.path(), "10.0.0.1:7253").expect("new");
        let directory = data.shard(data.begin_generation(1).expect("begun"), 0);
        let segment = |number| directory.segment_path(SegmentNumber(number));
        let mut aside = Aside::new(folder.path(), now().wall);
        let mut shard = Shard::new(directory.clone());
        (1..=6).for_each(|number| fs::write(segment(number), "bytes").expect("written"));
        let named = |name: &str| directory.path.join(name);
        for name in ["spare-1.tmp", "spare-1.notes", "notes.tmp"] {
            fs::write(named(name), "").expect("written");
        }
        fs::create_dir(segment(7)).expect("made");
        let needed = Needed {
            used: (SegmentNumber(3), SegmentNumber(4)),
            damaged: [1, 4, 6].map(SegmentNumber).to_vec(),
            is_older_damaged: false,
        };
        shard.remove_leftovers(needed, &mut aside);
        let left: Vec<u64> = (1..=7).filter(|&number| segment(number).exists()).collect();
        assert_eq!(left, [3, 4], "damaged or not, what is used stays");
        assert!(!named("spare-1.tmp").exists());
        assert!(named("spare-1.notes").exists() && named("notes.tmp").exists(), "not the node's");
        let place = aside.take(&segment(3)).expect("moved");
        let names = fs::read_dir(place.parent().expect("a folder")).expect("listed");
        assert_eq!(names.count(), 4, "1, 6, 7, and 3 now");
    }

    const WAIT: Duration = Duration::from_secs(60);

    /// Looks until something is there.
    fn await_it<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let until = Instant::now() + WAIT;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < until, "it does not come");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_backup_has_the_segments_of_every_core_and_there_is_one_at_a_time() {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let [folder, elsewhere] = &folders;
        let data = DataDirectory::create_or_open(folder.path(), "10.0.0.1:7253").expect("new");
        let older = data.begin_generation(1).expect("begun");
        let present = data.begin_generation(2).expect("begun");
        let files = [(0, 1, "used"), (0, 2, "two"), (0, 3, "three"), (1, 7, "7"), (1, 8, "ahead")];
        for (shard, number, text) in files {
            let path = data.shard(present, shard).segment_path(SegmentNumber(number));
            fs::write(path, text).expect("written");
        }
        let mut maker = Maker {
            place: Place::take(data.path()).expect("it is there"),
            aside: Aside::new(data.path(), now().wall),
            shards: data.shards(present).map(Shard::new).collect(),
            data,
            present,
            older: vec![older],
            snapshot: None,
            backup: Weak::new(),
            keeps_older: false,
            moved: 0,
            inboxes: Arc::new([]),
        };
        let (answer, news) = channel();
        let begin = |maker: &mut Maker| maker.begin_backup(answer.clone());
        for _ in 0..2 {
            assert!(matches!(begin(&mut maker), Err(BackupError::Moving)));
            assert!(folder.path().join(older.name()).exists(), "a core needs it");
            maker.moved();
        }
        assert!(!folder.path().join(older.name()).exists());
        begin(&mut maker).expect("it begins");
        assert!(matches!(begin(&mut maker), Err(BackupError::Busy)));
        maker.back_up(0, SegmentNumber(2), SegmentNumber(3));
        assert!(news.try_recv().is_err(), "a core is missing");
        maker.back_up(1, SegmentNumber(6), SegmentNumber(7));
        let Ok(Ok(Some(snapshot))) = news.try_recv() else { panic!("it has all cores") };
        assert!(matches!(begin(&mut maker), Err(BackupError::Busy)), "it is not written yet");

        let path = elsewhere.path().join("backup");
        let target = Target::take(&path, folder.path()).expect("new");
        let written = Written::default();
        let made = snapshot.write_to(&target, &written).expect("written");
        assert_eq!((made.segments, made.bytes, &made.directory), (3, 9, &path));
        assert_eq!((written.all.into_inner(), written.bytes.into_inner()), (9, 9));
        let backup = DataDirectory::open_existing(&path).expect("a data directory");
        assert!(backup.is_incomplete() && !maker.data.is_incomplete());
        assert_eq!(backup.identity(), maker.data.identity());
        let text = |shard, number| {
            let path = backup.shard(present, shard).segment_path(SegmentNumber(number));
            fs::read_to_string(path).ok()
        };
        let texts = files.map(|(shard, number, _)| text(shard, number));
        let texts = texts.iter().map(Option::as_deref).collect::<Vec<_>>();
        assert_eq!(texts, [None, Some("two"), Some("three"), Some("7"), None]);
        let left = |folder: &Path| fs::read_dir(folder).expect("listed").count();
        assert_eq!(left(elsewhere.path()), 1, "the backup alone");
        assert!(!folder.path().join(SNAPSHOT).exists());
        begin(&mut maker).expect("the next one");
    }

    #[test]
    fn each_core_gets_what_it_ordered_until_the_last_core_has_gone() {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let [folder, elsewhere] = &folders;
        let data = DataDirectory::create_or_open(folder.path(), "10.0.0.1:7253").expect("new");
        let present = data.begin_generation(2).expect("begun");
        let directories = [0, 1].map(|shard| data.shard(present, shard));
        let leftover = directories[1].segment_path(SegmentNumber(5));
        fs::write(&leftover, "of an earlier process").expect("written");
        let ring = Ring::new(&RingConfig::default()).expect("io_uring");
        let wakers = vec![ring.waker(); 2];
        let (mut ends, backups, thread) =
            start(data, present, Vec::new(), wakers).expect("it starts");
        let first = SegmentNumber(1);
        ends[0].order(Order::Prepare { segment: first, syncs_directory: true });
        let made = await_it(|| ends[0].next());
        assert!(matches!(made, Made::Segment(segment, _) if segment == first), "{made:?}");
        assert!(ends[1].next().is_none(), "it ordered nothing");
        let (damaged, used) = (Vec::new(), (first, first));
        ends[1].keep_only(Needed { used, damaged, is_older_damaged: false });
        await_it(|| (!leftover.exists()).then_some(()));

        // Files that are gone are told to their core, and that they are back.
        let (path, aside) = (&directories[0].path, folder.path().join("aside"));
        for (from, to, is_gone) in [(path, &aside, true), (&aside, path, false)] {
            fs::rename(from, to).expect("moved");
            let told = await_it(|| ends[0].next());
            assert!(matches!(told, Made::Away(is_away) if is_away == is_gone), "{told:?}");
        }
        assert!(ends[1].next().is_none(), "its files were there");

        let mut begun = 0;
        let target = elsewhere.path().join("backup");
        let made = backups.make(&target, &Written::default(), || {
            begun += 1;
            let [one, other] = [&ends[0], &ends[1]];
            one.order(Order::BackUp { oldest: first, last: first });
            other.order(Order::BackUp { oldest: first, last: SegmentNumber(0) });
        });
        let made = made.expect("made");
        assert_eq!((begun, made.segments), (1, 1));
        assert_eq!(made.bytes, Sizes::PRODUCTION.segment_bytes());

        drop(ends.pop());
        let order = Order::Retire(first);
        ends[0].order(order);
        await_it(|| (!directories[0].segment_path(first).exists()).then_some(()));
        drop(ends);
        await_it(|| thread.is_finished().then_some(()));
        thread.join().expect("it ends");
        let stopped = backups.make(&elsewhere.path().join("late"), &Written::default(), || {});
        assert!(matches!(stopped, Err(BackupError::Stopped)), "{stopped:?}");
    }
}
