//! Makes the bound of a cluster in `ZooKeeper` by order of an operator. No server makes a lost
//! bound anew.

use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::zookeeper::{
    Layout, ZooKeeperSettings, connect, make_node, make_root, problem_of, read_bound, rights,
    write_bound,
};
use crate::timestamp::Timestamp;

/// Longest time for the session and all that follows, together.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest session. No failover waits for the end of this one, and the client gives a server
/// up that takes 2/5 of a session to answer.
const SESSION_MIN: Duration = Duration::from_secs(25);

/// Why there is no new bound. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    /// The bound is there already.
    #[error(
        "{path} is there already and keeps the bound {bound}. It is never overwritten: a lower \
         bound would repeat timestamps. Delete that node first if that is what you want"
    )]
    Exists {
        /// The path of the node.
        path: String,
        /// The bound that the node keeps.
        bound: u64,
    },
    /// The node's data is no bound.
    #[error("{path} holds {bytes} bytes that are no bound; delete that node first")]
    Damaged {
        /// The path of the node.
        path: String,
        /// The length of the node's data.
        bytes: usize,
    },
    /// The cluster exists and has lost its bound.
    #[error(
        "there is a cluster at {base} that has lost its bound: say with --above TS above which \
         timestamp it goes on, one that is above all that were handed out"
    )]
    Lost {
        /// The path of the cluster's node.
        base: String,
    },
    /// `ZooKeeper` did not make the nodes.
    #[error("ZooKeeper at {quorum} did not make {path}: {why}")]
    ZooKeeper {
        /// The servers that were asked.
        quorum: String,
        /// The path of the node.
        path: String,
        /// What went wrong.
        why: String,
    },
}

/// Makes the missing nodes of a cluster, and the bound. Returns the path of the bound. `is_said`
/// means that the operator has said above which timestamp the bound lies; without that, a cluster
/// that has lost its bound is refused.
pub(crate) async fn init(
    settings: &ZooKeeperSettings,
    bound: Timestamp,
    is_said: bool,
) -> Result<String, InitError> {
    let session_timeout = settings.session_timeout.max(SESSION_MIN);
    let settings = &ZooKeeperSettings { session_timeout, ..settings.clone() };
    let layout = Layout::of(&settings.cluster);
    let failed = |why: String| InitError::ZooKeeper {
        quorum: settings.quorum.clone(),
        path: layout.bound.clone(),
        why,
    };
    let made = timeout(PATIENCE, async {
        let client = connect(settings).await.map_err(|error| failed(problem_of(&error)))?;
        // Another server may write the bound at the same time. The second try then finds it.
        for _ in 0..2 {
            let done = make(&client, settings, &layout, bound, is_said).await;
            if done.map_err(|error| failed(problem_of(&error)))?? {
                return Ok(layout.bound.clone());
            }
        }
        Err(failed("somebody else writes it".into()))
    });
    made.await.unwrap_or_else(|_| Err(failed("no answer in time".into())))
}

/// Makes the nodes and the bound once. Returns `false` if another server was faster.
async fn make(
    client: &Client,
    settings: &ZooKeeperSettings,
    layout: &Layout,
    bound: Timestamp,
    is_said: bool,
) -> Result<Result<bool, InitError>, Error> {
    let Layout { root, base, backups, bound: path, .. } = layout;
    let rights = rights(settings);
    client.sync("/").await?;
    let written = match client.get_data(path).await {
        Ok((data, stat)) if data.is_empty() => {
            // The node was made and never written.
            client.set_data(path, &write_bound(bound), Some(stat.version)).await.map(drop)
        }
        Ok((data, _)) => {
            let path = path.clone();
            return Ok(Err(match read_bound(&data) {
                Some(Timestamp(bound)) => InitError::Exists { path, bound },
                None => InitError::Damaged { path, bytes: data.len() },
            }));
        }
        Err(Error::NoNode) => {
            if !is_said && client.check_stat(base).await?.is_some() {
                return Ok(Err(InitError::Lost { base: base.clone() }));
            }
            make_root(client, root).await?;
            make_node(client, base, &rights).await?;
            make_node(client, backups, &rights).await?;
            let options = CreateMode::Persistent.with_acls(Acls::new(&rights));
            client.create(path, &write_bound(bound), &options).await.map(drop)
        }
        Err(error) => return Err(error),
    };
    match written {
        Ok(()) => Ok(Ok(true)),
        Err(Error::NodeExists | Error::BadVersion | Error::NoNode) => Ok(Ok(false)),
        Err(error) => Err(error),
    }
}
