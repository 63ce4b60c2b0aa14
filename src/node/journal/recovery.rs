//! The start of a node with a journal: whose directory it is, what time it is, and what each core
//! takes from which files.

// May panic: indices 3.
// Why it does not: cores 3.
// Reads the wall clock: reboot 3.

use std::path::Path;
use std::sync::Arc;

use crate::base::ids::{ShardCount, ShardIndex, TimerId};
use crate::base::time::{Now, WallMs};
use crate::core::Core;
use crate::core::journal::{CoreJournal, JournalRules, Mode};
use crate::journal::clocks::Clocks;
use crate::journal::compaction::Compaction;
use crate::journal::entry::{Entry, State};
use crate::journal::recovery::Flaw;
use crate::journal::writer::{Owner, Sizes, Writer};
use crate::journal::{JournalId, SegmentNumber};
use crate::node::journal::directory::ShardDirectory;
use crate::node::journal::directory::{DataDirectory, DataDirectoryError, Generation};
use crate::node::journal::disk::WallFloor;
use crate::node::journal::reading::{
    Files, PagePlace, ReadError, ShardReport, Unreadable, Visitor, foreign_segment, read_shard,
    stamps,
};
use crate::node::meters::CoreMeters;
use crate::node::settings::{JournalMode, JournalSettings};
use crate::ring::{boot_id, unpredictable};
use crate::shard::Shard;
use crate::shard::journal::{CatchUp, Origin, Restored};

/// How far behind the last segment that was read one that cannot be read may stand and be kept.
const UNREADABLE_NEAR: u64 = 16;

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A segment is not this node's.
    #[error(
        "{path} is not a segment of this journal: {why}. It may hold timers: if somebody has moved \
         or renamed it, give it its place back. Move it out of the data directory if it is not \
         this node's, or give this node the directory that is its own with --data-dir. `chronos \
         journal check` tells of all such files"
    )]
    Foreign {
        /// The file.
        path: String,
        /// What it is instead.
        why: String,
    },
}

/// A journal that was opened and not read yet.
#[derive(Debug)]
pub struct Opened {
    /// The directory, which nobody else uses meanwhile.
    pub data: DataDirectory,
    /// The layout that is written to.
    pub present: Generation,
    /// Layouts of other numbers of cores, and of starts that were cut off, oldest first.
    pub older: Vec<Generation>,
    /// What the cores need to know.
    pub plan: Arc<Plan>,
}

/// What the cores need to know of the journal, whose files are `F`.
#[derive(Debug)]
pub struct Plan<F = ShardDirectory> {
    /// The clocks of the journal.
    clocks: Clocks,
    /// What a wall clock that is behind counts as.
    pub wall: WallFloor,
    rules: JournalRules,
    catch_up: CatchUp,
    sizes: Sizes,
    /// For each shard the directories that it reads, in their order.
    sources: Vec<Vec<F>>,
    journal: JournalId,
    name: String,
    shards: u16,
    is_moving: bool,
    /// Whether it may lack what the node acknowledged: it is a backup.
    is_incomplete: bool,
}

/// Opens the journal for a node with this many shards.
pub fn open(
    path: &Path,
    settings: &JournalSettings,
    name: &str,
    shards: u16,
    now: Now,
) -> Result<Opened, JournalError> {
    let data = DataDirectory::create_or_open(path, name)?;
    let mut older = data.generations()?;
    // Before anything is made or served.
    for shard in older.iter().flat_map(|generation| data.shards(*generation)) {
        if let Some((path, why)) = foreign_segment(&shard)? {
            return Err(JournalError::Foreign { path: path.display().to_string(), why });
        }
    }
    let present = match older.pop_if(|last| last.shards == shards) {
        Some(present) => present,
        None => data.begin_generation(shards)?,
    };
    let mode = match settings.mode {
        JournalMode::Interval => Mode::Interval(settings.interval_ms),
        JournalMode::Sync | JournalMode::Off => Mode::Sync,
    };
    let boot = boot_number(boot_id());
    let rules = JournalRules { mode, stall_ms: settings.stall_ms, boot };
    let catch_up = CatchUp {
        pops_per_s: settings.catch_up_per_s.div_ceil(shards.into()),
        is_each: settings.makes_each_missed,
    };
    let held: Vec<Vec<ShardDirectory>> =
        older.iter().map(|generation| data.shards(*generation).collect()).collect();
    let layouts = (&held[..], data.shards(present).collect());
    let plan = Plan::new(layouts, (rules, catch_up, Sizes::PRODUCTION), now)?;
    let plan = Plan { is_incomplete: data.is_incomplete(), ..plan };
    Ok(Opened { data, present, older, plan: Arc::new(plan) })
}

/// The number of this boot for the pages. `told`: what the kernel tells; 0: nothing. Then this
/// process has a boot of its own, because nobody can say whether the machine was booted since the
/// last one: clocks of two boots must not be taken for one pair.
fn boot_number(told: u64) -> u64 {
    match told {
        0 => u64::from_le_bytes(unpredictable()).max(1),
        told => told,
    }
}

/// What a core found in its journal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// What the shard took.
    pub restored: Restored,
    /// One sentence for each thing that is wrong.
    pub damage: Vec<String>,
    /// Bytes that were read.
    pub bytes: u64,
    /// The first and the last segment in which something stands. Files with other numbers were
    /// emptied, or made ahead.
    pub used: (SegmentNumber, SegmentNumber),
    /// Files of the present layout that hold something nobody understands. If they are not used,
    /// they are moved aside and not deleted.
    pub damaged: Vec<SegmentNumber>,
    /// Whether such files are in older layouts.
    pub is_older_damaged: bool,
}

impl<F: Files + Clone> Plan<F> {
    /// Plans the reading of older layouts, the oldest first, and of the present one, which is
    /// written to. A layout has the files of each of its shards, at least one. Cost: see
    /// [`stamps`].
    pub fn new(
        (older, present): (&[Vec<F>], Vec<F>),
        (rules, catch_up, sizes): (JournalRules, CatchUp, Sizes),
        now: Now,
    ) -> Result<Self, ReadError> {
        let mut all_stamps = Vec::new();
        for shard in older.iter().flatten().chain(&present) {
            all_stamps.extend(stamps(shard)?);
        }
        let clocks = Clocks::new(rules.boot, now, all_stamps);
        let wall = WallFloor { began: Now { wall: clocks.least_wall(), ..now } };
        let shards = present.len();
        let (journal, name) = present[0].owner();
        let (journal, name) = (journal, name.to_owned());
        let is_moving = !older.is_empty();
        let source = |(own, present): (usize, F)| {
            let mut sources = Vec::new();
            for layout in older {
                match layout.len() == shards {
                    true => sources.push(layout[own].clone()),
                    false => sources.extend(layout.iter().cloned()),
                }
            }
            sources.push(present);
            sources
        };
        Ok(Self {
            clocks,
            wall,
            rules,
            catch_up,
            sizes,
            sources: present.into_iter().enumerate().map(source).collect(),
            journal,
            name,
            shards: shards as u16,
            is_moving,
            is_incomplete: false,
        })
    }

    /// Reads what a shard owns into its core, and begins its journal. `clock` tells the time when
    /// all is read. The core's meters tell how far it is. Cost: some 1 us a timer.
    pub fn recover(
        &self,
        core: &mut Core,
        own: ShardIndex,
        (now, clock): (Now, &dyn Fn() -> Now),
        meters: &CoreMeters,
    ) -> Result<Recovered, JournalError> {
        let sources = &self.sources[usize::from(own.0)];
        meters.journal_recovering.set(1);
        meters.journal_clock_behind_ms.set(self.clocks.behind_ms());
        for source in sources {
            let files = source.list()?.unwrap_or_default();
            meters.journal_recovery_bytes.add(files.iter().map(|file| file.bytes).sum());
        }
        let mut recovered = Recovered::default();
        let mut is_damaged = false;
        let mut last = ShardReport::default();
        let shards = ShardCount::new(self.shards);
        for (at, source) in sources.iter().enumerate() {
            let is_present = at + 1 == sources.len();
            let mut taker = Taker {
                shard: core.shard_mut(),
                clocks: &self.clocks,
                now,
                meters,
                owned: (source.shard().1 != self.shards).then_some((shards, own)),
                is_present,
                restored: &mut recovered.restored,
                without_clock: 0,
            };
            let report = read_shard(source, &mut taker)?;
            let mut damage = damage_of(source, &report, taker.without_clock)?;
            let has_damage = !damage.is_empty();
            is_damaged |= has_damage;
            // Several cores may read one directory. One of them tells what is wrong with it.
            if source.shard().0 % self.shards == own.0 {
                recovered.damage.append(&mut damage);
            }
            recovered.bytes += report.segments.iter().map(|read| read.file.bytes).sum::<u64>();
            match is_present {
                true => last = report,
                false => {
                    recovered.is_older_damaged |= has_damage || !report.strange.is_empty();
                }
            }
        }
        meters.journal_damaged.set(recovered.damage.len() as u64);
        // To read may take long. What came due meanwhile is overdue like the rest.
        let ended = self.wall.raise(clock());
        core.shard_mut().end_restore(ended, &self.catch_up, &mut recovered.restored);
        if let Some(ahead_ms) = self.clocks.ahead_ms() {
            core.shard_mut().go_on_with_calendars(ended, ahead_ms);
        }
        meters.journal_recovered_timers.set(recovered.restored.timers);
        meters.journal_overdue.set(recovered.restored.overdue);
        recovered.damaged = std::mem::take(&mut last.strange);
        let reads = last.segments.iter().filter(|read| read.is_damaged());
        recovered.damaged.extend(reads.map(|read| read.file.number));
        let last_used = last_used(&last);
        // Files behind it were made ahead and have no page. They are removed, and the journal has
        // no gap: a number that is not there is a segment that was lost.
        last.continuation.last = last_used;
        last.segments.retain(|read| read.file.number <= last_used);
        let oldest = self.begin(core, own, now, (last, is_damaged));
        recovered.used = (oldest, last_used);
        Ok(recovered)
    }

    /// Begins the journal of a core whose shard has been read. Returns its oldest segment.
    fn begin(
        &self,
        core: &mut Core,
        own: ShardIndex,
        now: Now,
        found: (ShardReport, bool),
    ) -> SegmentNumber {
        let (report, is_damaged) = found;
        let mut state = report.newest.state.unwrap_or_default();
        // In the mode `interval` the last writes that were acknowledged may be gone.
        let is_late = matches!(self.rules.mode, Mode::Interval(_));
        let may_lack = is_damaged || is_late || self.is_incomplete;
        if state.complete_since.0 == 0 || may_lack {
            state = State { complete_since: now.wall, ..state };
        }
        let seen_at = report.stamps.iter().map(|stamp| stamp.wall).max();
        let seen_at = seen_at.unwrap_or(WallMs(0));
        core.shard_mut().restore_state(&state, (seen_at, !self.is_moving));
        let first = report.segments.first().map(|read| read.file.number);
        let next = report.continuation.last.next();
        state.oldest = state.oldest.max(first.unwrap_or(next));
        let owner = Owner {
            journal: self.journal,
            name: self.name.clone(),
            shard: own.0,
            shards: self.shards,
        };
        let (sizes, oldest) = (self.sizes, state.oldest);
        let compaction = Compaction::new(state.oldest, sizes.segment_bytes(), self.is_moving);
        let writer = Writer::new(owner, sizes, state, report.continuation);
        core.begin_journal(CoreJournal::new(self.rules, writer, compaction, now));
        oldest
    }
}

/// The last segment that is kept: the last one with a page, and behind it what the disk does not
/// give now, but may give to a later start. A name that is far from the others says nothing about
/// where the journal ends, and must not decide how its segments are numbered.
fn last_used(report: &ShardReport) -> SegmentNumber {
    let mut last = SegmentNumber(0);
    for read in &report.segments {
        let is_near = read.file.number.0 <= last.0 + UNREADABLE_NEAR;
        if read.report.pages > 0 || (read.unreadable.is_some() && is_near) {
            last = read.file.number;
        }
    }
    last
}

/// Gives entries to the shard that owns them.
struct Taker<'a> {
    shard: &'a mut Shard,
    clocks: &'a Clocks,
    now: Now,
    meters: &'a CoreMeters,
    /// The owner to compare with, if the directory has timers of other shards.
    owned: Option<(ShardCount, ShardIndex)>,
    is_present: bool,
    restored: &'a mut Restored,
    without_clock: u64,
}

impl Taker<'_> {
    fn is_owned(&self, id: TimerId) -> bool {
        self.owned.is_none_or(|(shards, own)| shards.owner(id) == own)
    }
}

impl Visitor for Taker<'_> {
    fn page(&mut self, place: &PagePlace, _bytes: &[u8]) {
        self.meters.journal_recovered_bytes.add(u64::from(place.blocks) * 4_096);
        self.meters.journal_recovered_timers.set(self.shard.counters().timers);
        let is_known =
            self.clocks.translate(place.stamp.boot, place.stamp.mono.tick_floor()).is_some();
        self.without_clock += u64::from(!is_known);
    }

    fn entry(&mut self, place: &PagePlace, entry: &Entry<'_>) {
        if !entry.id().is_some_and(|id| self.is_owned(id)) {
            return;
        }
        let segment = if self.is_present { place.segment } else { SegmentNumber(0) };
        let origin = Origin { segment, boot: place.stamp.boot, clocks: self.clocks };
        self.shard.restore(self.now, &origin, entry, self.restored);
    }
}

/// A sentence for each thing that is wrong with a shard's directory. `without_clock`: pages whose
/// time says nothing. `Err`: the node must not run on it.
fn damage_of(
    source: &impl Files,
    report: &ShardReport,
    without_clock: u64,
) -> Result<Vec<String>, JournalError> {
    let mut damage = Vec::new();
    if without_clock > 0 {
        damage.push(format!("{without_clock} pages tell no time that can be used"));
    }
    if source.list()?.is_none() {
        let directory = source.directory();
        damage.push(format!("{} is missing with all that was in it", directory.display()));
    }
    for flaw in &report.flaws {
        let told = match flaw {
            Flaw::Missing(number) => {
                format!("{} is missing", source.path_of(*number).display())
            }
            Flaw::Beheaded(number) => {
                format!("{} has no readable beginning", source.path_of(*number).display())
            }
            Flaw::Foreign(number, why) => {
                let path = source.path_of(*number).display().to_string();
                return Err(JournalError::Foreign { path, why: why.clone() });
            }
            Flaw::NoFile(number, what) => format!(
                "{} is {what}, and a file was expected. It is moved to damaged-<time> in the data \
                 directory: delete it there if nobody misses it",
                source.path_of(*number).display()
            ),
        };
        damage.push(told);
    }
    for read in &report.segments {
        let path = read.file.path.display();
        for blocks in &read.report.damaged {
            let bytes = u64::from(blocks.end - blocks.start) * 4_096;
            let at = u64::from(blocks.start) * 4_096;
            damage.push(format!("{path}: {bytes} bytes at {at} cannot be read"));
        }
        if let Some(Unreadable { block, why }) = &read.unreadable {
            let at = u64::from(*block) * 4_096;
            damage.push(format!("{path} cannot be read from byte {at} on: {why}"));
        }
        if read.lacks_bytes > 0 {
            damage.push(format!("{path} is {} bytes too short", read.lacks_bytes));
        }
    }
    for place in &report.undecodable {
        let path = source.path_of(place.segment);
        let at = u64::from(place.blocks.start) * 4_096;
        damage.push(format!("{}: the page at {at}: {}", path.display(), place.why));
    }
    Ok(damage)
}

/// The remedy for damage, for the log.
pub const DAMAGE_REMEDY: &str = "What other replicas hold comes back from them; what this node \
     alone held is lost. `chronos journal check` tells more. Look at the disk (dmesg, smartctl)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::reader::Report;
    use crate::node::journal::directory::SegmentFile;
    use crate::node::journal::identity::Identity;
    use crate::node::journal::reading::SegmentRead;

    /// A segment with so many pages. `block`: the disk does not give it from there on.
    fn read(number: u64, pages: u64, block: Option<u32>) -> SegmentRead {
        let path = format!("/data/{number}").into();
        let why = "Input/output error (os error 5)".to_owned();
        SegmentRead {
            file: SegmentFile { number: SegmentNumber(number), path, bytes: 1 << 20 },
            report: Report { pages, ..Report::default() },
            entry_bytes: 0,
            lacks_bytes: 0,
            unreadable: block.map(|block| Unreadable { block, why }),
        }
    }

    #[test]
    fn names_of_files_do_not_decide_where_the_journal_ends() {
        let last = |segments| last_used(&ShardReport { segments, ..ShardReport::default() }).0;
        assert_eq!(last(vec![]), 0);
        assert_eq!(last(vec![read(3, 1, None), read(4, 0, None)]), 3);
        assert_eq!(last(vec![read(3, 1, None), read(5, 0, Some(0))]), 5, "it may come back");
        assert_eq!(last(vec![read(3, 1, None), read(1 << 48, 0, Some(0))]), 3);
        assert_eq!(last(vec![read(16, 0, Some(0))]), 16, "nothing stands before it");
        assert_eq!(last(vec![read(17, 0, Some(0))]), 0);
        assert_eq!(last(vec![read(3, 1, Some(7)), read(90, 1, None)]), 90, "pages tell numbers");
    }

    #[test]
    fn a_file_that_the_disk_does_not_give_is_told() {
        let identity = Identity { node: "here".to_owned(), journal: JournalId(1) };
        let source = ShardDirectory { path: "/data".into(), identity, shard: 0, shards: 1 };
        let flaws = vec![Flaw::NoFile(SegmentNumber(2), "a directory")];
        let segments = vec![read(3, 1, Some(2))];
        let report = ShardReport { segments, flaws, ..ShardReport::default() };
        let damage = damage_of(&source, &report, 0).expect("the node goes on");
        let [_, folder, fault] = &damage[..] else { panic!("{damage:?}") };
        assert!(folder.contains("0000000000000002.segment is a directory, and a file was"));
        let wanted = "/data/3 cannot be read from byte 8192 on: Input/output error (os error 5)";
        assert_eq!(fault, wanted);
    }

    #[test]
    fn processes_that_are_not_told_their_boot_have_one_each() {
        assert_eq!(boot_number(7), 7);
        let (first, second) = (boot_number(0), boot_number(0));
        assert!(first != 0 && second != 0 && first != second, "{first} {second}");
    }
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod recovery_tests;
