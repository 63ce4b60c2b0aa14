//! The way of tag counts from a core to the control thread: a bounded lock-free queue. When it is
//! full the shard keeps what it did not get rid of, merged into one change a tag, so that nothing
//! is lost but the moments in between.

use std::sync::OnceLock;

use crossbeam_queue::ArrayQueue;

use crate::shard::tag_counts::{TagChange, TagCounts};

/// Changes that wait for the control thread, of 64 bytes each. It looks four times a second: up to
/// some 4 000 turns a second, each with a change, it hears of every one.
const CHANGES_MAX: usize = 1_024;

/// The feed of one core. Made by whoever listens: without one nothing is queued.
#[derive(Debug, Default)]
pub struct TagFeed(OnceLock<ArrayQueue<TagChange>>);

impl TagFeed {
    /// Begins to listen; what changed since the start of the shard is told.
    pub fn listen(&self) {
        self.0.get_or_init(|| ArrayQueue::new(CHANGES_MAX));
    }

    /// Hands over what changed; only the owning core may call this. True: the queue is full and
    /// more is to be told; come again within some 100 ms even if nothing else happens.
    pub fn tell(&self, counts: &mut TagCounts) -> bool {
        let Some(queue) = self.0.get() else { return false };
        while !queue.is_full() {
            let Some(change) = counts.next_change() else { return false };
            queue.push(change).expect("this core alone fills the queue");
        }
        counts.has_changes()
    }

    /// The next change; only one thread may call this.
    pub fn hear(&self) -> Option<TagChange> {
        self.0.get()?.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Tick;
    use crate::shard::tag_counts::TagGroup;
    use crate::wire::timer_json::Tag;

    #[test]
    fn a_slow_listener_misses_moments_and_no_value() {
        let (feed, mut counts) = (TagFeed::default(), TagCounts::new(8, 1));
        let tag = [Tag { kind: "CALL", count: 1 }];
        counts.enter(TagGroup(0), &tag, Tick(0), || true);
        assert!(!feed.tell(&mut counts) && feed.hear().is_none(), "nobody listens");
        feed.listen();
        let turns = CHANGES_MAX as u64 + 50;
        for now in 1..turns {
            counts.enter(TagGroup(0), &tag, Tick(now), || true);
            assert_eq!(feed.tell(&mut counts), now > CHANGES_MAX as u64);
        }
        let heard: Vec<_> = std::iter::from_fn(|| feed.hear()).collect();
        assert_eq!(heard.len(), CHANGES_MAX);
        assert_eq!(heard[0].name.as_deref(), Some("CALL"));
        assert!(!feed.tell(&mut counts));
        let last = feed.hear().expect("what was kept back");
        assert_eq!((last.low, last.present), (CHANGES_MAX as u64 + 2, turns));
        assert_eq!(feed.hear(), None);
    }
}
