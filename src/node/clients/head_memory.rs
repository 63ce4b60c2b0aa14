//! Heads of creates as clients sent them before. Clients send the same head again and again, and to
//! compare it costs a tenth of parsing it.

use crate::node::clients::request_line::RequestLine;
use crate::wire::request_head::{Framing, Method, RequestHead};
use crate::wire::timer_path::TimerPath;

/// How many heads a core remembers. Together at most 16 KiB.
const HEADS_MAX: usize = 64;
/// Longest head that is remembered, in bytes.
const HEAD_BYTES_MAX: usize = 256;

/// A head that was parsed, and what was found in it.
#[derive(Debug)]
struct Known {
    head: Vec<u8>,
    line: RequestLine,
    framing: Framing,
}

/// The heads that a core remembers.
#[derive(Debug, Default)]
pub struct HeadMemory {
    heads: Vec<Known>,
    /// The place of the head that is forgotten next.
    oldest: usize,
}

impl HeadMemory {
    /// What the head at the beginning of `bytes` says, if it is the one that is remembered at
    /// `place` and has at most `bytes_max` bytes. The number is its length.
    #[inline]
    pub fn recall(
        &self,
        place: u8,
        bytes: &[u8],
        bytes_max: usize,
    ) -> Option<(RequestLine, Framing, usize)> {
        let Known { head, line, framing } = self.heads.get(usize::from(place))?;
        let is_same = bytes.starts_with(head) && head.len() <= bytes_max;
        is_same.then_some((*line, *framing, head.len()))
    }

    /// Remembers a head if it is one of a create, which is likely to come again. `bytes` is all of
    /// the head. Returns the place.
    pub fn remember(
        &mut self,
        head: &RequestHead<'_>,
        line: &RequestLine,
        bytes: &[u8],
    ) -> Option<u8> {
        let is_create = line.path == TimerPath::Collection && line.method == Method::Post;
        if !is_create
            || head.expects_continue
            || head.has_conditions
            || bytes.len() > HEAD_BYTES_MAX
        {
            return None;
        }
        if self.heads.len() < HEADS_MAX {
            let head = Vec::with_capacity(HEAD_BYTES_MAX);
            self.heads.push(Known { head, line: *line, framing: Framing::Chunked });
        }
        let place = self.oldest;
        self.oldest = (self.oldest + 1) % HEADS_MAX;
        let known = self.heads.get_mut(place)?;
        known.head.clear();
        known.head.extend_from_slice(bytes);
        (known.line, known.framing) = (*line, head.framing);
        u8::try_from(place).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::request_head::parse_request_head;

    fn remembered(memory: &mut HeadMemory, head: &str) -> Option<u8> {
        let parsed = parse_request_head(head.as_bytes(), 8_192);
        let parsed = parsed.expect("a head").expect("a whole head");
        memory.remember(&parsed, &RequestLine::of(&parsed), head.as_bytes())
    }

    fn head_of(length: usize) -> String {
        format!("POST /timers HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
    }

    #[test]
    fn the_same_head_says_the_same() {
        let mut memory = HeadMemory::default();
        let head = head_of(170);
        let place = remembered(&mut memory, &head).expect("a create's");
        let more = head.clone() + "{}";
        let (line, framing, bytes) =
            memory.recall(place, more.as_bytes(), 8_192).expect("the same head");
        assert_eq!((framing, bytes), (Framing::Length(170), head.len()));
        assert_eq!((line.method, line.path), (Method::Post, TimerPath::Collection));
        assert!(line.persistence.keep_alive);
        assert_eq!(memory.recall(place, head_of(171).as_bytes(), 8_192), None);
        assert_eq!(memory.recall(place, &head.as_bytes()[..head.len() - 1], 8_192), None);
        assert_eq!(memory.recall(place, head.as_bytes(), head.len() - 1), None, "the limit fell");
        assert_eq!(memory.recall(place + 1, head.as_bytes(), 8_192), None);
    }

    #[test]
    fn what_is_no_short_create_is_parsed_each_time() {
        let mut memory = HeadMemory::default();
        for head in [
            head_of(1).replace("POST", "GET"),
            head_of(1).replace("/timers", "/timers/0000000000000001-2"),
            head_of(1).replace("Host", "Expect: 100-continue\r\nHost"),
            head_of(1).replace("Host: a", &format!("Host: {}", "a".repeat(HEAD_BYTES_MAX))),
        ] {
            assert_eq!(remembered(&mut memory, &head), None, "{head}");
        }
    }

    #[test]
    fn the_oldest_head_gives_way() {
        let mut memory = HeadMemory::default();
        let places: Vec<_> =
            (0..HEADS_MAX + 1).filter_map(|at| remembered(&mut memory, &head_of(at))).collect();
        assert_eq!((places.len(), places[0]), (HEADS_MAX + 1, places[HEADS_MAX]));
        assert_eq!(memory.recall(places[0], head_of(0).as_bytes(), 8_192), None);
        let last = head_of(HEADS_MAX);
        assert!(memory.recall(places[0], last.as_bytes(), 8_192).is_some());
        let second = head_of(1);
        assert!(memory.recall(places[1], second.as_bytes(), 8_192).is_some());
    }
}
