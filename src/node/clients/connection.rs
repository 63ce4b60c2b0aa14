//! One client connection: bytes in, answers out, in the order of the requests.
//!
//! Memory stays bounded whatever the client does. The core pauses a connection whose answers are
//! not read, that has many requests under way, or that sent more requests than a turn takes. An
//! answer to a read that another core or node will give counts before it comes: as much as former
//! answers to reads on this connection had.

// May panic: assertions 2, indices 6, cuts 1.
// Why it does not: found 7, ordered 2.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::base::ids::ShardIndex;
use crate::base::limits::Limits;
use crate::base::slots::SlotKey;
use crate::base::time::MonoNs;
use crate::core::gate::SiteNode;
use crate::core::peers::handshake::{self, Asked};
use crate::core::peers::hello::HelloRefusal;
use crate::core::peers::secret::Word;
use crate::node::buffer_pool::BufferPool;
use crate::node::clients::access::{Access, authorize};
use crate::node::clients::addressed::Addressed;
use crate::node::clients::answers::{ErrorForm, Persistence, write_continue};
use crate::node::clients::bulk::{BulkBody, OpenChunk};
use crate::node::clients::caller::Caller;
use crate::node::clients::lists::Paged;
use crate::node::clients::refusals::too_long;
use crate::node::clients::request_line::RequestLine;
use crate::node::clients::service::{Api, Served, Service};
use crate::node::clients::warnings::{AwaitedWarnings, add_header};
use crate::node::deadlines::Deadline;
use crate::node::handshakes::secured::{Kind, Secured};
use crate::ring::{FarEnds, SocketId};
use crate::shard::effects::{Answer, Refusal, Requester};
use crate::tls::session::may_be_tls;
use crate::wire::chunked::{ChunkError, ChunkedDecoder};
use crate::wire::request_head::{
    Framing, HeadProgress, parse_request_head, seems_to_accept_problem,
};
use crate::wire::timer_path::TimerPath;

/// Requests under way on one connection above which no further request is taken from it.
const UNDER_WAY_MAX: usize = 1_024;
/// Fewest bytes that an awaited answer to a read counts for.
const READ_BYTES_MIN: usize = 2 << 10;
/// The answer to TLS where plain HTTP is spoken.
const TLS_HERE: &str = "this port speaks no TLS and found TLS; ask for http:// here, or use the \
                        port of [node] listen_tls";
/// The size of answers while no read has been answered: the first read is awaited alone.
const READ_BYTES_UNKNOWN: usize = 1 << 40;

/// What the next byte belongs to.
#[derive(Debug)]
pub(super) enum RequestPart {
    /// A request head.
    Head(HeadProgress),
    /// A body of known length.
    Body { line: RequestLine, length: usize },
    /// A chunked body.
    Chunked { line: RequestLine, decoder: Box<ChunkedDecoder>, body: Vec<u8> },
    /// A body of timers, a line each.
    Bulk(Box<BulkBody>),
}

/// An answer that must wait for its turn.
#[derive(Debug)]
pub(super) enum Pending {
    /// The shard has not answered yet.
    Awaited { persistence: Persistence, is_read: bool },
    /// The shard has answered, and an earlier answer is still awaited.
    Ready(Vec<u8>),
    /// The shard has not answered to this line of a bulk request.
    AwaitedLine { number: u64 },
    /// The shard has answered to a line, and an earlier answer is still awaited.
    ReadyLine(Vec<u8>),
}

/// What the server must do with a connection after the connection was fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appetite {
    /// Go on receiving.
    Hungry,
    /// Stop receiving. Feed the connection again when answers have left, or in the next turn.
    Full,
    /// Stop receiving: the core has read enough in this turn, and nothing was taken. Feed the
    /// connection first in the next turn.
    Deferred,
}

/// Where a connection lives.
#[derive(Clone, Copy, Debug)]
pub struct Home {
    /// The connection's socket.
    pub socket: SocketId,
    /// The core that serves the connection.
    pub shard: ShardIndex,
    /// The key of the connection in the core's table.
    pub key: SlotKey,
}

/// A client connection.
#[derive(Debug)]
pub struct ClientConnection {
    /// The connection's socket.
    pub socket: SocketId,
    /// Answers to be sent, in order.
    pub out: Vec<u8>,
    /// Bytes of the send that is under way; 0 when none is.
    pub sending_bytes: usize,
    /// Whether the ring does not receive for the connection.
    pub is_paused: bool,
    /// Whether no further request is taken. The connection is closed when `out` is sent and no
    /// answer is awaited.
    pub is_closing: bool,
    /// Whether all is sent and the end has been announced. Bytes that still come are thrown away.
    pub is_lingering: bool,
    /// Bytes thrown away so far while lingering.
    pub lingered_bytes: usize,
    /// When the connection closes unless something happens before.
    pub deadline: Deadline,
    /// Whether the connection is in the list of connections to be fed again.
    pub is_resuming: bool,
    /// Whether the connection is in the list of connections to be flushed.
    pub is_dirty: bool,
    /// Bytes of requests that the server last counted for the connection.
    pub accounted_bytes: usize,
    /// Bytes of answers that the server last counted for the connection.
    pub accounted_unsent_bytes: usize,
    /// When the send under way began.
    pub sending_since: MonoNs,
    /// Whether the client sends nothing more.
    pub has_ended: bool,
    /// The Upgrade that a peer asks for. Bytes behind its request are kept for the frames.
    pub upgrade: Option<Box<Asked>>,
    /// The nonce with which the client was challenged, until the client answers.
    pub challenge: Option<Box<Word>>,
    /// Whether the client is another site that has proven that it knows the cluster's secret.
    pub is_proven: bool,
    /// Whether the client is a node whose certificate has the name that the node has said.
    pub is_certified: bool,
    /// Which node of another site the client has said it is, once it was believed.
    pub site_node: Option<Box<SiteNode>>,
    /// TLS, if the client speaks it.
    pub secured: Option<Box<Secured>>,
    /// Whether the first bytes are looked at before anything else: they may be those of a node that
    /// speaks TLS, or nothing may be said here in the clear.
    pub is_judged_first: bool,
    /// What the head of the present request says, if it asks for a page of timers.
    page: Option<Box<Paged>>,
    /// What the head of the present request says, if it names its timer by a name or a key.
    addressed: Option<Box<Result<Addressed, String>>>,
    /// The token that the client showed last.
    pub(super) access: Option<Box<Access>>,
    pub(super) own: ShardIndex,
    pub(super) key: SlotKey,
    pub(super) stage: RequestPart,
    /// The chunk in `out` to which results of lines may be added.
    pub(super) chunk: OpenChunk,
    /// How many lines in `pending` are awaited.
    pub(super) lines_awaited: usize,
    /// Where the core remembers the last head of a create.
    last_head: u8,
    /// Bytes received and not yet taken: part of a request, or requests beyond a turn's share.
    partial: Vec<u8>,
    pub(super) pending: VecDeque<Pending>,
    /// Number of the request that `pending[0]` answers.
    pub(super) first_pending: u32,
    /// Bytes of the answers in `pending`, and of the warnings that wait for theirs.
    pub(super) ready_bytes: usize,
    /// Warnings of requests that are awaited.
    pub(super) warnings: AwaitedWarnings,
    /// How many reads in `pending` are awaited.
    reads_awaited: usize,
    /// Bytes that the answer to an awaited read is expected to have.
    read_bytes: usize,
    /// Whether a read waits for the core's next turn.
    pub(super) is_deferred: bool,
    /// When the first byte of the present request arrived. Further bytes do not move its deadline.
    pub(super) began: Option<MonoNs>,
}

impl ClientConnection {
    /// A connection that has just been accepted.
    pub fn new(home: Home, deadline: Deadline) -> Self {
        Self {
            socket: home.socket,
            out: Vec::new(),
            sending_bytes: 0,
            is_paused: false,
            is_closing: false,
            is_lingering: false,
            lingered_bytes: 0,
            deadline,
            is_resuming: false,
            is_dirty: false,
            accounted_bytes: 0,
            accounted_unsent_bytes: 0,
            sending_since: MonoNs(0),
            has_ended: false,
            upgrade: None,
            challenge: None,
            is_proven: false,
            is_certified: false,
            site_node: None,
            secured: None,
            is_judged_first: false,
            page: None,
            addressed: None,
            access: None,
            own: home.shard,
            key: home.key,
            stage: RequestPart::Head(HeadProgress::default()),
            chunk: OpenChunk::default(),
            lines_awaited: 0,
            last_head: 0,
            partial: Vec::new(),
            pending: VecDeque::new(),
            first_pending: 0,
            ready_bytes: 0,
            warnings: AwaitedWarnings::default(),
            reads_awaited: 0,
            read_bytes: READ_BYTES_UNKNOWN,
            is_deferred: false,
            began: None,
        }
    }

    /// Takes the requests in `input` and keeps what is left over. Empty input takes what was kept
    /// before.
    pub fn feed(
        &mut self,
        api: &mut Api<'_>,
        (input, far_ends): (&mut [u8], FarEnds<'_>),
    ) -> Appetite {
        if self.is_closing {
            return Appetite::Hungry;
        }
        if self.upgrade.is_some() {
            self.partial.extend_from_slice(input);
            return Appetite::Hungry;
        }
        let caller = self.caller(far_ends);
        if self.site_node.is_some() && !self.is_still_known(api, caller) {
            return Appetite::Hungry;
        }
        let limits = api.limits;
        let mut budget = limits.pipelined_requests_per_turn_max;
        self.is_deferred = false;
        if self.partial.is_empty() {
            let taken = self.take(api, (&mut *input, caller), &mut budget);
            self.partial.extend_from_slice(&input[taken..]);
        } else {
            if matches!(self.stage, RequestPart::Bulk(_)) {
                // Streams are fast: growth to twice the length would hold much for nothing.
                self.partial.reserve_exact(input.len().max(self.partial.len() / 4));
            }
            self.partial.extend_from_slice(input);
            let mut kept = std::mem::take(&mut self.partial);
            let taken = self.take(api, (&mut kept, caller), &mut budget);
            kept.drain(..taken);
            self.partial = kept;
        }
        if self.is_closing || self.partial.is_empty() {
            self.partial = Vec::new();
        }
        self.set_deadline(api.now.mono, limits);
        if self.is_deferred && budget == limits.pipelined_requests_per_turn_max {
            return Appetite::Deferred;
        }
        let has_more = self.is_deferred || (budget == 0 && self.holds_requests());
        if has_more || self.is_backed_up(limits) { Appetite::Full } else { Appetite::Hungry }
    }

    /// Returns whether a node of another site still is one. If not, it is told so.
    #[cold]
    fn is_still_known(&mut self, api: &mut Api<'_>, caller: Caller<'_>) -> bool {
        let Some(node) = self.site_node.as_deref() else { return true };
        let Err(refusal) = api.service.admit_site(api.core, caller, node) else { return true };
        let refusal = api.core.inbound_refused(refusal);
        self.fail(api.service, 403, &refusal.to_string());
        false
    }

    /// Whether bytes are held in which requests may be, or lines of a bulk request.
    fn holds_requests(&self) -> bool {
        let holds_lines =
            |part: &RequestPart| matches!(part, RequestPart::Bulk(body) if body.has_more());
        !self.partial.is_empty() || holds_lines(&self.stage)
    }

    /// Who makes the requests on this connection.
    pub fn caller<'r>(&self, far_ends: FarEnds<'r>) -> Caller<'r> {
        let (is_proven, is_certified) = (self.is_proven, self.is_certified);
        let is_node = self.is_node();
        Caller { is_proven, is_node, is_certified, ..Caller::at(far_ends, self.socket) }
    }

    /// Who is at the other end, as far as TLS tells.
    pub fn kind(&self) -> Kind {
        self.secured.as_ref().map_or(Kind::Client, |secured| secured.kind)
    }

    /// Whether the connection is one of TLS between nodes.
    pub fn is_node(&self) -> bool {
        self.kind() != Kind::Client
    }

    /// Writes the answer of a shard to one request, and the later answers that waited for it.
    ///
    /// A refusal of one timer too many tells the name and limit of the token that came last over
    /// the connection. Requests before it may have had another token of the same client.
    pub fn answer(&mut self, request: u32, answer: &Answer, service: &mut Service) {
        let held_bytes = self.unsent_bytes();
        if self.lines_awaited > 0 && self.answer_line(request, answer, service) {
            return;
        }
        if matches!(answer, Answer::Refused(Refusal::TokenFull)) {
            return self.refuse_timer(request, service);
        }
        let room = &mut service.room;
        let warning = self.take_warning(request);
        self.answer_by(request, |out, persistence| {
            let written = room.write(out, answer, persistence, held_bytes);
            if let Some(warning) = warning {
                add_header(out, out.len() - written, &warning);
            }
        });
    }

    #[cold]
    fn refuse_timer(&mut self, request: u32, service: &mut Service) {
        let access = self.access.take();
        let quota = access.as_deref().and_then(Access::quota);
        self.answer_by(request, |out, persistence| {
            service.refuse_timer(out, persistence, quota);
        });
        self.access = access;
    }

    /// Does the same as [`ClientConnection::answer`] with an answer that `write` appends.
    pub fn answer_by(&mut self, request: u32, write: impl FnOnce(&mut Vec<u8>, Persistence)) {
        let position = request.wrapping_sub(self.first_pending) as usize;
        let Some(pending) = self.pending.get_mut(position) else {
            unreachable!("request {request} was answered twice");
        };
        let Pending::Awaited { persistence, is_read } = *pending else {
            unreachable!("request {request} was answered twice");
        };
        self.reads_awaited -= usize::from(is_read);
        if position > 0 {
            let mut bytes = Vec::new();
            write(&mut bytes, persistence);
            self.ready_bytes += bytes.len();
            let answer_bytes = bytes.len();
            *pending = Pending::Ready(bytes);
            return self.has_read(is_read, answer_bytes);
        }
        let begins = self.out.len();
        write(&mut self.out, persistence);
        self.has_read(is_read, self.out.len() - begins);
        self.release_first();
    }

    /// Lets the first of `pending` go, whose answer is written, and the answers that waited for it.
    pub(super) fn release_first(&mut self) {
        loop {
            self.pending.pop_front();
            self.first_pending = self.first_pending.wrapping_add(1);
            let bytes = match self.pending.front() {
                Some(Pending::Ready(bytes)) => {
                    self.chunk.close(&mut self.out);
                    bytes
                }
                Some(Pending::ReadyLine(bytes)) => {
                    self.chunk.begin_line(&mut self.out);
                    bytes
                }
                Some(Pending::Awaited { .. } | Pending::AwaitedLine { .. }) | None => return,
            };
            self.ready_bytes -= bytes.len();
            self.out.extend_from_slice(bytes);
        }
    }

    /// The number of the request that comes next.
    #[inline]
    pub(super) fn next_request(&self) -> u32 {
        self.first_pending.wrapping_add(self.pending.len() as u32)
    }

    /// Takes the bytes that came behind the request for an Upgrade.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.partial)
    }

    /// Returns whether answers wait or are awaited.
    pub fn is_awaiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes the bytes that are to leave now, if there are any.
    pub fn next_send(&mut self, pool: &mut BufferPool) -> Option<Vec<u8>> {
        self.chunk.close(&mut self.out);
        if let Some(secured) = &mut self.secured {
            let is_last = self.is_closing && self.pending.is_empty();
            return secured.next_send(&mut self.out, is_last, pool);
        }
        (!self.out.is_empty()).then(|| std::mem::replace(&mut self.out, pool.take()))
    }

    /// Returns whether [`ClientConnection::next_send`] may have bytes.
    pub fn has_more_to_send(&self) -> bool {
        let has_wire = |secured: &Secured| secured.wants_to_send();
        !self.out.is_empty() || self.secured.as_deref().is_some_and(has_wire)
    }

    /// Returns whether the connection may close once all is sent.
    pub fn is_done(&self) -> bool {
        let waits = |secured: &Secured| self.is_awaiting() || secured.is_handshaking();
        self.is_closing
            && match &self.secured {
                None => !self.is_awaiting(),
                Some(secured) => secured.is_broken() || !waits(secured),
            }
    }

    /// Returns whether the client speaks TLS and the handshake is not over.
    pub fn is_handshaking(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.is_handshaking())
    }

    /// Gives up a connection over which something came that is no TLS. Nothing leaves but an alert.
    pub fn break_off(&mut self) {
        self.is_closing = true;
        self.upgrade = None;
        self.drop_partial();
        if let Some(secured) = &mut self.secured {
            secured.give_up();
        }
    }

    /// Returns whether a request has begun and is not complete.
    pub fn is_mid_request(&self) -> bool {
        self.began.is_some()
    }

    /// Bytes of memory held for requests that are not complete.
    pub fn partial_bytes(&self) -> usize {
        let body = match &self.stage {
            RequestPart::Chunked { body, .. } => body.capacity(),
            RequestPart::Bulk(body) => body.lines.held_bytes(),
            RequestPart::Head(_) | RequestPart::Body { .. } => 0,
        };
        let handshake = self.secured.as_ref().map_or(0, |secured| secured.waiting_bytes());
        self.partial.capacity() + body + handshake
    }

    /// Bytes of answers that the client has not taken yet.
    pub fn unsent_bytes(&self) -> usize {
        self.out.len() + self.sending_bytes + self.ready_bytes
    }

    /// Returns whether so many answers are unsent or awaited that no further request is taken.
    pub fn is_backed_up(&self, limits: &Limits) -> bool {
        let expected_bytes = self.reads_awaited * self.read_bytes;
        self.unsent_bytes() + expected_bytes > limits.unsent_bytes_per_connection_max as usize
            || self.pending.len() >= UNDER_WAY_MAX
    }

    /// Learns from an answer how many bytes the next reads may be answered with: at least as many,
    /// or a quarter less than expected so far if that is more.
    fn has_read(&mut self, is_read: bool, answer_bytes: usize) {
        if is_read {
            let former = self.read_bytes - self.read_bytes / 4;
            let former = if self.read_bytes == READ_BYTES_UNKNOWN { 0 } else { former };
            self.read_bytes = answer_bytes.max(former).max(READ_BYTES_MIN);
        }
    }

    /// Answers with an error after all former answers, and closes.
    pub fn fail(&mut self, service: &mut Service, status: u16, reason: &str) {
        let form = match &self.stage {
            RequestPart::Head(_) => form_of(&self.partial),
            RequestPart::Body { line, .. } | RequestPart::Chunked { line, .. } => line.persistence,
            RequestPart::Bulk(body) => body.line.persistence,
        };
        self.fail_with(service, (status, ""), reason, form);
    }

    /// Does the same as [`ClientConnection::fail`] with a further header line.
    pub(super) fn fail_with(
        &mut self,
        service: &mut Service,
        (status, header): (u16, &str),
        reason: &str,
        form: Persistence,
    ) {
        if !self.fail_bulk(service, status, reason) {
            self.in_order(|out| service.refuse_with(out, (status, header), reason, form));
        }
        self.is_closing = true;
        // The last answer may be under way, so the connection may no longer become a peer's.
        self.upgrade = None;
        self.drop_partial();
        if self.is_handshaking() {
            // The answer cannot be read before the end of the handshake, which nobody pays for.
            self.break_off();
        }
    }

    /// Asks a peer to prove that it knows the cluster's secret.
    pub fn challenge(&mut self, nonce: Word) {
        self.challenge = Some(Box::new(nonce));
        self.in_order(|out| handshake::write_challenge(out, nonce));
    }

    /// Answers a peer whose Upgrade is refused, and closes.
    pub fn refuse_peer(&mut self, service: &mut Service, refusal: &HelloRefusal) {
        let (status, header) = handshake::refusal_of(refusal);
        let reason = refusal.to_string();
        self.in_order(|out| {
            service.refuse_with(out, (status, header), &reason, Persistence::CLOSE)
        });
        self.is_closing = true;
        self.drop_partial();
    }

    /// Forgets the bytes of requests that will not be served.
    pub fn drop_partial(&mut self) {
        self.began = None;
        self.partial = Vec::new();
        self.stage = RequestPart::Head(HeadProgress::default());
    }

    /// Takes complete requests from the front of `input`. Returns how many bytes were used.
    fn take(
        &mut self,
        api: &mut Api<'_>,
        (input, caller): (&mut [u8], Caller<'_>),
        budget: &mut u32,
    ) -> usize {
        let limits = api.limits;
        let mut at = 0;
        while *budget > 0 && !self.is_closing && !self.is_backed_up(limits) {
            let rest = &mut input[at..];
            let has_request = !rest.is_empty() || !matches!(self.stage, RequestPart::Head(_));
            if has_request && api.service.time.is_over() {
                self.is_deferred = true;
                break;
            }
            match &mut self.stage {
                RequestPart::Head(_) => match self.take_head(api, caller, rest) {
                    ControlFlow::Continue(used) => at += used,
                    ControlFlow::Break(used) => {
                        at += used;
                        break;
                    }
                },
                RequestPart::Body { line, length } => {
                    let (line, length) = (*line, *length);
                    self.is_deferred = line.is_read() && !api.service.room.may_read();
                    if rest.len() < length || self.is_deferred {
                        break;
                    }
                    self.serve(api, caller, line, &mut rest[..length]);
                    at += length;
                    *budget -= 1;
                }
                RequestPart::Chunked { line, decoder, body } => {
                    if rest.is_empty() {
                        break;
                    }
                    let line = *line;
                    match decoder.decode(rest, |run| body.extend_from_slice(run)) {
                        Ok((used, is_complete)) => {
                            at += used;
                            if is_complete {
                                let mut body = std::mem::take(body);
                                self.serve(api, caller, line, &mut body);
                                *budget -= 1;
                            }
                        }
                        Err(error) => self.fail_chunk(api.service, error),
                    }
                }
                RequestPart::Bulk(_) => match self.take_bulk(api, rest, budget) {
                    ControlFlow::Continue(used) => at += used,
                    ControlFlow::Break(used) => {
                        at += used;
                        break;
                    }
                },
            }
        }
        at
    }

    /// Takes a head from the front of `rest`. Returns how many bytes were used, and whether to go
    /// on with what follows them.
    fn take_head(
        &mut self,
        api: &mut Api<'_>,
        caller: Caller<'_>,
        rest: &[u8],
    ) -> ControlFlow<usize, usize> {
        let bytes_max = api.limits.header_bytes_max as usize;
        let recalled = api.service.heads.recall(self.last_head, rest, bytes_max);
        if let Some((line, framing, used)) = recalled {
            self.begin_body(api, caller, line, framing);
            return ControlFlow::Continue(used);
        }
        let RequestPart::Head(progress) = &mut self.stage else { return ControlFlow::Break(0) };
        if rest.is_empty() || !progress.is_worth_parsing(rest, bytes_max) {
            return ControlFlow::Break(0);
        }
        let head = match parse_request_head(rest, bytes_max) {
            Ok(Some(head)) => head,
            Ok(None) => return ControlFlow::Break(0),
            Err(error) => {
                let is_tls = self.secured.is_none() && may_be_tls(rest);
                let reason = if is_tls { TLS_HERE } else { error.reason };
                self.fail_with(api.service, (error.status, ""), reason, form_of(rest));
                return ControlFlow::Break(0);
            }
        };
        let (line, used) = (RequestLine::of(&head), head.head_bytes);
        if head.path == handshake::PATH && line.path == TimerPath::Unknown {
            return ControlFlow::Break(self.begin_upgrade(api.service, &rest[..used]));
        }
        if api.service.tokens.is_some() {
            let authorized = authorize(&mut self.access, api.service, caller, &line, &head);
            if let Err(denial) = authorized {
                let (status, header) = (denial.status(), denial.header());
                let reason = denial.to_string();
                self.fail_with(api.service, (status, header), &reason, line.persistence);
                return ControlFlow::Break(0);
            }
        } else if let Some(place) = api.service.heads.remember(&head, &line, &rest[..used]) {
            self.last_head = place;
        }
        let (bytes, scope) = (&rest[..used], self.access.as_deref().map_or("", Access::name));
        self.page = Paged::of(&line, head.query, bytes, scope);
        self.addressed = Addressed::of(&line, &head, bytes, scope);
        if line.is_bulk() && !caller.is_node {
            self.begin_bulk(api, line, head.framing);
        } else {
            self.begin_body(api, caller, line, head.framing);
        }
        if head.expects_continue && !self.is_closing && rest.len() == used {
            self.in_order(write_continue);
        }
        ControlFlow::Continue(used)
    }

    pub(super) fn fail_chunk(&mut self, service: &mut Service, error: ChunkError) {
        let status = if error == ChunkError::TooLong { 413 } else { 400 };
        self.fail(service, status, &error.to_string());
    }

    /// Takes a request for an Upgrade, which ends the talk in requests and answers. Returns its
    /// bytes.
    fn begin_upgrade(&mut self, service: &mut Service, head: &[u8]) -> usize {
        // The answer to a challenge may come before the kernel has told that the challenge left.
        // So may the request the end of a handshake.
        let is_sent = self.sending_bytes == 0 || self.challenge.is_some() || self.is_node();
        let is_first = self.pending.is_empty() && self.out.is_empty() && is_sent;
        match handshake::parse_request(head) {
            _ if self.secured.is_some() && !self.is_node() => {
                self.fail(service, 400, "for nodes: connect to the port of [node] listen");
            }
            // Whatever is answered to an Upgrade may have a body.
            Ok(_) if form_of(head).is_head => {
                self.fail_with(service, (400, ""), "expected GET for an Upgrade", form_of(head));
            }
            Ok(asked) if is_first => self.upgrade = Some(Box::new(asked)),
            Ok(_) => self.fail(service, 400, "wait for all answers before an Upgrade"),
            Err((status, reason)) => self.fail_with(service, (status, ""), reason, form_of(head)),
        }
        // Another head may follow: after a challenge, or after the Upgrade of another site.
        self.stage = RequestPart::Head(HeadProgress::default());
        head.len()
    }

    fn begin_body(
        &mut self,
        api: &mut Api<'_>,
        caller: Caller<'_>,
        line: RequestLine,
        framing: Framing,
    ) {
        let bytes_max = api.limits.body_bytes_max;
        self.stage = match framing {
            Framing::Length(length) if length <= u64::from(bytes_max) => {
                RequestPart::Body { line, length: length as usize }
            }
            Framing::Length(length) => {
                let bytes_max = api.service.body_bytes_max(api.core, caller, &line);
                if let Some(reason) = too_long(length, bytes_max) {
                    return self.fail_with(api.service, (413, ""), &reason, line.persistence);
                }
                RequestPart::Body { line, length: length as usize }
            }
            Framing::Chunked => {
                let bytes_max = u64::from(api.service.body_bytes_max(api.core, caller, &line));
                let decoder = Box::new(ChunkedDecoder::new(bytes_max));
                RequestPart::Chunked { line, decoder, body: Vec::new() }
            }
        };
    }

    fn serve(&mut self, api: &mut Api<'_>, caller: Caller<'_>, line: RequestLine, body: &mut [u8]) {
        self.stage = RequestPart::Head(HeadProgress::default());
        self.began = None;
        let from = Requester {
            shard: self.own,
            connection: self.key.index,
            generation: self.key.generation,
            request: self.next_request(),
        };
        self.is_closing = !line.persistence.keep_alive;
        let (page, addressed) = (self.page.take(), self.addressed.take());
        let (persistence, is_read) = (line.persistence, line.is_read());
        let (held_bytes, body_bytes) = (self.unsent_bytes(), body.len());
        let quota = self.access.as_deref().and_then(Access::quota);
        let (addressed, is_callback) = (addressed.as_deref(), line.is_callback);
        let caller = Caller { quota, addressed, is_callback, ..caller };
        let mut serve = |out: &mut Vec<u8>| {
            let (now, core, service) = (api.now, &mut *api.core, &mut *api.service);
            let served = match &page {
                Some(paged) => service.paged((now, core), (from, caller), paged, persistence, out),
                None => service.serve((now, core), (from, caller), &line, body, out),
            };
            match served {
                Served::Later => {
                    service.answer_at_once(core, (from, quota), persistence, held_bytes, out)
                }
                Served::Written => Served::Written,
            }
        };
        let is_first = self.pending.is_empty();
        let mut ready = Vec::new();
        let out = if is_first { &mut self.out } else { &mut ready };
        let begins = out.len();
        let served = serve(out);
        let warning = api.service.warning.take();
        if let (Some(warning), Served::Written) = (&warning, served) {
            add_header(out, begins, warning);
        }
        let answer_bytes = out.len() - begins;
        api.service.time.spend(body_bytes);
        match served {
            Served::Later => {
                self.reads_awaited += usize::from(is_read);
                self.pending.push_back(Pending::Awaited { persistence, is_read });
                if let Some(warning) = warning {
                    self.await_warning(from.request, warning);
                }
            }
            Served::Written => {
                self.has_read(is_read, answer_bytes);
                if !is_first {
                    self.ready_bytes += answer_bytes;
                    self.pending.push_back(Pending::Ready(ready));
                }
            }
        }
    }

    /// Appends an answer that is known at once, behind those that are still awaited.
    pub(super) fn in_order(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.pending.is_empty() {
            return write(&mut self.out);
        }
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.ready_bytes += bytes.len();
        self.pending.push_back(Pending::Ready(bytes));
    }

    /// Sets the deadline. A connection may be idle for the limit, and a request must be complete
    /// within the limit after its first byte.
    fn set_deadline(&mut self, now: MonoNs, limits: &Limits) {
        let is_idle = self.partial.is_empty() && matches!(self.stage, RequestPart::Head(_));
        if is_idle {
            self.began = None;
        } else if self.began.is_none() {
            self.began = Some(now);
        }
        self.deadline.extend(self.began.unwrap_or(now).plus_ms(limits.idle_timeout_ms));
    }
}

/// The form of an error that answers bytes of a head that is refused, or not complete.
fn form_of(head: &[u8]) -> Persistence {
    let is_head = head.trim_ascii_start().starts_with(b"HEAD ");
    let errors = ErrorForm::of(seems_to_accept_problem(head), false);
    Persistence { errors, is_head, ..Persistence::CLOSE }
}
