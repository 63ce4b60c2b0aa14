//! The source of timestamps: one server, or the master of a cluster.

use std::fmt::Display;
use std::sync::Arc;

use clap::Args;

use super::directory::wrong_cluster;

/// The server that is asked where no flag names another.
const SERVER: &str = "127.0.0.1:7911";
/// The name of the cluster in the original's defaults.
const CLUSTER: &str = "default-cluster";

/// The flags that choose the source of timestamps.
#[derive(Debug, Args)]
pub(crate) struct SourceFlags {
    /// Address of a server [default: 127.0.0.1:7911]
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "zookeeper")]
    server: Option<String>,

    /// Servers of ZooKeeper, which names the master of a cluster
    #[arg(long, value_name = "HOST:PORT,...")]
    zookeeper: Option<String>,

    /// Name of the cluster [default: default-cluster]
    #[arg(long, value_name = "NAME", requires = "zookeeper")]
    cluster: Option<String>,
}

/// The flags that name a cluster in `ZooKeeper`.
#[derive(Debug, Args)]
pub(crate) struct ZooKeeperFlags {
    /// Servers of ZooKeeper
    #[arg(long, value_name = "HOST:PORT,...", default_value = "127.0.0.1:2181")]
    pub zookeeper: String,

    /// Name of the cluster
    #[arg(long, value_name = "NAME", default_value = CLUSTER)]
    pub cluster: String,
}

/// The source of timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TimestampSource {
    /// The server at this address.
    Server(Arc<str>),
    /// The master of a cluster, as `ZooKeeper` names it.
    Cluster {
        /// The servers of `ZooKeeper` as `host:port,host:port`.
        quorum: String,
        /// The name of the cluster.
        cluster: String,
    },
}

impl SourceFlags {
    /// Returns the source. An error says what is wrong with the command line.
    pub(super) fn chosen(&self) -> Result<TimestampSource, String> {
        let Some(quorum) = &self.zookeeper else {
            let server = self.server.as_deref().unwrap_or(SERVER);
            let is_address = server.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            return match is_address {
                true => Ok(TimestampSource::Server(server.into())),
                false => Err(format!("--server `{server}`: expected host:port such as {SERVER}")),
            };
        };
        let cluster = self.cluster.as_deref().unwrap_or(CLUSTER);
        let source =
            TimestampSource::Cluster { quorum: quorum.clone(), cluster: cluster.to_owned() };
        wrong_cluster(cluster).map_or(Ok(source), Err)
    }
}

impl Display for TimestampSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TimestampSource::Server(address) => write!(f, "{address}"),
            TimestampSource::Cluster { quorum, cluster } => {
                write!(f, "the master of {cluster} (ZooKeeper {quorum})")
            }
        }
    }
}
