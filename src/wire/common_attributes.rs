//! The attributes that many timers are likely to have alike: how callbacks look, when they are
//! retried, where reports go. A shard keeps equal ones once (`shard::records::commons`). What is
//! left of a timer's attributes, its *own*, then begins with a stand-in: an attribute of kind 0,
//! whose value is the number of what the shard keeps. Journals and other nodes never see it: they
//! have all attributes of a timer in one string (`wire::attributes`).

use super::attributes::is_common;
use super::leb128::read_leb128;

/// The kind of the stand-in. Attributes that come from outside begin with kind 1.
const STAND_IN: u8 = 0;
/// Bytes of the stand-in: kind, length, number.
pub const STAND_IN_BYTES: usize = 6;

/// Appends those of encoded attributes that timers are likely to have in common.
pub fn common_of(attributes: &[u8], out: &mut Vec<u8>) {
    let common = each(attributes).filter(|(kind, _)| is_common(*kind));
    common.for_each(|(_, one)| out.extend_from_slice(one));
}

/// Appends the stand-in for those with this number, and all others.
pub fn own_of(attributes: &[u8], number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[STAND_IN, 4]);
    out.extend_from_slice(&number.to_le_bytes());
    let own = each(attributes).filter(|(kind, _)| !is_common(*kind));
    own.for_each(|(_, one)| out.extend_from_slice(one));
}

/// The number in the stand-in, and what follows it; `None`: the attributes begin with none.
pub fn stand_in(own: &[u8]) -> Option<(u32, &[u8])> {
    match own {
        [STAND_IN, 4, a, b, c, d, behind @ ..] => {
            Some((u32::from_le_bytes([*a, *b, *c, *d]), behind))
        }
        _ => None,
    }
}

/// Appends all attributes in their order. `own` are those behind the stand-in.
pub fn join(common: &[u8], own: &[u8], out: &mut Vec<u8>) {
    let mut common = each(common).peekable();
    for (kind, one) in each(own) {
        while let Some((_, before)) = common.next_if(|(other, _)| *other < kind) {
            out.extend_from_slice(before);
        }
        out.extend_from_slice(one);
    }
    common.for_each(|(_, one)| out.extend_from_slice(one));
}

/// Kind and bytes of each attribute.
fn each(mut attributes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&kind, mut rest) = attributes.split_first()?;
        let length = usize::try_from(read_leb128(&mut rest)?).ok()?;
        let behind = rest.get(length..)?;
        let (one, behind) = attributes.split_at_checked(attributes.len() - behind.len())?;
        attributes = behind;
        Some((kind, one))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::attributes::{Acted, Attributes, CallbackMethod, CronTiming, RetryPolicy};
    use proptest::prelude::*;

    fn encoded(attributes: &Attributes<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        attributes.write(&mut out);
        out
    }

    /// The common attributes, and the own ones with their stand-in.
    fn apart(attributes: &[u8], number: u32) -> (Vec<u8>, Vec<u8>) {
        let (mut common, mut own) = (Vec::new(), Vec::new());
        common_of(attributes, &mut common);
        own_of(attributes, number, &mut own);
        (common, own)
    }

    /// Attributes of which each bit of `which` takes one.
    fn some_of(which: u32) -> Attributes<'static> {
        let has = |bit: u32| which >> bit & 1 == 1;
        let cron = CronTiming {
            expression: "0 9 * * *",
            zone: "UTC",
            due_ms: 7,
            done: 1,
            catch_up_ms: 5,
            end_ms: None,
        };
        Attributes {
            is_binary: has(0),
            method: if has(1) { CallbackMethod::Put } else { CallbackMethod::Post },
            content_type: has(2).then_some("text/plain"),
            headers: if has(3) { "A: b\r\n" } else { "" },
            at_ms: has(4).then_some(300),
            window_ms: has(5).then_some(70_000),
            retry: has(6).then(RetryPolicy::default),
            timeout_ms: has(7).then_some(500),
            cron: has(8).then_some(cron),
            name: has(9).then_some("name"),
            once: has(10).then_some(9),
            on_success: has(11).then_some("http://a/b"),
            on_failure: has(12).then_some("http://a/c"),
            is_paused: has(13),
            dead_letter_uri: has(14).then_some("http://a/d"),
            acted: has(15).then_some(Acted { root: 1, at_ms: 2, pop: 3 }),
            ..Attributes::default()
        }
    }

    proptest! {
        #[test]
        fn what_was_taken_apart_is_read_and_put_together_as_it_was(
            which in 0_u32..1 << 16,
            number: u32,
        ) {
            let attributes = some_of(which);
            let whole = encoded(&attributes);
            let (common, own) = apart(&whole, number);
            let (found, behind) = stand_in(&own).expect("it was written");
            prop_assert_eq!(found, number);
            prop_assert_eq!(own.len(), STAND_IN_BYTES + behind.len());
            prop_assert_eq!(common.len() + behind.len(), whole.len());
            let mut joined = Vec::new();
            join(&common, behind, &mut joined);
            prop_assert_eq!(&joined, &whole);
            let read = Attributes::read_apart(&common, behind);
            prop_assert_eq!(read, Ok(attributes));
        }
    }

    #[test]
    fn what_is_of_one_timer_alone_is_not_common() {
        let (common, own) = apart(&encoded(&some_of(u32::MAX)), 1);
        let read = Attributes::read(&common).expect("they are in order");
        assert_eq!((read.at_ms, read.cron, read.name, read.once), (None, None, None, None));
        assert_eq!((read.is_paused, read.acted), (false, None));
        let (_, own) = stand_in(&own).expect("it was written");
        let read = Attributes::read(own).expect("they are in order");
        assert_eq!((read.headers, read.retry, read.on_success), ("", None, None));
    }

    #[test]
    fn attributes_from_outside_have_no_stand_in() {
        let (_, own) = apart(&encoded(&some_of(1 << 9)), 1);
        assert!(Attributes::read(&own).is_err());
        assert_eq!(stand_in(&encoded(&some_of(u32::MAX))), None);
        assert_eq!(stand_in(&[]), None);
    }
}
