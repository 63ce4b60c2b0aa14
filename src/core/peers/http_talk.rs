//! The talk to an original node or another site over one connection: the internal HTTP API. Bytes
//! only: a [`Link`] keeps the messages, the driver owns the socket.
//!
//! - Whole copies are told (`PUT /timers/<id>-<factor>`, docs/compat/timer-service.md §5.1). Sites
//!   that say so are asked about timers, too ([`crate::wire::site_question`]).
//! - One request is under way at a time, or many to a site that answers questions.
//! - Between copies `GET /ping` keeps the connection, and with it the belief that the node lives.
//! - The first request to another site, and every ping to it, asks for the site's members
//!   ([`super::site_members`]), and hears its news ([`crate::wire::site_news`]). This node does not
//!   talk to a site that refuses it.

// May panic: expectations 3, indices 2, cuts 2.
// Why it does not: found 2, peers 2, memory 3.

use std::collections::VecDeque;
use std::fmt::Write;

use crate::base::ids::PeerIndex;
use crate::base::time::{MonoNs, Now};
use crate::cluster::link::{Link, LinkError};
use crate::cluster::view::View;
use crate::shard::effects::Purpose;
use crate::wire::answer_head::parse_answer_head;
use crate::wire::internal_json::write_internal;
use crate::wire::peer_frame::MESSAGE_BYTES_MAX;
use crate::wire::peer_message::{
    PeerMessage, PeerRefusal, PeerResult, Standing, TimerCopy, decode_message,
};
use crate::wire::request_head::Framing;
use crate::wire::site_news::SiteNews;
use crate::wire::site_question::{COMPARES_HEADER, SiteAnswer, SiteQuestion};
use crate::wire::text::Text;

use crate::core::internal_document::{names, with_document};
use crate::core::peers::actions::{SITE_REFUSES, SITE_UNPROVEN};
use crate::core::peers::handshake::UNPROVEN_HEADER;
use crate::core::peers::site_members::{ANSWER_BYTES_MAX, SiteMembers};
use crate::wire::answer_reader::{AnswerReader, Progress};

const UNSAYABLE: PeerResult<'static> = PeerResult::Refused(PeerRefusal::Malformed);

/// Most requests under way on a connection to a site that takes several at a time.
const UNDER_WAY_MAX: usize = 512;
/// Bytes of requests under way beyond which none is added there. What waits in buffers tells of
/// timers later than it was written, and they would seem to have started later.
const UNDER_WAY_BYTES_MAX: usize = 64 << 10;
/// A site that takes several requests at a time is asked for its members and news after so long
/// beside copies that never end.
const NEWS_EVERY_MS: u64 = 2_000;
/// Most bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A request that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnderWay {
    Ping,
    /// A copy: a message of the link.
    Copy,
    /// A question about a timer: a message of the link.
    Question,
    /// A message of the link that cannot be said here. It is refused when those before it have
    /// their answers.
    Unsayable,
}

/// Requests and answers on one connection.
pub(crate) struct HttpTalk {
    heartbeat_ms: u64,
    /// Whether the other end belongs to another site.
    to_site: bool,
    /// Whether the other end answers questions, and takes several requests at a time.
    compares: bool,
    /// The requests that have no answer, the oldest first, each with its bytes.
    under_way: VecDeque<(UnderWay, usize)>,
    /// The bytes of all these.
    under_way_bytes: usize,
    reader: AnswerReader,
    ping_at: MonoNs,
    /// Whether the other end takes what this node says. A node of another site must have answered
    /// once.
    is_greeted: bool,
    /// The bytes that came of an answer about members, or of answers of a site that compares.
    answer: Vec<u8>,
    /// What the last answer about members told.
    told: Option<SiteMembers>,
    /// When the last ping left.
    pinged_at: MonoNs,
    /// What the site said of itself in the last answer to a ping, and when that ping left.
    news: Option<(SiteNews, MonoNs)>,
}

impl HttpTalk {
    /// A talk on a connection that has just been opened.
    pub fn new(now: MonoNs, heartbeat_ms: u64, to_site: bool) -> Self {
        Self {
            heartbeat_ms,
            to_site,
            compares: false,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            reader: AnswerReader::default(),
            ping_at: now,
            is_greeted: !to_site,
            answer: Vec::new(),
            told: None,
            pinged_at: now,
            news: None,
        }
    }

    /// Appends the next requests: one, unless one is under way; or as many as a site takes.
    pub fn write(
        &mut self,
        now: Now,
        (view, to): (&View, PeerIndex),
        link: &mut Link<Purpose>,
        out: &mut Vec<u8>,
    ) {
        let far_end = FarEnd { view, to, to_site: self.to_site, compares: self.compares };
        while self.is_greeted && self.may_add() {
            let Some(message) = link.next_message(now.mono) else { break };
            let begins = out.len();
            let request = write_request(now, &far_end, message, out);
            self.sent(request, out.len() - begins);
        }
        let is_ping_due = now.mono >= self.ping_at && self.under_way.is_empty();
        let is_news_due = self.compares
            && now.mono >= self.pinged_at.plus_ms(NEWS_EVERY_MS)
            && self.under_way.iter().all(|(request, _)| *request != UnderWay::Ping);
        // The refusal of what cannot be said waits for an answer.
        let has_refusals = !self.under_way.is_empty() && self.has_nothing_sent();
        if is_ping_due || is_news_due || has_refusals {
            self.pinged_at = now.mono;
            let host = &view.peers()[to.index()].address;
            let query = if self.to_site { "?members" } else { "" };
            write!(Text(out), "GET /ping{query} HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("memory");
            self.sent(UnderWay::Ping, 0);
        }
    }

    fn sent(&mut self, request: UnderWay, bytes: usize) {
        self.under_way.push_back((request, bytes));
        self.under_way_bytes += bytes;
    }

    /// Whether another request may leave now.
    fn may_add(&self) -> bool {
        match self.compares {
            true => {
                self.under_way.len() < UNDER_WAY_MAX && self.under_way_bytes < UNDER_WAY_BYTES_MAX
            }
            false => self.has_nothing_sent(),
        }
    }

    fn has_nothing_sent(&self) -> bool {
        self.under_way.iter().all(|(request, _)| *request == UnderWay::Unsayable)
    }

    /// When [`HttpTalk::write`] has a ping to send. `None` while a request is under way.
    pub fn next_wake(&self) -> Option<MonoNs> {
        self.under_way.is_empty().then_some(self.ping_at)
    }

    /// Returns whether the other end takes what this node says.
    pub fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// Takes what the other site told of its members since the last call.
    pub fn take_told(&mut self) -> Option<SiteMembers> {
        self.told.take()
    }

    /// Takes what the other site said of itself since the last call, and when it was asked.
    pub fn take_news(&mut self) -> Option<(SiteNews, MonoNs)> {
        self.news.take()
    }

    /// Takes bytes of answers. It calls `result` with the result of each message. On `Err` the
    /// connection must be closed.
    pub fn received(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        link: &mut Link<Purpose>,
        mut result: impl FnMut(Purpose, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        if self.compares {
            return self.received_many(now, bytes, link, &mut result);
        }
        let mut sent = self.under_way.iter().map(|(request, _)| *request);
        let Some(asked) = sent.find(|request| *request != UnderWay::Unsayable) else {
            return Err(LinkError::Protocol("an answer to no request"));
        };
        let asks_members = asked == UnderWay::Ping && self.to_site;
        if asks_members {
            self.answer.extend_from_slice(bytes);
            if self.answer.len() > ANSWER_BYTES_MAX {
                return Err(LinkError::Protocol("a site tells too many members"));
            }
        }
        let (status, reusable) = match self.reader.feed(bytes) {
            Progress::Partial => return Ok(()),
            Progress::Garbage => return Err(LinkError::Protocol("not an HTTP answer")),
            Progress::Complete { verdict, reusable } => (verdict.status, reusable),
        };
        self.reader = AnswerReader::default();
        let answer = std::mem::take(&mut self.answer);
        let head_bytes = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let (head, body) = answer.split_at(head_bytes.map_or(answer.len(), |end| end + 4));
        self.answered(now, (status, head, body), link, &mut result)?;
        if reusable { Ok(()) } else { Err(LinkError::Protocol("closed after an answer")) }
    }

    /// The same for a site that takes several requests at a time: it answers in their order.
    fn received_many(
        &mut self,
        now: MonoNs,
        bytes: &[u8],
        link: &mut Link<Purpose>,
        result: &mut impl FnMut(Purpose, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        self.answer.extend_from_slice(bytes);
        let arrived = std::mem::take(&mut self.answer);
        let mut rest = &arrived[..];
        while !rest.is_empty() {
            let head = parse_answer_head(rest, HEAD_BYTES_MAX)
                .map_err(|_| LinkError::Protocol("not an HTTP answer"))?;
            let Some(head) = head else { break };
            let Some(Framing::Length(body_bytes)) = head.framing else {
                return Err(LinkError::Protocol("an answer without its length"));
            };
            if body_bytes > MESSAGE_BYTES_MAX as u64 {
                return Err(LinkError::Protocol("an answer that is too long"));
            }
            let Some((answer, behind)) =
                rest.split_at_checked(head.head_bytes + body_bytes as usize)
            else {
                break;
            };
            let (text, body) = answer.split_at(head.head_bytes);
            self.answered(now, (head.status, text, body), link, result)?;
            if !head.keep_alive {
                return Err(LinkError::Protocol("closed after an answer"));
            }
            rest = behind;
        }
        self.answer = rest.to_vec();
        Ok(())
    }

    /// Takes a whole answer to the oldest request. Of its head and body nothing is known that was
    /// not kept.
    fn answered(
        &mut self,
        now: MonoNs,
        (status, head, body): (u16, &[u8], &[u8]),
        link: &mut Link<Purpose>,
        result: &mut impl FnMut(Purpose, PeerResult<'_>),
    ) -> Result<(), LinkError> {
        if self.to_site && status == 403 && says_unproven(head) {
            return Err(SITE_UNPROVEN);
        }
        if self.to_site && status == 403 {
            // The messages wait for an end that takes them.
            return Err(SITE_REFUSES);
        }
        self.refuse_unsayable(now, link, result);
        let Some((asked, bytes)) = self.under_way.pop_front() else {
            return Err(LinkError::Protocol("an answer to no request"));
        };
        self.under_way_bytes -= bytes;
        self.ping_at = now.plus_ms(self.heartbeat_ms);
        match asked {
            UnderWay::Ping if self.to_site => {
                self.is_greeted = true;
                self.told = SiteMembers::parse(body).filter(|_| status == 200);
                let news = SiteNews::parse(head).filter(|_| status == 200);
                self.news = news.map(|news| (news, self.pinged_at));
                // Once many requests are under way, answers are read as such to the end.
                self.compares |= status == 200 && has_line(head, COMPARES_HEADER);
            }
            UnderWay::Ping | UnderWay::Unsayable => {}
            UnderWay::Copy => link.answered(now, meaning_of(status), &mut *result),
            UnderWay::Question => {
                let answer = SiteAnswer::parse(head, body).filter(|_| status == 200);
                let meaning = match &answer {
                    Some(SiteAnswer::Held) => PeerResult::Held,
                    Some(SiteAnswer::Wanted) => PeerResult::Wanted,
                    Some(SiteAnswer::Ahead) => PeerResult::Ahead,
                    Some(SiteAnswer::Later(copy)) => PeerResult::Found(copy),
                    None if status == 503 => PeerResult::Busy,
                    None => PeerResult::Otherwise,
                };
                link.answered(now, meaning, &mut *result);
            }
        }
        self.refuse_unsayable(now, link, result);
        Ok(())
    }

    /// Refuses messages that cannot be said, up to the first request that was sent.
    fn refuse_unsayable(
        &mut self,
        now: MonoNs,
        link: &mut Link<Purpose>,
        result: &mut impl FnMut(Purpose, PeerResult<'_>),
    ) {
        while let Some((UnderWay::Unsayable, _)) = self.under_way.front() {
            self.under_way.pop_front();
            // A site of another version is not asked, and refuses nothing.
            let meaning = if self.to_site { PeerResult::Otherwise } else { UNSAYABLE };
            link.answered(now, meaning, &mut *result);
        }
    }
}

/// What the status of the answer to a copy means.
fn meaning_of(status: u16) -> PeerResult<'static> {
    match status {
        200..300 => PeerResult::Held,
        // An original node refuses requests beyond its token rate (docs/compat/timer-service.md
        // §1.4).
        503 => PeerResult::Busy,
        500.. => PeerResult::Refused(PeerRefusal::Full),
        _ => PeerResult::Refused(PeerRefusal::Malformed),
    }
}

/// Returns whether the head of an answer refuses this node because it did not prove that it knows
/// the secret.
fn says_unproven(head: &[u8]) -> bool {
    has_line(head, UNPROVEN_HEADER)
}

/// Returns whether the head of an answer has a line.
fn has_line(head: &[u8], line: &str) -> bool {
    head.windows(line.len()).any(|bytes| bytes == line.as_bytes())
}

/// Who is at the other end.
struct FarEnd<'a> {
    view: &'a View,
    to: PeerIndex,
    to_site: bool,
    compares: bool,
}

/// Appends the request that tells a message, if HTTP can tell it.
fn write_request(now: Now, end: &FarEnd<'_>, message: &[u8], out: &mut Vec<u8>) -> UnderWay {
    let host = &end.view.peers()[end.to.index()].address;
    match decode_message(&mut &message[..]) {
        Ok(PeerMessage::Standing(standing) | PeerMessage::Trying(standing)) if end.compares => {
            let Standing { id, version, sequence, .. } = standing;
            let site = end.view.local_site();
            out.extend_from_slice(b"GET ");
            SiteQuestion { id, version, sequence, site }.write(out);
            write!(Text(out), " HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("memory");
            UnderWay::Question
        }
        Ok(PeerMessage::Copy(copy)) => {
            let mut body = Vec::new();
            if write_document(now, end.view, end.to_site, &copy, &mut body).is_none() {
                return UnderWay::Unsayable;
            }
            let (id, factor, length) = (copy.standing.id, copy.factor, body.len());
            write!(
                Text(out),
                "PUT /timers/{id}-{factor} HTTP/1.1\r\nHost: {host}\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
            )
            .expect("writing to memory does not fail");
            out.extend_from_slice(&body);
            UnderWay::Copy
        }
        _ => UnderWay::Unsayable,
    }
}

/// Appends a copy as an original node reads it. A document for another site does not name this
/// site's nodes, and names those sites alone that are configured. `None`: the copy names a node
/// that is no longer configured.
fn write_document(
    now: Now,
    view: &View,
    to_site: bool,
    copy: &TimerCopy<'_>,
    out: &mut Vec<u8>,
) -> Option<()> {
    let held = if to_site { &[][..] } else { copy.replicas.as_slice() };
    let replicas = names(view, held);
    if replicas.len() < held.len() {
        return None;
    }
    let factor = to_site.then_some(copy.factor);
    with_document(now, view, copy, (&replicas, factor), |timer| write_internal(timer, out));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::base::ranked::Replicas;
    use crate::base::time::{TICK_NS, WallMs};
    use crate::cluster::link::LinkLimits;
    use crate::cluster::view::{Membership, site_hash};
    use crate::timer::definition::encode_content;
    use crate::wire::peer_message::{CopyBody, Standing};

    const NOW: Now = Now { mono: MonoNs(20_000 * TICK_NS), wall: WallMs(1_700_000_000_000) };

    fn view() -> View {
        let membership = Membership {
            localhost: "10.0.0.1:7253".into(),
            nodes: vec!["10.0.0.1:7253".into(), "10.0.0.2:7253".into()],
            local_site: "home".into(),
            remote_sites: vec![("away".into(), "10.1.0.1:7253".into())],
            replicate_across_sites: true,
            ..Membership::default()
        };
        View::build(None, &membership).expect("a good configuration")
    }

    fn link() -> Link<Purpose> {
        Link::new(LinkLimits { bytes_max: 1 << 20, window_bytes: 1 << 20, heartbeat_ms: 250 })
    }

    fn push_copy(link: &mut Link<Purpose>, view: &View, id: u64) {
        let mut content = Vec::new();
        encode_content("/path", &[], b"opaque", &mut content);
        let replicas = view.place(TimerId(id), 2, view.new_nodes());
        let standing =
            Standing { id: TimerId(id), version: 7, sequence: 1, actives: 3, list_digest: 0 };
        let copy = TimerCopy {
            standing: Standing { list_digest: replicas.digest(), ..standing },
            is_write: true,
            replicas,
            factor: 2,
            sites: view.sites(),
            start_ms: 15_996,
            interval_ms: 2_000,
            repeat_for_ms: 4_000,
            body: Some(CopyBody { authority: "host:80", content: &content }),
        };
        let mut message = Vec::new();
        PeerMessage::Copy(copy).encode(&mut message);
        link.push(&message, Purpose::News(TimerId(id))).expect("room");
    }

    fn written(talk: &mut HttpTalk, now: Now, link: &mut Link<Purpose>) -> String {
        let mut out = Vec::new();
        let view = view();
        let to = view.node_named("10.0.0.2:7253").expect("a member");
        talk.write(now, (&view, to), link, &mut out);
        String::from_utf8(out).expect("requests are text")
    }

    fn answered(talk: &mut HttpTalk, link: &mut Link<Purpose>, answer: &str) -> Vec<String> {
        let mut results = Vec::new();
        let bytes = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n");
        talk.received(NOW.mono, bytes.as_bytes(), link, |_, result| {
            results.push(format!("{result:?}"));
        })
        .expect("an answer");
        results
    }

    #[test]
    fn copies_are_put_one_at_a_time_and_pings_fill_the_silence() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, false));
        push_copy(&mut link, &view(), 0x0004_d9f5_4810_0000);
        push_copy(&mut link, &view(), 2);
        let first = written(&mut talk, NOW, &mut link);
        let (head, body) = first.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("PUT /timers/0004d9f548100000-2 HTTP/1.1\r\nHost: 10.0.0.2:7253"));
        assert!(head.ends_with(&format!("\r\nContent-Length: {}", body.len())), "{head}");
        for part in [
            "\"start-time-delta\":-4004,\"sequence-number\":1,\"interval\":2,\"repeat-for\":4",
            "\"uri\":\"http://host:80/path\",\"opaque\":\"opaque\"",
            "\"sites\":[\"home\",\"away\"]",
            "\"replicas\":[\"10.0.0.",
        ] {
            assert!(body.contains(part), "{part} not in {body}");
        }
        assert_eq!(written(&mut talk, NOW, &mut link), "", "one at a time");
        assert_eq!(answered(&mut talk, &mut link, "200 OK"), ["Held"]);
        assert!(written(&mut talk, NOW, &mut link).starts_with("PUT /timers/0000000000000002-2 "));
        assert_eq!(answered(&mut talk, &mut link, "400 Bad Request"), ["Refused(Malformed)"]);
        assert_eq!(written(&mut talk, NOW, &mut link), "", "it has been heard just now");
        let later = Now { mono: NOW.mono.plus_ms(250), ..NOW };
        assert_eq!(talk.next_wake(), Some(later.mono));
        assert!(
            written(&mut talk, later, &mut link)
                .starts_with("GET /ping HTTP/1.1\r\nHost: 10.0.0.2:7253\r\n")
        );
        assert_eq!(answered(&mut talk, &mut link, "200 OK"), [""; 0]);
    }

    #[test]
    fn another_site_is_not_told_the_nodes_of_this_one() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, true));
        push_copy(&mut link, &view(), 1);
        assert!(written(&mut talk, NOW, &mut link).starts_with("GET /ping?members HTTP/1.1\r\n"));
        assert!(!talk.is_greeted());
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\nsite away\nnode 10.1.0.2:7\n";
        for part in answer.chunks(20) {
            talk.received(NOW.mono, part, &mut link, |_, _| ()).expect("an answer");
        }
        assert_eq!(talk.take_told().expect("told").nodes, ["10.1.0.2:7"]);
        let request = written(&mut talk, NOW, &mut link);
        assert!(!request.contains("replicas"), "{request}");
        assert!(request.contains("\"sites\":[\"home\",\"away\"],\"replication-factor\":2"));
    }

    /// A site stands in a list of before that was taken out of the files since.
    #[test]
    fn a_site_is_told_of_timers_of_a_site_that_is_gone() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, true));
        let view = view();
        let sites = [site_hash("gone"), site_hash("home"), site_hash("away")];
        let standing =
            Standing { id: TimerId(9), version: 7, sequence: 1, actives: 0, list_digest: 0 };
        let copy = TimerCopy {
            standing,
            is_write: true,
            replicas: Replicas::new(),
            factor: 2,
            sites: sites.into_iter().collect(),
            start_ms: 15_996,
            interval_ms: 2_000,
            repeat_for_ms: 4_000,
            body: None,
        };
        let mut message = Vec::new();
        PeerMessage::Copy(copy).encode(&mut message);
        link.push(&message, Purpose::News(TimerId(9))).expect("room");
        written(&mut talk, NOW, &mut link);
        answered(&mut talk, &mut link, "200 OK");
        let request = written(&mut talk, NOW, &mut link);
        assert!(request.contains("\"sites\":[\"home\",\"away\"]"), "{request}");
        assert!(view.name_of_site(site_hash("gone")).is_none());
    }

    /// The other site says that it compares. Then many requests are under way, and answered in
    /// their order.
    #[test]
    fn a_site_that_compares_is_asked_about_many_timers_at_a_time() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, true));
        let question = |id: u64| {
            let (id, version, sequence) = (TimerId(id), 7, 3);
            let mut message = Vec::new();
            PeerMessage::Standing(Standing { id, version, sequence, actives: 0, list_digest: 0 })
                .encode(&mut message);
            message
        };
        for id in 1..=3 {
            link.push(&question(id), Purpose::Question { id: TimerId(id), life: 0 }).expect("room");
        }
        push_copy(&mut link, &view(), 4);
        written(&mut talk, NOW, &mut link);
        let members =
            format!("HTTP/1.1 200 OK\r\n{COMPARES_HEADER}Content-Length: 10\r\n\r\nsite away\n");
        talk.received(NOW.mono, members.as_bytes(), &mut link, |_, _| ()).expect("an answer");
        let requests = written(&mut talk, NOW, &mut link);
        let asked = |id: u64| format!("GET /ping?standing={id:016x}-0000000000000007-3-");
        assert!((1..=3).all(|id| requests.contains(&asked(id))), "{requests}");
        assert!(requests.contains("PUT /timers/0000000000000004-2 "), "{requests}");
        let answers =
            [SiteAnswer::Held, SiteAnswer::Later(Box::from(&b"copy"[..])), SiteAnswer::Ahead];
        let mut bytes = Vec::new();
        for answer in &answers {
            let (header, body) = (answer.header(), answer.body());
            let length = body.len();
            write!(Text(&mut bytes), "HTTP/1.1 200 OK\r\n{header}Content-Length: {length}\r\n\r\n")
                .expect("memory");
            bytes.extend_from_slice(body);
        }
        bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        let mut results = Vec::new();
        for part in bytes.chunks(7) {
            talk.received(NOW.mono, part, &mut link, |purpose, result| {
                results.push(format!("{purpose:?} {result:?}"));
            })
            .expect("answers");
        }
        let of = |id: u64| format!("Question {{ id: {:?}, life: 0 }}", TimerId(id));
        let found = format!("{:?}", PeerResult::Found(b"copy"));
        let wanted = [
            format!("{} Held", of(1)),
            format!("{} {found}", of(2)),
            format!("{} Ahead", of(3)),
            format!("News({:?}) Held", TimerId(4)),
        ];
        assert_eq!(results, wanted);
        assert!(link.is_empty());
    }

    /// Copies never end. The news of the site are heard all the same, and every 2 s.
    #[test]
    fn a_site_tells_its_news_beside_copies_without_end() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, true));
        let mut at_ms = 0;
        let mut heard = Vec::new();
        for number in 0..60 {
            push_copy(&mut link, &view(), number);
            let now = Now { mono: NOW.mono.plus_ms(at_ms), ..NOW };
            let requests = written(&mut talk, now, &mut link);
            let answers = requests.matches(" HTTP/1.1\r\n").count();
            let pings = requests.matches("GET /ping?members ").count();
            assert!(pings <= 1, "{requests}");
            // The answers come 30 ms later. The ping is the last of them.
            let came = now.mono.plus_ms(30);
            let mut bytes = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".repeat(answers - pings);
            if pings > 0 {
                let news = SiteNews { wall: WallMs(number), sites: 7, since: WallMs(1) }.header();
                let head = format!("{COMPARES_HEADER}{news}Content-Length: 10");
                bytes += &format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nsite away\n");
            }
            talk.received(came, bytes.as_bytes(), &mut link, |_, _| ()).expect("answers");
            heard.extend(talk.take_news().map(|(news, asked_at)| (news.wall.0, asked_at)));
            at_ms += 100;
        }
        let asked_at = |number: u64| (number, NOW.mono.plus_ms(100 * number));
        assert_eq!(heard, [0, 20, 40].map(asked_at));
    }

    #[test]
    fn a_site_of_another_version_is_not_asked() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, true));
        let standing =
            Standing { id: TimerId(1), version: 7, sequence: 3, actives: 0, list_digest: 0 };
        let mut message = Vec::new();
        PeerMessage::Standing(standing).encode(&mut message);
        link.push(&message, Purpose::News(TimerId(1))).expect("room");
        written(&mut talk, NOW, &mut link);
        assert_eq!(answered(&mut talk, &mut link, "200 OK"), [""; 0]);
        assert!(written(&mut talk, NOW, &mut link).starts_with("GET /ping?members "));
        assert_eq!(answered(&mut talk, &mut link, "200 OK"), ["Otherwise"]);
    }

    #[test]
    fn a_site_that_does_not_know_this_node_is_told_nothing() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, true));
        push_copy(&mut link, &view(), 1);
        let refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
        written(&mut talk, NOW, &mut link);
        assert!(talk.received(NOW.mono, refusal, &mut link, |_, _| panic!("no result")).is_err());
        // An original answers `OK` to any ping. Later the original may not know this node any more.
        let mut talk = HttpTalk::new(NOW.mono, 250, true);
        written(&mut talk, NOW, &mut link);
        let pong = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK";
        talk.received(NOW.mono, pong, &mut link, |_, _| ()).expect("an answer");
        assert!(talk.is_greeted() && talk.take_told().is_none());
        assert!(written(&mut talk, NOW, &mut link).starts_with("PUT "));
        assert!(talk.received(NOW.mono, refusal, &mut link, |_, _| panic!("no result")).is_err());
        link.closed();
        assert!(!link.is_empty(), "it is told when there is an end that takes it");
    }

    #[test]
    fn an_overloaded_node_is_asked_again_and_garbage_ends_the_connection() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, false));
        push_copy(&mut link, &view(), 1);
        assert!(written(&mut talk, NOW, &mut link).starts_with("PUT "));
        assert_eq!(answered(&mut talk, &mut link, "503 Busy"), [""; 0]);
        assert_eq!(written(&mut talk, NOW, &mut link), "", "after a pause");
        let later = Now { mono: NOW.mono.plus_ms(100), ..NOW };
        assert!(written(&mut talk, later, &mut link).starts_with("PUT "));
        let garbage = talk.received(later.mono, b"\x16\x03\x01", &mut link, |_, _| ());
        assert!(garbage.is_err());
        let mut idle = HttpTalk::new(NOW.mono, 250, false);
        assert!(idle.received(NOW.mono, b"HTTP/1.1 200 OK", &mut link, |_, _| ()).is_err());
    }

    #[test]
    fn what_cannot_be_said_is_refused_with_the_next_answer() {
        let (mut link, mut talk) = (link(), HttpTalk::new(NOW.mono, 250, false));
        let mut message = Vec::new();
        PeerMessage::Fetch(TimerId(1)).encode(&mut message);
        link.push(&message, Purpose::News(TimerId(1))).expect("room");
        assert!(written(&mut talk, NOW, &mut link).starts_with("GET /ping "));
        assert_eq!(answered(&mut talk, &mut link, "200 OK"), ["Refused(Malformed)"]);
        assert!(link.is_empty());
    }
}
