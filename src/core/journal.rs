//! The journal of a core: when it writes, which answers wait for it, which files it wants. The
//! shard says what has changed ([`crate::shard::journal`]), and whoever drives the core has the
//! disk.

// May panic: indices 1.
// Why it does not: encoded 1.
// Reads the wall clock: reboot 1.

use std::collections::VecDeque;

use crate::base::planted::{Bug, is_planted};
use crate::base::time::{MonoNs, Now, earlier};
use crate::journal::compaction::{Compaction, Phase};
use crate::journal::entry::State;
use crate::journal::page::Stamp;
use crate::journal::writer::{Piece, Writer, Written};
use crate::journal::{Position, SegmentNumber};
use crate::shard::Shard;
use crate::shard::effects::{Answer, PeerReply, PeerTicket, Refusal, Reply};
use crate::wire::peer_message::{PeerRefusal, PeerResult};

/// Pause before a segment that could not be made is tried again.
const PREPARE_AGAIN_MS: u64 = 1_000;
/// A segment is 64 MiB that are written and synced before it is used: it has so many times the time
/// of a write. With the defaults a disk that writes 8 MiB/s is slow, and does not count as stalled.
const SEGMENT_STALLS: u64 = 4;
/// A journal that has nothing to write writes what time it is so often. After a reset of the wall
/// clock the present is taken to be at least as late as the last page.
const STAMP_EVERY_MS: u64 = 10_000;
/// How long after the last change the journal is stamped first. The next process knows then that
/// this one lived for long enough after its last write to have noted who did not take it.
const FIRST_STAMP_MS: u64 = 2_500;
/// Slots looked at in one turn while a segment is emptied: some 10 us.
const LOOKS_PER_TURN: u32 = 8_192;
/// Records appended again in one turn while a segment is emptied, at least and at most: 0.3 ms.
const COPIES_PER_TURN_MIN: u32 = 64;
const COPIES_PER_TURN_MAX: u32 = 1_024;
/// While a segment is emptied, records are appended again for so many appended entries.
const COPIES_PER_ENTRY: u32 = 3;

/// When an acknowledged write is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When it is acknowledged.
    Sync,
    /// At most so many ms after it is acknowledged.
    Interval(u64),
}

/// How a core keeps its journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalRules {
    /// When an acknowledged write is on the disk.
    pub mode: Mode,
    /// A write of the journal that takes longer, in ms, means that the disk does not answer.
    pub stall_ms: u64,
    /// A number that another boot of the machine does not have.
    pub boot: u64,
}

/// What the driver is to do with files. None of it is urgent but the first segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Make a segment. Its name must be on the disk before [`CoreJournal::prepared`] is called.
    Prepare {
        /// Its number.
        segment: SegmentNumber,
        /// Whether the directory is synced. This is always so.
        syncs_directory: bool,
    },
    /// The file of this segment is free.
    Retire(SegmentNumber),
    /// Nothing of this shard stands in an earlier layout any more.
    Moved,
    /// The files of these segments, the first and the last included, do not change any more and
    /// have all that was acknowledged when the backup was asked for. If the last comes before the
    /// first, there is none.
    BackUp {
        /// The oldest that is needed.
        oldest: SegmentNumber,
        /// The last.
        last: SegmentNumber,
    },
}

/// Why a segment could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoSegment {
    /// The disk has no room.
    Full,
    /// Something else, which may pass.
    Failed,
}

/// What the journal of a core counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalCounters {
    /// What was written.
    pub written: Written,
    /// Segments from the oldest that is needed to the one that is filled.
    pub segments: u64,
    /// Bytes that the journal would have if it held each timer once, about.
    pub live_bytes: u64,
    /// Changes noted and not on the disk.
    pub lag: u64,
    /// Answers and results that wait for the disk.
    pub waiting: u64,
    /// Segments that could not be made.
    pub not_prepared: u64,
    /// 1 while the disk has no room for another segment.
    pub is_full: u64,
    /// 1 while the disk does not answer.
    pub is_stalled: u64,
    /// 1 while the files are not where a start looks for them.
    pub is_away: u64,
    /// Times that the disk stopped answering.
    pub stalls: u64,
    /// Segments emptied.
    pub emptied: u64,
}

/// A peer's result that waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingResult {
    /// Where it goes.
    pub ticket: PeerTicket,
    /// The encoded result.
    pub bytes: Vec<u8>,
    after: Position,
}

/// The journal of one core.
#[derive(Debug)]
pub struct CoreJournal {
    rules: JournalRules,
    writer: Writer,
    compaction: Compaction,
    replies: VecDeque<Reply>,
    results: VecDeque<WaitingResult>,
    orders: VecDeque<Order>,
    /// When the last write that took everything began, or the journal was opened.
    wrote_at: MonoNs,
    /// Where the journal was when it was last stamped for want of something to write.
    stamped: Option<Position>,
    /// Pause before it is stamped next.
    stamp_after_ms: u64,
    /// Until when no segment is asked for, because one could not be made.
    prepares_from: MonoNs,
    /// When the segment that is being made was asked for.
    asked_at: Option<MonoNs>,
    no_segment: Option<NoSegment>,
    /// Whether a change waits that has no place in the segments that are there.
    is_blocked: bool,
    /// Whether nothing more can be written, because no segment can be made.
    is_stuck: bool,
    /// How the disk was found to be last: stalled, full, away, stuck.
    was: (bool, bool, bool, bool),
    /// Whether everything is written at once: the node stops.
    is_stopping: bool,
    /// A backup is to have everything up to here.
    backup: Option<Position>,
    /// What the disk had when the files were found not to be where a start looks for them.
    away_since: Option<Position>,
    entries_before: u64,
    counters: JournalCounters,
}

impl CoreJournal {
    /// A journal that goes on with `writer`. Its first turn asks for a segment.
    pub fn new(rules: JournalRules, writer: Writer, compaction: Compaction, now: Now) -> Self {
        Self {
            rules,
            writer,
            compaction,
            replies: VecDeque::new(),
            results: VecDeque::new(),
            orders: VecDeque::new(),
            wrote_at: now.mono,
            stamped: None,
            stamp_after_ms: FIRST_STAMP_MS,
            prepares_from: MonoNs(0),
            asked_at: None,
            no_segment: None,
            is_blocked: false,
            is_stuck: false,
            was: (false, false, false, false),
            is_stopping: false,
            backup: None,
            away_since: None,
            entries_before: 0,
            counters: JournalCounters::default(),
        }
    }

    /// Whether answers leave before the disk has what they promise.
    pub fn is_late(&self) -> bool {
        matches!(self.rules.mode, Mode::Interval(_))
    }

    /// Whether an answer that rests on changes up to `after` may leave.
    #[inline]
    pub fn may_leave(&self, after: Position) -> bool {
        if let Some(durable) = self.away_since {
            return after <= durable;
        }
        match self.rules.mode {
            Mode::Sync => after <= self.writer.durable(),
            // Without a segment no write begins within the interval.
            Mode::Interval(_) => {
                after <= self.writer.durable() || !self.is_blocked && self.writer.takes_much()
            }
        }
    }

    /// Keeps an answer until the disk has what it promises.
    pub fn hold_reply(&mut self, reply: Reply) {
        self.replies.push_back(reply);
    }

    /// Whether nothing that is noted now gets to a disk: there is no segment for it, or the files
    /// are not where a start would look for them.
    fn takes_nothing(&self) -> bool {
        self.is_stuck || self.away_since.is_some()
    }

    /// Takes those of the peers' results that promise what the disk does not have yet, and keeps
    /// them. `bytes` has the encoded results.
    pub fn hold_results(&mut self, replies: &mut Vec<PeerReply>, bytes: &[u8]) {
        replies.retain(|reply| {
            let PeerReply { ticket, bytes: range, after } = reply;
            let may_leave = self.may_leave(*after);
            if !may_leave {
                let bytes = bytes[range.clone()].to_vec();
                self.results.push_back(WaitingResult { ticket: *ticket, bytes, after: *after });
            }
            may_leave
        });
    }

    /// The next answer that may leave now. An answer that has waited for a disk that does not
    /// answer, or waits for one that takes nothing, is a refusal.
    pub fn next_reply(&mut self) -> Option<Reply> {
        // A write that other nodes have may rest on an earlier change than those before it, and
        // leaves a little later than it might.
        let first = self.replies.front()?;
        if self.may_leave(first.after) {
            return self.replies.pop_front();
        }
        let refusal = match (self.takes_nothing(), self.counters.is_stalled) {
            (true, _) => Refusal::JournalFull,
            (_, 1) => Refusal::JournalStalled,
            _ => return None,
        };
        let reply = self.replies.pop_front()?;
        Some(Reply { answer: Answer::Refused(refusal), ..reply })
    }

    /// The next result that may leave now. One that waits for a disk that takes nothing says that
    /// this node has no copy.
    pub fn next_result(&mut self) -> Option<WaitingResult> {
        let first = self.results.front()?;
        if self.may_leave(first.after) {
            return self.results.pop_front();
        }
        let mut result = self.takes_nothing().then(|| self.results.pop_front())??;
        result.bytes.clear();
        PeerResult::Refused(PeerRefusal::Full).encode(&mut result.bytes);
        Some(result)
    }

    /// Whether results may leave now.
    pub fn has_results(&self) -> bool {
        let first = self.results.front();
        first.is_some_and(|result| self.takes_nothing() || self.may_leave(result.after))
    }

    /// Does the journal's part of a turn: appends what has changed, empties old segments, begins a
    /// write. [`CoreJournal::next_piece`] and [`CoreJournal::next_order`] then say what the driver
    /// is to do.
    pub fn turn(&mut self, now: Now, shard: &mut Shard) {
        self.append_changes(shard);
        if let Some(state) = shard.other_state(self.writer.state())
            && self.writer.takes_state()
        {
            self.writer.append_state(state);
        }
        if !self.is_stuck {
            self.compact(shard);
        }
        if now.mono >= self.prepares_from
            && let Some(segment) = self.writer.wants_segment()
        {
            let syncs_directory = !is_planted(Bug::JournalDirectoryNotSynced);
            self.orders.push_back(Order::Prepare { segment, syncs_directory });
            self.asked_at = Some(now.mono);
        }
        let is_stamped = self.stamped == Some(shard.position());
        self.stamp_after_ms = if is_stamped { STAMP_EVERY_MS } else { FIRST_STAMP_MS };
        let is_idle = !self.writer.has_work() && !self.writer.is_writing();
        let is_still = now.mono >= self.wrote_at.plus_ms(self.stamp_after_ms);
        if is_idle && is_still && self.writer.takes_much() {
            self.append_state(self.compaction.oldest());
            self.stamped = Some(shard.position());
        }
        self.back_up_when_stored();
        if self.is_time(now) {
            let before = self.writer.is_writing();
            self.writer.begin_write(self.stamp(now));
            if self.writer.is_writing() && !before {
                self.append_changes(shard);
                // What did not fit has waited for its time already. It is written next.
                if !self.writer.has_work() {
                    self.wrote_at = now.mono;
                }
            }
        }
        self.look_at_the_disk(now, shard);
    }

    /// The next piece for the disk. [`CoreJournal::written`] must follow, and nothing else is
    /// written before. A write that fails is never tried again: the driver stops the node.
    pub fn next_piece(&mut self) -> Option<Piece<'_>> {
        self.writer.next_piece()
    }

    /// The disk has the piece.
    pub fn written(&mut self) {
        self.writer.piece_written();
    }

    /// What the driver is to do next with files.
    pub fn next_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// A segment is there, with its name on the disk.
    pub fn prepared(&mut self, segment: SegmentNumber) {
        self.no_segment = None;
        self.asked_at = None;
        self.writer.prepared(segment);
    }

    /// A segment could not be made. It is asked for again later.
    pub fn not_prepared(&mut self, now: Now, why: NoSegment) {
        self.counters.not_prepared += 1;
        self.no_segment = Some(why);
        self.asked_at = None;
        self.prepares_from = now.mono.plus_ms(PREPARE_AGAIN_MS);
        self.writer.not_prepared();
    }

    /// Says whether the files are not where a start looks for them. Nothing more is promised then:
    /// what is written goes to files that nobody may find.
    pub fn set_away(&mut self, is_away: bool) {
        self.away_since = is_away.then(|| self.away_since.unwrap_or(self.writer.durable()));
    }

    /// Begins a backup of everything that the shard has done up to now. [`Order::BackUp`] follows
    /// when the disk has it.
    pub fn back_up(&mut self, shard: &Shard) {
        self.backup = Some(shard.position());
    }

    fn back_up_when_stored(&mut self) {
        let is_stored = |position| self.writer.durable() >= position;
        // What was appended has its place in the present segment, if there is no other.
        let has_place = self.writer.spares() > 0 || !self.writer.has_work();
        if !self.backup.is_some_and(is_stored) || self.writer.is_writing() || !has_place {
            return;
        }
        self.backup = None;
        self.writer.close_segment();
        let (oldest, last) = (self.compaction.oldest(), self.writer.segment());
        self.orders.push_back(Order::BackUp { oldest, last });
    }

    /// From now on everything is written at once.
    pub fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Whether the disk has everything, and no answer waits.
    pub fn is_settled(&self, shard: &Shard) -> bool {
        !shard.has_changes()
            && !self.writer.has_work()
            && !self.writer.is_writing()
            && self.replies.is_empty()
            && self.results.is_empty()
    }

    /// When the journal has work although nothing happens.
    pub fn next_wake(&self, ended: MonoNs) -> Option<MonoNs> {
        let stalls_at = self.stalls_at().filter(|_| self.counters.is_stalled == 0);
        if self.writer.is_writing() {
            return stalls_at;
        }
        // Without a segment there is nothing to write to. The driver tells of a new one.
        let next = match (self.compaction.phase(), self.rules.mode) {
            _ if self.is_stuck => None,
            (Phase::Looking(_), _) => Some(ended.plus_ms(1)),
            (_, Mode::Interval(ms)) if self.writer.has_work() => Some(self.writes_at(ms)),
            _ if !self.writer.takes_much() => None,
            _ => Some(self.wrote_at.plus_ms(self.stamp_after_ms).max(ended.plus_ms(1))),
        };
        // Later than that, the last turn has asked for a segment.
        let asks_at = self.no_segment.map(|_| self.prepares_from).filter(|&at| at > ended);
        earlier(earlier(next, asks_at), stalls_at)
    }

    /// When the disk counts as one that does not answer, unless it has done by then what nothing
    /// can be written without: the write that is under way, or the segment for the next one.
    fn stalls_at(&self) -> Option<MonoNs> {
        let stall_ms = self.rules.stall_ms;
        let writes_at = self.writing_since().map(|since| since.plus_ms(stall_ms));
        let lacks_segment = self.is_blocked || !self.writer.takes_much();
        let asked_at = self.asked_at.filter(|_| lacks_segment);
        earlier(writes_at, asked_at.map(|since| since.plus_ms(SEGMENT_STALLS * stall_ms)))
    }

    /// What was counted until the last turn.
    pub fn counters(&self) -> &JournalCounters {
        &self.counters
    }

    /// When the write that is under way began.
    pub fn writing_since(&self) -> Option<MonoNs> {
        self.writer.writing_since().map(|stamp| stamp.mono)
    }

    /// Both clocks and the boot, for pages.
    fn stamp(&self, now: Now) -> Stamp {
        Stamp { boot: self.rules.boot, mono: now.mono, wall: now.wall }
    }

    fn is_time(&self, now: Now) -> bool {
        match self.rules.mode {
            Mode::Interval(ms) if !self.is_stopping && self.backup.is_none() => {
                now.mono >= self.writes_at(ms) || !self.writer.has_room()
            }
            _ => true,
        }
    }

    /// When the next write begins in mode `interval`.
    fn writes_at(&self, interval_ms: u64) -> MonoNs {
        let times = if is_planted(Bug::JournalWritesRarely) { 8 } else { 1 };
        self.wrote_at.plus_ms(interval_ms * times)
    }

    fn append_state(&mut self, oldest: SegmentNumber) -> u64 {
        let state = State { oldest, ..self.writer.state().clone() };
        self.writer.append_state(state)
    }

    /// Does a portion of the emptying of the oldest segment.
    fn compact(&mut self, shard: &mut Shard) {
        let written = self.writer.written().entries;
        let appended = (written - self.entries_before) as u32;
        self.entries_before = written;
        match self.compaction.phase() {
            Phase::Idle => {
                self.compaction.begin(self.writer.segment(), shard.journal_bytes());
            }
            Phase::Looking(from) => {
                let copies = appended.saturating_mul(COPIES_PER_ENTRY);
                let copies = copies.clamp(COPIES_PER_TURN_MIN, COPIES_PER_TURN_MAX);
                let segment = self.compaction.emptied();
                let next = shard.free_segment(segment, from, LOOKS_PER_TURN, copies);
                self.compaction.looked(next, shard.position());
                self.append_changes(shard);
            }
            Phase::Noted(position)
                if self.writer.durable() >= position && self.writer.takes_state() =>
            {
                let write = self.append_state(self.compaction.oldest_after());
                self.compaction.stated(write);
            }
            Phase::Stated(write) if self.writer.durable_write() >= write => {
                let order = self.compaction.end().map_or(Order::Moved, Order::Retire);
                self.counters.emptied += u64::from(order != Order::Moved);
                self.orders.push_back(order);
            }
            Phase::Noted(_) | Phase::Stated(_) => {}
        }
    }

    fn append_changes(&mut self, shard: &mut Shard) {
        self.is_blocked = shard.append_changes(&mut self.writer);
    }

    /// Notes how the disk does, and refuses clients' writes while it takes none.
    fn look_at_the_disk(&mut self, now: Now, shard: &mut Shard) {
        let is_stalled = self.stalls_at().is_some_and(|at| at <= now.mono);
        let is_full = self.no_segment.is_some() && self.writer.spares() == 0;
        let is_at_rest = !self.writer.is_writing() && !self.writer.has_work();
        let is_blocked = self.is_blocked || !self.writer.takes_much();
        self.is_stuck = is_full && is_at_rest && is_blocked;
        let is_away = self.away_since.is_some();
        let now_is = (is_stalled, is_full, is_away, self.is_stuck);
        if std::mem::replace(&mut self.was, now_is) != now_is {
            let refusal = match (is_full || is_away, is_stalled) {
                (true, _) => Some(Refusal::JournalFull),
                (_, true) => Some(Refusal::JournalStalled),
                _ => None,
            };
            // What was written to files that are away is nowhere: no note is as good as stored.
            shard.refuse_writes(refusal, self.is_stuck && !is_away);
        }
        let counters = &mut self.counters;
        counters.stalls += u64::from(is_stalled && counters.is_stalled == 0);
        (counters.is_stalled, counters.is_full) = (is_stalled.into(), is_full.into());
        counters.is_away = is_away.into();
        counters.written = self.writer.written();
        counters.live_bytes = shard.journal_bytes();
        counters.segments =
            (self.writer.segment().0 + 1).saturating_sub(self.compaction.oldest().0);
        counters.lag = shard.position().0 - self.writer.durable().0;
        counters.waiting = (self.replies.len() + self.results.len()) as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::ids::ShardIndex;
    use crate::base::time::WallMs;
    use crate::cluster::view::View;
    use crate::journal::JournalId;
    use crate::journal::writer::{Continuation, Owner, Sizes};
    use crate::shard::effects::Requester;
    use crate::shard::harness_tests::config;
    use crate::wire::peer_message::decode_result;

    fn journal(mode: Mode, last: u64) -> CoreJournal {
        let now = Now { mono: MonoNs(1), wall: WallMs(1) };
        let owner = Owner { journal: JournalId(1), name: "here".to_owned(), shard: 0, shards: 1 };
        let found = Continuation { last: SegmentNumber(last), writes: last };
        let writer = Writer::new(owner, Sizes::PRODUCTION, State::default(), found);
        let compaction = Compaction::new(SegmentNumber(1), 1 << 26, false);
        CoreJournal::new(JournalRules { mode, stall_ms: 2_000, boot: 1 }, writer, compaction, now)
    }

    #[test]
    fn in_mode_interval_answers_wait_while_no_write_can_begin() {
        let mut journal = journal(Mode::Interval(50), 0);
        assert!(journal.may_leave(Position(0)), "it promises nothing");
        assert!(!journal.may_leave(Position(1)), "there is no segment to write it to");
        assert_eq!(journal.writer.wants_segment(), Some(SegmentNumber(1)));
        journal.prepared(SegmentNumber(1));
        assert!(journal.may_leave(Position(1)));
    }

    /// What waits for a disk that takes nothing more is not promised.
    #[test]
    fn what_waits_when_the_disk_is_full_is_refused() {
        let mut journal = journal(Mode::Sync, 0);
        let ticket = PeerTicket { shard: ShardIndex(0), connection: 0, generation: 0, number: 7 };
        let to = Requester { shard: ShardIndex(0), connection: 0, generation: 0, request: 1 };
        let after = Position(1);
        journal.hold_reply(Reply { to, answer: Answer::NotFound, after });
        let mut bytes = Vec::new();
        PeerResult::Held.encode(&mut bytes);
        journal.hold_results(&mut vec![PeerReply { ticket, bytes: 0..bytes.len(), after }], &bytes);
        assert!(journal.next_reply().is_none() && !journal.has_results());
        journal.is_stuck = true;
        let refused = Answer::Refused(Refusal::JournalFull);
        assert_eq!(journal.next_reply(), Some(Reply { to, answer: refused, after }));
        assert!(journal.has_results());
        let result = journal.next_result().expect("it leaves");
        let full = PeerResult::Refused(PeerRefusal::Full);
        assert_eq!(decode_result(&mut &result.bytes[..]), Ok(full));
        assert_eq!(result.ticket, ticket);
    }

    /// The first segment after a start, or the next one when the last is full.
    #[test]
    fn a_disk_that_makes_no_segment_is_noticed_as_one_that_does_not_answer() {
        let mut journal = journal(Mode::Sync, 0);
        let at = |ms: u64| Now { mono: MonoNs(1).plus_ms(ms), wall: WallMs(ms + 1) };
        let mut shard = Shard::new(config(Arc::new(View::alone("here:1")), 0), at(0));
        journal.turn(at(0), &mut shard);
        let prepare = Order::Prepare { segment: SegmentNumber(1), syncs_directory: true };
        assert_eq!(journal.next_order(), Some(prepare));
        let stalls_at = at(2_000 * SEGMENT_STALLS);
        assert_eq!(journal.next_wake(at(1).mono), Some(stalls_at.mono));
        journal.turn(at(2_000 * SEGMENT_STALLS - 1), &mut shard);
        assert_eq!(journal.counters().is_stalled, 0);
        journal.turn(stalls_at, &mut shard);
        assert_eq!((journal.counters().is_stalled, journal.counters().stalls), (1, 1));
        assert_eq!(journal.next_wake(stalls_at.mono), None);
        journal.prepared(SegmentNumber(1));
        journal.turn(stalls_at, &mut shard);
        assert_eq!(journal.counters().is_stalled, 0);
        // The one that is made ahead is not waited for.
        assert!(journal.next_order().is_some());
        while journal.next_piece().is_some() {
            journal.written();
        }
        journal.turn(at(60_000), &mut shard);
        assert_eq!(journal.counters().is_stalled, 0);
    }

    #[test]
    fn nothing_is_promised_while_the_files_are_away() {
        for mode in [Mode::Sync, Mode::Interval(50)] {
            let mut journal = journal(mode, 0);
            assert_eq!(journal.writer.wants_segment(), Some(SegmentNumber(1)));
            journal.prepared(SegmentNumber(1));
            journal.set_away(true);
            journal.set_away(true);
            assert!(journal.may_leave(Position(0)) && !journal.may_leave(Position(1)));
            journal.set_away(false);
            assert_eq!(journal.may_leave(Position(1)), mode != Mode::Sync);
        }
    }

    #[test]
    fn before_the_first_write_the_last_segment_is_the_one_that_was_found() {
        let mut journal = journal(Mode::Sync, 7);
        journal.backup = Some(Position(0));
        journal.back_up_when_stored();
        let (oldest, last) = (SegmentNumber(1), SegmentNumber(7));
        assert_eq!(journal.next_order(), Some(Order::BackUp { oldest, last }));
    }
}
