//! Dead letters: what clients ask of one of them, and whether callbacks may go to their URIs.

use crate::shard::effects::Request;
use crate::timer::definition::{Content, Definition, has_attributes};
use crate::wire::callback_uri::parse_told_uri;
use crate::wire::dead_letter::LetterUse;
use crate::wire::request_head::Method;
use crate::wire::timer_path::TimerPath;

use super::request_line::RequestLine;
use super::service::target_of;
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

/// The sentence about such a host.
pub(super) fn denied(member: &str, authority: &str, denial: Denial) -> String {
    format!("{member}: expected a host to which callbacks may go, got {authority}, {denial}")
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

/// What is asked of one dead letter. `Err`: the methods that the path has. Lists of letters are
/// asked for in another way ([`crate::node::clients::lists`]).
#[cold]
pub(super) fn letter_request(line: &RequestLine) -> Result<Request<'static>, &'static str> {
    let (named, wanted) = match (line.path, line.method) {
        (TimerPath::DeadLetter(named), Method::Get) => (named, LetterUse::Show),
        (TimerPath::DeadLetter(named), Method::Delete) => (named, LetterUse::Delete),
        (TimerPath::Replay(named), Method::Post) => (named, LetterUse::Replay),
        (TimerPath::Replay(_) | TimerPath::Replays, _) => return Err("POST"),
        _ => return Err("GET, DELETE"),
    };
    Ok(Request::Letter(target_of(named), wanted))
}
