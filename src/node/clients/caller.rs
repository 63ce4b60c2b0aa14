//! Who makes a request, as far as the connection and the head of the request tell.

use crate::base::quota::Quota;
use crate::node::clients::addressed::Addressed;
use crate::ring::{FarEnds, SocketId};

/// Where a request comes from. It is looked at only when another node may be the sender.
#[derive(Clone, Copy)]
pub struct Caller<'r> {
    /// The far ends of all sockets.
    pub far_ends: FarEnds<'r>,
    /// The socket of the connection.
    pub socket: SocketId,
    /// Whether the other end has proven that it knows the cluster's secret.
    pub is_proven: bool,
    /// Whether this is TLS between nodes, over which nothing goes but what nodes say.
    pub is_node: bool,
    /// Whether the other end is a node whose certificate has the name that the node has said.
    pub is_certified: bool,
    /// Whether the request says that it is a callback.
    pub is_callback: bool,
    /// What the name of the request's token may use; `None`: it has no limits, or nobody needs a
    /// token.
    pub quota: Option<&'r Quota>,
    /// What the request says that names its timer by a name or a key. `Err` is why it is refused.
    pub addressed: Option<&'r Result<Addressed, String>>,
}

impl<'r> Caller<'r> {
    /// A caller of whom only the socket is known.
    pub fn at(far_ends: FarEnds<'r>, socket: SocketId) -> Self {
        Self {
            far_ends,
            socket,
            is_proven: false,
            is_node: false,
            is_certified: false,
            is_callback: false,
            quota: None,
            addressed: None,
        }
    }
}
