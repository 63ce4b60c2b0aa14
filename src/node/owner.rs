//! Whose a completion is: the number that a socket carries through the ring.

/// The owner of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A client connection, by its place.
    Client(u32),
    /// A callback connection, by its place.
    Callback(u32),
    /// The connection to a peer, by its number.
    Peer(u32),
    /// A connection that a peer dialled, by its place.
    Inbound(u32),
    /// A connection for timestamps, by its place.
    Timestamp(u32),
}

impl Owner {
    /// As the ring carries it.
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

    /// From what the ring carried.
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
