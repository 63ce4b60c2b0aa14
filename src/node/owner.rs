//! The owner of a completion, as a number that a socket carries through the ring.

// May panic: assertions 1.
// Why it does not: ordered 1.

/// The owner of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A client connection. The number is its place.
    Client(u32),
    /// A callback connection. The number is its place.
    Callback(u32),
    /// The connection to a peer. The number is the peer's number.
    Peer(u32),
    /// A connection that a peer dialled. The number is its place.
    Inbound(u32),
    /// A connection for timestamps. The number is its place.
    Timestamp(u32),
}

impl Owner {
    /// Returns the number that the ring carries.
    pub fn to_bits(self) -> u64 {
        let (kind, place) = match self {
            Owner::Client(place) => (0, place),
            Owner::Callback(place) => (1, place),
            Owner::Peer(place) => (2, place),
            Owner::Inbound(place) => (3, place),
            Owner::Timestamp(place) => (4, place),
        };
        kind << 32 | u64::from(place)
    }

    /// Reads a number that the ring carried. Panics for a number that [`Owner::to_bits`] does not
    /// return.
    pub fn from_bits(bits: u64) -> Self {
        let place = bits as u32;
        match bits >> 32 {
            0 => Owner::Client(place),
            1 => Owner::Callback(place),
            2 => Owner::Peer(place),
            3 => Owner::Inbound(place),
            4 => Owner::Timestamp(place),
            other => unreachable!("no socket was given an owner of kind {other}"),
        }
    }
}
