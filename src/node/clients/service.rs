//! From a complete request to a request for the shard, or to an answer at once.

// Reads the wall clock: at 1.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::base::limits::{BODY_TOLD_BYTES_MAX, Limits};
use crate::base::quota::Quota;
use crate::base::time::Now;
use crate::core::Core;
use crate::core::gate::{Gate, SiteNode};
use crate::core::internal_api::{PageHead, copy_of};
use crate::core::peers::actions::InboundId;
use crate::core::peers::address::host_of;
use crate::core::peers::handshake::{Asked, Protocol, UNPROVEN_HEADER};
use crate::core::peers::hello::{HelloRefusal, PLAIN};
use crate::core::peers::secret::{CLOSED, Guard, ProofVerdict, Word};
use crate::node::callbacks::policy::{Denial, Destinations};
use crate::node::clients::addressed::Aim;
use crate::node::clients::answer_room::AnswerRoom;
use crate::node::clients::answers::{
    Persistence, too_many_creates, write_error_with, write_members, write_not_allowed, write_pong,
    write_token_full, write_too_many_creates,
};
use crate::node::clients::bulk::LineBudget;
use crate::node::clients::caller::Caller;
use crate::node::clients::head_memory::HeadMemory;
use crate::node::clients::letters::{judge_hosts, letter_use};
use crate::node::clients::refusals::{denied, refusal_of, too_long, whole_content};
use crate::node::clients::request_line::RequestLine;
use crate::node::clients::request_time::RequestTime;
use crate::node::clients::tokens::Tokens;
use crate::node::clients::warnings::{refusal_for, warning_of};
use crate::ring::{FarEnds, SocketId};
use crate::shard::effects::{Answer, Refusal, Request, Requester, Target};
use crate::timer::admission::{admit_as, admit_told};
use crate::timer::definition::{Definition, with_owner};
use crate::timer::naming::Identity;
use crate::timestamp::RANGE_MAX;
use crate::tls::names::Member;
use crate::tls::session::Session;
use crate::wire::callback_uri::AuthorityMemory;
use crate::wire::internal_json::{AnyDocument, InternalPart, Origin, parse_any};
use crate::wire::request_head::Method;
use crate::wire::resync_json::{Reference, parse_references};
use crate::wire::timer_json::JsonScratch;
use crate::wire::timer_path::{PublicId, TimerPath};

/// Bytes above which a content buffer goes back to the allocator after use.
const CONTENT_BYTES_KEPT: usize = 64 << 10;
/// The answer to what only clients ask for, where a node speaks TLS.
pub(super) const NODES_ONLY: &str = "this is TLS between nodes (cluster.tls), for what nodes say \
    alone: clients ask without TLS here, or over TLS at [node] listen_tls";
pub(super) const NO_PATH: &str = "no such path; expected /timers, /timers/<id>, \
    /timers/by-name/<name>, /timers/count, /dead-letters, /jobs, /timestamps or /ping";
/// The answer to a node that has not said who it is.
const UPGRADE_FIRST: &str = "over TLS a node says who it is first: Upgrade: chronos-site/1";
/// The answer to a callback that asks for what is for nodes. It comes from the address of one.
const CALLBACK: &str =
    "this is for nodes, and a callback speaks for its client (X-Sequence-Number)";
/// The answer to a node that does not say of which site it is.
const SITELESS: &str = "X-Chronos-Site: expected the site of this node, got none";
/// Number of references whose memory is kept.
const REFERENCES_KEPT: usize = 1_024;

/// What becomes of a request for an Upgrade.
pub enum Admitted {
    /// The connection carries frames from here on. The word is this node's own proof, if one was
    /// asked for.
    Peer(InboundId, Option<Word>),
    /// The internal HTTP API is open on the connection. The word is this node's own proof, if one
    /// was asked for.
    Site(Option<Word>),
    /// The other end must prove that it knows the secret.
    Challenged,
}

/// What a request is served with: the API of a core and the core behind it.
pub struct Api<'a> {
    /// The time of the turn.
    pub now: Now,
    /// The core that gets the requests.
    pub core: &'a mut Core,
    /// The API of the core.
    pub service: &'a mut Service,
    /// The limits for clients.
    pub limits: &'a Limits,
}

/// Where the answer to a request comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// The core's replies bring the answer, in this turn or a later one.
    Later,
    /// The answer has been written.
    Written,
}

/// The API of one core.
pub struct Service {
    /// How many requests were answered while they were served.
    pub written: u64,
    /// How many requests were answered 4xx.
    pub bad: u64,
    /// The room for answers.
    pub room: AnswerRoom,
    /// Decides who may use the internal API.
    pub gate: Gate,
    /// What other nodes must prove.
    pub guard: Guard,
    /// Whether nodes are taken over TLS only.
    pub requires_tls: bool,
    /// Where callbacks may go.
    pub destinations: Arc<Destinations>,
    /// What other nodes told and asked for.
    pub internal: InternalCounters,
    /// Requests for timestamps, which the server takes from here in this turn. `None`: timestamps
    /// are not served.
    pub timestamp_asks: Option<Vec<(Requester, u32)>>,
    /// Heads of requests that came before.
    pub heads: HeadMemory,
    /// The tokens of clients. `None`: nobody needs one.
    pub tokens: Option<Arc<Tokens>>,
    /// Requests refused for their token.
    pub denied: DeniedRequests,
    /// Timers refused for their callback's host, in the order of [`Denial::ALL`].
    pub denied_hosts: [u64; Denial::ALL.len()],
    /// How many lines of bulk requests may still be taken.
    pub bulk_budget: LineBudget,
    /// How long requests may still be taken.
    pub time: RequestTime,
    /// What the client is told of the document that was taken last, until somebody takes it.
    pub(super) warning: Option<Box<str>>,
    authorities: AuthorityMemory,
    limits: Limits,
    json: JsonScratch,
    content: Vec<u8>,
    /// Content with its owner.
    owned: Vec<u8>,
    references: Vec<Reference>,
}

/// Requests refused for their token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeniedRequests {
    /// Those without a token.
    pub missing: u64,
    /// Those with a token that is not known.
    pub unknown: u64,
    /// Those that the token's role may not make.
    pub forbidden: u64,
    /// Those over one connection more than the token's name may have.
    pub connections: u64,
    /// Creates beyond the rate of the token's name.
    pub creates: u64,
    /// Those of a timer more than the token's name may have.
    pub timers: u64,
}

/// What other nodes told and asked for over the internal API of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InternalCounters {
    /// Timers that other nodes told.
    pub copies: u64,
    /// Pages of timers that other nodes asked for.
    pub pages: u64,
    /// References to timers that other nodes have taken over.
    pub references: u64,
    /// Statistics tags that were left out because they were malformed.
    pub tags_dropped: u64,
}

impl Service {
    /// The API of a core before any request.
    pub fn new(limits: &Limits, accepts_strangers: bool) -> Self {
        Self {
            written: 0,
            bad: 0,
            room: AnswerRoom::new(limits),
            gate: Gate::new(accepts_strangers),
            guard: Guard::default(),
            requires_tls: false,
            destinations: Arc::default(),
            internal: InternalCounters::default(),
            timestamp_asks: None,
            heads: HeadMemory::default(),
            tokens: None,
            denied: DeniedRequests::default(),
            denied_hosts: Default::default(),
            bulk_budget: LineBudget::default(),
            time: RequestTime::new(limits.turn_budget_us),
            warning: None,
            authorities: AuthorityMemory::default(),
            limits: limits.clone(),
            json: JsonScratch::default(),
            content: Vec::new(),
            owned: Vec::new(),
            references: Vec::new(),
        }
    }

    /// Serves one complete request. Appends an answer known at once to `out`. `body` is scratch.
    pub fn serve(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        line: &RequestLine,
        body: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Served {
        let served = self.route((now, core), (from, caller), line, body, out);
        self.written += u64::from(served == Served::Written);
        served
    }

    fn route(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        line: &RequestLine,
        body: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Served {
        let persistence = line.persistence;
        let request = match (line.path, line.method) {
            _ if caller.is_node && !line.is_for_nodes() => {
                return self.settle(Err((403, NODES_ONLY.into())), persistence, out);
            }
            (TimerPath::Collection, Method::Post)
            | (TimerPath::Timer(_) | TimerPath::Named, Method::Put) => {
                return self.store((now, core), (from, caller), line, body, out);
            }
            // What was deleted is remembered for a while, and has room like a timer.
            (TimerPath::Timer(_) | TimerPath::Named, Method::Delete)
                if caller
                    .quota
                    .is_some_and(|it| self.is_beyond_rate(now, it, persistence, out)) =>
            {
                return Served::Written;
            }
            (TimerPath::Timer(_) | TimerPath::Named, Method::Delete)
            | (TimerPath::Named, Method::Get)
                if let Some(timer) = caller.addressed =>
            {
                match timer {
                    Ok(timer) => timer.asked(line.method),
                    Err(reason) => return self.refuse(reason, persistence, out),
                }
            }
            (TimerPath::Timer(named), Method::Delete) => Request::Delete(target_of(named)),
            (TimerPath::Timer(named), Method::Get) => Request::Read(target_of(named)),
            (TimerPath::DeadLetter(named), Method::Get | Method::Delete)
            | (TimerPath::Replay(named), Method::Post) => {
                Request::Letter(target_of(named), letter_use(line.method), None)
            }
            (TimerPath::Action(..) | TimerPath::NamedAction(_), _) => {
                return self.act((now, core), (from, caller), line, out);
            }
            (TimerPath::References, Method::Delete) => {
                let forgotten = self.forget((now, core), (from, caller), body);
                return self.settle(forgotten, persistence, out);
            }
            (TimerPath::Ping, Method::Get) => return self.ping((now, core), caller, line, out),
            (TimerPath::Compare(question), Method::Get) => match self.admit(core, caller) {
                Ok(()) => Request::Compare(question),
                refused => return self.settle(refused, persistence, out),
            },
            (TimerPath::Timestamps, Method::Post) => {
                let asked = self.ask_timestamps(from, line.count);
                return self.settle(asked, persistence, out);
            }
            (TimerPath::Unknown, _) => {
                return self.settle(Err((404, no_path(caller))), persistence, out);
            }
            // No method is allowed for what names nothing.
            (TimerPath::Named, _) if let Some(Err(reason)) = caller.addressed => {
                return self.refuse(reason, persistence, out);
            }
            _ => return self.not_allowed(out, line.allowed(), persistence),
        };
        core.request(now, from, request);
        Served::Later
    }

    /// Says that this core takes requests, or tells another site of the members.
    fn ping(
        &mut self,
        (now, core): (Now, &mut Core),
        caller: Caller<'_>,
        line: &RequestLine,
        out: &mut Vec<u8>,
    ) -> Served {
        if line.asks_members {
            let told = self.tell_members((now, core), caller, line.persistence, out);
            let _ = self.settle(told, line.persistence, out);
        } else {
            write_pong(out, line.persistence);
        }
        Served::Written
    }

    /// Writes the answer to the request just served, if the shard has answered it already.
    pub fn answer_at_once(
        &mut self,
        core: &mut Core,
        (from, quota): (Requester, Option<&Quota>),
        persistence: Persistence,
        held_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Served {
        let Some(answer) = core.take_answer(from) else { return Served::Later };
        self.written += 1;
        self.write_answer(out, &answer, (persistence, held_bytes), quota);
        Served::Written
    }

    /// Appends the answer of a shard. `quota` is that of the request's token.
    #[inline]
    pub fn write_answer(
        &mut self,
        out: &mut Vec<u8>,
        answer: &Answer,
        (persistence, held_bytes): (Persistence, usize),
        quota: Option<&Quota>,
    ) {
        if matches!(answer, Answer::Refused(Refusal::TokenFull)) {
            return self.refuse_timer(out, persistence, quota);
        }
        self.room.write(out, answer, persistence, held_bytes);
    }

    /// Answers a request for one timer more than the name of its token may have.
    #[cold]
    pub fn refuse_timer(
        &mut self,
        out: &mut Vec<u8>,
        persistence: Persistence,
        quota: Option<&Quota>,
    ) {
        self.denied.timers += 1;
        quota.into_iter().for_each(Quota::note_timer_refused);
        write_token_full(out, quota, persistence);
    }

    /// Takes a POST for timestamps. The body is ignored.
    fn ask_timestamps(&mut self, from: Requester, count: u32) -> Result<(), (u16, String)> {
        let Some(asks) = &mut self.timestamp_asks else {
            let reason = "timestamps are off; set enabled = true in [timestamp]";
            return Err((404, reason.into()));
        };
        if count == 0 || count > RANGE_MAX {
            return Err((400, format!("count: expected ?count=n with n from 1 to {RANGE_MAX}")));
        }
        asks.push((from, count));
        Ok(())
    }

    /// Returns whether a write is beyond the rate of its token's name, and answers it then.
    #[inline(never)]
    pub(super) fn is_beyond_rate(
        &mut self,
        now: Now,
        quota: &Quota,
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> bool {
        let is_beyond = !quota.may_create(now.mono);
        if is_beyond {
            self.denied.creates += 1;
            self.bad += 1;
            write_too_many_creates(out, quota, persistence);
        }
        is_beyond
    }

    /// Takes a line of a bulk request, whose answer the core's replies bring. `Err` is the status
    /// and reason of a refusal.
    pub fn create_line(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, quota): (Requester, Option<&Quota>),
        (line, is_strict): (&mut [u8], bool),
    ) -> Result<(), (u16, String)> {
        if let Some(quota) = quota.filter(|quota| !quota.may_create(now.mono)) {
            self.denied.creates += 1;
            return Err((429, too_many_creates(quota)));
        }
        let document = parse_any(line, &mut self.json);
        let document = document.map_err(|error| (400, error.to_string()))?;
        self.shed_content();
        let aim = Aim { is_strict, ..Aim::default() };
        self.write((now, core), (from, quota), &document, aim)
    }

    /// Takes a POST or PUT whose body is a timer.
    fn store(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        line: &RequestLine,
        body: &mut [u8],
        out: &mut Vec<u8>,
    ) -> Served {
        if let Some(quota) = caller.quota
            && self.is_beyond_rate(now, quota, line.persistence, out)
        {
            return Served::Written;
        }
        let target = match line.path {
            TimerPath::Timer(target) => Some(target),
            _ => None,
        };
        let addressed = match caller.addressed.map(Result::as_ref).transpose() {
            Ok(addressed) => addressed,
            Err(reason) => return self.refuse(reason, line.persistence, out),
        };
        let identity = addressed.map_or_else(Identity::default, |timer| timer.identity(body));
        let body_bytes = body.len();
        let parsed = parse_any(body, &mut self.json);
        let document = match &parsed {
            Ok(document) => document,
            Err(error) => {
                return self.settle(Err((400, error.to_string())), line.persistence, out);
            }
        };
        self.shed_content();
        if let (Some(named), Some(part)) = (target, &document.internal) {
            let merged = self.merge((now, core), (from, caller), named, document, part);
            return self.settle(merged, line.persistence, out);
        }
        if caller.is_node {
            return self.settle(Err((403, NODES_ONLY.into())), line.persistence, out);
        }
        let (bytes, bytes_max) = (body_bytes as u64, self.limits.body_bytes_max);
        if let Some(reason) = too_long(bytes, bytes_max) {
            return self.settle(Err((413, reason)), line.persistence, out);
        }
        let aim = Aim { target, addressed, identity, is_strict: line.is_strict };
        match self.write((now, core), (from, caller.quota), document, aim) {
            Ok(()) => Served::Later,
            refused => self.settle(refused, line.persistence, out),
        }
    }

    /// Gives the memory of a long content back.
    #[inline]
    fn shed_content(&mut self) {
        if self.content.capacity() > CONTENT_BYTES_KEPT {
            (self.content, self.owned) = (Vec::new(), Vec::new());
        }
    }

    /// Gives a client's document to the core: as an update of `target`, or as a create. `Err` is
    /// the status and reason of a refusal.
    #[inline(always)]
    fn write(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, quota): (Requester, Option<&Quota>),
        document: &AnyDocument<'_>,
        Aim { target, addressed, identity, is_strict }: Aim<'_>,
    ) -> Result<(), (u16, String)> {
        let factor_in_path = target.and_then(|target| target.factor);
        let follows = document.timer.options.as_deref().is_some_and(|it| it.cron.is_some());
        let wall = if follows { core.calendar_wall(now) } else { now.wall };
        let limits = (factor_in_path, self.limits.opaque_bytes_max, wall);
        let (authorities, content) = (&mut self.authorities, &mut self.content);
        self.time.spend_much(document.timer.options.is_some());
        let definition = admit_as(&document.timer, identity, limits, authorities, content)
            .map_err(|rejection| refusal_of(&rejection))?;
        let judged = judge_hosts(&self.destinations, &definition);
        if let Err((member, authority, denial)) = judged {
            if let Some(count) = self.denied_hosts.get_mut(denial as usize) {
                *count += 1;
            }
            return Err((403, denied(member, authority, denial)));
        }
        if let Some(warning) = warning_of(document.unknown.as_deref(), &definition) {
            if is_strict {
                return Err((400, refusal_for(warning, document.unknown.as_deref())));
            }
            self.warning = Some(warning);
        }
        let definition = owned(definition, quota, &mut self.owned);
        let request = match (target, addressed) {
            (Some(named), _) => Request::Update(target_of(named), definition),
            (None, Some(timer)) => timer.write(Some(definition)),
            (None, None) => Request::Create(definition),
        };
        core.request(now, from, request);
        Ok(())
    }

    /// Takes a PUT of another node: a copy of a timer, or its tombstone.
    #[cold]
    fn merge(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        named: PublicId,
        document: &AnyDocument<'_>,
        part: &InternalPart<'_>,
    ) -> Result<(), (u16, String)> {
        self.admit(core, caller)?;
        if part.origin == Origin::Peer && part.replicas.is_empty() {
            return Err((400, "reliability.replicas: expected a name at least, got none".into()));
        }
        let told = admit_told(&document.timer, &mut self.content);
        let mut told = told.map_err(|rejection| refusal_of(&rejection))?;
        match (part.content, part.owner, &mut told.body) {
            (Some(content), _, Some(body)) => {
                self.owned = whole_content(body.authority, content).map_err(|it| (400, it))?;
                body.content = &self.owned;
            }
            (None, Some(owner), Some(body)) => {
                with_owner(body.content, owner, &mut self.owned);
                body.content = &self.owned;
            }
            _ => {}
        }
        self.internal.copies += 1;
        self.internal.tags_dropped += u64::from(part.tags_dropped);
        let factor = document.timer.replication_factor;
        let copy = copy_of(now, core.view(), named, factor, part, told);
        core.request(now, from, Request::Merge(copy));
        Ok(())
    }

    /// Takes another node's GET of a page of timers. Appends to `out` as [`Service::serve`] does.
    pub fn page(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        head: &PageHead,
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> Served {
        let asked = self.admit(core, caller).and_then(|()| head.read(core.view()));
        let begun = asked.map(|asked| {
            self.internal.pages += 1;
            core.page(now, from, asked);
        });
        let served = self.settle(begun, persistence, out);
        self.written += u64::from(served == Served::Written);
        served
    }

    /// Takes another node's DELETE of references.
    #[cold]
    fn forget(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        body: &mut [u8],
    ) -> Result<(), (u16, String)> {
        self.admit(core, caller)?;
        self.references.clear();
        parse_references(body, &mut self.json, &mut self.references)
            .map_err(|error| (400, error.0.into_owned()))?;
        self.internal.references += self.references.len() as u64;
        core.forget(now, from, &mut self.references);
        self.references.shrink_to(REFERENCES_KEPT);
        Ok(())
    }

    /// Tells another site the members of this site.
    #[cold]
    fn tell_members(
        &mut self,
        (now, core): (Now, &mut Core),
        caller: Caller<'_>,
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> Result<(), (u16, String)> {
        self.admit(core, caller)?;
        let mut body = Vec::new();
        self.gate.write_members(core.view(), &mut body);
        write_members(out, core.site_news(now), &body, persistence);
        Ok(())
    }

    /// Returns whether a connection from this address comes from another node of the cluster.
    pub fn is_peer(&mut self, core: &Core, address: Option<SocketAddr>) -> bool {
        let view = core.view();
        let is_alone = view.connected_nodes().union(view.connected_sites()).is_empty();
        !is_alone && self.gate.knows(view, address.map(|address| address.ip()))
    }

    /// Returns how many bytes the body of a request may have. Another node may tell a longer timer
    /// than clients may send.
    pub fn body_bytes_max(&mut self, core: &Core, caller: Caller<'_>, line: &RequestLine) -> u32 {
        let own = self.limits.body_bytes_max;
        if line.method != Method::Put || !matches!(line.path, TimerPath::Timer(_)) {
            return own;
        }
        let address = caller.far_ends.of(caller.socket).map(|address| address.ip());
        let needs_certificate = self.requires_tls || caller.is_node;
        let is_open = (caller.is_proven || !self.guard.is_required())
            && (caller.is_certified || !needs_certificate);
        match is_open && self.gate.admits(core.view(), address) {
            true => own.max(BODY_TOLD_BYTES_MAX),
            false => own,
        }
    }

    /// Returns whether the caller may use the internal API. `Err`: status and reason to refuse it.
    fn admit(&mut self, core: &mut Core, caller: Caller<'_>) -> Result<(), (u16, String)> {
        let is_admitted = self.admit_address(core, caller).and(core.speaks_for_site());
        is_admitted.map_err(|reason| (403, reason))?;
        if caller.is_callback {
            return Err((403, CALLBACK.to_owned()));
        }
        if caller.is_node && !caller.is_certified {
            return Err((403, UPGRADE_FIRST.to_owned()));
        }
        if self.requires_tls && !caller.is_certified {
            core.inbound_refused(HelloRefusal::Plain);
            return Err((403, PLAIN.to_owned()));
        }
        if self.guard.is_required() && !caller.is_proven {
            core.inbound_refused(HelloRefusal::Unproven(CLOSED));
            return Err((403, CLOSED.to_owned()));
        }
        Ok(())
    }

    /// Returns whether TLS is spoken with a node at this other end: at the address of one.
    pub fn admit_handshake(
        &mut self,
        core: &Core,
        (far_ends, socket): (FarEnds<'_>, SocketId),
    ) -> Result<(), String> {
        let caller = Caller { is_node: true, ..Caller::at(far_ends, socket) };
        self.admit_address(core, caller)
    }

    /// Returns whether the caller has an address that may use the internal API.
    fn admit_address(&mut self, core: &Core, caller: Caller<'_>) -> Result<(), String> {
        let address = || caller.far_ends.of(caller.socket).map(|address| address.ip());
        self.gate.admit(core.view(), core.site_callers(), address)
    }

    /// Decides about an Upgrade: what is asked for, the nonce with which the other end was
    /// challenged, if it was, and TLS, if it is spoken. The checks come in this order: the other
    /// end calls from the address of the node that it says it is, or is a node of another site that
    /// is known, its certificate has this name, it knows the secret, and the core takes the
    /// connection.
    pub fn admit_upgrade(
        &mut self,
        (now, core): (Now, &mut Core),
        (asked, challenge, shown): (&Asked, Option<Word>, Option<&Session>),
        caller: Caller<'_>,
    ) -> Result<Admitted, HelloRefusal> {
        let address = caller.far_ends.of(caller.socket).map(|address| address.ip());
        let name = &asked.hello.name;
        let is_at_home = match asked.protocol {
            Protocol::Frames => self.gate.admit_peer(core.view(), name, address),
            Protocol::Site if self.guard.secrets.is_none() && !caller.is_node => {
                Err(HelloRefusal::NoSecret)
            }
            Protocol::Site => self.admit_site_address(core, caller, asked.site_node()),
        };
        let is_it = is_at_home.and_then(|()| self.judge_certificate(name, shown));
        is_it.map_err(|refusal| core.inbound_refused(refusal))?;
        let own = core.hello();
        let view = core.view();
        let meant = match asked.protocol {
            Protocol::Frames => own.name.as_str(),
            Protocol::Site => view.name_of_site(view.local_site()).unwrap_or_default(),
        };
        let of_this = (asked.protocol.name(), meant, &own);
        let proof = match self.guard.judge(of_this, &asked.hello, asked.offer, challenge) {
            ProofVerdict::Unproven => None,
            ProofVerdict::Proven(proof) => Some(proof),
            ProofVerdict::Challenge => return Ok(Admitted::Challenged),
            ProofVerdict::Refused(reason) => {
                return Err(core.inbound_refused(HelloRefusal::Unproven(reason)));
            }
        };
        match (asked.protocol, proof) {
            (Protocol::Frames, proof) => {
                let inbound = core.inbound_opened(now, &asked.hello)?;
                Ok(Admitted::Peer(inbound, proof))
            }
            (Protocol::Site, proof) if proof.is_some() || caller.is_node => {
                Ok(Admitted::Site(proof))
            }
            // A site that offers no proof does not need an Upgrade: the internal API is open to it
            // without one.
            (Protocol::Site, _) => Err(HelloRefusal::NoSecret),
        }
    }

    /// Returns whether a node of another site may say who it is from where it calls. The address is
    /// looked at first: who is at none of a node's learns nothing.
    fn admit_site_address(
        &mut self,
        core: &Core,
        caller: Caller<'_>,
        node: Option<SiteNode>,
    ) -> Result<(), HelloRefusal> {
        self.admit_address(core, caller).map_err(HelloRefusal::NoSite)?;
        match node {
            Some(node) => self.admit_site(core, caller, &node),
            None if caller.is_node => Err(HelloRefusal::NoSite(SITELESS.to_owned())),
            // A version that tells no site proves the secret.
            None => Ok(()),
        }
    }

    /// Returns whether the caller is a node of another site, as which it has said that it comes.
    pub fn admit_site(
        &mut self,
        core: &Core,
        caller: Caller<'_>,
        node: &SiteNode,
    ) -> Result<(), HelloRefusal> {
        let address = caller.far_ends.of(caller.socket).map(|address| address.ip());
        self.gate.admit_site(core.view(), node, address, |site| core.told_by(site))
    }

    /// Judges whether the node of this name may come as it comes: with this certificate, or without
    /// TLS.
    fn judge_certificate(&self, name: &str, shown: Option<&Session>) -> Result<(), HelloRefusal> {
        match shown {
            None if self.requires_tls => Err(HelloRefusal::Plain),
            Some(session) if !session.shows(Member { name, host: &host_of(name) }) => {
                Err(HelloRefusal::Misnamed(name.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Writes the refusal of a request that is not taken.
    pub(super) fn settle(
        &mut self,
        taken: Result<(), (u16, String)>,
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> Served {
        let Err((status, reason)) = taken else { return Served::Later };
        self.bad += 1;
        let header = if reason == CLOSED { UNPROVEN_HEADER } else { "" };
        write_error_with(out, status, header, &reason, persistence);
        Served::Written
    }

    /// Appends the answer to bytes that are no request, or to a request that is not taken, with a
    /// further header line.
    pub fn refuse_with(
        &mut self,
        out: &mut Vec<u8>,
        (status, header): (u16, &str),
        reason: &str,
        form: Persistence,
    ) {
        self.written += 1;
        self.bad += u64::from(status < 500);
        let persistence = Persistence { keep_alive: false, ..form };
        write_error_with(out, status, header, reason, persistence);
    }

    fn not_allowed(&mut self, out: &mut Vec<u8>, allow: &str, persistence: Persistence) -> Served {
        self.bad += 1;
        write_not_allowed(out, allow, persistence);
        Served::Written
    }
}

/// Returns the definition with its owner, if the name of the request's token has a limit of timers.
/// Its content is put into `out` then.
#[inline]
fn owned<'a>(
    definition: Definition<'a>,
    quota: Option<&Quota>,
    out: &'a mut Vec<u8>,
) -> Definition<'a> {
    match quota.filter(|quota| quota.limits.timers.is_some()) {
        None => definition,
        Some(owner) => {
            with_owner(definition.content, &owner.name, out);
            Definition { content: out, ..definition }
        }
    }
}

/// Why a path names nothing.
#[cold]
fn no_path(caller: Caller<'_>) -> String {
    match caller.addressed {
        Some(Err(no_id)) => no_id.clone(),
        _ => NO_PATH.into(),
    }
}

/// The timer that a path names.
fn target_of(named: PublicId) -> Target {
    Target { id: named.id, factor: named.factor, filter: named.filter }
}
