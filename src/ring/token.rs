//! The word that travels through the kernel as `user_data`. It tells which operation of which
//! socket, or of which file, has completed.
//!
//! A slot is reused only after the last completion of its last operation, so a token never names a
//! wrong socket. The generation travels along so that every completion asserts this.

// May panic: assertions 1.
// Why it does not: kernel 1.

/// How many bits of a slot's generation a token carries.
const GENERATION_BITS: u32 = 24;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

/// The kind of operation that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    /// Multishot receive of a socket.
    Receive = 1,
    /// Send of a socket.
    Send = 2,
    /// Connect of a socket.
    Connect = 3,
    /// Multishot accept of a listener.
    Accept = 4,
    /// End of the pause after a failed accept of a listener.
    AcceptPause = 5,
    /// Multishot poll of this ring's eventfd.
    WakerPoll = 6,
    /// A MSG_RING from a sibling.
    Message = 7,
    /// Write of the buffer for durable writes.
    Write = 8,
    /// Cancel, close and wake requests. They complete only if they fail, and a failure has no
    /// consequence.
    Ignored = 9,
}

impl Kind {
    fn from_bits(bits: u8) -> Kind {
        match bits {
            1 => Kind::Receive,
            2 => Kind::Send,
            3 => Kind::Connect,
            4 => Kind::Accept,
            5 => Kind::AcceptPause,
            6 => Kind::WakerPoll,
            7 => Kind::Message,
            8 => Kind::Write,
            9 => Kind::Ignored,
            other => panic!("completion of kind {other}, which no operation was given"),
        }
    }
}

/// Kind (8 bits), generation (24 bits) and index (32 bits) in one word, from the top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Token(u64);

impl Token {
    /// The token of an operation that belongs to no slot.
    pub(super) const fn of(kind: Kind) -> Token {
        Token((kind as u64) << 56)
    }

    /// The token of an operation on slot `index`.
    pub(super) const fn of_slot(kind: Kind, index: u32, generation: u32) -> Token {
        let generation = (generation & GENERATION_MASK) as u64;
        Token((kind as u64) << 56 | generation << 32 | index as u64)
    }

    /// The token in a word that the kernel gave back.
    pub(super) const fn from_bits(bits: u64) -> Token {
        Token(bits)
    }

    /// The word to give to the kernel.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn kind(self) -> Kind {
        Kind::from_bits((self.0 >> 56) as u8)
    }

    pub(super) const fn index(self) -> u32 {
        self.0 as u32
    }

    /// Whether the token was made for this generation of its slot.
    pub(super) const fn is_of_generation(self, generation: u32) -> bool {
        (self.0 >> 32) as u32 & GENERATION_MASK == generation & GENERATION_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_survives_the_round_trip() {
        for kind in 1..=9 {
            let kind = Kind::from_bits(kind);
            for index in [0, 1, u32::MAX] {
                for generation in [0, 1, GENERATION_MASK, GENERATION_MASK + 1, u32::MAX] {
                    let token = Token::from_bits(Token::of_slot(kind, index, generation).bits());
                    assert_eq!((token.kind(), token.index()), (kind, index));
                    assert!(token.is_of_generation(generation));
                    assert!(!token.is_of_generation(generation.wrapping_add(1)));
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "no operation was given")]
    fn an_unknown_kind_is_a_bug() {
        Token::from_bits(0).kind();
    }
}
