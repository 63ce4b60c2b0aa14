//! What a core counts about its peers.

/// What a core counts about its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Messages given to links.
    pub messages_sent: u64,
    /// Messages that did not fit their link, or whose peer is not known: each is told as unheard.
    pub messages_dropped: u64,
    /// Messages taken from peers.
    pub messages_received: u64,
    /// Messages from peers that made no sense.
    pub messages_malformed: u64,
    /// Messages from peers answered `Busy`, because the queue to the core that owns the timer was
    /// full.
    pub messages_busy: u64,
    /// Bytes handed to connections with peers, in both directions of a pair.
    pub bytes_sent: u64,
    /// Bytes received over them.
    pub bytes_received: u64,
    /// Connections to peers that stood.
    pub connected: u64,
    /// Connections to peers that failed or broke.
    pub lost: u64,
    /// Connections closed because what came over them was no frame, or had no place there.
    pub broken: u64,
    /// Connections closed because all of them together held too many bytes.
    pub shed: u64,
    /// Connections with nodes that are no members, or another member than was dialled.
    pub strangers: u64,
    /// Connections and requests whose other end does not prove that it knows the cluster's secret.
    pub unproven: u64,
    /// Connections with a process that says it is a node which another process is.
    pub twins: u64,
    /// Connections with another node that has this node's instance bits: ids may be given out
    /// twice.
    pub same_instance: u64,
    /// Connections with a node whose cluster view differs.
    pub other_view: u64,
    /// Times that a member's wall clock was found too far from this node's.
    pub clocks_apart: u64,
    /// Times that most members were found to agree on another time than this node's.
    pub clocks_refused: u64,
}
