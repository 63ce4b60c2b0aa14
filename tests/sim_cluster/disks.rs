//! Nodes with disks: each keeps a journal on a virtual disk. A process that dies leaves its disk
//! behind, and what was under way in any of its blocks. Now and then all nodes die at once. What the
//! model knows of it: `losses.rs`.

use chronos::base::ids::ShardIndex;
use chronos::base::time::WallMs;
use chronos::core::Core;
use chronos::core::journal::{JournalRules, Mode};
use chronos::journal::JournalId;
use chronos::journal::writer::{Piece, Sizes};
use chronos::node::CoreMeters;
use chronos::node::journal::recovery::Plan;
use chronos::shard::journal::CatchUp;

use kit::simulator::disk::WriteId;
use kit::simulator::random::{Purpose, Stream};

use super::clocks::WALL_MS;
use super::driver::{CoreDriver, Input};
use super::model::{Checked, MS, broken};
use super::network::CoreAt;
use super::options::{Options, Trouble};
use super::rarities::Rarity;
use super::story_plan::{Death, Fault, Kind, Operation, Story, Target, Wish};
use super::world::{Event, World};
use kit::simulator::store::Store;

/// How many seeds in a hundred have disks in mode `sync`, of those that can.
const PERCENT: u64 = 40;
/// How many of the other seeds have disks of any kind.
const PERCENT_OF_OTHERS: u64 = 30;
/// How many of the seeds with two sites, or with rare faults that change what disks are for.
const PERCENT_OF_SPECIAL: u64 = 50;
/// How many writes of the disk a change waits for at most: one under way, those with what came
/// before, and its own.
const WRITES_MAX: u64 = 6;
/// How long a write may wait for a segment.
const MAKES_NS: u64 = 30 * MS;

/// What the disks of a run are like.
#[derive(Clone, Copy, Debug)]
pub struct Disks {
    /// When an acknowledged write is on the disk.
    pub mode: Mode,
    sizes: Sizes,
    write_ns_max: u64,
    /// How often all nodes die at once.
    all_at_once: u64,
    /// Whether one node is away for longer than tombstones stay, and nothing else is wrong.
    is_long: bool,
    /// Whether bits flip on the disk of a node that died.
    pub is_damaged: bool,
    /// Whether a loss of power is followed by another boot, with another monotonic clock.
    pub has_boots: bool,
}

impl Disks {
    /// Draws the disks of a run; `None`: it has none. So it is with two rare faults, for reasons that
    /// are not known yet. The seeds are those of the draw below without this exception:
    ///
    /// - a node with little room: one seed in 170 broke C2 or T10 (48159, 20880);
    /// - a wrong wall clock: one in 400 broke C2, T1 or T6 (107079, 138870, 107515, 111828).
    pub fn draw(options: &Options) -> Option<Self> {
        let draw = &mut Stream::new(options.seed, Purpose::Disk);
        let is_drawn = draw.chance(PERCENT);
        let drawn = Self::draw_sync(options, draw);
        let is_special = is_special(options);
        let has = |kind| options.rarities.kinds.contains(&kind);
        if has(Rarity::NoRoom) || has(Rarity::WrongClock) {
            return None;
        }
        if options.has_full_disks() {
            return Some(Self { is_long: false, is_damaged: false, ..drawn });
        }
        if options.has_silent_starts() {
            let alone = Self { is_long: false, is_damaged: false, all_at_once: 0, ..drawn };
            return Some(alone);
        }
        if is_drawn && !is_special {
            return Some(drawn);
        }
        // What is drawn here shifts no seed of the kind above.
        let draw = &mut Stream::keyed(options.seed, Purpose::Disk, 97);
        let mode = draw.pick(&[Mode::Sync, Mode::Interval(50), Mode::Interval(1_000)]);
        let has_boots = draw.chance(60);
        let percent = if is_special { PERCENT_OF_SPECIAL } else { PERCENT_OF_OTHERS };
        let is_long = drawn.is_long && !is_special;
        draw.chance(percent).then_some(Self { mode, has_boots, is_long, ..drawn })
    }

    fn draw_sync(options: &Options, draw: &mut Stream) -> Self {
        let batch_bytes = draw.pick(&[4_096, 16_384]) as usize;
        let segment_blocks = draw.pick(&[8, 12, 40]) as u32 + batch_bytes as u32 / 4_096;
        let is_calm = options.trouble == Trouble::None;
        Self {
            mode: Mode::Sync,
            sizes: Sizes { segment_blocks, batch_bytes },
            write_ns_max: draw.pick(&[200_000, 2_000_000, 10_000_000]),
            is_long: options.nodes > 1 && options.clocks_are_close() && draw.chance(30),
            is_damaged: draw.chance(20),
            all_at_once: if is_calm { 0 } else { draw.pick(&[0, 1, 1, 3]) },
            has_boots: false,
        }
    }

    /// Disks on which nothing goes wrong by itself.
    pub fn plain() -> Self {
        Self {
            mode: Mode::Sync,
            sizes: Sizes { segment_blocks: 44, batch_bytes: 16_384 },
            write_ns_max: 200_000,
            all_at_once: 0,
            is_long: false,
            is_damaged: false,
            has_boots: false,
        }
    }

    /// Clocks that are close let nodes tell that a timer ended while they were away.
    pub fn limit(&self, options: &mut Options) {
        // Tombstones outlive restarts, so there are more of them. A link must hold their offers,
        // as the least that can be configured does.
        options.cluster.link_bytes_max = options.cluster.link_bytes_max.max(65_536);
        if options.clocks_are_close() && !is_special(options) {
            options.cluster.clock_skew_max_ms = 1_000;
        }
        if options.has_silent_starts() {
            options.safety_ms = options.safety_ms.max(60_000);
            options.stays_dead = None;
        }
        if self.is_long {
            options.cluster.tombstone_hold_ms = 10_000;
            options.safety_ms = options.safety_ms.max(80_000);
            options.stays_dead = None;
        }
    }

    /// How long a pop takes at most until the disk has it: a write under way, its own write, and
    /// the callback. In mode `interval` nothing waits for the disk.
    pub fn pop_ns_max(&self) -> u64 {
        match self.mode {
            Mode::Sync => 2 * self.write_ns_max + 5 * MS,
            Mode::Interval(_) => 5 * MS,
        }
    }

    /// How long after its acknowledgement a write may not be on the disk of a node that has time.
    pub fn unwritten_ns_max(&self) -> u64 {
        match self.mode {
            Mode::Sync => 0,
            Mode::Interval(ms) => ms * MS + WRITES_MAX * self.write_ns_max + MAKES_NS,
        }
    }

    /// Reports whether nodes find out which of their timers ended while they were away.
    pub fn tells_ends(&self, options: &Options) -> bool {
        !self.is_damaged && options.clocks_are_close() && !is_special(options)
    }

    /// Reports whether nodes keep all that they held, and all of them come back.
    pub fn keeps_all(&self, options: &Options) -> bool {
        let has_twins = options.rarities.kinds.contains(&Rarity::Twins);
        !self.is_damaged && options.stays_dead.is_none() && !has_twins
    }

    /// Reports whether the disks are of a kind that a person asks for: `1` is any.
    pub fn is(&self, kind: &str, options: &Options) -> bool {
        match kind {
            "Sites" => options.sites.is_some(),
            "Interval" => self.mode != Mode::Sync,
            "Boots" => self.has_boots,
            _ => true,
        }
    }

    /// An empty disk for a node.
    pub fn store(&self, seed: u64, (node, name): (usize, &str)) -> Store {
        let mut draw = Stream::keyed(seed, Purpose::Disk, 1 + node as u64);
        Store::new(JournalId(draw.next().max(1)), name, self.sizes)
    }
}

/// Replaces the faults of a story: one node is away for longer than tombstones stay. Timers are made
/// before, and deleted meanwhile.
pub fn long_absence(story: &mut Story) {
    let options = story.options.clone();
    if options.disks.is_none_or(|disks| !disks.is_long) {
        return;
    }
    let draw = &mut Stream::keyed(options.seed, Purpose::Disk, 98);
    let node = draw.range(0, options.nodes as u64 - 1) as usize;
    let at_ms = draw.range(24_000, 28_000);
    let for_ms = draw.range(28_000, 36_000);
    let how = draw.pick(&[Death::Process, Death::Power]);
    story.faults = vec![(at_ms * MS, Fault::Kill { node, for_ms, how })];
    let mut operate = |draw: &mut Stream, at_ms: u64, kind: Kind| {
        let another = (node as u64 + draw.range(1, options.nodes as u64 - 1)) as usize;
        let name = options.operations + 100 + story.operations.len();
        let (at_ns, node) = (at_ms * MS + draw.range(0, MS), another % options.nodes);
        let (patience_ms, loses_reply) = (8_000, false);
        story.operations.push(Operation { name, at_ns, node, kind, patience_ms, loses_reply });
    };
    for timer in 0..8 {
        let target = Target::Chosen(0x9000 + timer);
        let interval_ms = draw.pick(&[3_000, 40_000, 60_000]);
        let wish =
            Wish { interval_ms, repeat_for_ms: interval_ms * 2, host: 0, factor: 0, policy: None };
        let before_ms = draw.range(4_000, at_ms - 500);
        operate(draw, before_ms, Kind::Update(target, wish));
        if draw.chance(70) {
            let during_ms = at_ms + draw.range(100, 3_000);
            operate(draw, during_ms, Kind::Delete(target));
        }
    }
    story.operations.sort_by_key(|operation| (operation.at_ns, operation.name));
}

/// Adds moments at which all nodes die, within a few milliseconds of each other.
pub fn all_at_once(story: &mut Story) {
    let disks = story.options.disks.filter(|disks| !disks.is_long);
    let Some(disks) = disks else { return };
    let options = &story.options;
    let draw = &mut Stream::keyed(options.seed, Purpose::Disk, 99);
    for _ in 0..disks.all_at_once {
        let at_ms = draw.range(5_000, options.safety_ms);
        let apart_ms = draw.pick(&[0, 1, 5, 300]);
        let how = draw.pick(&[Death::Process, Death::Power]);
        for node in 0..options.nodes {
            if options.sites.is_some_and(|sites| !sites.may_die(node)) {
                continue;
            }
            let at_ns = (at_ms + draw.range(0, apart_ms)) * MS + draw.range(0, MS);
            let for_ms = draw.pick(&[20, 400, 3_000, 12_000]);
            story.faults.push((at_ns, Fault::Kill { node, for_ms, how }));
        }
    }
    story.faults.sort_by_key(|(at_ns, _)| *at_ns);
}

/// Adds moments at which all nodes of one site die, within a few milliseconds of each other, and
/// come back with their disks. Meanwhile the other site pops, and takes what clients ask for.
pub fn a_site_at_once(story: &mut Story) {
    let disks = story.options.disks.filter(|disks| !disks.is_long && disks.all_at_once > 0);
    let sites = story.options.sites.filter(|sites| sites.has_all_addresses);
    let (Some(_), Some(sites)) = (disks, sites) else { return };
    let options = &story.options;
    let draw = &mut Stream::keyed(options.seed, Purpose::Disk, 96);
    for _ in 0..draw.range(1, 2) {
        let at_ms = draw.range(5_000, options.safety_ms);
        let (apart_ms, for_ms) = (draw.pick(&[0, 5, 300]), draw.pick(&[4_000, 8_000, 15_000]));
        let how = draw.pick(&[Death::Process, Death::Power]);
        let site = draw.range(0, 1) as usize;
        for node in (0..options.nodes).filter(|node| sites.site_of(*node) == site) {
            let at_ns = (at_ms + draw.range(0, apart_ms)) * MS + draw.range(0, MS);
            let for_ms = for_ms + draw.pick(&[0, 0, 700]);
            story.faults.push((at_ns, Fault::Kill { node, for_ms, how }));
        }
    }
    story.faults.sort_by_key(|(at_ns, _)| *at_ns);
}

/// Reports whether there are two sites, or two processes of one name.
fn is_special(options: &Options) -> bool {
    options.sites.is_some() || options.rarities.kinds.contains(&Rarity::Twins)
}

/// Returns how far a wall clock is ahead of the world's.
fn ahead_ns(world_ns: u64, wall: WallMs) -> i64 {
    (wall.0 as i64 - WALL_MS) * MS as i64 - world_ns as i64
}

impl World {
    /// Begins another boot of a node's machine, if it lost its power.
    pub fn begin_boot(&mut self, node: usize) {
        let booted = &mut self.nodes[node];
        if std::mem::take(&mut booted.is_next_boot) {
            booted.boots.begin();
            booted.clocks.reboot(&mut self.disk);
            let numbers = [node as u64, booted.boots.number(), 0, 0];
            self.trace.add(self.now_ns, "reboot", numbers);
        }
    }

    /// Reads what a node has on its disk into its cores.
    pub fn read_disk(&mut self, node: usize) -> Checked {
        let shards = self.options.shards[node];
        let booted = &mut self.nodes[node];
        let (Some(disks), Some(store)) = (self.options.disks, booted.store.as_mut()) else {
            return Ok(());
        };
        let raw = booted.clocks.now(self.now_ns);
        let (early_ns, late_ns) = booted.boots.shifts(raw.wall.0, ahead_ns(self.now_ns, raw.wall));
        self.model.losses.shifts.push((self.now_ns, early_ns, late_ns));
        let (older, present) = store.open(shards);
        let rules = JournalRules { mode: disks.mode, stall_ms: 3_000, boot: booted.boots.number() };
        let catch_up = CatchUp { pops_per_s: 10_000, is_each: false };
        let plan = Plan::new((&older, present), (rules, catch_up, disks.sizes), raw);
        let plan = plan.expect("virtual files can be read");
        booted.clocks.floor = Some(plan.wall);
        let now = booted.clocks.now(self.now_ns);
        let mut damage = Vec::new();
        for driver in booted.cores.iter_mut().flatten() {
            let own = driver.place.core;
            let core = (&mut driver.core, ShardIndex(own));
            let recovered = plan.recover(core.0, core.1, (now, &|| now), &CoreMeters::default());
            let recovered = recovered.expect("virtual files can be read");
            damage.extend(recovered.damage);
            let (oldest, last) = recovered.used;
            store.keep_only(own, oldest, last);
        }
        booted.cores.iter_mut().flatten().for_each(|driver| driver.core.note_complete());
        if store.must_tell() && damage.is_empty() {
            return broken("J5 told", "a bit was turned over, and nothing was told".into());
        }
        if !disks.is_damaged && !damage.is_empty() {
            return broken("J5 false", format!("nothing is damaged, and told is {damage:?}"));
        }
        self.run_maker(node);
        Ok(())
    }

    /// Hands over what a core wants of its disk.
    pub fn store(&mut self, place: CoreAt, core: &mut Core) -> Option<WriteId> {
        let journal = core.journal().expect("only a core with a journal stores");
        while let Some(order) = journal.next_order() {
            self.store_of(place.node).order(place.core, order);
        }
        let writing = journal.next_piece().map(|piece| self.begin_write(place, &piece));
        self.run_maker(place.node);
        writing
    }

    fn store_of(&mut self, node: usize) -> &mut Store {
        self.nodes[node].store.as_mut().expect("it has a disk")
    }

    fn begin_write(&mut self, place: CoreAt, piece: &Piece<'_>) -> WriteId {
        let id = self.store_of(place.node).write(place.core, piece);
        let node = &mut self.nodes[place.node];
        let wall = node.clocks.now(self.now_ns).wall;
        node.boots.stamped(place.core, ahead_ns(self.now_ns, wall), wall.0);
        let most_ns = self.options.disks.expect("it has disks").write_ns_max;
        let ends_ns = self.now_ns + self.disk.range(20_000, most_ns);
        self.schedule(ends_ns, Event::WriteEnds(place));
        let numbers =
            [place.node as u64, place.core.into(), piece.segment.0, piece.bytes.len() as u64];
        self.trace.add(self.now_ns, "write", numbers);
        id
    }

    /// Ends the write of a core.
    pub fn write_ends(&mut self, place: CoreAt) {
        let node = &mut self.nodes[place.node];
        if node.life != place.life || !node.is_up() {
            return;
        }
        let driver = node.cores[usize::from(place.core)].as_mut().expect("no core steps");
        let writing = driver.writing.take().expect("a write was begun");
        node.boots.written(place.core);
        self.store_of(place.node).disk.end_write(writing);
        self.deliver(place, Input::Written);
    }

    /// Lets the thread of a node that makes segments take its next order.
    fn run_maker(&mut self, node: usize) {
        if self.store_of(node).begin() {
            let ends_ns = self.now_ns + self.disk.range(10_000, 5_000_000);
            let life = self.nodes[node].life;
            self.schedule(ends_ns, Event::MakerEnds { node, life });
        }
    }

    /// Ends the order that the thread of a node works at.
    pub fn maker_ends(&mut self, node: usize, life: u64) {
        if self.nodes[node].life != life || !self.nodes[node].is_up() {
            return;
        }
        if let Some((core, made)) = self.store_of(node).finish() {
            self.deliver(CoreAt { node, life, core }, Input::Made(made));
        }
        self.run_maker(node);
    }

    /// Takes from the disk of a node what a death takes.
    pub fn leave_disk(&mut self, node: usize, how: Death) {
        let left = &mut self.nodes[node];
        let Some(store) = left.store.as_mut() else { return };
        left.boots.dies();
        left.is_next_boot |=
            how == Death::Power && self.options.disks.is_some_and(|disks| disks.has_boots);
        self.model.losses.crashes.push((node, self.now_ns));
        match how {
            Death::Process => store.disk.kill(&mut self.disk),
            Death::Power => store.disk.lose_power(&mut self.disk),
        }
        if self.options.disks.is_some_and(|disks| disks.is_damaged) && self.disk.chance(30) {
            let Some(bit) = store.flip(self.disk.next()) else { return };
            self.model.damaged_ns = Some(self.now_ns);
            self.trace.add(self.now_ns, "flip", [node as u64, bit as u64, 0, 0]);
        }
    }
}

impl CoreDriver {
    /// Takes what became of a segment that the core asked for, or of a write.
    pub fn disk_tells(&mut self, input: &Input) {
        let now = self.now;
        let journal = self.core.journal().expect("it has one");
        match input {
            Input::Made(kit::simulator::store::Made::Segment(segment)) => {
                journal.prepared(*segment)
            }
            Input::Made(kit::simulator::store::Made::None(why)) => journal.not_prepared(now, *why),
            _ => journal.written(),
        }
    }
}
