//! What may and what must happen to every timer, from what clients and callback hosts see, and from
//! when processes died and disks were idle. The model knows nothing of the code.
//!
//! A *write* is an update or a delete of one id (a create is the first). It may be the current one
//! from the moment when it is asked. It is *closed* when it is answered or its process dies: from
//! then on it cannot take effect behind a later one. It is *settled* when no crash can take it back.

use std::collections::{BTreeMap, VecDeque};

use kit::simulator::story::Violation;

use super::story::Wish;

/// The order of events. Virtual time alone does not order them.
pub type Moment = u64;

pub const MS: i64 = 1_000_000;
/// How much later than its due time a pop may begin while nothing is in its way.
const LATE_NS: i64 = 300 * MS;
/// How long after a host is well again its pops may be late.
const UNWELL_NS: i64 = 5_000 * MS;
/// How much later a start may seem after each boot: clocks are read in whole ms.
const ROUNDED_NS: i64 = 4 * MS;

pub type Checked = Result<(), Violation>;

pub fn broken(invariant: &'static str, what: String) -> Checked {
    Err(Violation { invariant, what })
}

/// Between which two times of the world a timer's time began, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub earliest: i64,
    pub latest: i64,
}

/// One state that a client asked for.
#[derive(Clone, Debug)]
pub struct Write {
    pub name: usize,
    /// `None`: no timer afterwards.
    pub wish: Option<Wish>,
    asked: Moment,
    closed: Option<Moment>,
    /// The life in which the write was asked.
    life: u64,
    pub is_acknowledged: bool,
    is_settled: bool,
    /// It was acknowledged, and a crash may have taken it back.
    is_doubtful: bool,
    /// Another write has taken its place; a crash may bring it back.
    is_replaced: bool,
    /// By boot.
    starts: Vec<Option<Start>>,
    /// Pops that were delivered for good.
    settled: u64,
    /// Pops that were delivered.
    reached: u64,
    /// The next pop; `None`: since the process began none was seen.
    next: Option<u64>,
    is_running: bool,
}

impl Write {
    /// How many pops the timer has.
    pub fn pops(&self) -> u64 {
        let wish = self.wish.expect("only timers pop");
        wish.repeat_for_ms / wish.interval_ms
    }

    fn start(&self) -> Start {
        self.starts.last().copied().flatten().expect("each boot has one")
    }

    fn interval_ns(&self) -> i64 {
        self.wish.expect("only timers pop").interval_ms as i64 * MS
    }

    /// The last pop that is due at a time if the timer began then.
    fn due_by(&self, at_ns: i64, start_ns: i64) -> u64 {
        ((at_ns - start_ns).max(0) / self.interval_ns()) as u64
    }
}

/// What becomes durable later.
#[derive(Clone, Copy, Debug)]
enum Promise {
    Write(u64, usize),
    Pop(u64, usize, u64),
}

/// All that is known of one id.
#[derive(Clone, Debug, Default)]
pub struct Timer {
    /// Writes that may be the current one.
    pub writes: Vec<Write>,
    /// Writes that are not any more, for people.
    gone: Vec<usize>,
}

/// A callback host.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    pub is_well: bool,
    /// When it was last not well.
    pub unwell_ns: i64,
}

/// The process that runs.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    pub number: u64,
    pub boot: usize,
    /// When it read its journal.
    pub began_ns: i64,
    /// How long it may take to catch up.
    pub pace_ns: i64,
}

/// Everything that is known of one run.
pub struct Model {
    pub timers: BTreeMap<u64, Timer>,
    /// Creates whose id is not known yet.
    unnamed: BTreeMap<usize, Write>,
    pub hosts: Vec<Host>,
    pub is_each: bool,
    pub is_sync: bool,
    pub life: Life,
    /// A bit was turned over: from then on only what is served is checked.
    pub is_damaged: bool,
    promises: Vec<VecDeque<(u64, Promise)>>,
    pub attempts: u64,
    pub delivered: u64,
    /// Pops that were made again after a restart.
    pub repeated: u64,
    pub left_out: u64,
    moment: Moment,
}

/// A pop that begins.
pub struct Begun<'a> {
    pub id: u64,
    pub name: usize,
    pub sequence: u64,
    pub now_ns: i64,
    pub story: &'a str,
}

impl Model {
    pub fn new(hosts: u32, is_each: bool, is_sync: bool) -> Self {
        let host = Host { is_well: true, unwell_ns: i64::MIN / 2 };
        Self {
            timers: BTreeMap::new(),
            unnamed: BTreeMap::new(),
            hosts: vec![host; hosts as usize],
            is_each,
            is_sync,
            life: Life { number: 0, boot: 0, began_ns: 0, pace_ns: 0 },
            is_damaged: false,
            promises: Vec::new(),
            attempts: 0,
            delivered: 0,
            repeated: 0,
            left_out: 0,
            moment: 0,
        }
    }

    pub fn next_moment(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    /// Notes that a client asks for a write of an id; `None`: of a new one.
    pub fn asked(
        &mut self,
        id: Option<u64>,
        name: usize,
        wish: Option<Wish>,
        asked: (Moment, u64),
    ) {
        let wish = wish.filter(|wish| wish.repeat_for_ms >= wish.interval_ms);
        let start = Start { earliest: asked.1 as i64, latest: i64::MAX / 4 };
        let mut starts = vec![None; self.life.boot];
        starts.push(Some(start));
        let write = Write {
            name,
            wish,
            asked: asked.0,
            closed: None,
            life: self.life.number,
            is_acknowledged: false,
            is_settled: false,
            is_doubtful: false,
            is_replaced: false,
            starts,
            settled: 0,
            reached: 0,
            next: Some(1),
            is_running: false,
        };
        match id {
            Some(id) => self.timers.entry(id).or_default().writes.push(write),
            None => drop(self.unnamed.insert(name, write)),
        }
    }

    /// Notes the id of a create, from its answer or from its first pop.
    pub fn named(&mut self, name: usize, id: u64) -> Checked {
        let Some(write) = self.unnamed.remove(&name) else { return Ok(()) };
        // An id comes again if a crash took its timer and the wall clock was set back with it.
        let is_held =
            |write: &Write| write.wish.is_some() && write.is_acknowledged && !write.is_doubtful;
        let is_taken = self.timers.get(&id).is_some_and(|timer| timer.writes.iter().any(is_held));
        if is_taken && !self.is_damaged {
            return broken("T7", format!("create {name} got {id:x}, which is taken"));
        }
        self.timers.entry(id).or_default().writes.push(write);
        Ok(())
    }

    /// Notes that a write is answered. `core`: the one that keeps the timer.
    pub fn answered(&mut self, id: u64, name: usize, core: u16, now_ns: u64, is_done: bool) {
        let moment = self.next_moment();
        let timer = self.timers.get_mut(&id).expect("asked before");
        let Some(write) = timer.writes.iter_mut().find(|write| write.name == name) else { return };
        write.close(moment, now_ns as i64);
        write.is_acknowledged = is_done;
        if is_done {
            write.is_settled = self.is_sync;
            let promise = Promise::Write(id, name);
            self.promises[usize::from(core)].push_back((now_ns, promise));
        }
        self.prune(id);
    }

    /// Notes that a write was refused before anything was done.
    pub fn refused(&mut self, id: Option<u64>, name: usize) {
        self.unnamed.remove(&name);
        let Some(timer) = id.and_then(|id| self.timers.get_mut(&id)) else { return };
        timer.writes.retain(|write| write.name != name);
    }

    /// Drops writes that certainly were replaced.
    fn prune(&mut self, id: u64) {
        if self.is_damaged {
            return;
        }
        let timer = self.timers.get_mut(&id).expect("asked before");
        let is_sure = |write: &&Write| write.is_acknowledged && !write.is_doubtful;
        let newest = timer.writes.iter().filter(is_sure).map(|write| write.asked).max();
        let Some(newest) = newest else { return };
        for write in &mut timer.writes {
            write.is_replaced |= write.closed.is_some_and(|closed| closed < newest);
        }
        let settled = timer.writes.iter().filter(|write| write.is_settled);
        let Some(settled) = settled.map(|write| write.asked).max() else { return };
        let is_gone = |write: &mut Write| write.closed.is_some_and(|closed| closed < settled);
        timer.gone.extend(timer.writes.extract_if(.., is_gone).map(|write| write.name));
    }

    /// Notes that all that a core did up to a time is durable.
    pub fn settle(&mut self, core: u16, until_ns: u64) {
        let promises = &mut self.promises[usize::from(core)];
        let kept = promises.iter().position(|(at_ns, _)| *at_ns > until_ns);
        let kept = promises.split_off(kept.unwrap_or(promises.len()));
        for (_, promise) in std::mem::replace(promises, kept) {
            let (Promise::Write(id, name) | Promise::Pop(id, name, _)) = promise;
            let timer = self.timers.get_mut(&id).expect("asked before");
            let Some(write) = timer.writes.iter_mut().find(|write| write.name == name) else {
                continue;
            };
            match promise {
                Promise::Write(..) => write.is_settled = true,
                Promise::Pop(_, _, sequence) => write.settled = write.settled.max(sequence),
            }
            self.prune(id);
        }
    }

    /// Notes that the process is gone.
    pub fn dies(&mut self, now_ns: u64) {
        let moment = self.next_moment();
        let doubtful: Vec<(u64, usize)> = self
            .promises
            .iter()
            .flatten()
            .filter_map(|(_, promise)| match promise {
                Promise::Write(id, name) => Some((*id, *name)),
                Promise::Pop(..) => None,
            })
            .collect();
        for (id, timer) in &mut self.timers {
            for write in &mut timer.writes {
                if write.closed.is_none() {
                    write.close(moment, now_ns as i64);
                }
                let is_doubtful = !write.is_settled && doubtful.contains(&(*id, write.name));
                write.is_doubtful |= is_doubtful;
                (write.is_replaced, write.is_running, write.next) = (false, false, None);
            }
        }
        for write in self.unnamed.values_mut().filter(|write| write.closed.is_none()) {
            write.close(moment, now_ns as i64);
            write.next = None;
        }
        self.promises.clear();
    }

    /// Notes that a process begins. `shifts`: how many ms at least and at most the times of each
    /// earlier boot seem to be longer ago than they are.
    pub fn begins(&mut self, life: Life, cores: u16, shifts: &[(i64, i64)]) {
        self.life = life;
        self.promises = vec![VecDeque::new(); usize::from(cores)];
        let named = self.timers.values_mut().flat_map(|timer| &mut timer.writes);
        for write in named.chain(self.unnamed.values_mut()) {
            write.starts.resize(shifts.len() + 1, None);
            let mut whole = write.starts[shifts.len()];
            for (start, (least, most)) in write.starts.iter().zip(shifts) {
                let Some(start) = start else { continue };
                let earliest = start.earliest - most.max(&0) * MS;
                let latest = start.latest - least.min(&0) * MS + ROUNDED_NS;
                let whole = whole.get_or_insert(Start { earliest, latest });
                whole.earliest = whole.earliest.min(earliest);
                whole.latest = whole.latest.max(latest);
            }
            write.starts[shifts.len()] = whole;
        }
    }

    /// Returns whether an id's host was not well since a time, or in the seconds before.
    fn is_unwell(&self, wish: &Wish, since_ns: i64) -> bool {
        let host = &self.hosts[wish.host as usize];
        !host.is_well || host.unwell_ns + UNWELL_NS > since_ns
    }

    /// Checks J1 to J6 for a pop that begins.
    pub fn attempt(&mut self, begun: &Begun<'_>) -> Checked {
        let Begun { id, name, sequence, now_ns, story } = *begun;
        self.attempts += 1;
        let (is_damaged, life) = (self.is_damaged, self.life.number);
        self.timers.entry(id).or_default();
        let timer = &self.timers[&id];
        let Some(at) = timer.writes.iter().position(|write| write.name == name) else {
            if is_damaged {
                return Ok(());
            }
            let what = format!("{story}: pops though it was replaced or deleted: {timer:?}");
            return broken("J1 back", what);
        };
        let write = &timer.writes[at];
        if write.wish.is_none() {
            return broken("T8", format!("{story}: never fires"));
        }
        if write.is_replaced && !is_damaged {
            return broken("T7", format!("{story}: pops though it was replaced in this life"));
        }
        if write.is_running {
            return broken("T3", format!("{story}: a pop still runs"));
        }
        let due_ns = write.start().earliest + write.interval_ns() * sequence as i64;
        if now_ns < due_ns {
            return broken("J6", format!("{story}: {} us early", (due_ns - now_ns) / 1_000));
        }
        if sequence > write.pops() {
            return broken("T8", format!("{story}: only {} pops", write.pops()));
        }
        self.is_next(begun, write)?;
        let write = &mut self.timers.get_mut(&id).expect("found above").writes[at];
        self.repeated += u64::from(write.next.is_none() && sequence <= write.reached);
        self.left_out += (sequence - 1).saturating_sub(write.next.unwrap_or(write.reached + 1));
        (write.next, write.is_running) = (Some(sequence), true);
        if write.life < life {
            // It came from the disk, so no crash takes it back.
            (write.is_acknowledged, write.is_settled, write.is_doubtful) = (true, true, false);
        }
        self.prune(id);
        Ok(())
    }

    /// Checks that the number of a pop may come next.
    fn is_next(&self, begun: &Begun<'_>, write: &Write) -> Checked {
        let Begun { sequence, now_ns, story, .. } = *begun;
        let (wish, start) = (write.wish.expect("it pops"), write.start());
        if self.is_damaged {
            return Ok(());
        }
        let is_unwell = self.is_unwell(&wish, start.earliest);
        let passed = write.due_by(now_ns, start.earliest);
        let (mut least, mut most) = match write.next {
            Some(next) => (next, next),
            None => (write.settled + 1, write.reached + 1),
        };
        if write.next.is_none() && !self.is_each {
            let last = |start_ns| write.due_by(self.life.began_ns, start_ns).min(write.pops());
            least = least.max(last(start.latest));
            most = most.max(last(start.earliest));
        }
        if is_unwell {
            most = most.max(passed);
        }
        if sequence < least {
            return broken("J4 falls", format!("{story}: {least} to {most} is next: {write:?}"));
        }
        if sequence > most {
            return broken("J1 skips", format!("{story}: {least} to {most} is next: {write:?}"));
        }
        Ok(())
    }

    /// Notes that a pop ended. `core`: the one that is told.
    pub fn ended(&mut self, id: u64, name: usize, sequence: u64, told: (u16, u64), is_ok: bool) {
        self.delivered += u64::from(is_ok);
        let timer = self.timers.get_mut(&id).expect("it was checked");
        let Some(write) = timer.writes.iter_mut().find(|write| write.name == name) else { return };
        write.is_running = false;
        if is_ok {
            write.next = Some(sequence + 1);
            write.reached = write.reached.max(sequence);
            let promise = Promise::Pop(id, name, sequence);
            self.promises[usize::from(told.0)].push_back((told.1, promise));
        }
    }

    /// Returns the write that certainly is the current one.
    fn certain(timer: &Timer) -> Option<&Write> {
        match &timer.writes[..] {
            [only] if only.is_acknowledged && !only.is_doubtful => Some(only),
            _ => None,
        }
    }

    /// Checks J1 for all timers: no pop is missing that is due.
    pub fn none_is_late(&self, now_ns: i64) -> Checked {
        if self.is_damaged {
            return Ok(());
        }
        for (id, timer) in &self.timers {
            let Some(write) = Self::certain(timer) else { continue };
            let Some(wish) = write.wish.filter(|_| !write.is_running) else { continue };
            let next = write.next.unwrap_or(write.reached + 1);
            if next > write.pops() {
                continue;
            }
            let due_ns = write.start().latest + write.interval_ns() * next as i64;
            let by_ns = due_ns.max(self.life.began_ns + self.life.pace_ns) + LATE_NS;
            let since_ns = write.start().earliest + write.interval_ns() * next as i64;
            if now_ns > by_ns && !self.is_unwell(&wish, since_ns) {
                let late_ms = (now_ns - by_ns) / MS;
                let what = format!("timer {id:x}: pop {next} is {late_ms} ms late: {write:?}");
                return broken("J1 lost", what);
            }
        }
        Ok(())
    }

    /// Checks a read. `found`: the write that it shows.
    pub fn read(&self, id: u64, asked: Moment, found: Option<usize>) -> Checked {
        let Some(timer) = self.timers.get(&id).filter(|_| !self.is_damaged) else { return Ok(()) };
        if let Some(name) = found {
            let is_held = timer.writes.iter().any(|write| write.name == name);
            let was_held = timer.gone.contains(&name)
                && timer.writes.iter().any(|write| write.closed.is_none_or(|at| at > asked));
            // A create that nobody was told of is gone with its process. While the wall clock stands
            // still, another process may give its id out again.
            let is_told = timer.writes.iter().any(|write| write.is_acknowledged);
            let is_given_again = self.unnamed.contains_key(&name) && !is_told;
            if !is_held && !was_held && !is_given_again {
                return broken("J1 back", format!("timer {id:x}: a read shows write {name}"));
            }
            return Ok(());
        }
        let Some(write) = Self::certain(timer) else { return Ok(()) };
        let Some(wish) = write.wish else { return Ok(()) };
        let is_old = write.closed.is_some_and(|closed| closed < asked);
        let may_have_ended =
            write.reached >= write.pops() || self.is_unwell(&wish, write.start().earliest);
        if is_old && !may_have_ended {
            return broken("J1 lost", format!("timer {id:x} is not found: {write:?}"));
        }
        Ok(())
    }
}

impl Write {
    fn close(&mut self, moment: Moment, now_ns: i64) {
        self.closed = Some(moment);
        let start = self.starts.last_mut().expect("each boot has one").as_mut();
        start.expect("it was asked in this boot").latest = now_ns + MS;
    }
}
