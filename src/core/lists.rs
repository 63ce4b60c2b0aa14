//! Pages of `GET /timers`, put together from parts of all shards of all nodes of the site.
//!
//! Every shard tells its next timers in the order of lists, whichever timers it holds. This core
//! merges these streams, drops doubles by id and takes the first. A page ends at the place up to
//! which every shard has told everything, so the cursor is that place and nothing else is kept
//! between two pages. A page that takes long ends early, perhaps without a timer: the next page
//! goes on there.
//!
//! No clock, no socket.

// May panic: indices 6.
// Why it does not: found 5, peers 1.
// Reads the wall clock: told 2.

use std::collections::BTreeMap;

use crate::base::ids::{PeerIndex, ShardCount, ShardIndex, mix};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::{Now, Tick};
use crate::cluster::view::View;
use crate::core::asking::{Asked, Order, PEER_MS, Whole, Whom, ask_all};
use crate::shard::effects::{
    Answer, Internal, ListPage, ListedTimer, Refusal, Reply, Requester, TimerView,
};
use crate::timer::definition::Content;
use crate::timer::version::{StateKey, Version};
use crate::wire::callback_uri::uri_of;
use crate::wire::jobs::JobsAsk;
use crate::wire::list_query::{Cursor, ListQuery};
use crate::wire::peer_message::{PeerMessageError, TimerCopy};
use crate::wire::timer_list::{
    LIST_LIMIT_MAX, ListAsk, ListedCopy, PartHead, Place, read_listed, read_part,
};

/// Pages that one core puts together at a time: some 2 MiB each.
const LISTINGS_MAX: usize = 16;
/// Pages of one token's name among them; those of operators without a token count together.
const LISTINGS_OF_ONE_MAX: usize = 8;
/// Bytes of timers above which a page ends.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// A page that is not complete after this time ends where it is.
const PAGE_MS: u64 = 2_000;
/// How often a page is begun again because timers moved while it was put together.
const RESTARTS_MAX: u32 = 3;
/// Timers that a question asks for beyond a shard's even share, because shards have more or less.
const SPARE_TIMERS: usize = 8;

/// What a client asks of all timers, or of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListAsked {
    /// A page of a list. With a digest of the name of who asks: of its token, or of none.
    Page(ListQuery, u64),
    /// A job that deletes the timers of a list. With the name of the token; empty: there is none.
    Delete(ListQuery, Box<str>),
    /// What is told of jobs.
    Jobs(JobsAsk),
    /// Numbers.
    Count {
        /// Whether it is asked when timers are due.
        has_spans: bool,
    },
}

/// What is known of a shard's timers.
#[derive(Debug)]
struct Source {
    whom: Whom,
    /// The first place that the shard has not told about; `None`: it has told everything.
    known: Option<Place>,
    /// When the question that is not answered yet was asked.
    asked_at: Option<Tick>,
    /// Not to be asked before.
    not_before: Tick,
    has_failed: bool,
    /// What the last part of this page said of departures.
    departures: Option<u32>,
    /// How often the page had been begun again when the question was asked.
    restarts: u32,
}

/// A timer of the page, as told by the node that knows best.
#[derive(Debug)]
struct Kept {
    key: StateKey,
    is_first: bool,
    taken_at: Tick,
    timer: ListedTimer,
}

/// A page that is being put together.
#[derive(Debug)]
struct Listing {
    from: Requester,
    /// A digest of the name of who asks.
    by: u64,
    query: ListQuery,
    cursor: Cursor,
    begun: Tick,
    sources: Vec<Source>,
    timers: BTreeMap<Place, Kept>,
    bytes: usize,
    incomplete: Vec<String>,
    restarts: u32,
}

/// All pages that one core puts together.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    listings: Slots<Listing>,
    /// How many shards each peer had when it was heard last.
    shards_of: Vec<u16>,
    begun: u64,
}

impl Lists {
    /// Begins a page. `seed` tells this core from all others. `by` is a digest of the name of who
    /// asks.
    pub fn begin(
        &mut self,
        now: Now,
        (seed, shards): (u64, ShardCount),
        (view, peers): (&View, impl Iterator<Item = Asked>),
        (from, by): (Requester, u64),
        query: ListQuery,
    ) -> Result<(), Refusal> {
        let of_one = self.listings.iter().filter(|(_, listing)| listing.by == by).count();
        if of_one >= LISTINGS_OF_ONE_MAX {
            return Err(Refusal::ListsOfNameFull);
        }
        if self.listings.len() >= LISTINGS_MAX {
            return Err(Refusal::ListsFull);
        }
        self.begun += 1;
        let walk = mix(seed ^ mix(self.begun));
        let first = Cursor { from: Place(0), walk, began: now.wall };
        let cursor = query.cursor.unwrap_or(first);
        let source = |whom| Source::new(whom, cursor.from);
        let own = (0..shards.get()).map(|shard| Whom::Shard(ShardIndex(shard)));
        let mut sources: Vec<Source> = own.map(source).collect();
        let mut incomplete = Vec::new();
        for (peer, can_be_asked) in peers {
            match can_be_asked {
                Ok(()) => {
                    let shards = self.shards_of.get(peer.index()).copied().unwrap_or(1).max(1);
                    sources.extend((0..shards).map(|shard| source(Whom::Peer(peer, shard))));
                }
                Err(why) => incomplete.push(lacking(view, peer, why)),
            }
        }
        let begun = now.mono.tick_floor();
        let timers = BTreeMap::new();
        self.listings.insert(Listing {
            from,
            by,
            query,
            cursor,
            begun,
            sources,
            timers,
            bytes: 0,
            incomplete,
            restarts: 0,
        });
        Ok(())
    }

    /// Takes a shard's answer. Returns the page if it is complete with it.
    pub fn take(&mut self, now: Now, view: &View, reply: Reply) -> Option<Reply> {
        let (index, number) = (reply.to.request >> 16, reply.to.request as u16);
        let key = SlotKey { index, generation: reply.to.generation };
        // The page may have ended without this part.
        let listing = self.listings.get_mut(key)?;
        let source = listing.sources.get_mut(usize::from(number))?;
        source.asked_at = None;
        let whom = source.whom;
        let tick = now.mono.tick_floor();
        match reply.answer {
            Answer::Internal(internal) => match *internal {
                Internal::ListPart(Some(part)) => match listing.add(tick, view, number, &part) {
                    Ok(head) => {
                        if let Whom::Peer(peer, _) = whom {
                            self.note_shards(key, peer, head.shards);
                        }
                    }
                    Err(_) => listing.fail(view, number, "its answer makes no sense"),
                },
                _ => listing.fail(view, number, "down, or of a version that knows no lists"),
            },
            // A sibling's queue is full for a moment.
            _ => source.not_before = tick + 1,
        }
        self.finish(now, key)
    }

    /// Appends the questions to ask now, and the pages that end because they take too long.
    pub fn tick(
        &mut self,
        now: Now,
        of: (ShardIndex, &View),
        orders: &mut Vec<Order>,
        replies: &mut Vec<Reply>,
    ) {
        for key in ask_all(&mut self.listings, now.mono.tick_floor(), of, 0, orders) {
            replies.extend(self.finish(now, key));
        }
    }

    /// Whether no page is being put together.
    pub fn is_empty(&self) -> bool {
        self.listings.is_empty()
    }

    /// When [`Lists::tick`] has work next.
    pub fn next_wake(&self) -> Option<Tick> {
        self.listings.iter().filter_map(|(_, listing)| listing.next_wake()).min()
    }

    /// Takes note of how many shards a node has. Its shards that were not asked yet are asked, too.
    fn note_shards(&mut self, key: SlotKey, peer: PeerIndex, shards: u16) {
        if self.shards_of.len() <= peer.index() {
            self.shards_of.resize(peer.index() + 1, 0);
        }
        self.shards_of[peer.index()] = shards;
        let Some(listing) = self.listings.get_mut(key) else { return };
        let is_of = |source: &&Source| matches!(source.whom, Whom::Peer(of, _) if of == peer);
        let asked = listing.sources.iter().filter(is_of).count() as u16;
        for source in &mut listing.sources {
            if let Whom::Peer(of, shard) = source.whom
                && of == peer
                && shard >= shards
            {
                source.known = None;
            }
        }
        for shard in asked..shards {
            listing.sources.push(Source::new(Whom::Peer(peer, shard), listing.cursor.from));
        }
    }

    /// Returns the page if it is complete, or takes too long.
    fn finish(&mut self, now: Now, key: SlotKey) -> Option<Reply> {
        let listing = self.listings.get(key)?;
        let is_late = now.mono.tick_floor() - listing.begun >= PAGE_MS;
        if !is_late && !listing.is_complete() {
            return None;
        }
        let listing = self.listings.remove(key)?;
        let from = listing.from;
        let page = listing.page(now);
        Some(Reply::at_once(from, Answer::Internal(Box::new(Internal::List(page)))))
    }
}

impl Listing {
    fn open(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| source.known.is_some() && !source.has_failed)
    }

    /// The place up to which every shard has told everything; `None`: all have told everything.
    fn bound(&self) -> Option<Place> {
        self.open().filter_map(|source| source.known).min()
    }

    fn is_complete(&self) -> bool {
        let Some(bound) = self.bound() else { return true };
        let limit = usize::from(self.query.limit);
        if self.timers.len() < limit && self.bytes < PAGE_BYTES_MAX {
            return false;
        }
        let (mut timers, mut bytes) = (0, 0);
        self.timers.range(..bound).any(|(_, kept)| {
            timers += 1;
            bytes += bytes_of(&kept.timer.view);
            timers >= limit || bytes >= PAGE_BYTES_MAX
        })
    }

    /// Adds a shard's part.
    fn add(
        &mut self,
        tick: Tick,
        view: &View,
        number: u16,
        mut part: &[u8],
    ) -> Result<PartHead, PeerMessageError> {
        let head = read_part(&mut part)?;
        let source = &mut self.sources[usize::from(number)];
        if source.restarts != self.restarts {
            return Ok(head);
        }
        let has_lost = source.departures.is_some_and(|before| before != head.departures);
        if has_lost && self.restarts < RESTARTS_MAX {
            self.restart();
            return Ok(head);
        }
        source.departures = Some(head.departures);
        let known = source.known.unwrap_or_default();
        if head.until < known && !head.is_done {
            return Err(PeerMessageError("a part of a list that goes back"));
        }
        source.known = (!head.is_done).then_some(head.until);
        source.not_before = if head.is_starved { tick + 1 } else { tick };
        while !part.is_empty() {
            let listed = read_listed(&mut part)?;
            self.keep(tick, view, &listed);
        }
        Ok(head)
    }

    /// Begins the page again: a timer may have left one shard before it was asked for, and come to
    /// another after that was asked for.
    fn restart(&mut self) {
        self.restarts += 1;
        self.timers.clear();
        self.bytes = 0;
        for source in &mut self.sources {
            (source.known, source.departures) = (Some(self.cursor.from), None);
        }
    }

    /// Keeps a timer, unless another node that knows better has told of it.
    fn keep(&mut self, tick: Tick, view: &View, listed: &ListedCopy<'_>) {
        let standing = &listed.copy.standing;
        let place = Place::of(standing.id);
        let key = StateKey { version: Version(standing.version), sequence: standing.sequence };
        let is_first = listed.is_first;
        let known = self.timers.get(&place);
        if place < self.cursor.from
            || known.is_some_and(|known| (known.key, known.is_first) >= (key, is_first))
        {
            return;
        }
        let Some(shown) = shown(view, &listed.copy) else { return };
        self.bytes += bytes_of(&shown);
        let timer = ListedTimer { view: shown, state: listed.state, due_in_ms: listed.due_in_ms };
        let former = self.timers.insert(place, Kept { key, is_first, taken_at: tick, timer });
        self.bytes -= former.map_or(0, |former| bytes_of(&former.timer.view));
    }

    /// Leaves a node out of the page, and says so.
    fn fail(&mut self, view: &View, number: u16, why: &str) {
        let whom = self.sources[usize::from(number)].whom;
        let Whom::Peer(peer, _) = whom else {
            // A shard of this node answers each question that it understands.
            self.sources[usize::from(number)].has_failed = true;
            return;
        };
        let is_of = |source: &Source| matches!(source.whom, Whom::Peer(of, _) if of == peer);
        // A shard beyond those that the node has is no loss.
        if self.sources[usize::from(number)].known.is_some() {
            self.incomplete.push(lacking(view, peer, why));
            self.sources.iter_mut().filter(|source| is_of(source)).for_each(|source| {
                source.has_failed = true;
            });
        }
    }

    fn next_wake(&self) -> Option<Tick> {
        let bound = self.bound();
        let wake_of = |source: &Source| match source.asked_at {
            Some(at) => Some(at + PEER_MS),
            None if source.known == bound => Some(source.not_before),
            None => None,
        };
        self.open().filter_map(wake_of).chain([self.begun + PAGE_MS]).min()
    }

    /// The page as it is now.
    fn page(self, now: Now) -> ListPage {
        let bound = self.bound();
        let tick = now.mono.tick_floor();
        let limit = usize::from(self.query.limit);
        let mut timers: Vec<ListedTimer> = Vec::with_capacity(self.timers.len().min(limit));
        let (mut bytes, mut next) = (0, bound);
        for (place, kept) in self.timers {
            let is_behind = bound.is_some_and(|bound| place >= bound);
            if is_behind || timers.len() >= limit || bytes >= PAGE_BYTES_MAX {
                next = Some(bound.map_or(place, |bound| bound.min(place)));
                break;
            }
            let Kept { taken_at, mut timer, .. } = kept;
            let since_ms = tick - taken_at;
            timer.view.age_ms = timer.view.age_ms.saturating_add(since_ms);
            timer.due_in_ms = timer.due_in_ms.saturating_sub(since_ms as i64);
            bytes += bytes_of(&timer.view);
            timers.push(timer);
        }
        let cursor = next.map(|from| self.query.write_cursor(&Cursor { from, ..self.cursor }));
        let letters = self.query.letters;
        let (incomplete, at) = (self.incomplete, now.wall);
        ListPage { timers, cursor, incomplete, at, bytes, letters, used: 0, refused: 0 }
    }
}

impl Whole for Listing {
    fn give_up_late(&mut self, tick: Tick, view: &View) {
        for number in 0..self.sources.len() {
            let source = &self.sources[number];
            let is_silent = source.asked_at.is_some_and(|at| tick - at >= PEER_MS);
            if is_silent && !source.has_failed && matches!(source.whom, Whom::Peer(..)) {
                self.fail(view, number as u16, "no answer within a second");
            }
        }
    }

    /// Asks the shards that hold the page up.
    fn ask(&mut self, tick: Tick, order: &mut dyn FnMut(u32, Whom, Vec<u8>)) {
        let Some(bound) = self.bound() else { return };
        let open = self.open().count().max(1);
        let missing = usize::from(self.query.limit).saturating_sub(self.timers.len());
        let share = missing.div_ceil(open);
        let limit = (share + share / 4 + SPARE_TIMERS).min(usize::from(LIST_LIMIT_MAX)) as u16;
        let (walk, filter) = (self.cursor.walk, self.query.filter.borrow());
        for (number, source) in (0..).zip(&mut self.sources) {
            if source.known != Some(bound) || !source.may_be_asked(tick) {
                continue;
            }
            source.asked_at = Some(tick);
            source.restarts = self.restarts;
            let mut ask = Vec::new();
            ListAsk { walk, from: bound, limit, filter }.encode(&mut ask);
            order(number, source.whom, ask);
        }
    }
}

impl Source {
    /// A shard that has told nothing yet.
    fn new(whom: Whom, from: Place) -> Self {
        Self {
            whom,
            known: Some(from),
            asked_at: None,
            not_before: Tick(0),
            has_failed: false,
            departures: None,
            restarts: 0,
        }
    }

    fn may_be_asked(&self, tick: Tick) -> bool {
        self.asked_at.is_none() && !self.has_failed && self.not_before <= tick
    }
}

fn lacking(view: &View, peer: PeerIndex, why: &str) -> String {
    format!("{}: {why}; timers that no other node holds are missing", view.name_of(peer))
}

/// Bytes of a timer as a page counts them, about those of its JSON.
fn bytes_of(view: &TimerView) -> usize {
    view.uri.len() + view.opaque.len() + view.attributes.len() + 256
}

/// A timer as GET shows it; the copy's start is its age.
fn shown(view: &View, copy: &TimerCopy<'_>) -> Option<TimerView> {
    let body = copy.body?;
    let content = Content::decode(body.content);
    let tags = content.tags();
    Some(TimerView {
        id: copy.standing.id,
        factor: copy.factor,
        filter: view.filter_of(&copy.replicas),
        interval_ms: copy.interval_ms,
        repeat_for_ms: copy.repeat_for_ms,
        age_ms: copy.start_ms,
        version: Version(copy.standing.version),
        sequence: copy.standing.sequence,
        uri: uri_of(body.authority, content.target),
        opaque: content.opaque.into(),
        attributes: content.encoded_attributes().into(),
        tags: tags.as_slice().iter().map(|tag| (tag.kind.to_owned(), tag.count)).collect(),
    })
}

#[cfg(test)]
#[path = "lists_tests.rs"]
mod tests;
