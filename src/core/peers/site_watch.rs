//! What this core knows of another site for those who look at it: since when it is reached, how old
//! the oldest write is that it was not told, and what it says of its clock and its list of sites.
//!
//! The age of the oldest write is known to 250 ms: a mark is kept for a message at most that often.
//! What was dropped because the site was away is as old as the moment from which on it was away,
//! until the shard has offered the site everything.

// Reads the wall clock: judged 4.

use std::collections::VecDeque;

use crate::base::time::{MonoNs, Now, TICK_NS, WallMs};
use crate::timer::version::Version;
use crate::wire::site_news::SiteNews;

/// Least pause between two marks.
const MARK_EVERY_NS: u64 = 250 * TICK_NS;
/// Most marks: 64 s. Beyond them the oldest write seems older than it is, never younger.
const MARKS_MAX: usize = 256;

/// Most nodes of a site of which is remembered since when they have all: the nodes of a large one.
const WHOLE_SINCE_MAX: usize = 128;

/// A message that was given to the link, and when.
#[derive(Clone, Copy, Debug)]
struct Mark {
    number: u64,
    at: MonoNs,
}

/// What the site said last.
#[derive(Clone, Copy, Debug)]
struct Said {
    news: SiteNews,
    came_at: MonoNs,
    /// For how long the answer was under way, at most.
    delay_ns_max: u64,
}

/// What is known of one site.
#[derive(Debug)]
pub(crate) struct SiteWatch {
    is_reached: bool,
    /// Since when that is so.
    since: MonoNs,
    /// Messages that were given to the link.
    pushed: u64,
    marks: VecDeque<Mark>,
    /// Since when the site lacks what was dropped, or has never been offered.
    lacks_since: Option<MonoNs>,
    said: Option<Said>,
    /// Since when the site has another list of sites.
    differs_since: Option<MonoNs>,
    /// Since when the nodes of the site have all that they acknowledged, as far as it was said.
    whole_since: VecDeque<WallMs>,
}

/// How a site stands, for the control thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteStanding {
    /// Whether the site takes what this core says.
    pub is_reached: bool,
    /// For how long that has been so.
    pub for_ms: u64,
    /// Messages to the site that have no answer.
    pub waiting: u64,
    /// Age of the oldest write that the site was not told.
    pub lag_ms: u64,
    /// Records that are still to be looked at and offered to the site.
    pub to_offer: u64,
    /// How far the site's wall clock is ahead of this node's; `None`: it did not say.
    pub ahead_ms: Option<i64>,
    /// For how long the site has had another list of sites; `None`: it has the same one, or does
    /// not say.
    pub differs_ms: Option<u64>,
}

impl SiteWatch {
    /// A site that has not been reached yet, and was offered nothing.
    pub fn new(now: MonoNs) -> Self {
        Self {
            is_reached: false,
            since: now,
            pushed: 0,
            marks: VecDeque::new(),
            lacks_since: Some(now),
            said: None,
            differs_since: None,
            whole_since: VecDeque::new(),
        }
    }

    /// Notes whether the site is reached.
    pub fn note_reached(&mut self, now: MonoNs, is_reached: bool) {
        if is_reached != self.is_reached {
            (self.is_reached, self.since) = (is_reached, now);
        }
    }

    /// Notes that the link took a message, and how many it keeps now.
    pub fn pushed(&mut self, now: MonoNs, kept: usize) {
        self.pushed += 1;
        self.drop_answered(kept);
        let is_due = |mark: &Mark| now.since_ns(mark.at) >= MARK_EVERY_NS;
        if self.marks.back().is_none_or(is_due) && self.marks.len() < MARKS_MAX {
            self.marks.push_back(Mark { number: self.pushed - 1, at: now });
        }
    }

    /// Notes that the site lacks something that was dropped.
    pub fn note_lack(&mut self, now: MonoNs) {
        self.lacks_since.get_or_insert(now);
    }

    /// Notes that the site was offered all that it lacked.
    pub fn note_complete(&mut self) {
        self.lacks_since = None;
    }

    /// Takes what the site says of itself in an answer that was asked for at `asked_at`. `sites` is
    /// the digest of this node's list. A wall clock that no version can have is nonsense. Returns
    /// whether a node answers that may lack what its site was told: it has all since a moment that
    /// was not heard of yet. It has begun anew, within the time in which a site is missed, or is
    /// another one than those that have answered so far.
    pub fn hear(&mut self, now: MonoNs, asked_at: MonoNs, news: SiteNews, sites: u32) -> bool {
        if news.wall > Version::WALL_MAX {
            return false;
        }
        self.said = Some(Said { news, came_at: now, delay_ns_max: now.since_ns(asked_at) });
        self.compare(now, sites);
        let (is_first, is_known) =
            (self.whole_since.is_empty(), self.whole_since.contains(&news.since));
        if !is_known {
            if self.whole_since.len() >= WHOLE_SINCE_MAX {
                self.whole_since.pop_front();
            }
            self.whole_since.push_back(news.since);
        }
        // The first one is offered all as it is met.
        !is_first && !is_known
    }

    /// Compares the site's list of sites with this node's.
    pub fn compare(&mut self, now: MonoNs, sites: u32) {
        let differs = self.said.is_some_and(|said| said.news.sites != sites);
        self.differs_since = differs.then(|| self.differs_since.unwrap_or(now));
    }

    /// How far the site's wall clock is ahead of this node's, as far as that is certain.
    pub fn ahead_ms(&self, now: Now) -> Option<i64> {
        let said = self.said?;
        let least = said.news.wall.0.saturating_add(now.mono.since_ns(said.came_at) / TICK_NS);
        let most = least.saturating_add(said.delay_ns_max.div_ceil(TICK_NS));
        let nearest = WallMs(now.wall.0.clamp(least, most));
        Some(nearest.0.wrapping_sub(now.wall.0) as i64)
    }

    /// How the site stands. The link keeps `kept` messages for it, and the shard has `to_offer`
    /// records left to offer.
    pub fn standing(&self, now: Now, kept: usize, to_offer: u64) -> SiteStanding {
        let passed_ms = |since: MonoNs| now.mono.since_ns(since) / TICK_NS;
        let oldest = self.oldest(kept).into_iter().chain(self.lacks_since).min();
        SiteStanding {
            is_reached: self.is_reached,
            for_ms: passed_ms(self.since),
            waiting: kept as u64,
            lag_ms: oldest.map_or(0, passed_ms),
            to_offer,
            ahead_ms: self.ahead_ms(now),
            differs_ms: self.differs_since.map(passed_ms),
        }
    }

    /// When the oldest message was given to the link that keeps `kept` of them.
    fn oldest(&self, kept: usize) -> Option<MonoNs> {
        let first = self.pushed.saturating_sub(kept as u64);
        let before = self.marks.iter().take_while(|mark| mark.number <= first);
        before.last().or(self.marks.front()).map(|mark| mark.at).filter(|_| kept > 0)
    }

    /// Drops the marks of messages that have their answers.
    fn drop_answered(&mut self, kept: usize) {
        let first = self.pushed.saturating_sub(kept as u64);
        while self.marks.get(1).is_some_and(|next| next.number <= first) {
            self.marks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN_MS: u64 = 10_000;

    fn at(ms: u64) -> Now {
        let mono = MonoNs((BEGUN_MS + ms) * TICK_NS);
        Now { mono, wall: WallMs(1_700_000_000_000 + ms) }
    }

    fn reached() -> SiteWatch {
        let mut watch = SiteWatch::new(at(0).mono);
        watch.note_reached(at(0).mono, true);
        watch.note_complete();
        watch
    }

    fn lag_ms(watch: &SiteWatch, ms: u64, kept: usize) -> u64 {
        watch.standing(at(ms), kept, 0).lag_ms
    }

    #[test]
    fn the_age_of_the_oldest_write_is_known_to_a_quarter_of_a_second() {
        let mut watch = reached();
        assert_eq!(lag_ms(&watch, 0, 0), 0);
        // One message each 100 ms; nothing is answered.
        (0..50).for_each(|n| watch.pushed(at(100 * n).mono, n as usize + 1));
        assert_eq!(lag_ms(&watch, 5_000, 50), 5_000);
        for answered in [0, 1, 7, 30, 49] {
            let truth = 5_000 - 100 * answered;
            let told = lag_ms(&watch, 5_000, 50 - answered as usize);
            assert!((truth..truth + 300).contains(&told), "{answered}: {told}");
        }
        assert_eq!(lag_ms(&watch, 5_000, 0), 0, "all are answered");
        // What comes after a pause is as old as it is.
        watch.pushed(at(9_000).mono, 1);
        assert_eq!(lag_ms(&watch, 9_100, 1), 100);
    }

    #[test]
    fn a_site_that_answers_at_once_lags_by_nothing_however_long_it_is_told() {
        let mut watch = reached();
        for n in 0..100_000 {
            watch.pushed(at(n).mono, 1);
        }
        assert!(watch.marks.len() <= 2, "{}", watch.marks.len());
        assert!(lag_ms(&watch, 100_000, 1) <= 260);
    }

    #[test]
    fn marks_are_bounded_and_a_lag_beyond_them_is_told_too_large_rather_than_too_small() {
        let mut watch = reached();
        (0..1_000).for_each(|n| watch.pushed(at(1_000 * n).mono, n as usize + 1));
        assert_eq!(watch.marks.len(), MARKS_MAX);
        assert_eq!(lag_ms(&watch, 1_000_000, 1_000), 1_000_000);
        assert!(lag_ms(&watch, 1_000_000, 10) >= 10_000);
    }

    #[test]
    fn what_was_dropped_is_told_until_everything_was_offered() {
        let mut watch = SiteWatch::new(at(0).mono);
        let standing = watch.standing(at(2_000), 0, 7);
        assert_eq!((standing.is_reached, standing.for_ms), (false, 2_000));
        assert_eq!((standing.lag_ms, standing.to_offer), (2_000, 7));
        watch.note_reached(at(3_000).mono, true);
        watch.note_lack(at(2_500).mono);
        assert_eq!(lag_ms(&watch, 4_000, 0), 4_000, "the first lack counts");
        watch.note_reached(at(3_500).mono, true);
        assert_eq!(watch.standing(at(4_000), 0, 0).for_ms, 1_000);
        watch.note_complete();
        assert_eq!(lag_ms(&watch, 4_000, 0), 0);
        watch.note_lack(at(5_000).mono);
        assert_eq!(lag_ms(&watch, 5_500, 0), 500);
    }

    #[test]
    fn a_clock_is_ahead_by_what_is_certain() {
        let mut watch = reached();
        assert_eq!(watch.ahead_ms(at(0)), None);
        let mut hear = |wall_ms: i64, under_way_ms: u64| {
            let wall = WallMs(at(1_000).wall.0.saturating_add_signed(wall_ms));
            let asked_at = at(1_000 - under_way_ms).mono;
            watch.hear(at(1_000).mono, asked_at, SiteNews { wall, sites: 1, since: WallMs(1) }, 1);
            watch.ahead_ms(at(61_000)).expect("it said so")
        };
        assert_eq!(hear(0, 0), 0);
        assert_eq!(hear(300_000, 20), 300_000, "it may be 300 020");
        assert_eq!(hear(-300_000, 20), -299_980);
        assert_eq!(hear(-15, 20), 0, "within the delay");
        assert_eq!(hear(i64::MAX, 20), 0, "nonsense is not heard");
    }

    #[test]
    fn a_node_that_has_begun_anew_may_lack_what_its_site_was_told() {
        let mut watch = reached();
        let mut hear = |since: u64| {
            let news = SiteNews { wall: at(0).wall, sites: 1, since: WallMs(since) };
            watch.hear(at(0).mono, at(0).mono, news, 1)
        };
        assert!(!hear(5), "it is offered all as it is met");
        assert!(!hear(5));
        assert!(hear(7), "another node, or one that has begun anew");
        assert!(!hear(7) && !hear(5), "both are known");
        assert!(hear(3), "its clock does not matter");
        let others = (0..WHOLE_SINCE_MAX as u64).filter(|since| hear(100 + since));
        assert_eq!(others.count(), WHOLE_SINCE_MAX);
        assert!(hear(5), "what is long ago is forgotten");
    }

    #[test]
    fn another_list_of_sites_is_told_since_it_is_another() {
        let mut watch = reached();
        let differs = |watch: &SiteWatch, ms: u64| watch.standing(at(ms), 0, 0).differs_ms;
        let news = SiteNews { wall: at(0).wall, sites: 5, since: WallMs(1) };
        watch.compare(at(0).mono, 4);
        assert_eq!(differs(&watch, 0), None, "it has not said");
        watch.hear(at(0).mono, at(0).mono, news, 4);
        watch.hear(at(900).mono, at(900).mono, news, 4);
        assert_eq!(differs(&watch, 1_000), Some(1_000));
        watch.compare(at(1_000).mono, 5);
        assert_eq!(differs(&watch, 1_000), None, "this node has a new file");
    }
}
