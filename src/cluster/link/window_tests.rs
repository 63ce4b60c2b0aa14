//! How much is under way after a connection that broke.

use super::tests::{START, WIDE, answered, arrived, opened, told, written};
use super::*;
use crate::wire::peer_frame::FRAME_HEADER_BYTES;

/// A line that changes a bit in every few kilobytes: what has gathered passes in portions.
#[test]
fn after_a_connection_that_carried_nothing_the_next_one_begins_with_little() {
    let mut link = opened(WIDE);
    for number in 0..400 {
        link.push(&[7; 100], number).expect("room");
    }
    let bytes_sent = |link: &mut Link<u32>| written(link, START).len();
    assert!(bytes_sent(&mut link) > 400 * 100);
    link.opened(START);
    let mut inbound = Inbound::new();
    let (mut window_bytes, mut left) = (WINDOW_BYTES_MIN, 400);
    while left > 0 {
        let bytes = written(&mut link, START);
        assert!(
            bytes.len() <= window_bytes + FRAME_HEADER_BYTES,
            "{} of {window_bytes}",
            bytes.len()
        );
        let messages = arrived(&mut inbound, &bytes);
        messages.iter().for_each(|(number, _)| inbound.answer(*number, PeerResult::Held));
        let count = messages.len();
        assert!(count >= left.min(window_bytes / 102), "{count} of {left}");
        let results = answered(&mut inbound);
        assert_eq!(told(&mut link, START, &results).len(), count);
        (window_bytes, left) = (2 * window_bytes, left - count);
    }
    // A connection that carried something is no reason to begin with little.
    (0..400).for_each(|number| link.push(&[7; 100], number).expect("room"));
    written(&mut link, START);
    link.opened(START);
    assert!(bytes_sent(&mut link) > 400 * 100);
}
