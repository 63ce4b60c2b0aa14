//! Answers that several cores give together: pages of timers for nodes that ask which timers they
//! are to hold, and notes of timers that other nodes have taken over (docs/compat/timer-service.md
//! §9.3).
//!
//! One core of this node keeps where an asking node is in its round, whichever core the asking node
//! is connected with. Each page goes on behind the last one, so a round leaves nothing out and
//! ends. The asking node's own count would not do that:
//!
//! - An original counts its `time-from` from the moment at which it has read the last page. Timers
//!   due between the page and that moment would be left out.
//! - A node that counts too little would get the same page for ever.
//!
//! No clock, no socket.

// May panic: assertions 3, expectations 2, cuts 1.
// Why it does not: encoded 1, ordered 5.

use crate::base::ids::{NodeHash, ShardCount, ShardIndex, TimerId};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::{Now, Tick};
use crate::cluster::view::View;
use crate::shard::effects::{
    Answer, CollectedTimer, Internal, PageAsk, PagePart, PagePlace, Refusal, Reply, Requester,
};
use crate::shard::requesters::GATHERED;
use crate::wire::peer_message::{PeerMessage, decode_message};
use crate::wire::resync_json::ResyncWriter;

use crate::core::internal_document::{names, with_document};

/// Bytes of timers, as messages, after which a page ends.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// For how many asking nodes a cursor is kept.
const CURSORS_MAX: usize = 128;
/// How long a cursor is kept after a page, in ms.
const CURSOR_MS: u64 = 600_000;
/// How often in one round an asking node may go back, as after a lost answer. After that the node
/// is led forward, so that the round ends.
const STEPS_BACK_MAX: u32 = 64;

/// A page that another node asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageAsked {
    /// The node that is to hold the timers.
    pub node: NodeHash,
    /// The first due time of the page, in ms from now. `None` begins a round at the first timer.
    pub from_ms: Option<u64>,
    /// Most timers on the page.
    pub count: u32,
}

/// Where an asking node is in its round.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    node: NodeHash,
    /// The `from_ms` of the last question; `first` and `last` are where its page began and ended.
    asked_ms: Option<u64>,
    first: PagePlace,
    last: PagePlace,
    at: Tick,
    steps_back: u32,
}

/// What is being put together.
#[derive(Debug)]
enum Whole {
    Page {
        asked: PageAsked,
        first: PagePlace,
        /// The parts that came so far, as one.
        whole: PagePart,
        /// The place up to which no timer is missing. `None`: no shard has more timers than its
        /// part.
        known: Option<PagePlace>,
    },
    Forget,
}

#[derive(Debug)]
struct Gather {
    from: Requester,
    waiting: usize,
    refusal: Option<Refusal>,
    whole: Whole,
}

/// All answers that one core puts together.
#[derive(Debug, Default)]
pub(crate) struct Gathers {
    gathers: Slots<Gather>,
    cursors: Vec<Cursor>,
}

impl Gathers {
    /// Begins a page. The caller must ask every shard with the returned requester and question.
    pub fn begin_page(
        &mut self,
        now: Now,
        (own, shards): (ShardIndex, ShardCount),
        from: Requester,
        asked: PageAsked,
    ) -> (Requester, PageAsk) {
        let first = self.first(now.mono.tick_floor(), &asked);
        let is_fresh = asked.from_ms.is_none();
        let whole = Whole::Page { asked, first, whole: PagePart::default(), known: None };
        let waiting = usize::from(shards.get());
        let to = self.insert(own, Gather { from, waiting, refusal: None, whole });
        (to, PageAsk { node: asked.node, from: first, count: asked.count, is_fresh })
    }

    /// Begins to wait until `waiting` shards have noted references. Returns the requester in whose
    /// name the caller must ask these shards.
    pub fn begin_forget(&mut self, own: ShardIndex, from: Requester, waiting: usize) -> Requester {
        if waiting == 0 {
            return from;
        }
        self.insert(own, Gather { from, waiting, refusal: None, whole: Whole::Forget })
    }

    /// Takes a shard's answer. Returns the whole answer if this was the last part.
    pub fn take(&mut self, now: Now, view: &View, reply: Reply) -> Option<Reply> {
        let key = SlotKey { index: reply.to.request, generation: reply.to.generation };
        let gather = self.gathers.get_mut(key).expect("a shard answers once");
        match (reply.answer, &mut gather.whole) {
            (Answer::Refused(refusal), _) => gather.refusal = Some(refusal),
            (Answer::Internal(part), Whole::Page { whole, known, .. }) => {
                let Internal::Part(part) = *part else { unreachable!("a shard adds a part") };
                if part.has_more
                    && let Some(last) = part.timers.last()
                {
                    *known = Some(known.map_or(last.place, |known| known.min(last.place)));
                }
                whole.timers.extend(part.timers);
                whole.has_more |= part.has_more;
            }
            (_, Whole::Forget) => {}
            (other, _) => unreachable!("a shard adds a part, not {other:?}"),
        }
        gather.waiting -= 1;
        if gather.waiting > 0 {
            return None;
        }
        let gather = self.gathers.remove(key).expect("it was there just now");
        let Gather { from, refusal, whole, .. } = gather;
        let answer = match (refusal, whole) {
            (Some(refusal), _) => Answer::Refused(refusal),
            (None, Whole::Forget) => Answer::Internal(Box::new(Internal::Accepted)),
            (None, Whole::Page { asked, first, whole, known }) => {
                let page = cut(whole, known, asked.count as usize);
                self.remember(now.mono.tick_floor(), &asked, first, &page);
                Answer::Internal(Box::new(written(now, view, &page)))
            }
        };
        Some(Reply::at_once(from, answer))
    }

    fn insert(&mut self, own: ShardIndex, gather: Gather) -> Requester {
        let SlotKey { index, generation } = self.gathers.insert(gather);
        Requester { shard: own, connection: GATHERED, generation, request: index }
    }

    /// Returns the place at which the page begins.
    fn first(&mut self, now: Tick, asked: &PageAsked) -> PagePlace {
        self.cursors.retain(|cursor| now - cursor.at < CURSOR_MS);
        let Some(from_ms) = asked.from_ms else { return (Tick(0), TimerId(0)) };
        let meant = (now + from_ms, TimerId(0));
        let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.node == asked.node) else {
            return meant;
        };
        let is_again = cursor.asked_ms == asked.from_ms;
        if (is_again || meant.0 < cursor.first.0) && cursor.steps_back < STEPS_BACK_MAX {
            cursor.steps_back += 1;
            return if is_again { cursor.first } else { meant };
        }
        behind(cursor.last)
    }

    fn remember(&mut self, now: Tick, asked: &PageAsked, first: PagePlace, page: &PagePart) {
        let former = self.cursors.iter().position(|cursor| cursor.node == asked.node);
        let former = former.map(|place| self.cursors.swap_remove(place));
        let steps_back = former.filter(|_| asked.from_ms.is_some()).map_or(0, |one| one.steps_back);
        if self.cursors.len() >= CURSORS_MAX {
            self.cursors.remove(0);
        }
        let last = page.timers.last().map_or(first, |timer| timer.place);
        let asked_ms = asked.from_ms;
        self.cursors.push(Cursor { node: asked.node, asked_ms, first, last, at: now, steps_back });
    }
}

/// Returns the place right behind another.
fn behind((due, id): PagePlace) -> PagePlace {
    id.0.checked_add(1).map_or((due + 1, TimerId(0)), |id| (due, TimerId(id)))
}

/// Returns the first `count` timers of all parts, in order, and at most about [`PAGE_BYTES_MAX`]
/// bytes. `known` is the least end of the parts of shards that have more timers. Timers behind it
/// are left out, because further timers of such a shard may lie before them.
fn cut(whole: PagePart, known: Option<PagePlace>, count: usize) -> PagePart {
    let PagePart { mut timers, has_more } = whole;
    timers.sort_unstable_by_key(|timer| timer.place);
    let mut bytes = 0;
    let fits = |timer: &&CollectedTimer| {
        let is_known = known.is_none_or(|until| timer.place <= until);
        let fits = is_known && bytes <= PAGE_BYTES_MAX;
        bytes += timer.copy.len();
        fits
    };
    let count = timers.iter().take(count).take_while(fits).count();
    let has_more = has_more || count < timers.len();
    timers.truncate(count);
    PagePart { timers, has_more }
}

/// Writes the page as a document (docs/compat/timer-service.md §5.2).
fn written(now: Now, view: &View, page: &PagePart) -> Internal {
    let mut body = Vec::new();
    let mut writer = ResyncWriter::begin(&mut body);
    for timer in &page.timers {
        let Ok(PeerMessage::Copy(copy)) = decode_message(&mut &timer.copy[..]) else {
            unreachable!("a shard of this node encoded it");
        };
        let former = names(view, timer.former.as_slice());
        let replicas = names(view, copy.replicas.as_slice());
        with_document(now, view, &copy, (&replicas, Some(copy.factor)), |document| {
            writer.timer(copy.standing.id, &former, document);
        });
    }
    let count = writer.count() as u64;
    writer.end();
    Internal::Page { body, count, has_more: page.has_more }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ranked::Replicas;
    use crate::base::time::{MonoNs, TICK_NS, WallMs};

    const OWN: ShardIndex = ShardIndex(1);

    fn timer(due: u64, id: u64) -> CollectedTimer {
        let place = (Tick(due), TimerId(id));
        CollectedTimer { place, former: Replicas::new(), copy: Box::default() }
    }

    fn places(page: &PagePart) -> Vec<(u64, u64)> {
        page.timers.iter().map(|timer| (timer.place.0.0, timer.place.1.0)).collect()
    }

    #[test]
    fn a_page_is_the_first_of_all_parts() {
        let part = |has_more| {
            let timers = vec![timer(9, 1), timer(5, 2), timer(7, 9), timer(7, 3)];
            PagePart { timers, has_more }
        };
        let page = cut(part(false), None, 2);
        assert_eq!((places(&page), page.has_more), (vec![(5, 2), (7, 3)], true));
        let page = cut(part(false), None, 4);
        assert_eq!((page.timers.len(), page.has_more), (4, false));
        let page = cut(part(true), Some((Tick(9), TimerId(1))), 60);
        assert_eq!((page.timers.len(), page.has_more), (4, true));
        let page = cut(part(true), Some((Tick(7), TimerId(3))), 60);
        assert_eq!((places(&page), page.has_more), (vec![(5, 2), (7, 3)], true));
        assert_eq!(cut(PagePart::default(), None, 2), PagePart::default());
    }

    #[test]
    fn a_page_ends_with_the_timer_that_makes_it_long() {
        let timers: Vec<_> = (0..9)
            .map(|id| CollectedTimer { copy: vec![0; PAGE_BYTES_MAX / 3].into(), ..timer(5, id) })
            .collect();
        let page = cut(PagePart { timers, has_more: false }, None, 60);
        assert_eq!((page.timers.len(), page.has_more), (4, true));
        assert_eq!(behind((Tick(3), TimerId(u64::MAX))), (Tick(4), TimerId(0)));
    }

    fn asked(from_ms: Option<u64>) -> PageAsked {
        PageAsked { node: NodeHash(7), from_ms, count: 100 }
    }

    /// Serves a page whose last timer has the place `last`. Returns the place at which the page
    /// begins.
    fn serve(
        gathers: &mut Gathers,
        at: u64,
        from_ms: Option<u64>,
        last: Option<(u64, u64)>,
    ) -> (u64, u64) {
        let first = gathers.first(Tick(at), &asked(from_ms));
        let timers = last.into_iter().map(|(due, id)| timer(due, id)).collect();
        let page = PagePart { timers, has_more: true };
        gathers.remember(Tick(at), &asked(from_ms), first, &page);
        (first.0.0, first.1.0)
    }

    #[test]
    fn a_round_goes_on_behind_the_last_page_whatever_the_asking_node_counts() {
        let mut all = Gathers::default();
        let begun = serve(&mut all, 1_000, Some(50), Some((1_060, 3)));
        assert_eq!(begun, (1_050, 0), "nothing is known of it");
        assert_eq!(serve(&mut all, 1_000, None, Some((1_600, 3))), (0, 0));
        // The node asks for the next page 30 ms later.
        assert_eq!(serve(&mut all, 1_030, Some(600), Some((1_700, 9))), (1_600, 4));
        // The answer was lost, so the node asks again.
        assert_eq!(serve(&mut all, 1_040, Some(600), Some((1_700, 9))), (1_600, 4));
        // The node counts too little and asks for a time within the last page. Taken at its word,
        // it would get the same page for ever.
        assert_eq!(serve(&mut all, 1_050, Some(580), Some((1_800, 1))), (1_700, 10));
        // The node may go back further, but not without end.
        for _ in 2..STEPS_BACK_MAX {
            assert_eq!(serve(&mut all, 1_060, Some(1), Some((1_800, 1))), (1_061, 0));
        }
        assert_eq!(serve(&mut all, 1_070, Some(1), Some((1_800, 1))), (1_061, 0));
        assert_eq!(serve(&mut all, 1_070, Some(1), Some((1_900, 1))), (1_800, 2));
        assert_eq!(serve(&mut all, 1_070, None, Some((1_500, 1))), (0, 0), "a new round");
        let late = 1_070 + CURSOR_MS;
        assert_eq!(serve(&mut all, late, Some(5), None), (late + 5, 0));
    }

    #[test]
    fn a_whole_is_answered_when_all_shards_have_answered() {
        let view = View::alone("10.0.0.1:7253");
        let now = Now { mono: MonoNs(1_000 * TICK_NS), wall: WallMs(1) };
        let client = Requester { shard: OWN, connection: 3, generation: 4, request: 5 };
        let mut gathers = Gathers::default();
        let shards = (OWN, ShardCount::new(2));
        let (to, ask) = gathers.begin_page(now, shards, client, asked(None));
        assert_eq!((ask.from, ask.is_fresh), ((Tick(0), TimerId(0)), true));
        let references = gathers.begin_forget(OWN, client, 1);
        assert_ne!(to, references);
        let part = |has_more| {
            let part = PagePart { timers: Vec::new(), has_more };
            Answer::Internal(Box::new(Internal::Part(part)))
        };
        assert_eq!(gathers.take(now, &view, Reply::at_once(to, part(false))), None);
        let accepted = Answer::Internal(Box::new(Internal::Accepted));
        let noted = Reply::at_once(references, accepted.clone());
        let whole = gathers.take(now, &view, noted).expect("the only one");
        assert_eq!(whole, Reply::at_once(client, accepted));
        let whole = gathers.take(now, &view, Reply::at_once(to, part(true))).expect("the last");
        let body = b"{\"Timers\":[]}".to_vec();
        let page = Internal::Page { body, count: 0, has_more: true };
        assert_eq!(whole, Reply::at_once(client, Answer::Internal(Box::new(page))));
        let (to, _) = gathers.begin_page(now, shards, client, asked(None));
        gathers.take(now, &view, Reply::at_once(to, Answer::Refused(Refusal::CoreBusy)));
        let whole = gathers.take(now, &view, Reply::at_once(to, part(false))).expect("the last");
        assert_eq!(whole.answer, Answer::Refused(Refusal::CoreBusy));
    }
}
