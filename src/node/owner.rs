//! Whose a completion is: the number that a socket carries through the ring.

/// The owner of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A client connection, by its place.
    Client(u32),
    /// A callback connection, by its place.
    Callback(u32),
}

const CALLBACK: u64 = 1 << 32;

impl Owner {
    /// As the ring carries it.
    pub fn to_bits(self) -> u64 {
        match self {
            Owner::Client(place) => u64::from(place),
            Owner::Callback(place) => CALLBACK | u64::from(place),
        }
    }

    /// From what the ring carried.
    pub fn from_bits(bits: u64) -> Self {
        let place = bits as u32;
        if bits & CALLBACK == 0 { Owner::Client(place) } else { Owner::Callback(place) }
    }
}
