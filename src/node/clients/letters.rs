//! Whether callbacks may go where a timer wants them to: to its URI, and to that for dead letters.

use crate::timer::definition::{Content, Definition, has_attributes};
use crate::wire::callback_uri::parse_told_uri;

use crate::node::callbacks::policy::{Denial, Destinations};

/// Judges whether callbacks may go where a timer wants them to. `Err`: the member of its document,
/// its host, and why not.
pub(super) fn judge_hosts<'a>(
    destinations: &Destinations,
    definition: &Definition<'a>,
) -> Result<(), (&'static str, &'a str, Denial)> {
    let judge = |member, authority| {
        let judged = destinations.judge_authority(authority);
        judged.map_err(|denial| (member, authority, denial))
    };
    judge("callback.http.uri", definition.authority)?;
    let letters = letter_authority(definition);
    letters.map_or(Ok(()), |letters| judge("callback.dead-letter.uri", letters))
}

/// The host to which pops of a timer go that are given up, if the timer names one.
#[inline]
fn letter_authority<'a>(definition: &Definition<'a>) -> Option<&'a str> {
    if !has_attributes(definition.content) {
        return None;
    }
    let uri = Content::decode(definition.content).attributes().dead_letter_uri?;
    parse_told_uri(uri).ok().map(|uri| uri.authority)
}
