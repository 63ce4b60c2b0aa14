//! Tests of both ends of a connection: each end alone, and both over a network that breaks.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::base::ids::{NodeHash, TimerId};
use crate::base::ranked::{Replicas, Sites};
use crate::wire::peer_frame::FrameError;
use crate::wire::peer_frame::{FRAME_BODY_BYTES_MAX, FRAME_HEADER_BYTES, parse_frame};
use crate::wire::peer_message::{CopyBody, PeerMessage, PeerRefusal, Standing, TimerCopy};

const LIMITS: LinkLimits = LinkLimits { bytes_max: 4_000, window_bytes: 600, heartbeat_ms: 250 };
pub(super) const WIDE: LinkLimits =
    LinkLimits { bytes_max: 16 << 20, window_bytes: 1 << 20, heartbeat_ms: 250 };
pub(super) const START: MonoNs = MonoNs(1_000_000_000);

/// Both clocks at the time `mono`: the wall clock shows the same time in ms.
fn at(mono: MonoNs) -> Now {
    Now { mono, wall: WallMs(mono.0 / TICK_NS) }
}

pub(super) fn opened(limits: LinkLimits) -> Link<u32> {
    let mut link = Link::new(limits);
    link.opened(START);
    link
}

pub(super) fn written(link: &mut Link<u32>, now: MonoNs) -> Vec<u8> {
    let mut out = Vec::new();
    link.write(at(now), &mut out);
    out
}

/// Numbers and bytes of the messages in `bytes`.
pub(super) fn arrived(inbound: &mut Inbound, bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut messages = Vec::new();
    inbound
        .received(START, bytes, |number, _, message| messages.push((number, message.to_vec())))
        .expect("frames of a link");
    messages
}

pub(super) fn answered(inbound: &mut Inbound) -> Vec<u8> {
    let mut out = Vec::new();
    inbound.write(at(START), &mut out);
    out
}

/// The results in `bytes`, each with its purpose.
pub(super) fn told(link: &mut Link<u32>, now: MonoNs, bytes: &[u8]) -> Vec<(u32, String)> {
    let mut results = Vec::new();
    link.received(now, bytes, |purpose, result| results.push((purpose, format!("{result:?}"))))
        .expect("results of an inbound");
    results
}

fn frame(kind: FrameKind, count: u16, first: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let begins = begin_frame(&mut out);
    out.extend_from_slice(body);
    end_frame(&mut out, begins, kind, count, first, at(START), 0);
    out
}

fn counts_of(mut bytes: &[u8]) -> Vec<u16> {
    let mut counts = Vec::new();
    while let Some((frame, frame_bytes)) = parse_frame(bytes).expect("frames") {
        counts.push(frame.count);
        bytes = &bytes[frame_bytes..];
    }
    counts
}

#[test]
fn the_peers_wall_clock_goes_on_from_what_it_said_last() {
    let (mut link, mut inbound) = (opened(LIMITS), Inbound::new());
    assert_eq!(link.peer_wall(START), None);
    arrived(&mut inbound, &written(&mut link, START));
    let results = answered(&mut inbound);
    told(&mut link, START.plus_ms(9), &results);
    link.closed();
    let shown = [70, 79].map(|ms| WallMs(at(START).wall.0 + ms));
    assert_eq!(link.peer_wall(START.plus_ms(79)), Some(shown[0]..=shown[1]), "it came late");
}

#[test]
fn each_end_says_in_every_frame_which_members_its_node_sees() {
    let (mut link, mut inbound) = (opened(LIMITS), Inbound::new());
    let seen_in = |bytes: &[u8]| {
        let (frame, _) = parse_frame(bytes).expect("a frame").expect("a whole one");
        frame.view
    };
    assert_eq!(link.peer_view(), None);
    for (ours, theirs) in [(0xaaaa, 0xbbbb), (0xcccc, 0xdddd)] {
        link.set_view(ours);
        inbound.set_view(theirs);
        link.push(&[1], 0).expect("room");
        let messages = written(&mut link, START);
        assert_eq!(seen_in(&messages), ours);
        for (number, _) in arrived(&mut inbound, &messages) {
            inbound.answer(number, PeerResult::Held);
        }
        let results = answered(&mut inbound);
        assert_eq!(seen_in(&results), theirs);
        told(&mut link, START, &results);
        assert_eq!(link.peer_view(), Some(theirs));
    }
}

#[test]
fn messages_go_and_results_come_back() {
    let (mut link, mut inbound) = (opened(LIMITS), Inbound::new());
    for purpose in 0..4 {
        link.push(&[purpose as u8; 5], purpose).expect("room");
    }
    let messages = arrived(&mut inbound, &written(&mut link, START));
    assert_eq!(messages.len(), 4);
    assert!(messages.iter().zip(0..).all(|(got, n)| *got == (n, vec![n as u8; 5])));
    let found = [0xaa; 300];
    inbound.answer(3, PeerResult::Held);
    inbound.answer(1, PeerResult::Found(&found));
    assert!(answered(&mut inbound).is_empty(), "the first has no result");
    assert_eq!(inbound.unanswered(), 2);
    inbound.answer(0, PeerResult::Held);
    let first_two = answered(&mut inbound);
    inbound.answer(2, PeerResult::Superseded { version: 9, factor: 2 });
    let bytes = [first_two, answered(&mut inbound)].concat();
    let results = told(&mut link, START, &bytes);
    let expected = [
        PeerResult::Held,
        PeerResult::Found(&found),
        PeerResult::Superseded { version: 9, factor: 2 },
        PeerResult::Held,
    ];
    let expected: Vec<_> = (0..).zip(expected.map(|result| format!("{result:?}"))).collect();
    assert_eq!(results, expected);
    assert!(link.is_empty() && inbound.unanswered() == 0);
}

#[test]
fn bytes_on_the_wire_per_message() {
    let replicas: Replicas = [NodeHash(1 << 30), NodeHash(3 << 30)].into_iter().collect();
    let opaque = [b'x'; 60];
    let content = [&[18, 0, 0, 0][..], b"/call-id/123456789", &opaque].concat();
    let body = CopyBody { authority: "ralf.example:10888", content: &content };
    let payload_bytes = body.authority.len() + content.len();
    assert_eq!(payload_bytes, 100);
    let (mut link, mut inbound) = (opened(WIDE), Inbound::new());
    for purpose in 0..64 {
        let id = TimerId(0x0004_d9f5_4810_0000 | u64::from(purpose));
        let list_digest = replicas.digest();
        let standing = Standing { id, version: 1 << 60, sequence: 0, actives: 0b11, list_digest };
        let message = PeerMessage::Copy(TimerCopy {
            standing,
            is_write: true,
            replicas,
            factor: 2,
            sites: Sites::new(),
            start_ms: 30 * 366 * 86_400_000,
            interval_ms: 86_400_000,
            repeat_for_ms: 86_400_000,
            body: Some(body),
        });
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        link.push(&bytes, purpose).expect("room");
    }
    let there = written(&mut link, START);
    for (number, _) in arrived(&mut inbound, &there) {
        inbound.answer(number, PeerResult::Held);
    }
    let back = answered(&mut inbound);
    assert_eq!(counts_of(&back), [64]);
    assert_eq!(back.len(), FRAME_HEADER_BYTES + 1, "64 times Held are one byte");
    assert_eq!(told(&mut link, START, &back).len(), 64);
    let beside_payload = (there.len() + back.len()).div_ceil(64) - payload_bytes;
    println!("{beside_payload} bytes beside the payload of each message");
    assert!(beside_payload <= 50, "{beside_payload} bytes beside the payload; 64 are allowed");
}

#[test]
fn heartbeats_fill_silence_only() {
    let mut link = opened(LIMITS);
    let mut inbound = Inbound::new();
    assert_eq!(link.next_wake(), Some(START), "a connection begins with a frame");
    let first = written(&mut link, START);
    assert_eq!(counts_of(&first), [0]);
    assert_eq!(arrived(&mut inbound, &first), []);
    assert_eq!(inbound.clock_offset_ns(), Some(0));
    assert_eq!(counts_of(&answered(&mut inbound)), [0]);
    assert!(answered(&mut inbound).is_empty(), "answered once");
    assert!(written(&mut link, START.plus_ms(249)).is_empty());
    assert_eq!(link.next_wake(), Some(START.plus_ms(250)));
    link.push(b"message", 1).expect("room");
    assert_eq!(counts_of(&written(&mut link, START.plus_ms(200))), [1]);
    assert!(written(&mut link, START.plus_ms(449)).is_empty());
    assert_eq!(counts_of(&written(&mut link, START.plus_ms(450))), [0]);
    link.closed();
    assert_eq!(link.next_wake(), None);
    assert!(written(&mut link, START.plus_ms(9_000)).is_empty());
}

#[test]
fn the_window_is_kept_and_what_is_longer_goes_alone() {
    let mut link = opened(LIMITS);
    let mut inbound = Inbound::new();
    for (purpose, bytes) in [(0, 700), (1, 300), (2, 200), (3, 97), (4, 1)] {
        link.push(&vec![0; bytes], purpose).expect("room");
    }
    let mut purposes = Vec::new();
    // 300, 200 and 97 with their lengths are 602 bytes: two beyond the window.
    for expected in [1, 2, 2] {
        let bytes = written(&mut link, START);
        assert_eq!(counts_of(&bytes), [expected]);
        assert!(written(&mut link, START).is_empty(), "nothing more until results come");
        for (number, _) in arrived(&mut inbound, &bytes) {
            inbound.answer(number, PeerResult::Wanted);
        }
        let results = told(&mut link, START, &answered(&mut inbound));
        purposes.extend(results.into_iter().map(|(purpose, _)| purpose));
    }
    assert_eq!(purposes, [0, 1, 2, 3, 4]);
}

#[test]
fn no_more_messages_are_under_way_than_the_other_side_keeps() {
    let mut link = opened(WIDE);
    let push = |link: &mut Link<u32>, count: u32| {
        (0..count).for_each(|purpose| link.push(&[0], purpose).expect("room"));
    };
    let sent = |link: &mut Link<u32>| {
        let counts = counts_of(&written(link, START));
        counts.into_iter().map(usize::from).sum::<usize>()
    };
    push(&mut link, WINDOW_MESSAGES_MAX as u32 - 10);
    assert_eq!(sent(&mut link), WINDOW_MESSAGES_MAX - 10);
    push(&mut link, 20);
    assert_eq!(sent(&mut link), 10);
    link.clear(|_| {});
    push(&mut link, 5);
    assert_eq!(sent(&mut link), 0, "what was forgotten is under way as well");
}

#[test]
fn frames_are_cut_at_64_kib() {
    let mut link = opened(WIDE);
    for purpose in 0..200 {
        link.push(&[0; 1_000], purpose).expect("room");
    }
    link.push(&[0; 200_000], 200).expect("room");
    link.push(&[0; 1], 201).expect("room");
    let counts = counts_of(&written(&mut link, START));
    assert_eq!(counts, [65, 65, 65, 5, 1, 1]);
}

#[test]
fn memory_is_bounded_without_any_result() {
    let mut link = opened(WIDE);
    let mut pushed_bytes = 0;
    while let Ok(()) = link.push(&[7; 50], 0) {
        pushed_bytes += 50 + 1 + size_of::<u32>();
        assert!(pushed_bytes <= WIDE.bytes_max);
    }
    assert!(link.room_bytes() < 100 && pushed_bytes > WIDE.bytes_max - 100);
    assert!(link.queue.held_bytes() <= 2 * WIDE.bytes_max, "{}", link.queue.held_bytes());
    let held_bytes = link.queue.held_bytes();
    let mut written_bytes = 0;
    for turn in 0..1_000 {
        written_bytes += written(&mut link, START.plus_ms(turn * 10)).len();
    }
    let heartbeats_bytes = 10_000 / 250 * FRAME_HEADER_BYTES;
    let headers_bytes = WIDE.window_bytes / 50_000 * FRAME_HEADER_BYTES;
    assert!(written_bytes <= WIDE.window_bytes + heartbeats_bytes + headers_bytes);
    assert_eq!(link.queue.held_bytes(), held_bytes);
    link.clear(|_| {});
    assert!(link.queue.held_bytes() <= 256 << 10, "{}", link.queue.held_bytes());
    assert_eq!(link.push(&[0; MESSAGE_BYTES_MAX + 1], 0), Err(LinkFull), "longer than a frame");
    assert_eq!(link.room_bytes(), MESSAGE_BYTES_MAX);
    assert_eq!(link.push(&[0; MESSAGE_BYTES_MAX], 0), Ok(()));
    link.opened(START);
    assert!(written(&mut link, START).len() <= FRAME_BODY_BYTES_MAX + FRAME_HEADER_BYTES);
}

#[test]
fn room_is_told_exactly() {
    for bytes_max in [0, 3, 8, 9, 100, 140, 4_000] {
        let mut link = Link::<u32>::new(LinkLimits { bytes_max, ..LIMITS });
        let room_bytes = link.room_bytes();
        if bytes_max >= 8 {
            assert_eq!(link.push(&vec![0; room_bytes], 0), Ok(()), "{bytes_max}");
        }
        assert!(link.push(&vec![0; room_bytes + 4], 0).is_err(), "{bytes_max}");
    }
}

#[test]
fn a_message_is_taken_that_costs_just_what_is_left() {
    let bytes_max = Queue::<u32>::cost_bytes_of(10);
    for (bytes_max, is_taken) in [(bytes_max, true), (bytes_max - 1, false)] {
        let mut link = Link::<u32>::new(LinkLimits { bytes_max, ..LIMITS });
        assert_eq!(link.push(&[1; 10], 0).is_ok(), is_taken);
    }
}

#[test]
fn what_has_no_result_goes_again_on_the_next_connection() {
    let (mut link, mut inbound) = (opened(LIMITS), Inbound::new());
    (0..5).for_each(|purpose| link.push(&[purpose as u8], purpose).expect("room"));
    arrived(&mut inbound, &written(&mut link, START));
    inbound.answer(0, PeerResult::Held);
    inbound.answer(1, PeerResult::Refused(PeerRefusal::Full));
    assert_eq!(told(&mut link, START, &answered(&mut inbound)).len(), 2);
    inbound.answer(2, PeerResult::Held);
    let lost = answered(&mut inbound);
    link.closed();
    assert!(link.received(START, &lost, |_, _| panic!("too late")).is_err());
    link.opened(START);
    let mut inbound = Inbound::new();
    let again = arrived(&mut inbound, &written(&mut link, START));
    assert_eq!(again, [(0, vec![2]), (1, vec![3]), (2, vec![4])]);
}

#[test]
fn busy_is_tried_again_at_the_end_after_a_pause() {
    let (mut link, mut inbound) = (opened(LIMITS), Inbound::new());
    (0..4).for_each(|purpose| link.push(&[purpose as u8], purpose).expect("room"));
    arrived(&mut inbound, &written(&mut link, START));
    for (number, result) in [
        (0, PeerResult::Busy),
        (1, PeerResult::Held),
        (2, PeerResult::Busy),
        (3, PeerResult::NotFound),
    ] {
        inbound.answer(number, result);
    }
    let results = told(&mut link, START.plus_ms(1), &answered(&mut inbound));
    assert_eq!(results, [(1, "Held".into()), (3, "NotFound".into())]);
    assert_eq!(link.len(), 2);
    assert_eq!(link.next_wake(), Some(START.plus_ms(21)));
    link.push(&[4], 4).expect("room");
    let bytes = written(&mut link, START.plus_ms(20));
    assert_eq!(arrived(&mut inbound, &bytes), [(4, vec![4])]);
    let bytes = written(&mut link, START.plus_ms(21));
    assert_eq!(arrived(&mut inbound, &bytes), [(5, vec![0]), (6, vec![2])]);
    (4..7).for_each(|number| inbound.answer(number, PeerResult::Held));
    let purposes: Vec<u32> = told(&mut link, START, &answered(&mut inbound))
        .into_iter()
        .map(|(purpose, _)| purpose)
        .collect();
    assert_eq!(purposes, [4, 0, 2]);
}

#[test]
fn what_is_cleared_is_told_and_its_results_are_dropped() {
    let (mut link, mut inbound) = (opened(LIMITS), Inbound::new());
    (0..3).for_each(|purpose| link.push(&[purpose as u8; 100], purpose).expect("room"));
    arrived(&mut inbound, &written(&mut link, START));
    inbound.answer(0, PeerResult::Busy);
    told(&mut link, START, &answered(&mut inbound));
    let mut forgotten = Vec::new();
    link.clear(|purpose| forgotten.push(purpose));
    assert_eq!(forgotten, [1, 2, 0]);
    assert!(link.is_empty());
    (3..8).for_each(|purpose| link.push(&[purpose as u8; 100], purpose).expect("room"));
    let bytes = written(&mut link, START);
    assert_eq!(counts_of(&bytes), [3], "what was forgotten still fills the window");
    arrived(&mut inbound, &bytes);
    (1..6).for_each(|number| inbound.answer(number, PeerResult::Held));
    let results = told(&mut link, START, &answered(&mut inbound));
    assert_eq!(results.len(), 3);
    assert_eq!(results[0].0, 3, "the results of 1 and 2 are for nobody");
}

#[test]
fn messages_one_by_one() {
    let mut link = Link::new(LIMITS);
    assert_eq!(link.next_message(START), None);
    (0..3).for_each(|purpose| link.push(&[purpose as u8; 700], purpose).expect("room"));
    assert_eq!(link.next_message(START), Some(&[0; 700][..]));
    assert_eq!(link.next_message(START), None, "the window is full");
    link.answered(START, PeerResult::Held, |purpose, _| assert_eq!(purpose, 0));
    assert_eq!(link.next_message(START), Some(&[1; 700][..]));
    link.closed();
    assert_eq!(link.next_message(START), Some(&[1; 700][..]), "it was not answered");
    link.answered(START, PeerResult::Busy, |_, _| panic!("it is kept"));
    assert_eq!(link.next_message(START), Some(&[2; 700][..]));
    link.clear(|_| {});
    link.answered(START, PeerResult::Held, |_, _| panic!("it is forgotten"));
    assert_eq!(link.next_message(START), None);
    link.push(&[9], 9).expect("room");
    assert_eq!(link.next_message(START), Some(&[9][..]));
    link.answered(START, PeerResult::Busy, |_, _| panic!("it is kept"));
    assert_eq!(link.next_message(START), None);
    assert_eq!(link.next_wake(), Some(START.plus_ms(BUSY_PAUSE_MS)));
    assert_eq!(link.next_message(START.plus_ms(BUSY_PAUSE_MS)), Some(&[9][..]));
}

#[test]
fn numbers_wrap() {
    let (mut link, mut inbound) = (opened(LIMITS), Inbound::new());
    link.next_number = u32::MAX - 1;
    inbound.first = u32::MAX - 1;
    (0..4).for_each(|purpose| link.push(&[purpose as u8], purpose).expect("room"));
    let messages = arrived(&mut inbound, &written(&mut link, START));
    let numbers: Vec<u32> = messages.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0, 1]);
    for number in [1, u32::MAX, 0, u32::MAX - 1] {
        inbound.answer(number, PeerResult::Wanted);
    }
    assert_eq!(told(&mut link, START, &answered(&mut inbound)).len(), 4);
    link.push(&[4], 4).expect("room");
    assert_eq!(arrived(&mut inbound, &written(&mut link, START)), [(2, vec![4])]);
}

#[test]
fn results_that_have_no_place() {
    let refusal = |bytes: &[u8]| {
        let mut link = opened(LIMITS);
        (0..3).for_each(|purpose| link.push(&[purpose as u8], purpose).expect("room"));
        written(&mut link, START);
        link.received(START, bytes, |_, _| {})
    };
    let protocol = |text| Err(LinkError::Protocol(text));
    let results = |count, first, body: &[u8]| frame(FrameKind::Results, count, first, body);
    assert_eq!(refusal(&results(3, 0, &[3])), Ok(()));
    assert_eq!(refusal(&results(0, 0, &[])), Ok(()));
    assert_eq!(refusal(&results(3, 0, &[1, 2, 1])), Ok(()));
    assert_eq!(refusal(&results(1, 1, &[1])), protocol("results out of order"));
    assert_eq!(refusal(&results(0, u32::MAX, &[])), protocol("results out of order"));
    let twice = [results(1, 0, &[1]), results(1, 0, &[1])].concat();
    assert_eq!(refusal(&twice), protocol("results out of order"));
    let unsent = protocol("results of messages that were not sent");
    assert_eq!(refusal(&results(4, 0, &[4])), unsent);
    assert_eq!(refusal(&results(u16::MAX, 0, &[3])), unsent);
    for body in [&[][..], &[2], &[4], &[3, 0], &[2, 1], &[0, 2, 0, 2], &[0, 10, 2], &[0x83, 0]] {
        assert_eq!(refusal(&results(3, 0, body)), protocol("malformed results"), "{body:?}");
    }
    let messages = frame(FrameKind::Messages, 0, 0, b"");
    let expected = "messages on a connection that this node dialled";
    assert_eq!(refusal(&messages), protocol(expected));
    assert!(matches!(refusal(b"HTTP/1.1 400"), Err(LinkError::Frame(FrameError::Version(b'H')))));
}

#[test]
fn messages_that_have_no_place() {
    let refusal = |bytes: &[u8]| Inbound::new().received(START, bytes, |_, _, _| {});
    let protocol = |text| Err(LinkError::Protocol(text));
    let messages = |count, first, body: &[u8]| frame(FrameKind::Messages, count, first, body);
    assert_eq!(refusal(&messages(2, 0, &[1, 9, 0])), Ok(()));
    let out_of_order = protocol("messages out of order");
    assert_eq!(refusal(&messages(1, 1, &[0])), out_of_order);
    let replayed = messages(1, 0, &[0]).repeat(2);
    assert_eq!(refusal(&replayed), out_of_order);
    for body in [&[][..], &[2, 9, 9], &[0, 0, 0], &[0], &[0x80, 0, 0], &[255; 12]] {
        let refused = refusal(&messages(2, 0, body));
        assert_eq!(refused, protocol("malformed messages"), "{body:?}");
    }
    let expected = "results on a connection that the peer dialled";
    assert_eq!(refusal(&frame(FrameKind::Results, 0, 0, b"")), protocol(expected));
}

#[test]
fn a_peer_that_sends_more_than_any_window_is_refused() {
    let expected = Err(LinkError::Protocol("more messages without a result than are allowed"));
    let mut inbound = Inbound::new();
    let empty_messages = vec![0; 1 << 15];
    for first in [0, 1 << 15] {
        let bytes = frame(FrameKind::Messages, 1 << 15, first, &empty_messages);
        assert_eq!(inbound.received(START, &bytes, |_, _, _| {}), Ok(()));
    }
    let one_more = frame(FrameKind::Messages, 1, 1 << 16, &[0]);
    assert_eq!(inbound.received(START, &one_more, |_, _, _| {}), expected);
    assert_eq!(inbound.unanswered(), WINDOW_MESSAGES_MAX);
    let held = 16 * WINDOW_MESSAGES_MAX..=40 * WINDOW_MESSAGES_MAX;
    assert!(held.contains(&inbound.held_bytes()), "each counts: {}", inbound.held_bytes());
    (0..1 << 16).for_each(|number| inbound.answer(number, PeerResult::Held));
    assert_eq!(counts_of(&answered(&mut inbound)), [u16::MAX, 1]);

    let mut inbound = Inbound::new();
    let mut body = Vec::new();
    crate::wire::leb128::write_leb128(1 << 20, &mut body);
    body.resize(body.len() + (1 << 20), 7);
    for first in 0..17 {
        let bytes = frame(FrameKind::Messages, 1, first, &body);
        let refused = inbound.received(START, &bytes, |_, _, _| {});
        assert_eq!(refused, if first < 16 { Ok(()) } else { expected }, "{first}");
    }
    (0..16).for_each(|number| inbound.answer(number, PeerResult::Held));
    answered(&mut inbound);
    let more = [16, 17].map(|first| frame(FrameKind::Messages, 1, first, &body)).concat();
    assert_eq!(inbound.received(START, &more, |_, _, _| {}), Ok(()), "what was answered is gone");
}

#[test]
fn the_longest_copy_is_found_and_a_longer_one_refused() {
    for (bytes, expected) in [(MESSAGE_BYTES_MAX, "Found"), (MESSAGE_BYTES_MAX + 1, "Refused")] {
        let (mut link, mut inbound) = (opened(WIDE), Inbound::new());
        link.push(&[1], 0).expect("room");
        arrived(&mut inbound, &written(&mut link, START));
        inbound.answer(0, PeerResult::Found(&vec![7; bytes]));
        let results = told(&mut link, START, &answered(&mut inbound));
        assert!(results.len() == 1 && results[0].1.starts_with(expected), "{bytes} bytes");
    }
}

#[test]
fn what_was_found_and_sent_leaves_room_for_more() {
    let (mut link, mut inbound) = (opened(WIDE), Inbound::new());
    let copy = vec![7; MESSAGE_BYTES_MAX];
    for number in 0..5 {
        link.push(&[1], number).expect("room");
        arrived(&mut inbound, &written(&mut link, START));
        inbound.answer(number, PeerResult::Found(&copy));
        let results = told(&mut link, START, &answered(&mut inbound));
        assert!(results.len() == 1 && results[0].1.starts_with("Found"), "{number}");
    }
}

#[test]
fn copies_asked_for_without_end_are_put_off() {
    let mut inbound = Inbound::new();
    let fetches = frame(FrameKind::Messages, 100, 0, &[0; 100]);
    assert_eq!(arrived(&mut inbound, &fetches).len(), 100);
    let copy = vec![7; 100_000];
    (0..100).for_each(|number| inbound.answer(number, PeerResult::Found(&copy)));
    assert!(inbound.held_bytes() < 5 << 20, "{}", inbound.held_bytes());
    let out = answered(&mut inbound);
    assert!(out.len() < 5 << 20);
    assert_eq!(counts_of(&out).iter().sum::<u16>(), 100);
    let mut link = opened(WIDE);
    (0..100).for_each(|purpose| link.push(&[], purpose).expect("room"));
    written(&mut link, START);
    let results = told(&mut link, START, &out);
    assert!((20..60).contains(&results.len()), "{} were found", results.len());
    assert_eq!(link.len() + results.len(), 100, "the others are asked for again");
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    WriteLink,
    WriteInbound,
    DeliverToInbound(usize),
    DeliverToLink(usize),
    Answer(usize, u8),
    Pass(u64),
    Clear,
    Break,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..300_usize).prop_map(Step::Push),
        4 => Just(Step::WriteLink),
        4 => Just(Step::WriteInbound),
        4 => (1..900_usize).prop_map(Step::DeliverToInbound),
        4 => (1..200_usize).prop_map(Step::DeliverToLink),
        6 => (any::<prop::sample::Index>(), 0..8_u8)
            .prop_map(|(index, kind)| Step::Answer(index.index(1 << 20), kind)),
        2 => (0..100_u64).prop_map(Step::Pass),
        1 => Just(Step::Clear),
        1 => Just(Step::Break),
    ];
    prop::collection::vec(step, 1..400)
}

/// Both ends, the bytes between them, and what is known of each message.
struct World {
    link: Link<u32>,
    inbound: Inbound,
    to_inbound: VecDeque<u8>,
    to_link: VecDeque<u8>,
    now: MonoNs,
    messages: Vec<Tracked>,
    /// Numbers and messages that wait for a result on this connection.
    waiting: Vec<(u32, usize)>,
    /// The last message on this connection that was never answered Busy.
    last_arrived: Option<usize>,
}

struct Tracked {
    bytes: Vec<u8>,
    arrivals: u32,
    results: u32,
    was_busy: bool,
    is_forgotten: bool,
    /// The last result that the inbound gave.
    answer: String,
}

impl World {
    fn new() -> Self {
        Self {
            link: opened(LIMITS),
            inbound: Inbound::new(),
            to_inbound: VecDeque::new(),
            to_link: VecDeque::new(),
            now: START,
            messages: Vec::new(),
            waiting: Vec::new(),
            last_arrived: None,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Push(bytes) => self.push(bytes),
            Step::WriteLink => {
                let mut out = Vec::new();
                self.link.write(at(self.now), &mut out);
                assert!(out.len() <= 2 * LIMITS.window_bytes + FRAME_HEADER_BYTES);
                self.to_inbound.extend(out);
            }
            Step::WriteInbound => {
                let mut out = Vec::new();
                self.inbound.write(at(self.now), &mut out);
                self.to_link.extend(out);
            }
            Step::DeliverToInbound(bytes) => self.deliver_to_inbound(bytes),
            Step::DeliverToLink(bytes) => self.deliver_to_link(bytes),
            Step::Answer(index, kind) => self.answer(index, kind),
            Step::Pass(ms) => self.now = self.now.plus_ms(ms),
            Step::Clear => {
                let Self { link, messages, .. } = self;
                link.clear(|purpose| {
                    messages[purpose as usize].results += 1;
                    messages[purpose as usize].is_forgotten = true;
                });
                assert!(link.is_empty());
            }
            Step::Break => self.reconnect(),
        }
        assert!(self.link.queue.held_bytes() <= 2 * LIMITS.bytes_max + 100_000);
        assert!(self.link.busy.held_bytes() <= 2 * LIMITS.bytes_max + 100_000);
        assert!(self.inbound.held_bytes() < 100_000);
    }

    fn push(&mut self, bytes: usize) {
        let purpose = self.messages.len() as u32;
        let mut message = purpose.to_le_bytes().to_vec();
        message.extend((0..bytes).map(|at| (at as u32).wrapping_mul(purpose) as u8));
        if self.link.push(&message, purpose).is_ok() {
            self.messages.push(Tracked {
                bytes: message,
                arrivals: 0,
                results: 0,
                was_busy: false,
                is_forgotten: false,
                answer: String::new(),
            });
        }
    }

    fn deliver_to_inbound(&mut self, bytes: usize) {
        let bytes: Vec<u8> = self.to_inbound.drain(..bytes.min(self.to_inbound.len())).collect();
        let Self { inbound, messages, waiting, last_arrived, .. } = self;
        inbound
            .received(self.now, &bytes, |number, _, message| {
                let purpose = message.first_chunk().expect("every message names its purpose");
                let index = u32::from_le_bytes(*purpose) as usize;
                let tracked = &mut messages[index];
                assert_eq!(tracked.bytes, message, "it arrives unchanged");
                tracked.arrivals += 1;
                if !tracked.was_busy {
                    assert!(*last_arrived < Some(index), "it arrives in order");
                    *last_arrived = Some(index);
                }
                waiting.push((number, index));
            })
            .expect("what a link wrote is frames");
    }

    fn deliver_to_link(&mut self, bytes: usize) {
        let bytes: Vec<u8> = self.to_link.drain(..bytes.min(self.to_link.len())).collect();
        let Self { link, messages, .. } = self;
        link.received(self.now, &bytes, |purpose, result| {
            let tracked = &mut messages[purpose as usize];
            tracked.results += 1;
            assert_eq!(tracked.results, 1, "one result for each");
            assert_eq!(tracked.answer, format!("{result:?}"));
        })
        .expect("what an inbound wrote is results");
    }

    fn answer(&mut self, index: usize, kind: u8) {
        if self.waiting.is_empty() {
            return;
        }
        let (number, message) = self.waiting.swap_remove(index % self.waiting.len());
        let tracked = &mut self.messages[message];
        let result = match kind {
            0 => PeerResult::Wanted,
            1 => PeerResult::Busy,
            2 => PeerResult::Found(&tracked.bytes),
            3 => PeerResult::Superseded { version: 1 << 40, factor: 3 },
            _ => PeerResult::Held,
        };
        tracked.was_busy |= result == PeerResult::Busy;
        tracked.answer = format!("{result:?}");
        self.inbound.answer(number, result);
    }

    fn reconnect(&mut self) {
        self.link.closed();
        self.to_inbound.clear();
        self.to_link.clear();
        self.waiting.clear();
        self.inbound = Inbound::new();
        self.last_arrived = None;
        self.link.opened(self.now);
    }

    /// Lets everything go well until every message has its result.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.step(&Step::WriteLink);
            self.step(&Step::DeliverToInbound(usize::MAX));
            while !self.waiting.is_empty() {
                self.step(&Step::Answer(0, 7));
            }
            self.step(&Step::WriteInbound);
            self.step(&Step::DeliverToLink(usize::MAX));
            if self.link.is_empty() && !self.link.is_under_way() {
                break;
            }
            self.step(&Step::Pass(5));
        }
        assert!(self.link.is_empty(), "{} messages never end", self.link.len());
        for (purpose, tracked) in self.messages.iter().enumerate() {
            assert_eq!(tracked.results, 1, "message {purpose}");
            assert!(tracked.arrivals >= 1 || tracked.is_forgotten, "message {purpose}");
        }
        assert_eq!(self.link.left_bytes(), LIMITS.bytes_max, "nothing is counted any more");
        assert_eq!(self.link.window().bytes_max, LIMITS.window_bytes, "the window is open");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn nothing_is_lost_or_told_twice_over_connections_that_break(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        let kept = world.messages.iter().filter(|tracked| tracked.results == 0).count();
        prop_assert_eq!(world.link.len(), kept, "what has no result is kept");
        world.settle();
    }

    #[test]
    fn changed_bytes_end_the_connection(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8),
        at in any::<prop::sample::Index>(),
        change in 1..=255_u8,
        cut in 0..4_usize,
    ) {
        let mut link = opened(LIMITS);
        for (purpose, message) in messages.iter().enumerate() {
            link.push(message, purpose as u32).expect("room");
        }
        let bytes = written(&mut link, START);
        let at = at.index(bytes.len());
        if let Some(changed) = changed(&bytes, at, change, cut) {
            let mut inbound = Inbound::new();
            let received = inbound.received(START, &changed, |_, _, _| panic!("it is changed"));
            prop_assert!(received.is_err());
        }

        let results = frame(FrameKind::Results, messages.len() as u16, 0, &[messages.len() as u8]);
        let changed = changed(&results, at % results.len(), change, 0).expect("a byte is another");
        let received = link.received(START, &changed, |_, _| panic!("it is changed"));
        prop_assert!(received.is_err());
        prop_assert_eq!(link.len(), messages.len());
    }
}

/// Returns a frame with one changed byte and without the `cut` bytes from there on. Behind it come
/// more bytes than any frame has, so that a frame whose length grew is filled. `None` when the
/// result begins with the unchanged frame: a dropped byte may equal the byte that takes its place.
fn changed(frame: &[u8], at: usize, change: u8, cut: usize) -> Option<Vec<u8>> {
    let mut changed = frame.to_vec();
    changed[at] ^= change;
    changed.drain(at..(at + cut).min(changed.len()));
    changed.resize(changed.len() + FRAME_HEADER_BYTES + FRAME_BODY_BYTES_MAX, 1);
    (!changed.starts_with(frame)).then_some(changed)
}

#[test]
fn a_byte_that_is_dropped_and_comes_again_is_no_change() {
    let whole = frame(FrameKind::Messages, 1, 0, &[1, 1]);
    let last = whole.len() - 1;
    assert_eq!(changed(&whole, last, 1, 1), None, "what is filled in is what was dropped");
    assert!(changed(&whole, last, 1, 0).is_some_and(|changed| !changed.starts_with(&whole)));
    assert!(changed(&whole, 4, 9, 2).is_some());
}
