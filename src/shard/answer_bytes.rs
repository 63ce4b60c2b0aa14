//! What an answer costs while it waits to be sent.

use super::effects::{Answer, Internal};

impl Answer {
    /// Bytes that the answer holds beyond itself: content of timers.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Answer::Found(view) => view.uri.len() + view.opaque.len() + view.attributes.len(),
            Answer::Internal(internal) => match &**internal {
                Internal::Part(part) => part.timers.iter().map(|timer| timer.copy.len()).sum(),
                Internal::Page { body, .. } => body.len(),
                Internal::Accepted | Internal::Letter(_) => 0,
                Internal::ListPart(part) => part.as_ref().map_or(0, |part| part.len()),
                Internal::Compared(answer) => answer.body().len(),
                Internal::List(page) => page.bytes,
                // Some hundred names.
                Internal::Count(_) | Internal::JobBegun(_) | Internal::Jobs(_) => 0,
            },
            Answer::Done { .. } | Answer::Identified(_) | Answer::NotFound | Answer::Refused(_) => {
                0
            }
        }
    }
}
