//! Chunked bodies (RFC 9112 section 7.1), decoded as they arrive.

/// Why a chunked body is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChunkError {
    /// Not hex, no CRLF, bare CR or LF, too long a size line, bad trailer.
    #[error("chunked body: {0}")]
    Malformed(&'static str),
    /// The decoded body would exceed the limit.
    #[error("chunked body: longer than the limit")]
    TooLong,
}

/// Where a chunked body stands between two pieces of input.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder;

impl ChunkedDecoder {
    /// A decoder at the start of a body of at most `body_bytes_max` decoded bytes.
    pub fn new(_body_bytes_max: u64) -> Self {
        todo!()
    }

    /// Decodes from `input`, handing each run of body bytes to `body`. Returns how many bytes of `input` were used
    /// (all of them unless the body ended) and whether the body, trailers included, is complete.
    pub fn decode(
        &mut self,
        _input: &[u8],
        _body: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), ChunkError> {
        todo!()
    }
}
