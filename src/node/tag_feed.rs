//! The way of tag counts from a core to the control thread: a bounded lock-free queue. When the
//! queue is full the shard keeps the changes that it could not tell, merged into one change a tag.
//! So only values in between are lost.

// May panic: expectations 1.
// Why it does not: ordered 1.

use std::sync::OnceLock;

use crossbeam_queue::ArrayQueue;

use crate::shard::tag_counts::{TagChange, TagCounts};

/// Most changes that wait for the control thread, 64 bytes each. The control thread looks four
/// times a second. Up to some 4 000 turns a second with one change each, it hears of every change.
const CHANGES_MAX: usize = 1_024;

/// The feed of one core. The thread that listens makes the queue: without a listener nothing is
/// queued.
#[derive(Debug, Default)]
pub struct TagFeed(OnceLock<ArrayQueue<TagChange>>);

impl TagFeed {
    /// Begins to listen. All changes since the start of the shard are told.
    pub fn listen(&self) {
        self.0.get_or_init(|| ArrayQueue::new(CHANGES_MAX));
    }

    /// Queues the changes. Only the owning core may call this. Returns `true` when the queue is
    /// full and more is to be told: call again within some 100 ms even if nothing else happens.
    pub fn tell(&self, counts: &mut TagCounts) -> bool {
        let Some(queue) = self.0.get() else { return false };
        while !queue.is_full() {
            let Some(change) = counts.next_change() else { return false };
            queue.push(change).expect("this core alone fills the queue");
        }
        counts.has_changes()
    }

    /// Returns the next change. Only one thread may call this.
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
