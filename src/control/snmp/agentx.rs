//! AgentX (RFC 2741), as far as a subagent with one number needs it: bytes <-> values. Touches no
//! socket and no clock.

/// `chronos_remaining_nodes_scalar` of the original: the object, without its instance.
pub(super) const REMAINING: [u32; 9] = [1, 2, 826, 0, 1, 1_578_918, 9, 10, 1];
/// Bytes of the header of every PDU (section 6.1).
pub(super) const HEADER_BYTES: usize = 20;
/// Longest payload that is read. A question for one object has some 100 bytes.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;

const VERSION: u8 = 1;
const NON_DEFAULT_CONTEXT: u8 = 1 << 3;
const NETWORK_BYTE_ORDER: u8 = 1 << 4;

const OPEN: u8 = 1;
const CLOSE: u8 = 2;
const REGISTER: u8 = 3;
const GET: u8 = 5;
const GET_NEXT: u8 = 6;
const GET_BULK: u8 = 7;
const TEST_SET: u8 = 8;
const COMMIT_SET: u8 = 9;
const UNDO_SET: u8 = 10;
const CLEANUP_SET: u8 = 11;
const RESPONSE: u8 = 18;

/// Types of values (section 5.4).
const GAUGE_32: u16 = 66;
const NO_SUCH_OBJECT: u16 = 128;
const NO_SUCH_INSTANCE: u16 = 129;
const END_OF_MIB_VIEW: u16 = 130;
/// Errors of answers (section 6.2.16).
const COMMIT_FAILED: u16 = 14;
const UNDO_FAILED: u16 = 15;
const NOT_WRITABLE: u16 = 17;

/// The bytes are no AgentX. The session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// The header of a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    kind: u8,
    flags: u8,
    pub(super) session: u32,
    transaction: u32,
    packet: u32,
    /// How many bytes follow.
    pub(super) payload_bytes: usize,
}

/// What the daemon wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// An answer to this subagent's own request: its session and its error, 0 for none.
    Answer(u32, u16),
    /// A question, and the bytes of its answer.
    Question(Vec<u8>),
    /// Nothing that is answered.
    Nothing,
    /// The daemon ends the session.
    Close,
}

impl Header {
    pub(super) fn read(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let [version, kind, flags, _, rest @ ..] = bytes;
        let mut reader = Reader { bytes: rest, is_network_order: flags & NETWORK_BYTE_ORDER != 0 };
        let (session, transaction) = (reader.word()?, reader.word()?);
        let (packet, length) = (reader.word()?, reader.word()?);
        let payload_bytes = usize::try_from(length).map_err(|_| Malformed)?;
        if *version != VERSION || payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(Malformed);
        }
        Ok(Self { kind: *kind, flags: *flags, session, transaction, packet, payload_bytes })
    }

    /// Reads what follows the header. `remaining` is the value of the one object.
    pub(super) fn hear(&self, payload: &[u8], remaining: u32) -> Result<Heard, Malformed> {
        let is_network_order = self.flags & NETWORK_BYTE_ORDER != 0;
        let mut reader = Reader { bytes: payload, is_network_order };
        if self.kind == RESPONSE {
            reader.word()?;
            return Ok(Heard::Answer(self.session, reader.half()?));
        }
        if self.kind == CLOSE {
            return Ok(Heard::Close);
        }
        let error = match self.kind {
            TEST_SET => NOT_WRITABLE,
            COMMIT_SET => COMMIT_FAILED,
            UNDO_SET => UNDO_FAILED,
            CLEANUP_SET => return Ok(Heard::Nothing),
            GET | GET_NEXT | GET_BULK => 0,
            _ => return Ok(Heard::Nothing),
        };
        let mut answer = Writer::begin(RESPONSE, *self);
        // The daemon takes its own uptime.
        answer.word(0);
        answer.half(error);
        answer.half(u16::from(error != 0));
        if error == 0 {
            self.answer(&mut reader, remaining, &mut answer)?;
        }
        Ok(Heard::Question(answer.end()))
    }

    /// Answers each range of a question. One repetition of those of GetBulk is enough.
    fn answer(
        &self,
        reader: &mut Reader<'_>,
        remaining: u32,
        answer: &mut Writer,
    ) -> Result<(), Malformed> {
        if self.flags & NON_DEFAULT_CONTEXT != 0 {
            reader.text()?;
        }
        if self.kind == GET_BULK {
            reader.word()?;
        }
        while !reader.bytes.is_empty() {
            let (start, is_included) = reader.name()?;
            let (end, _) = reader.name()?;
            let instance = instance();
            let is_next = (start < instance || is_included && start == instance)
                && (end.is_empty() || instance < end);
            let kind = match self.kind {
                GET if start == instance => GAUGE_32,
                GET if start.starts_with(&REMAINING) => NO_SUCH_INSTANCE,
                GET => NO_SUCH_OBJECT,
                _ if is_next => GAUGE_32,
                _ => END_OF_MIB_VIEW,
            };
            answer.half(kind);
            answer.half(0);
            answer.name(if kind == GAUGE_32 { &instance } else { &start });
            if kind == GAUGE_32 {
                answer.word(remaining);
            }
        }
        Ok(())
    }
}

/// Opens a session.
pub(super) fn open() -> Vec<u8> {
    let mut pdu = Writer::begin(OPEN, first(OPEN, 0));
    // No timeout of its own, and no identity.
    pdu.word(0);
    pdu.name(&[]);
    pdu.text(b"chronos");
    pdu.end()
}

/// Registers the one object.
pub(super) fn register(session: u32) -> Vec<u8> {
    let mut pdu = Writer::begin(REGISTER, first(REGISTER, session));
    // No timeout of its own, the usual priority (127), no range.
    pdu.bytes.extend_from_slice(&[0, 127, 0, 0]);
    pdu.name(&REMAINING);
    pdu.end()
}

fn first(kind: u8, session: u32) -> Header {
    Header { kind, flags: 0, session, transaction: 0, packet: kind.into(), payload_bytes: 0 }
}

fn instance() -> Vec<u32> {
    REMAINING.iter().copied().chain([0]).collect()
}

struct Reader<'a> {
    bytes: &'a [u8],
    is_network_order: bool,
}

impl Reader<'_> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self.bytes.split_first_chunk().ok_or(Malformed)?;
        self.bytes = rest;
        Ok(*chunk)
    }

    fn word(&mut self) -> Result<u32, Malformed> {
        let bytes = self.chunk()?;
        let is_big = self.is_network_order;
        Ok(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn half(&mut self) -> Result<u16, Malformed> {
        let bytes = self.chunk()?;
        let is_big = self.is_network_order;
        Ok(if is_big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    /// Passes over a text.
    fn text(&mut self) -> Result<(), Malformed> {
        let length = usize::try_from(self.word()?).map_err(|_| Malformed)?;
        let padded = length.checked_next_multiple_of(4).ok_or(Malformed)?;
        self.bytes = self.bytes.get(padded..).ok_or(Malformed)?;
        Ok(())
    }

    /// Reads the name of an object, and whether it is in the range that it begins.
    fn name(&mut self) -> Result<(Vec<u32>, bool), Malformed> {
        let [parts, prefix, is_included, _] = self.chunk()?;
        let mut name = match prefix {
            0 => Vec::new(),
            prefix => vec![1, 3, 6, 1, prefix.into()],
        };
        for _ in 0..parts {
            name.push(self.word()?);
        }
        Ok((name, is_included != 0))
    }
}

/// Writes a PDU, in network byte order.
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Begins a PDU with the session, transaction and packet of `header`.
    fn begin(kind: u8, header: Header) -> Self {
        let mut pdu = Self { bytes: vec![VERSION, kind, NETWORK_BYTE_ORDER, 0] };
        for word in [header.session, header.transaction, header.packet, 0] {
            pdu.word(word);
        }
        pdu
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend_from_slice(&word.to_be_bytes());
    }

    fn half(&mut self, half: u16) {
        self.bytes.extend_from_slice(&half.to_be_bytes());
    }

    fn name(&mut self, name: &[u32]) {
        // Names that were read have at most 5 + 255 parts; the daemon asks within what this
        // subagent has registered.
        const PARTS_MAX: usize = 128;
        self.bytes.extend_from_slice(&[name.len().min(PARTS_MAX) as u8, 0, 0, 0]);
        name.iter().take(PARTS_MAX).for_each(|part| self.word(*part));
    }

    fn text(&mut self, text: &[u8]) {
        self.word(text.len() as u32);
        self.bytes.extend_from_slice(text);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        let payload_bytes = (self.bytes.len() - HEADER_BYTES) as u32;
        let length = self.bytes.iter_mut().skip(HEADER_BYTES - 4);
        length.zip(payload_bytes.to_be_bytes()).for_each(|(place, byte)| *place = byte);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question of a daemon that writes in the order of little-endian machines.
    fn question(kind: u8, ranges: &[(&[u32], bool, &[u32])]) -> (Header, Vec<u8>) {
        let mut payload = Vec::new();
        if kind == GET_BULK {
            payload.extend_from_slice(&[0, 0, 10, 0]);
        }
        for (start, is_included, end) in ranges {
            for (name, is_included) in [(start, *is_included), (end, false)] {
                payload.extend_from_slice(&[name.len() as u8, 0, is_included.into(), 0]);
                name.iter().for_each(|part| payload.extend_from_slice(&part.to_le_bytes()));
            }
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&[VERSION, kind, 0, 0]);
        for (place, word) in [(4, 7_u32), (8, 8), (12, 9), (16, payload.len() as u32)] {
            bytes[place..place + 4].copy_from_slice(&word.to_le_bytes());
        }
        (Header::read(&bytes).expect("a header"), payload)
    }

    fn kinds(kind: u8, ranges: &[(&[u32], bool, &[u32])]) -> Vec<u16> {
        let (header, payload) = question(kind, ranges);
        let Ok(Heard::Question(answer)) = header.hear(&payload, 3) else { panic!("an answer") };
        let head = answer.first_chunk().expect("a header");
        let head = Header::read(head).expect("a header");
        assert_eq!((head.kind, head.session, head.transaction, head.packet), (RESPONSE, 7, 8, 9));
        assert_eq!(head.payload_bytes, answer.len() - HEADER_BYTES);
        let mut reader = Reader { bytes: &answer[HEADER_BYTES + 8..], is_network_order: true };
        let mut kinds = Vec::new();
        while !reader.bytes.is_empty() {
            kinds.push(reader.half().expect("a type"));
            reader.half().expect("reserved");
            let (name, _) = reader.name().expect("a name");
            if kinds.last() == Some(&GAUGE_32) {
                assert_eq!((name, reader.word()), (instance(), Ok(3)));
            }
        }
        kinds
    }

    #[test]
    fn the_question_of_the_scripts_is_answered() {
        assert_eq!(kinds(GET, &[(&instance(), false, &[])]), [GAUGE_32]);
        let other = [&instance()[..], &[1]].concat();
        let all: [(&[u32], bool, &[u32]); 2] = [(&other, false, &[]), (&[1, 3], false, &[])];
        assert_eq!(kinds(GET, &all), [NO_SUCH_INSTANCE, NO_SUCH_OBJECT]);
    }

    #[test]
    fn walks_find_the_object_once() {
        let (own, instance) = (&REMAINING[..], instance());
        for kind in [GET_NEXT, GET_BULK] {
            assert_eq!(kinds(kind, &[(own, false, &[2])]), [GAUGE_32]);
            assert_eq!(kinds(kind, &[(&instance, true, &[])]), [GAUGE_32]);
            assert_eq!(kinds(kind, &[(&instance, false, &[])]), [END_OF_MIB_VIEW]);
            assert_eq!(kinds(kind, &[(own, false, &instance)]), [END_OF_MIB_VIEW]);
        }
    }

    #[test]
    fn nothing_can_be_set_and_other_things_are_not_answered() {
        for (kind, error) in
            [(TEST_SET, NOT_WRITABLE), (COMMIT_SET, COMMIT_FAILED), (UNDO_SET, UNDO_FAILED)]
        {
            let (header, payload) = question(kind, &[]);
            let Ok(Heard::Question(answer)) = header.hear(&payload, 0) else { panic!("an answer") };
            assert_eq!(answer[HEADER_BYTES + 4..], [error.to_be_bytes(), [0, 1]].concat());
        }
        for (kind, heard) in [(CLEANUP_SET, Heard::Nothing), (CLOSE, Heard::Close)] {
            let (header, payload) = question(kind, &[]);
            assert_eq!(header.hear(&payload, 0), Ok(heard));
        }
    }

    #[test]
    fn damaged_bytes_end_the_session() {
        let (header, payload) = question(GET, &[(&instance(), false, &[])]);
        for end in 1..payload.len() {
            assert_eq!(header.hear(&payload[..end], 0), Err(Malformed), "{end}");
        }
        let mut bytes = [0; HEADER_BYTES];
        assert_eq!(Header::read(&bytes), Err(Malformed), "no version");
        bytes[0] = VERSION;
        bytes[16..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Header::read(&bytes), Err(Malformed), "too long");
    }

    #[test]
    fn a_session_is_opened_and_the_object_registered() {
        let open = open();
        assert_eq!((open[1], open.len()), (OPEN, HEADER_BYTES + 4 + 4 + 4 + 8));
        let register = register(7);
        let head = Header::read(register.first_chunk().expect("a header")).expect("a header");
        assert_eq!((head.kind, head.session, head.payload_bytes), (REGISTER, 7, 4 + 4 + 36));
    }
}
