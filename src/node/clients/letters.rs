//! Whether callbacks may go where a timer wants them to: to its URI, and to those for dead letters
//! and reports. And what a request asks of a dead letter.

use crate::timer::definition::{Content, Definition, has_attributes};
use crate::wire::callback_uri::parse_told_uri;
use crate::wire::dead_letter::LetterUse;
use crate::wire::request_head::Method;

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
        true => judge_further(destinations, definition),
        false => Ok(()),
    }
}

/// Judges the hosts of the other URIs that a timer names.
#[cold]
fn judge_further<'a>(
    destinations: &Destinations,
    definition: &Definition<'a>,
) -> Result<(), (&'static str, &'a str, Denial)> {
    let attributes = Content::decode(definition.content).attributes();
    for (member, uri) in [
        ("callback.dead-letter.uri", attributes.dead_letter_uri),
        ("callback.on-success", attributes.on_success),
        ("callback.on-failure", attributes.on_failure),
    ] {
        let Some(uri) = uri.and_then(|uri| parse_told_uri(uri).ok()) else { continue };
        let judged = destinations.judge_authority(uri.authority);
        judged.map_err(|denial| (member, uri.authority, denial))?;
    }
    Ok(())
}

/// What a method asks of a dead letter.
pub(super) fn letter_use(method: Method) -> LetterUse {
    match method {
        Method::Get => LetterUse::Show,
        Method::Post => LetterUse::Replay,
        _ => LetterUse::Delete,
    }
}
