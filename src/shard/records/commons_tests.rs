//! Which attributes are kept once, and for how long.

use super::*;
use crate::timer::definition::{encode_content, encode_with_attributes};
use crate::wire::attributes::Attributes;

/// Content of a timer whose callback has these headers.
pub fn content(headers: &str, name: Option<&str>, opaque: &str) -> Vec<u8> {
    let attributes = Attributes { headers, name, ..Attributes::default() };
    let (mut encoded, mut content) = (Vec::new(), Vec::new());
    attributes.write(&mut encoded);
    encode_with_attributes("/path", &[], (&encoded, opaque.as_bytes()), &mut content);
    content
}

/// Headers of which each number has others.
pub fn headers(number: u32) -> String {
    format!("X-Tenant-Of-The-Client: {number:08}\r\nAuthorization: secret\r\n")
}

fn commons() -> Commons {
    Commons::new(7)
}

/// The number of the set, if the content has its attributes elsewhere.
fn enter(commons: &mut Commons, content: &[u8]) -> Option<u32> {
    let kept = commons.enter(content)?;
    let kept = Content::decode(&kept);
    let number = kept.common_number().expect("there is a stand-in");
    let (whole, joined) = (Content::decode(content), kept.with_common(commons.get(number)));
    assert_eq!((joined.target, joined.opaque), (whole.target, whole.opaque));
    assert_eq!(joined.attributes(), whole.attributes());
    assert_eq!(joined.encoded_attributes(), whole.encoded_attributes());
    Some(number)
}

#[test]
fn a_set_enters_at_its_second_timer_and_leaves_with_its_last() {
    let mut commons = commons();
    let [one, other] = [1, 2].map(|number| content(&headers(number), None, "x"));
    assert_eq!(enter(&mut commons, &one), None, "it may be the only one");
    assert_eq!(enter(&mut commons, &one), Some(0));
    assert_eq!(enter(&mut commons, &other), None);
    assert_eq!(enter(&mut commons, &other), Some(1));
    assert_eq!(enter(&mut commons, &one), Some(0));
    assert_eq!(commons.timers().collect::<Vec<_>>(), [(0, 2), (1, 1)]);
    commons.leave(0);
    assert!(!commons.get(0).is_empty());
    commons.leave(0);
    assert_eq!(commons.timers().collect::<Vec<_>>(), [(1, 1)]);
    assert_eq!(enter(&mut commons, &one), Some(0), "it was met before, and the number is free");
}

#[test]
#[should_panic(expected = "is read that has left")]
fn reading_a_set_that_has_left_stops() {
    let mut commons = commons();
    let content = content(&headers(1), None, "x");
    let number = [(); 2].map(|()| enter(&mut commons, &content))[1].expect("the second time");
    commons.leave(number);
    commons.get(number);
}

#[test]
#[should_panic(expected = "has left before its timers")]
fn leaving_twice_stops() {
    let mut commons = commons();
    let content = content(&headers(1), None, "x");
    let number = [(); 2].map(|()| enter(&mut commons, &content))[1].expect("the second time");
    commons.leave(number);
    commons.leave(number);
}

#[test]
fn what_is_of_one_timer_alone_stays_with_it() {
    let mut commons = commons();
    let names: Vec<_> = (0..9).map(|number| format!("order-{number}")).collect();
    let numbers =
        names.iter().map(|name| enter(&mut commons, &content(&headers(1), Some(name), "")));
    assert_eq!(numbers.flatten().collect::<Vec<_>>(), [0; 8]);
}

#[test]
fn attributes_that_would_save_nothing_are_not_looked_for() {
    let mut commons = commons();
    // Kind, length and 30 bytes are 32; one byte less is too few.
    for (bytes, is_kept_once) in [(29, false), (30, true)] {
        let line = format!("A: {}\r\n", "v".repeat(bytes - 5));
        let content = content(&line, Some("a name that is long enough to count, if it did"), "");
        let numbers = [(); 3].map(|()| enter(&mut commons, &content));
        assert_eq!(numbers[2].is_some(), is_kept_once, "{bytes}");
    }
    let mut plain = Vec::new();
    encode_content("/a", &[], b"x", &mut plain);
    assert_eq!([(); 3].map(|()| enter(&mut commons, &plain)), [None; 3]);
}

#[test]
fn sets_that_are_all_different_take_no_place_of_others() {
    let mut commons = commons();
    for number in 0..100_000 {
        assert_eq!(enter(&mut commons, &content(&headers(number), None, "x")), None);
    }
    let bytes = commons.bytes();
    assert!(bytes < 32 << 10, "hashes alone, {bytes}");
    let shared = content(&headers(7), None, "x");
    let numbers = [(); 3].map(|()| enter(&mut commons, &shared));
    assert_eq!(numbers, [None, Some(0), Some(0)]);
}

#[test]
fn sets_are_bounded_by_number_and_bytes_and_what_does_not_fit_is_kept_by_the_timer() {
    let mut commons = commons();
    let twice = |commons: &mut Commons, content: &[u8]| {
        enter(commons, content);
        enter(commons, content)
    };
    for number in 0..SETS_MAX as u32 {
        assert!(twice(&mut commons, &content(&headers(number), None, "x")).is_some());
    }
    let further = content(&headers(u32::MAX), None, "x");
    assert_eq!(twice(&mut commons, &further), None);
    assert!(commons.bytes() < 2 * SET_BYTES_MAX, "{}", commons.bytes());
    commons.leave(0);
    assert_eq!(twice(&mut commons, &further), Some(0));

    let mut commons = self::commons();
    let long = |number: u32| format!("{}Long: {}\r\n", headers(number), "v".repeat(4_000));
    let taken = (0..1_000)
        .filter(|number| twice(&mut commons, &content(&long(*number), None, "")).is_some());
    let (taken, bytes) = (taken.count(), commons.bytes());
    assert!((250..260).contains(&taken), "{taken}");
    assert!(bytes < SET_BYTES_MAX + (64 << 10), "{bytes}");
}

#[test]
fn memory_is_counted_and_given_back() {
    let mut commons = commons();
    assert_eq!((commons.bytes(), commons.spared_bytes()), (0, 0));
    let one = content(&headers(1), None, "x");
    enter(&mut commons, &one);
    let empty = commons.bytes();
    assert_eq!(empty, MET_MAX * 4);
    for _ in 0..3 {
        enter(&mut commons, &one);
    }
    let attributes = Content::decode(&one).encoded_attributes().len();
    assert_eq!(commons.spared_bytes(), 3 * (attributes - STAND_IN_BYTES) as u64);
    assert_eq!(commons.set_bytes, attributes);
    assert!(commons.bytes() > empty + attributes);
    (0..3).for_each(|_| commons.leave(0));
    assert_eq!((commons.set_bytes, commons.spared_bytes()), (0, 0));
    assert!(commons.entries.is_empty());
}
