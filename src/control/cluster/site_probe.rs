//! Asks a site that is to be added what it says, as the cores will ask it: from this node's
//! address, with its certificate and its proof of the secret, in the same words. The cores tell
//! nobody why a site refuses them, and nobody should write a site into files to find out.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::cluster::view::View;
use crate::control::config::settings::Config;
use crate::control::http_client::told_by;
use crate::control::names::Names;
use crate::control::tls_stream::{TlsStream, tls_error};
use crate::core::peers::address::{PeerAddress, host_of, place_of, sources};
use crate::core::peers::greeting::{Greeting, Step};
use crate::core::peers::handshake::{Answered, Protocol, UNPROVEN_HEADER};
use crate::core::peers::hello::{Hello, PLAIN};
use crate::core::peers::secret::{CLOSED, Guard, Word};
use crate::core::peers::site_members::{ANSWER_BYTES_MAX, QUERY, SiteMembers};
use crate::node::settings::PeerTls;
use crate::ring::unpredictable;
use crate::tls::session::TlsFault;
use crate::wire::answer_reader::{AnswerReader, Progress};

/// Longest exchange with one address. Who orders waits 3 s.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that are read at a time.
const READ_BYTES: usize = 4 << 10;

/// Another site, as an order names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedSite {
    pub(crate) name: String,
    pub(crate) addresses: Vec<String>,
}

/// What a node asks a site with.
#[derive(Clone)]
pub(crate) struct SiteProbe {
    own: String,
    site: String,
    listen: SocketAddr,
    instance: u8,
    view_id: u64,
    guard: Guard,
    tls: Option<PeerTls>,
    names: Names,
}

/// What came of asking at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The site takes this node. It is called so, if it says what it is called.
    Taken(Option<String>),
    /// The site does not know this node, or the site of this node. It says so much.
    Stranger(String),
    /// One end does not believe the other: TLS, certificates, the secret.
    Refused(String),
    /// Nobody answers, or nobody who can be understood.
    Unreached(String),
}

/// A connection, with or without TLS.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Wire for S {}

impl SiteProbe {
    /// What the node of this configuration and view asks with. `names` says where names lead.
    pub(crate) fn of(config: &Config, view: &View, names: Names) -> Self {
        Self {
            own: view.name_of(view.own()).to_owned(),
            site: view.name_of_site(view.local_site()).unwrap_or_default().to_owned(),
            listen: config.node.listen,
            instance: config.node.instance_id,
            view_id: view.id(),
            guard: config.node.guard.clone(),
            tls: config.node.peer_tls.clone(),
            names,
        }
    }

    /// Asks at all addresses of a site at the same time. Takes 2 s at most.
    pub(crate) async fn ask(self, site: NamedSite) -> Value {
        let mut asked = JoinSet::new();
        for address in site.addresses.clone() {
            let (probe, name) = (self.clone(), site.name.clone());
            asked.spawn(async move {
                let exchange = probe.ask_at(&address, &name);
                let verdict = timeout(PATIENCE, exchange).await.unwrap_or_else(|_| {
                    let seconds = PATIENCE.as_secs();
                    Err(Verdict::Unreached(format!("no answer within {seconds} s")))
                });
                (address, verdict.unwrap_or_else(|verdict| verdict))
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by_key(|(address, _)| site.addresses.iter().position(|it| it == address));
        let answers: Vec<Value> = answers.iter().map(|(at, verdict)| verdict.shown(at)).collect();
        json!({ "node": self.own, "site": site.name, "answers": answers })
    }

    async fn ask_at(&self, address: &str, site: &str) -> Result<Verdict, Verdict> {
        let mut wire: Box<dyn Wire> = Box::new(self.dial(address).await?);
        let (mut is_secured, mut is_plain_end) = (false, false);
        if let Some(tls) = &self.tls {
            match TlsStream::dial(wire, &tls.nodes.connector, &host_of(address)).await {
                Ok(stream) => (wire, is_secured) = (Box::new(stream), true),
                Err(error) if !is_plain(&error) => {
                    return Err(Verdict::Refused(told_by(&error).to_string()));
                }
                // A node speaks TLS with nodes that it knows. Whoever does not hears why in the
                // clear, and says nothing there.
                Err(_) => {
                    wire = Box::new(self.dial(address).await?);
                    is_plain_end = tls.is_required;
                }
            }
        }
        let has_to_prove = is_secured || self.guard.secrets.is_some() && !is_plain_end;
        if has_to_prove && !self.greet(&mut wire, address, site).await? {
            // The other end does not know the Upgrade.
            wire = Box::new(self.dial(address).await?);
        }
        let request = format!("GET /ping?{QUERY} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        wire.write_all(request.as_bytes()).await.map_err(broken)?;
        let (status, answer) = read_answer(&mut wire).await?;
        match judge(status, &answer) {
            Verdict::Taken(_) if is_plain_end => Err(uncertified()),
            verdict => Ok(verdict),
        }
    }

    async fn dial(&self, address: &str) -> Result<TcpStream, Verdict> {
        let found = match place_of(address, self.listen.port()) {
            PeerAddress::At(at) => vec![at],
            PeerAddress::Named(name, port) => {
                self.names.look_up(&name, port).await.map_err(broken)?
            }
        };
        let mut problem = Verdict::Unreached("the name has no address".into());
        for at in found {
            match self.connect(at).await {
                Ok(stream) => return Ok(stream),
                Err(error) => problem = broken(error),
            }
        }
        Err(problem)
    }

    async fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // As the cores dial: from the first of these that this machine has.
        let from = sources(&self.own, self.listen.ip(), to.ip());
        from.iter().any(|ip: &IpAddr| socket.bind(SocketAddr::new(*ip, 0)).is_ok());
        socket.connect(to).await
    }

    /// Says who this node is, and proves it. Returns whether the other end knows how to listen.
    async fn greet(&self, wire: &mut dyn Wire, address: &str, site: &str) -> Result<bool, Verdict> {
        let own = Hello {
            name: self.own.clone(),
            instance: self.instance.into(),
            incarnation: u64::from_le_bytes(unpredictable()),
            view_id: self.view_id,
            shard: 0,
            shards: 1,
            complete_since: None,
            site: Some(self.site.clone()),
        };
        let nonce = Word(unpredictable());
        let mut greeting = Greeting::new(Protocol::Site, &self.guard, own, site, nonce);
        let mut is_to_speak = true;
        let mut bytes = [0; READ_BYTES];
        loop {
            if std::mem::take(&mut is_to_speak) {
                let mut request = Vec::new();
                greeting.write(address, &mut request);
                wire.write_all(&request).await.map_err(broken)?;
            }
            match greeting.received(read_some(wire, &mut bytes).await?) {
                Step::Wait => {}
                Step::Say => is_to_speak = true,
                Step::Ended(Answered::Upgraded { .. }) => return Ok(true),
                Step::Ended(Answered::Original) => return Ok(false),
                Step::Ended(answered) => return Err(meaning_of(&answered)),
                Step::Broken => return Err(nonsense()),
            }
        }
    }
}

impl Verdict {
    fn shown(&self, address: &str) -> Value {
        let (verdict, site, text) = match self {
            Verdict::Taken(site) => ("taken", site.as_deref(), None),
            Verdict::Stranger(text) => ("stranger", None, Some(text)),
            Verdict::Refused(text) => ("refused", None, Some(text)),
            Verdict::Unreached(text) => ("unreached", None, Some(text)),
        };
        json!({ "address": address, "verdict": verdict, "site": site, "text": text })
    }
}

/// What the end of a greeting means that opened nothing.
fn meaning_of(answered: &Answered) -> Verdict {
    match answered {
        Answered::Refused => Verdict::Stranger("it does not know this node or its site".into()),
        Answered::Busy => Verdict::Unreached("it takes no further connection at present".into()),
        Answered::Uncertified => uncertified(),
        Answered::Disowned => Verdict::Refused(
            "it does not take this node for the one that it says it is: another address, or two \
             processes of one name"
                .into(),
        ),
        _ => unproven(),
    }
}

fn uncertified() -> Verdict {
    Verdict::Refused(
        "only one of the two speaks TLS with other nodes, or its certificate does not have its \
         name: give all nodes of both sites the same [cluster] tls and certificates of one \
         authority"
            .into(),
    )
}

fn unproven() -> Verdict {
    Verdict::Refused(
        "it has another secret than this node, or only one of the two has one: give all nodes of \
         both sites the same [cluster] secret_file"
            .into(),
    )
}

fn nonsense() -> Verdict {
    Verdict::Unreached("what listens there does not speak as a node does".into())
}

fn broken(error: io::Error) -> Verdict {
    Verdict::Unreached(error.to_string())
}

/// Whether the other end speaks no TLS.
fn is_plain(error: &io::Error) -> bool {
    tls_error(error).is_none_or(|error| error.kind == TlsFault::Protocol)
}

async fn read_some<'b>(wire: &mut dyn Wire, bytes: &'b mut [u8]) -> Result<&'b [u8], Verdict> {
    match wire.read(bytes).await.map_err(broken)? {
        0 => Err(Verdict::Unreached("it ended the connection without an answer".into())),
        count => Ok(bytes.get(..count).unwrap_or_default()),
    }
}

/// Reads an answer: its status, and all its bytes.
async fn read_answer(wire: &mut dyn Wire) -> Result<(u16, Vec<u8>), Verdict> {
    let (mut reader, mut answer) = (AnswerReader::default(), Vec::new());
    let mut bytes = [0; READ_BYTES];
    loop {
        let read = read_some(wire, &mut bytes).await?;
        answer.extend_from_slice(read);
        match reader.feed(read) {
            Progress::Partial if answer.len() < ANSWER_BYTES_MAX => {}
            Progress::Complete { verdict, .. } => return Ok((verdict.status, answer)),
            Progress::Partial | Progress::Garbage => return Err(nonsense()),
        }
    }
}

/// What the answer to the question for the site's members means.
fn judge(status: u16, answer: &[u8]) -> Verdict {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let reason = head.lines().find_map(|line| line.strip_prefix("Reason: "));
    let reason = reason.map_or_else(|| format!("status {status}"), str::to_owned);
    match status {
        200 => Verdict::Taken(SiteMembers::parse(body.as_bytes()).map(|told| told.site)),
        403 if text.contains(UNPROVEN_HEADER) => unproven(),
        403 if is_cut_from(&reason, PLAIN) => uncertified(),
        403 if is_cut_from(&reason, CLOSED) => unproven(),
        403 => Verdict::Stranger(reason),
        _ => Verdict::Unreached(format!("it answers with status {status}: {reason}")),
    }
}

/// Whether a reason is this text: a node cuts reasons off.
fn is_cut_from(reason: &str, text: &str) -> bool {
    !reason.is_empty() && text.starts_with(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_judged_by_what_it_says() {
        let of = |status: u16, head: &str, body: &str| {
            judge(status, format!("HTTP/1.1 {status} x\r\n{head}\r\n{body}").as_bytes())
        };
        assert_eq!(of(200, "", "site b\nnode a:1\n"), Verdict::Taken(Some("b".into())));
        assert_eq!(of(200, "", "OK"), Verdict::Taken(None), "an original");
        let stranger = of(403, "Reason: only for members\r\n", "");
        assert_eq!(stranger, Verdict::Stranger("only for members".into()));
        assert_eq!(of(403, UNPROVEN_HEADER, ""), unproven());
        assert_eq!(of(403, &format!("Reason: {PLAIN}\r\n"), ""), uncertified());
        assert_eq!(of(403, &format!("Reason: {}\r\n", &CLOSED[..200]), ""), unproven());
        assert!(matches!(of(503, "", ""), Verdict::Unreached(text) if text.contains("503")));
    }

    #[tokio::test]
    async fn each_address_is_told_with_what_came_of_it() {
        let config = Config::default();
        let probe = SiteProbe::of(&config, &View::alone("127.0.0.1:7253"), Names::default());
        // Nobody listens on the first; the second speaks no HTTP.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("bound").to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("somebody asks");
            stream.write_all(b"220 mail ready\r\n").await.expect("taken");
        });
        let addresses = vec!["127.0.0.1:1".to_owned(), at.clone()];
        let told = probe.ask(NamedSite { name: "b".into(), addresses }).await;
        assert_eq!(told["site"], "b");
        assert_eq!(told["answers"][0]["verdict"], "unreached");
        assert_eq!(told["answers"][1]["address"], at);
        let text = told["answers"][1]["text"].as_str().expect("a text");
        assert!(text.contains("does not speak as a node"), "{text}");
    }
}
