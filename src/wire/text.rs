//! Formatted text appended to bytes.

use std::fmt;

/// Bytes that `write!` appends UTF-8 text to. Never fails: memory does not.
pub struct Text<'a>(pub &'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
