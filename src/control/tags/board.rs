//! The statistics tags of a running node for the admin API. The board collects the counts of the
//! cores, and asks the other members where the whole cluster is wanted.

// May panic: expectations 3, indices 4.
// Why it does not: found 4, memory 3.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::interval;

use super::statistics::{TagStatistics, TagsReport};
use crate::control::http_client::{HttpClient, HttpError, HttpRequest, is_over_tls};
use crate::control::names::Names;
use crate::control::shared::Shared;
use crate::node::meters::CoreMeters;
use crate::ring;
use crate::tls::connector::Connector;

/// How often the board collects the changes of the cores. Each change carries its own time.
const HEAR_EVERY: Duration = Duration::from_millis(250);
/// How long a member may take for its answer. An admin connection lives 10 s, and two members in a
/// row must not outlast it.
const MEMBER_LIMIT: Duration = Duration::from_secs(3);
/// Longest answer of a member, in bytes. 1 000 tags with names of 64 bytes take some 600 KB.
const MEMBER_BYTES_MAX: usize = 64 << 20;

/// The statistics tags of one node, for the admin API.
pub(crate) struct TagBoard {
    meters: Arc<[CoreMeters]>,
    statistics: Mutex<TagStatistics>,
    /// The other members; `None` until [`TagBoard::set_members`] is called.
    members: Mutex<Option<Members>>,
}

/// What members over TLS are dialled with now; `None`: nothing says whom to believe.
pub(crate) type SharedConnector = Shared<Option<Arc<Connector>>>;

/// The admin listeners of the other members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members {
    /// Their addresses, with `https://` before those of TLS, without this node's own.
    pub addresses: Vec<String>,
    /// What those of TLS are dialled with.
    pub connector: SharedConnector,
    /// Where their names lead.
    pub names: Names,
}

/// Why there is no document: the status of the answer and a sentence.
pub(crate) type Unanswered = (StatusCode, String);

impl TagBoard {
    /// Asks the cores that write these meters for their changes from now on. At most `tags_max`
    /// tags get figures of their own.
    pub(crate) fn new(meters: Arc<[CoreMeters]>, tags_max: u32) -> Self {
        meters.iter().for_each(|meters| meters.tags.listen());
        let statistics = TagStatistics::new(meters.len(), tags_max as usize, ring::now());
        Self { meters, statistics: Mutex::new(statistics), members: Mutex::new(None) }
    }

    /// Sets which members are asked for the tags of the whole cluster.
    pub(crate) fn set_members(&self, members: Members) {
        *self.members.lock().expect("nobody panics with the list in hand") = Some(members);
    }

    /// Collects the changes of the cores every [`HEAR_EVERY`], until the future is dropped.
    pub(crate) async fn listen(&self) {
        let mut tick = interval(HEAR_EVERY);
        loop {
            tick.tick().await;
            drop(self.hear());
        }
    }

    /// Returns all figures of this node as of now.
    pub(crate) fn report(&self) -> TagsReport {
        self.hear().report(ring::now().mono.tick_floor())
    }

    /// Returns the JSON document for a request: of one tag or of all tags, of this node or, with
    /// `scope=cluster`, of all members that answer. `others` is how many other members there are.
    /// Errors: 400 for another scope, 501 when the addresses of fewer members are known: the sum
    /// would lack members without a word. `token` is the header `Authorization` of whoever asks;
    /// members over TLS are shown it.
    pub(crate) async fn document(
        &self,
        tag: Option<&str>,
        (query, others): (&str, usize),
        token: Option<&str>,
    ) -> Result<Value, Unanswered> {
        let scope = query.split('&').find_map(|pair| pair.strip_prefix("scope="));
        let mut report = self.report();
        let (mut nodes, mut unreachable) = (1, Vec::new());
        match scope.unwrap_or("node") {
            "node" => {}
            "cluster" => {
                let members = self.members().filter(|known| known.addresses.len() >= others);
                let members = members.ok_or_else(no_members)?;
                for (address, answer) in ask(members, token).await {
                    match answer {
                        Ok(other) => {
                            nodes += 1;
                            report.add(&other);
                        }
                        Err(error) => unreachable.push(format!("{address}: {error}")),
                    }
                }
            }
            other => {
                let reason = format!("scope: expected node or cluster, got {other}");
                return Err((StatusCode::BAD_REQUEST, reason));
            }
        }
        let mut document = match tag {
            None => json!(report),
            Some(name) if !report.knows(name) => return Err(beyond_the_table()),
            Some(name) => {
                let mut one = json!(report.of(name));
                one["tag"] = name.into();
                one
            }
        };
        document["scope"] = scope.unwrap_or("node").into();
        document["nodes"] = nodes.into();
        document["unreachable"] = unreachable.into();
        Ok(document)
    }

    fn members(&self) -> Option<Members> {
        self.members.lock().expect("nobody panics with the list in hand").clone()
    }

    fn hear(&self) -> MutexGuard<'_, TagStatistics> {
        let mut statistics =
            self.statistics.lock().expect("nobody panics with the figures in hand");
        let mut changes = Vec::new();
        for (core, meters) in self.meters.iter().enumerate() {
            changes.extend(std::iter::from_fn(|| meters.tags.hear()).map(|change| (core, change)));
        }
        statistics.take(&mut changes);
        statistics
    }
}

/// To say 0 of such a tag would be wrong.
fn beyond_the_table() -> Unanswered {
    let reason = "the tag has no figures of its own: limits.tags_max tags have, and those beyond \
                  are counted together (overflow in /statistics/tags)";
    (StatusCode::NOT_FOUND, reason.to_owned())
}

fn no_members() -> Unanswered {
    let reason = "not all admin addresses of the other members are known: set \
                  cluster.admin_addresses, or ask each member for its own /statistics/tags";
    (StatusCode::NOT_IMPLEMENTED, reason.to_owned())
}

/// Asks all members at the same time.
async fn ask(
    members: Members,
    token: Option<&str>,
) -> Vec<(String, Result<TagsReport, HttpError>)> {
    let mut asked = JoinSet::new();
    let connector = members.connector.get();
    for address in members.addresses {
        let token = token.filter(|_| is_over_tls(&address)).map(str::to_owned);
        let (connector, names) = (connector.clone(), members.names.clone());
        asked.spawn(async move {
            let mut client = HttpClient::new(&address, MEMBER_LIMIT, MEMBER_BYTES_MAX).named(names);
            if let Some(connector) = connector {
                client = client.with(connector);
            }
            let headers: Vec<_> = token.iter().map(|t| ("Authorization", t.as_str())).collect();
            let request = HttpRequest { headers: &headers, ..HttpRequest::get("/statistics/tags") };
            let answer = client.ask(request).await;
            (address, answer.and_then(|answer| answer.document()))
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::tag_counts::{TagCounts, TagGroup};
    use crate::wire::timer_json::Tag;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    fn board(calls: u32) -> TagBoard {
        let meters: Arc<[CoreMeters]> = [CoreMeters::default()].into();
        let board = TagBoard::new(Arc::clone(&meters), 8);
        let mut counts = TagCounts::new(8, 1);
        let tags = [Tag { kind: "CALL", count: calls }];
        counts.enter(TagGroup(0), &tags, ring::now().mono.tick_floor(), || true);
        meters[0].tags.tell(&mut counts);
        board
    }

    /// Starts a member that answers once, with these bytes. Returns its address.
    fn member(answer: String) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("asked");
            let mut request = [0; 1_024];
            let length = stream.read(&mut request).expect("a request");
            assert!(request[..length].starts_with(b"GET /statistics/tags HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).expect("answers");
        });
        address
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(work)
    }

    #[test]
    fn a_cluster_is_the_sum_of_those_that_answer() {
        run(async {
            let other = board(4).document(None, ("scope=node", 3), None).await.expect("its own");
            let good = member(format!("HTTP/1.1 200 OK\r\nx: y\r\n\r\n{other}"));
            let bad = member("HTTP/1.1 503 No\r\n\r\n".to_owned());
            let none = TcpListener::bind("127.0.0.1:0").expect("a port");
            let gone = none.local_addr().expect("bound");
            drop(none);
            let board = board(3);
            let addresses = [good, bad, gone].map(|address| address.to_string()).into();
            board.set_members(Members { addresses, ..Members::default() });
            let asked = |others| board.document(Some("CALL"), ("a=b&scope=cluster", others), None);
            let all = asked(3).await.expect("a sum");
            assert_eq!((&all["current"], &all["nodes"]), (&7.into(), &2.into()), "{all}");
            let unreachable = all["unreachable"].as_array().expect("a list");
            assert_eq!(unreachable.len(), 2, "{all}");
            assert!(unreachable.iter().any(|u| u.to_string().contains("(status 503)")));
        });
    }

    #[test]
    fn no_sum_is_told_that_lacks_members_of_which_no_address_is_known() {
        let told = |addresses: Option<&[&str]>, others| {
            let board = board(3);
            if let Some(addresses) = addresses {
                let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
                board.set_members(Members { addresses, ..Members::default() });
            }
            let asked = run(board.document(None, ("scope=cluster", others), None));
            asked.map(|all| all["nodes"].clone()).map_err(|refused| refused.0)
        };
        assert_eq!(told(Some(&[]), 0), Ok(1.into()));
        for (addresses, others) in
            [(None, 0), (Some(&[][..]), 1), (Some(&["127.0.0.1:1"]), 2), (None, 1)]
        {
            let refused = Err(StatusCode::NOT_IMPLEMENTED);
            assert_eq!(told(addresses, others), refused, "{addresses:?}, {others} others");
        }
    }

    #[test]
    fn nonsense_from_a_member_is_an_error() {
        for answer in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\n{", "\u{1}\u{2}\r\n\r\n"]
        {
            let address = member(answer.to_owned()).to_string();
            let members = Members { addresses: vec![address], ..Members::default() };
            let answers = run(ask(members, None));
            assert!(matches!(answers[..], [(_, Err(_))]), "{answer:?}");
        }
    }
}
