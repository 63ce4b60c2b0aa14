//! Reads from `ZooKeeper` what it knows about the servers of a cluster, as the tools and clients of
//! the original do. Writes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Client, Error};

use crate::control::timestamp::zookeeper::Layout;
use crate::timestamp::Timestamp;

/// Session timeout of a tool. The session owns no nodes, so its length only decides how soon a dead
/// connection is noticed.
const SESSION: Duration = Duration::from_secs(13);
/// Longest wait for a session, and for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before another session is tried.
const AGAIN: Duration = Duration::from_millis(500);

/// Why nothing is known about the servers. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error(
        "no session with ZooKeeper at {quorum}: {why}; is it running, and is --zookeeper right?"
    )]
    Connect { quorum: String, why: String },
    #[error("ZooKeeper does not tell {path}: {why}")]
    Read { path: String, why: String },
    #[error(
        "{base} does not exist: no server of that cluster ever ran there; check --cluster, and \
         --zookeeper"
    )]
    NoCluster { base: String },
}

/// The servers of a cluster, and the bound of their timestamps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Picture {
    /// `host_port` of the master; `None` if there is none.
    pub master: Option<String>,
    /// Names of the backups as `host_port`, sorted. `None`: their folder is missing.
    pub backups: Option<Vec<String>>,
    /// The bound, which is above every timestamp that was handed out. `None`: its node is missing.
    pub bound: Option<Timestamp>,
}

/// A session with `ZooKeeper`, and the paths of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct ServerDirectory {
    client: Client,
    layout: Layout,
}

/// Returns what is wrong with a cluster's name. Called before any server is asked.
pub(crate) fn wrong_cluster(name: &str) -> Option<String> {
    let is_wrong = name.is_empty() || name.contains('/') || name.chars().any(char::is_control);
    (is_wrong || name == "." || name == "..")
        .then(|| format!("--cluster `{name}`: expected a name without `/` such as default-cluster"))
}

impl ServerDirectory {
    /// Begins a session. Waits at most [`PATIENCE`].
    pub(super) async fn open(quorum: &str, cluster: &str) -> Result<Self, DirectoryError> {
        let connector = Client::connector().with_session_timeout(SESSION).with_fail_eagerly();
        let connected = timeout(PATIENCE, connector.connect(quorum)).await;
        let failed = |why: String| DirectoryError::Connect { quorum: quorum.to_owned(), why };
        match connected {
            Ok(Ok(client)) => Ok(Self { client, layout: Layout::of(cluster) }),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("no answer in time".into())),
        }
    }

    /// Returns the path of the cluster's node, `/chronos/<cluster>`.
    pub(super) fn base(&self) -> &str {
        &self.layout.base
    }

    /// Returns the path of the bound's node.
    pub(super) fn bound_path(&self) -> &str {
        &self.layout.bound
    }

    /// Returns `host_port` of the master; `None` if there is none.
    pub(super) async fn master(&self) -> Result<Option<String>, DirectoryError> {
        let path = &self.layout.master;
        let data = answer(path, self.client.get_data(path)).await?;
        Ok(data.map(|(data, _)| text(&data)))
    }

    /// Reads master, backups and bound. Returns an error if the cluster does not exist.
    pub(super) async fn picture(&self) -> Result<Picture, DirectoryError> {
        let Layout { base, backups, bound, .. } = &self.layout;
        if answer(base, self.client.get_data(base)).await?.is_none() {
            return Err(DirectoryError::NoCluster { base: base.clone() });
        }
        let names = answer(backups, self.client.get_children(backups)).await?;
        let stored = answer(bound, self.client.get_data(bound)).await?;
        Ok(Picture {
            master: self.master().await?,
            backups: names.map(|(mut names, _)| {
                names.sort();
                names
            }),
            bound: stored.map(|(data, _)| folded(&data)),
        })
    }

    /// Sends every change of the master to `news` as long as the session lives.
    async fn follow(&self, news: &watch::Sender<Option<Arc<str>>>) -> Result<(), DirectoryError> {
        let path = &self.layout.master;
        loop {
            let found = answer(path, self.client.get_and_watch_data(path)).await?;
            let watcher = match found {
                Some((data, _, watcher)) => {
                    tell(news, Some(address_of(&text(&data)).into()));
                    watcher
                }
                None => {
                    tell(news, None);
                    let stat = answer(path, self.client.check_and_watch_stat(path)).await?;
                    match stat {
                        Some((None, watcher)) => watcher,
                        // The node came back in between.
                        Some((Some(_), _)) | None => continue,
                    }
                }
            };
            watcher.changed().await;
        }
    }
}

/// Sends every change of the master to `news`, as `host:port`, until the receivers are dropped. The
/// last master stays known while `ZooKeeper` cannot be reached.
pub(crate) async fn follow_master(
    quorum: &str,
    cluster: &str,
    news: &watch::Sender<Option<Arc<str>>>,
) {
    while !news.is_closed() {
        if let Ok(directory) = ServerDirectory::open(quorum, cluster).await {
            // The call ends with its session. The next session begins below.
            let _ = directory.follow(news).await;
        }
        sleep(AGAIN).await;
    }
}

fn tell(news: &watch::Sender<Option<Arc<str>>>, master: Option<Arc<str>>) {
    news.send_if_modified(|known| {
        let is_news = *known != master;
        *known = master;
        is_news
    });
}

/// Waits for an answer, at most [`PATIENCE`]. `None`: there is no such node.
async fn answer<T>(
    path: &str,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<Option<T>, DirectoryError> {
    let why = match timeout(PATIENCE, asked).await {
        Ok(Ok(answer)) => return Ok(Some(answer)),
        Ok(Err(Error::NoNode)) => return Ok(None),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".into(),
    };
    Err(DirectoryError::Read { path: path.to_owned(), why })
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// Returns `host:port` of `host_port`. The last `_` separates host and port. The original separates
/// at the first `_`, so a host name with `_` does not work there.
pub(crate) fn address_of(host_port: &str) -> String {
    match host_port.rsplit_once('_') {
        Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        Some((host, port)) => format!("{host}:{port}"),
        None => host_port.to_owned(),
    }
}

/// Reads any number of bytes as one number, as the original's tool does. No bytes are 0.
fn folded(data: &[u8]) -> Timestamp {
    let value =
        data.iter().try_fold(0u64, |value, byte| Some(value.checked_mul(256)? + u64::from(*byte)));
    Timestamp(value.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_of_any_length_is_read() {
        assert_eq!(folded(&[]), Timestamp(0));
        assert_eq!(folded(&[1, 2]), Timestamp(258));
        let value = 470_601_292_516_425_728u64;
        assert_eq!(folded(&value.to_be_bytes()), Timestamp(value));
        assert_eq!(folded(&[1; 9]), Timestamp(u64::MAX));
        assert_eq!(folded(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 5]), Timestamp(5));
    }

    #[test]
    fn addresses_are_read_as_servers_write_them() {
        assert_eq!(address_of("127.0.0.1_7911"), "127.0.0.1:7911");
        assert_eq!(address_of("node_one_7911"), "node_one:7911");
        assert_eq!(address_of("fd00::1_7911"), "[fd00::1]:7911");
        assert_eq!(address_of("nonsense"), "nonsense");
    }

    #[test]
    fn names_of_clusters_are_checked() {
        for wrong in ["", "a/b", ".", "..", "a\0"] {
            assert!(wrong_cluster(wrong).is_some(), "{wrong:?}");
        }
        assert_eq!(wrong_cluster("default-cluster"), None);
    }
}
