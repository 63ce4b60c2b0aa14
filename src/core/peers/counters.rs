//! What a core counts about its peers.

/// Counts since the start of the core. Each field only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// Messages given to links.
    pub messages_sent: u64,
    /// Messages that did not fit their link, or whose peer is not known. The shard is told of each
    /// that it is unheard.
    pub messages_dropped: u64,
    /// Messages taken from peers.
    pub messages_received: u64,
    /// Messages from peers that could not be decoded.
    pub messages_malformed: u64,
    /// Messages from peers that were answered `Busy`, because the queue to the core that owns the
    /// timer was full.
    pub messages_busy: u64,
    /// Bytes given to connections with peers, dialled and accepted.
    pub bytes_sent: u64,
    /// Bytes received over connections with peers.
    pub bytes_received: u64,
    /// Dialled connections that were used.
    pub connected: u64,
    /// Dials that failed and dialled connections that broke.
    pub lost: u64,
    /// Connections closed because the bytes on them were no frame, or a frame that may not come
    /// there.
    pub broken: u64,
    /// Copies that another site did not take, and refusals of this node by a site that has refused
    /// it for long.
    pub site_refusals: u64,
    /// Connections closed because all connections together held too many bytes.
    pub shed: u64,
    /// Connections with nodes that are no members, or with another member than the dialled one.
    pub strangers: u64,
    /// Connections and requests whose other end does not prove that it knows the cluster's secret.
    pub unproven: u64,
    /// Connections and requests of peers refused because they came without TLS.
    pub plain: u64,
    /// Connections over TLS refused because the certificate does not have the peer's name.
    pub misnamed: u64,
    /// Connections with a process that says it is a node which another process is.
    pub twins: u64,
    /// Connections with another node that has this node's instance bits. Ids may be given out
    /// twice.
    pub same_instance: u64,
    /// Connections with a node whose cluster view differs.
    pub other_view: u64,
    /// How often a member's wall clock came to be too far from this node's.
    pub clocks_apart: u64,
    /// How often most members came to agree on another time than this node's.
    pub clocks_refused: u64,
}
