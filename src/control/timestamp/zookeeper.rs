//! Sessions of `ZooKeeper`, and the operations of servers that may be master. Tools only look
//! (`cli/timestamp/directory.rs`). Layout and bytes are those of the original
//! (docs/compat/timestamp-service.md §3), so that servers, clients and tools of both kinds read
//! each other.
//!
//! The library does the following, as far as it matters here:
//!
//! - One task per session writes requests in the order in which they were made.
//! - While the session is not connected, requests wait. They are sent after the session is
//!   connected again.
//! - Requests that were under way when the connection broke are answered with an error, whether
//!   they were done or not.
//! - The session connects again by itself until it is over: by the ensemble's word, or after 7/5 of
//!   its length without contact.
//! - The library never begins another session.
//! - When the last handle is dropped the session is closed in order.

// May panic: assertions 1.
// Why it does not: ordered 1.

use std::time::Duration;

use tokio::time::timeout;
use zookeeper_client::{
    Acl, Acls, AuthId, Client, CreateMode, Error, MultiWriteError, MultiWriteResult,
    OneshotWatcher, Permission, SaslOptions, Stat, StateWatcher,
};

use crate::base::time::WallMs;
use crate::control::config::timestamp::Authentication;
use crate::timestamp::Timestamp;
use crate::timestamp::coordinator::{Answer, Ask, MasterNode, Nodes, SessionId, StoredBound};

/// Pause between two tries to begin a session.
const CONNECT_PAUSE: Duration = Duration::from_millis(200);
/// How often the master's node is looked at while it comes and goes. Then the operation fails for
/// now.
const LOOKS_MAX: usize = 16;
/// Longest wait for a session to close in order. After this time the session ends by its timeout.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// How to reach and use `ZooKeeper`.
#[derive(Clone)]
pub(crate) struct ZooKeeperSettings {
    /// The servers, as `host:port,host:port/folder`.
    pub quorum: String,
    /// The folder of this cluster below `/chronos`.
    pub cluster: String,
    /// `host_port` of this server. It is written into the server's nodes.
    pub host_port: String,
    /// The session timeout that is asked for.
    pub session_timeout: Duration,
    /// How this server authenticates itself.
    pub authentication: Authentication,
    /// The user name for authentication.
    pub user: String,
    /// The password of `user`.
    pub password: String,
}

/// Writes the settings without the password.
impl std::fmt::Debug for ZooKeeperSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { quorum, cluster, host_port, authentication, user, .. } = self;
        write!(f, "{host_port} at {quorum}, {cluster}, {authentication:?} {user:?}")
    }
}

/// Paths of a cluster's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// `/chronos`.
    pub root: String,
    /// `/chronos/<cluster>`. One transaction makes this node, `backups` and `bound`.
    pub base: String,
    /// The master's node: ephemeral, with `host_port` of the master as data.
    pub master: String,
    /// The folder of the backups: one ephemeral child `host_port` per backup.
    pub backups: String,
    /// The node of the bound: empty, or 8 bytes big-endian. The bound is above every timestamp that
    /// was handed out.
    pub bound: String,
}

impl Layout {
    /// Returns the paths of the cluster with this name.
    pub(crate) fn of(cluster: &str) -> Self {
        let base = format!("/chronos/{cluster}");
        Self {
            root: "/chronos".into(),
            master: format!("{base}/master"),
            backups: format!("{base}/backup-servers"),
            bound: format!("{base}/persistent-timestamp"),
            base,
        }
    }
}

/// Reads the bound in the original's format. No bytes mean 0. `None`: no server can have written
/// these bytes.
pub(crate) fn read_bound(bytes: &[u8]) -> Option<Timestamp> {
    if bytes.is_empty() {
        return Some(Timestamp(0));
    }
    let number = i64::from_be_bytes(bytes.try_into().ok()?);
    u64::try_from(number).ok().map(Timestamp)
}

/// Writes the bound in the original's format.
pub(crate) fn write_bound(bound: Timestamp) -> [u8; 8] {
    bound.0.to_be_bytes()
}

/// Begins a session. Each server is tried once. Tools use this as well, with any session timeout.
pub(crate) async fn connect(settings: &ZooKeeperSettings) -> Result<Client, Error> {
    let mut connector =
        Client::connector().with_session_timeout(settings.session_timeout).with_fail_eagerly();
    let ZooKeeperSettings { user, password, .. } = settings;
    match settings.authentication {
        Authentication::None => {}
        Authentication::Digest => {
            connector = connector.with_auth("digest", format!("{user}:{password}").as_bytes());
        }
        Authentication::SaslDigest => {
            connector =
                connector.with_sasl(SaslOptions::digest_md5(user.clone(), password.clone()));
        }
    }
    connector.connect(&settings.quorum).await
}

/// A session with `ZooKeeper`, or the settings to begin one.
#[derive(Clone, Debug)]
pub(crate) struct ZooKeeperSession {
    settings: ZooKeeperSettings,
    layout: Layout,
    client: Option<Client>,
}

/// How an [`Ask`] ended, and what the driver needs besides the answer.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The answer for the coordinator.
    pub answer: Answer,
    /// Fires when the node watched by [`Ask::WatchMaster`] changes.
    pub watcher: Option<OneshotWatcher>,
    /// The session that [`Ask::OpenSession`] has begun.
    pub opened: Option<Client>,
    /// What went wrong, for people.
    pub problem: Option<String>,
}

impl Asked {
    /// Makes an answer without anything besides.
    pub(crate) fn of(answer: Answer) -> Self {
        Self { answer, watcher: None, opened: None, problem: None }
    }
}

impl ZooKeeperSession {
    /// Remembers the settings. No session is begun yet.
    pub(crate) fn new(settings: ZooKeeperSettings) -> Self {
        let layout = Layout::of(&settings.cluster);
        Self { settings, layout, client: None }
    }

    /// Returns the session's id and a watcher of its state; `None` without a session.
    pub(crate) fn state(&self) -> Option<(SessionId, StateWatcher)> {
        self.client
            .as_ref()
            .map(|client| (SessionId(client.session_id().0), client.state_watcher()))
    }

    /// Takes the session that was begun. `None` drops the present session; when no other handle
    /// exists, it is closed in order.
    pub(crate) fn set_client(&mut self, client: Option<Client>) {
        self.client = client;
    }

    /// Carries out an operation. Never fails: an error becomes an answer with a problem.
    pub(crate) async fn ask(&self, ask: &Ask) -> Asked {
        let Some(client) = &self.client else {
            return match ask {
                Ask::OpenSession => self.open().await,
                Ask::CloseSession => Asked::of(Answer::Done),
                // Without a session, no other operation can succeed.
                _ => Asked::of(Answer::Expired),
            };
        };
        let done = match ask {
            Ask::OpenSession => return self.open().await,
            Ask::CloseSession => unreachable!("the driver lets go of the session first"),
            Ask::FindNodes => self.find_nodes(client).await,
            Ask::MakeCluster => self.make_cluster(client).await,
            Ask::CreateMaster => self.create_own(client, &self.layout.master).await,
            Ask::WatchMaster => match self.watch_master(client).await {
                Ok((master, watcher)) => {
                    let watcher = Some(watcher);
                    return Asked { watcher, ..Asked::of(Answer::Master(master)) };
                }
                Err(error) => Err(error.into()),
            },
            Ask::RegisterBackup => self.create_own(client, &self.own_backup()).await,
            Ask::UnregisterBackup => match client.delete(&self.own_backup(), None).await {
                Ok(()) | Err(Error::NoNode) => Ok(Answer::Done),
                Err(error) => Err(error.into()),
            },
            Ask::ReadBound => self.read_bound(client).await,
            Ask::WriteBound { bound, version } => self.write_bound(client, *bound, *version).await,
            Ask::Release { bound, version } => self.release(client, *bound, *version).await,
        };
        match done {
            Ok(answer) => Asked::of(answer),
            Err(Failure { answer, problem }) => {
                Asked { problem: Some(problem), ..Asked::of(answer) }
            }
        }
    }

    async fn open(&self) -> Asked {
        match connect(&self.settings).await {
            Ok(client) => {
                let session = SessionId(client.session_id().0);
                let timeout_ms = client.session_timeout().as_millis() as u64;
                let answer = Answer::Session { session, timeout_ms };
                Asked { opened: Some(client), ..Asked::of(answer) }
            }
            Err(error) => {
                tokio::time::sleep(CONNECT_PAUSE).await;
                let problem = match error {
                    // The library logs what happened to each server at level debug only.
                    Error::NoHosts => format!("no server of {} answers", self.settings.quorum),
                    error => Failure::from(error).problem,
                };
                Asked { problem: Some(problem), ..Asked::of(Answer::Lost) }
            }
        }
    }

    /// Looks which nodes of the cluster exist. The bound is looked for last, because an original
    /// makes it last.
    async fn find_nodes(&self, client: &Client) -> Result<Answer, Failure> {
        let Layout { base, backups, bound, .. } = &self.layout;
        // The look comes before the making: a user who may read the nodes need not have the right
        // to make them.
        if client.check_stat(base).await?.is_none() {
            return Ok(Answer::Nodes(Nodes::None));
        }
        if client.check_stat(backups).await?.is_none() {
            make_node(client, backups, &rights(&self.settings)).await?;
        }
        let has_bound = client.check_stat(bound).await?.is_some();
        Ok(Answer::Nodes(if has_bound { Nodes::Whole } else { Nodes::NoBound }))
    }

    async fn make_cluster(&self, client: &Client) -> Result<Answer, Failure> {
        let Layout { root, base, backups, bound, .. } = &self.layout;
        make_root(client, root).await?;
        let guarded = rights(&self.settings);
        let options = CreateMode::Persistent.with_acls(Acls::new(&guarded));
        let mut writer = client.new_multi_writer();
        for path in [base, backups, bound] {
            writer.add_create(path, b"", &options)?;
        }
        match writer.commit().await {
            Ok(_) => Ok(Answer::Done),
            Err(MultiWriteError::OperationFailed { source: Error::NodeExists, .. }) => {
                Ok(Answer::Exists)
            }
            Err(error) => Err(Error::from(error).into()),
        }
    }

    async fn create_own(&self, client: &Client, path: &str) -> Result<Answer, Failure> {
        let rights = rights(&self.settings);
        let options = CreateMode::Ephemeral.with_acls(Acls::new(&rights));
        match client.create(path, self.settings.host_port.as_bytes(), &options).await {
            Ok(_) => Ok(Answer::Done),
            Err(Error::NodeExists) => Ok(Answer::Exists),
            Err(error) => Err(error.into()),
        }
    }

    fn own_backup(&self) -> String {
        format!("{}/{}", self.layout.backups, self.settings.host_port)
    }

    /// Reads the master's node and watches it. ZooKeeper can watch a node that is missing, but
    /// cannot read its data and watch it in one request. The node may come and go between two
    /// requests, so both are tried in turns.
    async fn watch_master(
        &self,
        client: &Client,
    ) -> Result<(Option<MasterNode>, OneshotWatcher), Error> {
        for _ in 0..LOOKS_MAX {
            match client.get_and_watch_data(&self.layout.master).await {
                Ok((data, stat, watcher)) => return Ok((Some(master_of(&data, &stat)), watcher)),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error),
            }
            if let (None, watcher) = client.check_and_watch_stat(&self.layout.master).await? {
                return Ok((None, watcher));
            }
        }
        Err(Error::ConnectionLoss)
    }

    async fn read_bound(&self, client: &Client) -> Result<Answer, Failure> {
        client.sync(&self.layout.bound).await?;
        let (data, stat) = match client.get_data(&self.layout.bound).await {
            Err(Error::NoNode) => return Ok(Answer::NoBound),
            read => read?,
        };
        let bound = read_bound(&data).ok_or_else(|| Failure {
            answer: Answer::Refused,
            problem: format!(
                "{} holds {} bytes that are no bound; delete that node and type: {}",
                self.layout.bound,
                data.len(),
                init_command(&self.settings, None)
            ),
        })?;
        Ok(Answer::Bound(StoredBound { bound, version: stat.version }))
    }

    async fn write_bound(
        &self,
        client: &Client,
        bound: Timestamp,
        version: i32,
    ) -> Result<Answer, Failure> {
        let mut writer = client.new_multi_writer();
        // Version -1 checks only that the node exists.
        writer.add_check_version(&self.layout.master, -1)?;
        writer.add_set_data(&self.layout.bound, &write_bound(bound), Some(version))?;
        judged(writer.commit().await, |results| {
            let told = results.iter().find_map(|result| match result {
                MultiWriteResult::SetData { stat } => Some(wall_of(stat.mtime)),
                _ => None,
            });
            // If an ensemble acknowledges without saying what, the bound may have been written or
            // not.
            told.map_or(Answer::Lost, Answer::Written)
        })
    }

    async fn release(
        &self,
        client: &Client,
        bound: Timestamp,
        version: i32,
    ) -> Result<Answer, Failure> {
        let mut writer = client.new_multi_writer();
        writer.add_set_data(&self.layout.bound, &write_bound(bound), Some(version))?;
        writer.add_delete(&self.layout.master, None)?;
        judged(writer.commit().await, |_| Answer::Done)
    }

    /// Says what to do when the bound's node is missing. `stored` is the bound that this server
    /// stored last.
    pub(crate) fn lost_bound_told(&self, stored: Option<Timestamp>) -> String {
        format!(
            "there is no {}, which keeps the bound above all timestamps handed out: none is \
             handed out until it is made anew. Type: {}",
            self.layout.bound,
            init_command(&self.settings, stored)
        )
    }
}

/// Returns the command that makes the bound anew, above the bound that was stored last.
fn init_command(settings: &ZooKeeperSettings, stored: Option<Timestamp>) -> String {
    let above = match stored {
        Some(stored) => format!("{}, which this server stored last", stored.0),
        None => "TS, with a timestamp TS that is above all that were handed out".into(),
    };
    let ZooKeeperSettings { quorum, cluster, .. } = settings;
    let config = match settings.authentication {
        Authentication::None => "",
        _ => " --config FILE",
    };
    format!(
        "chronos timestamp init --zookeeper {quorum} --cluster {cluster}{config} --above {above}"
    )
}

/// Makes the root if it is missing. Everybody may make clusters below it, as with the original.
pub(crate) async fn make_root(client: &Client, root: &str) -> Result<(), Error> {
    if client.check_stat(root).await?.is_some() {
        return Ok(());
    }
    make_node(client, root, &[Acl::new(Permission::ALL, AuthId::anyone())]).await
}

/// Makes a persistent, empty node if it is missing.
pub(crate) async fn make_node(client: &Client, path: &str, rights: &[Acl]) -> Result<(), Error> {
    let options = CreateMode::Persistent.with_acls(Acls::new(rights));
    match client.create(path, b"", &options).await {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the rights of new nodes, which are the original's: everybody reads, the servers do
/// everything. Without authentication everybody does everything.
pub(crate) fn rights(settings: &ZooKeeperSettings) -> Vec<Acl> {
    let own = match settings.authentication {
        Authentication::None => return vec![Acl::new(Permission::ALL, AuthId::anyone())],
        // ZooKeeper stores the user that it has identified, with a hash of the password.
        Authentication::Digest => AuthId::authed(),
        Authentication::SaslDigest => AuthId::new("sasl", &settings.user),
    };
    vec![Acl::new(Permission::READ, AuthId::anyone()), Acl::new(Permission::ALL, own)]
}

/// Waits until a session whose last handle was dropped is over, at most [`CLOSE_LIMIT`].
pub(crate) async fn closed(mut state: StateWatcher) {
    let over = async { while !state.changed().await.is_terminated() {} };
    // After the limit the session ends by its timeout. Its nodes stay until then.
    let _ = timeout(CLOSE_LIMIT, over).await;
}

/// Longest `host_port`, in bytes: a host name and a port.
const HOST_PORT_BYTES_MAX: usize = 253 + 6;

/// Returns the data of a server's node, for people and refused clients. Without authentication
/// anybody can write a megabyte of any bytes there, so data that is no address is not repeated.
pub(crate) fn read_host_port(data: &[u8]) -> String {
    let is_fine = data.len() <= HOST_PORT_BYTES_MAX && data.iter().all(u8::is_ascii_graphic);
    match is_fine {
        true => data.iter().copied().map(char::from).collect(),
        false => "unreadable".into(),
    }
}

fn master_of(data: &[u8], stat: &Stat) -> MasterNode {
    MasterNode {
        address: read_host_port(data),
        owner: SessionId(stat.ephemeral_owner),
        created: wall_of(stat.ctime),
    }
}

fn wall_of(time: i64) -> WallMs {
    WallMs(u64::try_from(time).unwrap_or(0))
}

fn judged(
    done: Result<Vec<MultiWriteResult>, MultiWriteError>,
    answer: impl FnOnce(&[MultiWriteResult]) -> Answer,
) -> Result<Answer, Failure> {
    match done {
        Ok(results) => Ok(answer(&results)),
        Err(MultiWriteError::OperationFailed {
            source: Error::BadVersion | Error::NoNode, ..
        }) => Ok(Answer::Conflict),
        Err(error) => Err(Error::from(error).into()),
    }
}

/// An answer, and the problem behind it for people.
#[derive(Debug)]
struct Failure {
    answer: Answer,
    problem: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let answer = answer_of(&error);
        let problem = problem_of(&error);
        Self { answer, problem }
    }
}

/// Says for people what went wrong and what to do.
pub(crate) fn problem_of(error: &Error) -> String {
    match error {
        Error::NoAuth => "not authorized: the nodes below /chronos belong to another user; \
                              give all servers of a cluster the same zookeeper_auth and user"
            .into(),
        Error::AuthFailed => format!(
            "{error}: make zookeeper_auth, zookeeper_user and zookeeper_password_file agree \
                 with what ZooKeeper is configured to accept"
        ),
        error => error.to_string(),
    }
}

/// Returns what an error means for the mastership.
///
/// - An error of the session ends the session.
/// - An error that the servers give to one request means that nothing was done.
/// - After any other error the operation may have been done or not.
fn answer_of(error: &Error) -> Answer {
    match error {
        Error::SessionExpired | Error::AuthFailed | Error::ClientClosed => Answer::Expired,
        Error::NoNode
        | Error::NodeExists
        | Error::NoAuth
        | Error::BadVersion
        | Error::BadArguments(_)
        | Error::InvalidAcl
        | Error::NoChildrenForEphemerals
        | Error::NotEmpty
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::Unimplemented => Answer::Refused,
        _ => Answer::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_has_the_bytes_of_the_original() {
        assert_eq!(read_bound(b""), Some(Timestamp(0)));
        // From a run of the original.
        let bytes = [0x06, 0x87, 0xea, 0x4b, 0x67, 0x24, 0, 0];
        assert_eq!(read_bound(&bytes), Some(Timestamp(470_602_295_657_365_504)));
        assert_eq!(write_bound(Timestamp(470_602_295_657_365_504)), bytes);
        for bad in [&[0][..], &[0; 7], &[0; 9], &[0xff; 8]] {
            assert_eq!(read_bound(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_no_address_is_not_repeated() {
        assert_eq!(read_host_port(b"127.0.0.1_7911"), "127.0.0.1_7911");
        assert_eq!(read_host_port(&[b'a'; HOST_PORT_BYTES_MAX]).len(), HOST_PORT_BYTES_MAX);
        for bad in [&[b'a'; HOST_PORT_BYTES_MAX + 1][..], b"a b", b"a\nb", b"\xff_1", b"\x1b[2J"] {
            assert_eq!(read_host_port(bad), "unreadable");
        }
    }

    #[test]
    fn only_what_certainly_was_not_done_is_called_refused() {
        assert_eq!(answer_of(&Error::NoAuth), Answer::Refused);
        assert_eq!(answer_of(&Error::ConnectionLoss), Answer::Lost);
        assert_eq!(answer_of(&Error::Timeout), Answer::Lost);
        assert_eq!(answer_of(&Error::SessionMoved), Answer::Lost);
        assert_eq!(answer_of(&Error::SessionExpired), Answer::Expired);
    }
}
