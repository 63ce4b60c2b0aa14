//! What a client is told beside the answer that its document was taken: members that nobody knows,
//! and timers that never pop. The original's contract takes both in silence, so status and body
//! stay as they are; a header tells (docs/api.md, "Warnings").

use super::answers::REASON_BYTES_MAX;
use crate::timer::definition::Definition;
use crate::wire::json::write_string;
use crate::wire::unknown_members::NEVER_POPS;

/// The header.
const HEADER: &str = "Chronos-Warning: ";
/// Most characters of a warning.
const CHARS_MAX: usize = 400;
/// What the client of a document is told; `None`: nothing.
#[inline]
pub(super) fn warning_of(unknown: Option<&str>, definition: &Definition<'_>) -> Option<Box<str>> {
    let never_pops = definition.repeat_for_ms < definition.interval_ms;
    if unknown.is_none() && !never_pops { None } else { Some(warning(unknown, never_pops)) }
}

/// The reason that refuses a document which a client would be warned of otherwise. Where not all
/// of it has room, the members that are not known come first.
#[cold]
pub(super) fn refusal_for(warning: Box<str>, unknown: Option<&str>) -> String {
    match unknown {
        Some(unknown) if warning.len() > REASON_BYTES_MAX => unknown.to_owned(),
        _ => warning.into(),
    }
}

#[cold]
fn warning(unknown: Option<&str>, never_pops: bool) -> Box<str> {
    let sentences = unknown.into_iter().chain(never_pops.then_some(NEVER_POPS));
    let told = sentences.collect::<Vec<_>>().join("; ");
    let visible = |c: char| if (' '..='~').contains(&c) { c } else { '?' };
    told.chars().take(CHARS_MAX).map(visible).collect()
}

/// Warnings whose answers are awaited, with the numbers of their requests. At most as many as
/// requests are under way.
#[derive(Debug, Default)]
pub(super) struct AwaitedWarnings(Vec<(u32, Box<str>)>);

impl AwaitedWarnings {
    /// Keeps a warning for the answer to a request.
    #[cold]
    pub(super) fn put(&mut self, request: u32, warning: Box<str>) {
        self.0.push((request, warning));
    }

    /// The warning for the answer to this request.
    #[inline]
    pub(super) fn take(&mut self, request: u32) -> Option<Box<str>> {
        if self.0.is_empty() { None } else { self.find(request) }
    }

    #[cold]
    fn find(&mut self, request: u32) -> Option<Box<str>> {
        let place = self.0.iter().position(|(of, _)| *of == request)?;
        let (_, warning) = self.0.remove(place);
        if self.0.is_empty() {
            // The memory of many goes.
            self.0 = Vec::new();
        }
        Some(warning)
    }
}

/// Adds a warning to the answer that begins at `begins`, if it is one of success.
#[cold]
pub(super) fn add_header(out: &mut Vec<u8>, begins: usize, warning: &str) {
    let answer = out.get(begins..).unwrap_or_default();
    let line_end = answer.windows(2).position(|two| two == b"\r\n");
    let Some(line_end) = line_end.filter(|_| answer.starts_with(b"HTTP/1.1 2")) else { return };
    let line = format!("{HEADER}{warning}\r\n");
    let at = begins + line_end + 2;
    out.splice(at..at, line.into_bytes());
}

/// Adds a warning to the result of a line, which begins at `begins`, if it is one of success.
#[cold]
pub(super) fn add_member(out: &mut Vec<u8>, begins: usize, warning: &str) {
    let result = out.get(begins..).unwrap_or_default();
    if result.starts_with(b"{\"location\"") && result.ends_with(b"}\n") {
        out.truncate(out.len() - 2);
        out.extend_from_slice(b",\"warning\":");
        write_string(warning, out);
        out.extend_from_slice(b"}\n");
    }
}
