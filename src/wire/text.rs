//! Formatted text, appended to bytes.

use std::fmt;

/// Bytes to which `write!` appends UTF-8 text. Writing never fails.
pub struct Text<'a>(pub &'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}
