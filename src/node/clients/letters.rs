//! Whether callbacks may go where a timer wants them to: to its URI, and to that for dead letters.

use crate::timer::definition::{Content, Definition, has_attributes};
use crate::wire::callback_uri::parse_told_uri;

use crate::node::callbacks::policy::{Denial, Destinations};

/// Judges whether callbacks may go where a timer wants them to. `Err`: the member of its document,
/// its host, and why not.
#[inline]
pub(super) fn judge_hosts<'a>(
    destinations: &Destinations,
    definition: &Definition<'a>,
) -> Result<(), (&'static str, &'a str, Denial)> {
    if let Err(denial) = destinations.judge_authority(definition.authority) {
        return Err(("callback.http.uri", definition.authority, denial));
    }
    match has_attributes(definition.content) {
        true => judge_letters(destinations, definition),
        false => Ok(()),
    }
}

/// Judges the host to which pops of a timer go that are given up, if the timer names one.
#[cold]
fn judge_letters<'a>(
    destinations: &Destinations,
    definition: &Definition<'a>,
) -> Result<(), (&'static str, &'a str, Denial)> {
    let uri = Content::decode(definition.content).attributes().dead_letter_uri;
    let Some(uri) = uri.and_then(|uri| parse_told_uri(uri).ok()) else { return Ok(()) };
    let judged = destinations.judge_authority(uri.authority);
    judged.map_err(|denial| ("callback.dead-letter.uri", uri.authority, denial))
}
