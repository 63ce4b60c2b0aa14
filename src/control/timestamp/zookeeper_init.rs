//! Makes the bound of a cluster in `ZooKeeper`, by order of an operator: no server makes it anew.

use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::zookeeper::{
    Layout, ZooKeeperSettings, connect, make_node, make_root, problem_of, read_bound, rights,
    write_bound,
};
use crate::timestamp::Timestamp;

/// Longest wait for a session, and for all that follows.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no new bound. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    /// It is there already.
    #[error(
        "{path} is there already and keeps the bound {bound}. It is never overwritten: a lower \
         bound would repeat timestamps. Delete that node first if that is what you want"
    )]
    Exists {
        /// Of the node.
        path: String,
        /// As stored.
        bound: u64,
    },
    /// The node holds something else.
    #[error("{path} holds {bytes} bytes that are no bound; delete that node first")]
    Damaged {
        /// Of the node.
        path: String,
        /// How many.
        bytes: usize,
    },
    /// The cluster has had a bound.
    #[error(
        "there is a cluster at {base} that has lost its bound: say with --above TS above which \
         timestamp it goes on, one that is above all that were handed out"
    )]
    Lost {
        /// The cluster's node.
        base: String,
    },
    /// `ZooKeeper` did not do it.
    #[error("ZooKeeper at {quorum} did not make {path}: {why}")]
    ZooKeeper {
        /// Its servers.
        quorum: String,
        /// Of the node.
        path: String,
        /// What it said.
        why: String,
    },
}

/// Makes the nodes of a cluster that are missing, and the bound. `is_said`: the operator has said
/// above which timestamp; a cluster that has lost its bound does not begin anew without that.
/// Returns the path of the bound.
pub(crate) async fn init(
    settings: &ZooKeeperSettings,
    bound: Timestamp,
    is_said: bool,
) -> Result<String, InitError> {
    let layout = Layout::of(&settings.cluster);
    let failed = |why: String| InitError::ZooKeeper {
        quorum: settings.quorum.clone(),
        path: layout.bound.clone(),
        why,
    };
    let made = timeout(PATIENCE, async {
        let client = connect(settings).await.map_err(|error| failed(problem_of(&error)))?;
        // Another server may write it at the same time: then it is there.
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

/// `false`: somebody else was faster.
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
            // Made, and never written.
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
