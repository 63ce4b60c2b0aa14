//! Why a document is not taken, in words.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::node::callbacks::policy::Denial;
use crate::timer::admission::Rejection;
use crate::wire::peer_message::check_content;

/// The content of a timer that another node tells as a whole.
#[cold]
pub fn whole_content(authority: &str, base64: &str) -> Result<Vec<u8>, String> {
    const MEMBER: &str = "reliability.chronos-content";
    let content = STANDARD.decode(base64).map_err(|error| format!("{MEMBER}: {error}"))?;
    check_content(authority, &content).map_err(|error| format!("{MEMBER}: {error}"))?;
    Ok(content)
}

/// Returns why a body of this many bytes is not taken. `None`: it is taken.
pub fn too_long(bytes: u64, bytes_max: u32) -> Option<String> {
    let is_too_long = bytes > u64::from(bytes_max);
    is_too_long.then(|| {
        format!("body: expected at most {bytes_max} bytes (limits.body_bytes_max), got {bytes}")
    })
}

/// Why a timer is not taken whose member names a host to which callbacks may not go.
#[cold]
pub fn denied(member: &str, authority: &str, denial: Denial) -> String {
    format!("{member}: expected a host to which callbacks may go, got {authority}, {denial}")
}

/// Returns status and reason for a document that is no timer.
pub fn refusal_of(rejection: &Rejection) -> (u16, String) {
    let too_long =
        matches!(rejection, Rejection::OpaqueTooLong { .. } | Rejection::OpaqueToldTooLong(_));
    (if too_long { 413 } else { 400 }, rejection.to_string())
}
