//! The sockets of a core's peers: dials and upgrades, accepted Upgrades, bytes between ring and
//! core. The core decides whom to dial, what to say and when to give up ([`crate::core::peers`]).

// May panic: assertions 3, expectations 1, indices 12.
// Why it does not: found 1, places 1, peers 10, ordered 4.

use std::net::SocketAddr;

use crate::base::ids::PeerIndex;
use crate::base::time::MonoNs;
use crate::cluster::view::PeerKind;
use crate::ring::{Completion, Received, Ring, SocketId, unpredictable};
use crate::shard::effects::Dialect;

use crate::core::Core;
use crate::core::peers::actions::{InboundId, PeerAction};
use crate::core::peers::address::{PeerAddress, place_of, sources};
use crate::core::peers::greeting::{Greeting, Step};
use crate::core::peers::handshake::{Answered, Protocol, write_acceptance};
use crate::core::peers::hello::Connected;
use crate::core::peers::secret::{Guard, Word};
use crate::node::buffer_pool::BufferPool;
use crate::node::io::Io;
use crate::node::owner::Owner;
use crate::node::peers::socket::Socket;
use crate::node::resolver::threads::{Asker, Resolver};
use crate::node::settings::{NodeSettings, PeerTls};
use crate::tls::session::Session;

/// How often a node with as many cores as this node is dialled until the accepting core is the one
/// that owns the same timers as this core. With two cores, one in 2^8 links must put up with a hop
/// over the mesh.
const SHARD_TRIES_MAX: u32 = 8;
/// How long in ms these dials go on. A dial is given up after
/// [`crate::cluster::detector::DIAL_MS_MAX`], and the last try must have time to succeed where a
/// round trip takes long.
const SHARD_TRIES_MS: u64 = 200;
/// Number of send buffers kept for reuse; below it the largest kept buffer in bytes. Frames are cut
/// at about 64 KiB.
const POOL_MAX: usize = 256;
const POOLED_BYTES_MAX: usize = 256 << 10;
/// Most bytes on their way to peers that dialled, over all connections of a core.
const SENDING_BYTES_MAX: usize = 64 << 20;
/// The first pause in ms before TLS is tried beside a connection in the clear. Every try that fails
/// doubles it.
pub(super) const SECURE_PAUSE_MS_FIRST: u64 = 1_000;

/// How far a dial is.
#[derive(Debug, Default)]
pub(super) enum DialProgress {
    #[default]
    Idle,
    /// The resolver looks the name up.
    Resolving,
    Connecting(SocketId),
    /// The TLS handshake is under way.
    Shaking {
        socket: Socket,
        /// Whether the other end has said anything.
        is_heard: bool,
    },
    /// The Upgrade has been asked for.
    Greeting {
        socket: Socket,
        greeting: Box<Greeting>,
    },
    Open(Socket),
}

#[derive(Debug)]
pub(super) struct Dialled {
    pub stage: DialProgress,
    /// When the dial began.
    began: MonoNs,
    /// How many connections of this dial met another core than the wanted one.
    shard_tries: u32,
    /// Whether the node has said in this dial that it does not know the Upgrade. The next dial asks
    /// again: an original node may have been replaced by a node of this service.
    is_original: bool,
    /// Whether this dial goes on without TLS, because the other end speaks none.
    pub is_plain: bool,
    /// Whether the last dial was given up while the other end, asked for TLS, said nothing.
    pub is_hushed: bool,
    /// Whether the node has spoken TLS at some time. Such a one is busy when it says nothing, and
    /// is not talked to without TLS for that.
    pub has_spoken_tls: bool,
    /// The name that the resolver was asked for and has not answered yet.
    asked: Option<String>,
    addresses: Vec<SocketAddr>,
    pub next: usize,
    /// The connection in the clear that carries what is said while `stage` dials with TLS.
    pub clear: Option<Socket>,
    /// When TLS is tried beside a connection in the clear, or when such a try is given up.
    pub secure_at: Option<MonoNs>,
    /// The pause in ms before the next such try.
    pub secure_pause_ms: u64,
}

impl Dialled {
    /// The connection that carries what is said.
    pub fn carrier(&mut self) -> Option<&mut Socket> {
        match (&mut self.clear, &mut self.stage) {
            (Some(open), _) | (None, DialProgress::Open(open)) => Some(open),
            _ => None,
        }
    }

    /// Begins a dial.
    pub fn begin(&mut self, now: MonoNs, is_plain: bool) {
        (self.began, self.shard_tries, self.is_original) = (now, 0, false);
        self.is_plain = is_plain;
    }
}

/// The sockets of the peers of one core.
pub struct PeerSockets {
    /// How many Upgrades other nodes refused.
    pub refused: u64,
    /// How many dialled connections ended because one end did not prove that it knows the cluster's
    /// secret.
    pub unproven: u64,
    /// How many connections with peers ended because of TLS: one end speaks none, or does not take
    /// the other one's certificate, or something came that is no TLS.
    pub tls_failed: u64,
    /// What other nodes must prove.
    pub guard: Guard,
    /// What peers are dialled with. `None`: without TLS.
    pub(super) tls: Option<PeerTls>,
    /// How many connections that peers dialled were closed because the peers took too little of
    /// what they asked for.
    pub shed: u64,
    /// Where this node listens. A peer without a port listens at the same port.
    listen: SocketAddr,
    pub(super) dialled: Vec<Dialled>,
    /// Connections that peers dialled, by the place of their [`InboundId`].
    pub(super) inbounds: Vec<Option<(InboundId, Socket)>>,
    /// Bytes on their way over `inbounds`.
    sending_bytes: usize,
    resolver: Resolver,
    pub(super) pool: BufferPool,
    /// Plaintext of the connection at hand. Kept for its allocation.
    pub(super) plain: Vec<u8>,
}

impl PeerSockets {
    /// A table without connections.
    pub fn new(resolver: Resolver, listen: SocketAddr, settings: &NodeSettings) -> Self {
        Self {
            refused: 0,
            unproven: 0,
            tls_failed: 0,
            guard: settings.guard.clone(),
            tls: settings.peer_tls.clone(),
            shed: 0,
            listen,
            dialled: Vec::new(),
            inbounds: Vec::new(),
            sending_bytes: 0,
            resolver,
            pool: BufferPool::new(POOL_MAX, POOLED_BYTES_MAX),
            plain: Vec::new(),
        }
    }

    /// Does what the core asks for a peer.
    pub fn act(&mut self, io: &mut Io<'_>, core: &mut Core, action: PeerAction) {
        match action {
            PeerAction::Dial(peer) => self.dial(io, core, peer),
            PeerAction::Close(peer) => self.close(io.ring, peer),
            PeerAction::Send(peer) => {
                self.secure(io, core, peer);
                self.send(io, core, peer);
            }
            PeerAction::SendInbound(inbound) => self.send_inbound(io, core, inbound),
            PeerAction::CloseInbound(inbound) => self.close_inbound(io.ring, inbound),
        }
    }

    /// Handles a completion of a connection that was dialled.
    pub fn on_dialled(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        peer: PeerIndex,
        completion: Completion,
    ) {
        match completion {
            Completion::Connected { socket, result, .. } => {
                self.connected(io, core, (peer, socket), result.is_ok());
            }
            Completion::Received { socket, bytes, .. } => {
                self.received(io, core, (peer, socket), &bytes);
            }
            Completion::Ended { socket, .. } => self.ended(io, core, (peer, socket)),
            Completion::Sent { socket, buffer, result, .. } => {
                self.sent(io, core, (peer, socket), (buffer, result.is_ok()));
            }
            Completion::Accepted { .. }
            | Completion::AcceptFailed(_)
            | Completion::Written { .. }
            | Completion::Woken => {}
        }
    }

    /// Handles a completion of a connection that a peer dialled.
    pub fn on_inbound(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        place: u32,
        completion: Completion,
    ) {
        match completion {
            Completion::Received { socket, bytes, .. } => {
                self.inbound_received(io, core, (place, socket), &bytes);
            }
            Completion::Ended { socket, .. } => {
                self.inbound_ended(io.ring, core, (place, socket));
            }
            Completion::Sent { socket, buffer, result, .. } => {
                self.inbound_sent(io, core, (place, socket), (buffer, result.is_ok()));
            }
            _ => unreachable!("a peer that dialled is not connected to"),
        }
    }

    /// Handles that a connection stands or failed.
    fn connected(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (peer, socket): (PeerIndex, SocketId),
        is_ok: bool,
    ) {
        let Some(dialled) = self.dialled.get_mut(peer.index()) else { return };
        if !matches!(dialled.stage, DialProgress::Connecting(connecting) if connecting == socket) {
            return;
        }
        if !is_ok {
            dialled.stage = DialProgress::Idle;
            return self.lose(io, core, peer);
        }
        core.peer_taken(peer);
        io.ring.receive(socket);
        self.begin(io, core, (peer, socket));
    }

    /// Asks for the Upgrade on a connection over which requests can go.
    pub(super) fn greet(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        peer: PeerIndex,
        mut socket: Socket,
    ) {
        let dialled = &mut self.dialled[peer.index()];
        let is_site = matches!(core.view().peers()[peer.index()].kind, PeerKind::Site(_));
        let protocol = if is_site { Protocol::Site } else { Protocol::Frames };
        // Over TLS the other site learns by the Upgrade whose certificate this is.
        let says_nothing = is_site && self.guard.secrets.is_none() && !socket.is_secured();
        if dialled.is_original || says_nothing {
            let connected = Connected { dialect: Dialect::Http, hello: None };
            return self.stands(io, core, (peer, socket), &connected);
        }
        let (view, nonce) = (core.view(), Word(unpredictable()));
        let greeting =
            Greeting::new(protocol, &self.guard, core.hello(), view.name_of(peer), nonce);
        let mut request = self.pool.take();
        greeting.write(&view.peers()[peer.index()].address, &mut request);
        let (id, request) = (socket.id, socket.seal(request, &mut self.pool));
        socket.is_sending = true;
        let greeting = Box::new(greeting);
        dialled.stage = DialProgress::Greeting { socket, greeting };
        io.ring.send(id, request);
    }

    /// Takes bytes of a connection that was dialled.
    fn received(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (peer, socket): (PeerIndex, SocketId),
        received: &Received,
    ) {
        let Some(dialled) = self.dialled.get_mut(peer.index()) else { return };
        if let Some(open) = dialled.carrier().filter(|open| open.id == socket) {
            let taken = match open.take(io.ring.bytes_mut(received), &mut self.plain) {
                Ok([]) => true,
                Ok(bytes) => core.peer_received(io.now, peer, bytes).is_ok(),
                Err(error) => {
                    self.tls_failed += u64::from(error.is_some());
                    false
                }
            };
            if !taken {
                self.lose_all(io, core, peer);
            }
            return;
        }
        match &dialled.stage {
            DialProgress::Greeting { socket: open, .. } if open.id == socket => {
                self.answered(io, core, peer, received);
            }
            DialProgress::Shaking { socket: open, .. } if open.id == socket => {
                self.shaken(io, core, peer, received);
            }
            _ => {}
        }
    }

    /// Takes bytes of the answer to the Upgrade.
    fn answered(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex, received: &Received) {
        let DialProgress::Greeting { socket, greeting } = &mut self.dialled[peer.index()].stage
        else {
            return;
        };
        let step = match socket.take(io.ring.bytes_mut(received), &mut self.plain) {
            Ok([]) => return,
            Ok(bytes) => greeting.received(bytes),
            Err(_) => {
                // The other end tells only now that it does not take this node's certificate.
                self.tls_failed += 1;
                Step::Broken
            }
        };
        match step {
            Step::Wait => {}
            // Only a foreign peer answers before it has read the request.
            Step::Say if socket.is_sending => self.lose(io, core, peer),
            Step::Say => {
                let mut request = self.pool.take();
                let host = &core.view().peers()[peer.index()].address;
                greeting.write(host, &mut request);
                let (id, request) = (socket.id, socket.seal(request, &mut self.pool));
                socket.is_sending = true;
                io.ring.send(id, request);
            }
            Step::Ended(answered) => self.greeted(io, core, peer, answered),
            Step::Broken => self.lose(io, core, peer),
        }
    }

    /// Handles that a connection that was dialled has ended.
    fn ended(&mut self, io: &mut Io<'_>, core: &mut Core, (peer, socket): (PeerIndex, SocketId)) {
        let Some(dialled) = self.dialled.get_mut(peer.index()) else { return };
        if dialled.carrier().is_some_and(|open| open.id == socket) {
            return self.lose_all(io, core, peer);
        }
        if self.socket_of(peer) != Some(socket) {
            return;
        }
        let dialled = &self.dialled[peer.index()];
        match &dialled.stage {
            DialProgress::Shaking { is_heard: false, .. } if !dialled.has_spoken_tls => {
                self.meets_plain(io, core, peer);
            }
            DialProgress::Shaking { .. } => {
                self.tls_failed += 1;
                self.lose(io, core, peer);
            }
            _ => self.lose(io, core, peer),
        }
    }

    /// Handles that a send over a connection that was dialled has ended.
    fn sent(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (peer, socket): (PeerIndex, SocketId),
        (buffer, is_ok): (Vec<u8>, bool),
    ) {
        self.pool.give_back(buffer);
        let Some(dialled) = self.dialled.get_mut(peer.index()) else { return };
        if let Some(open) = dialled.carrier().filter(|open| open.id == socket) {
            open.is_sending = false;
            return match (is_ok, open.has_output) {
                (false, _) => self.lose_all(io, core, peer),
                (true, true) => self.send(io, core, peer),
                (true, false) => {}
            };
        }
        if self.socket_of(peer) != Some(socket) {
            return;
        }
        if !is_ok {
            return self.lose(io, core, peer);
        }
        match &mut self.dialled[peer.index()].stage {
            DialProgress::Greeting { socket, .. } => socket.is_sending = false,
            DialProgress::Shaking { socket, .. } => {
                socket.is_sending = false;
                self.shake_on(io, core, peer);
            }
            _ => {}
        }
    }

    /// Takes the resolver's answer.
    pub fn resolved(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        peer: PeerIndex,
        (name, addresses): (&str, Vec<SocketAddr>),
    ) {
        let Some(dialled) = self.dialled.get_mut(peer.index()) else { return };
        if dialled.asked.as_deref() != Some(name) {
            return;
        }
        dialled.asked = None;
        // A name that no longer resolves keeps its last addresses: an old address is better than
        // none.
        if !addresses.is_empty() {
            dialled.addresses = addresses;
        }
        if matches!(dialled.stage, DialProgress::Resolving) {
            self.connect(io, core, peer);
        }
    }

    /// Takes over a client connection whose Upgrade the core accepted. `rest` are the bytes that
    /// came behind its request. `proof` proves that this node knows the cluster's secret. `tls`:
    /// the connection's handshake is over.
    pub fn adopt(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (inbound, socket): (InboundId, SocketId),
        (rest, proof, tls): (&[u8], Option<Word>, Option<Box<Session>>),
    ) {
        let place = inbound.place as usize;
        if self.inbounds.len() <= place {
            self.inbounds.resize_with(place + 1, || None);
        }
        io.ring.set_owner(socket, Owner::Inbound(inbound.place).to_bits());
        let mut acceptance = self.pool.take();
        write_acceptance(&mut acceptance, Protocol::Frames, &core.hello(), proof);
        let mut adopted = Socket::new(socket, tls);
        (adopted.is_sending, adopted.began) = (true, io.now.mono);
        io.ring.send(socket, adopted.seal(acceptance, &mut self.pool));
        if let Some((_, former)) = self.inbounds[place].replace((inbound, adopted)) {
            // The core has given the former connection up in this turn, and its place was free at
            // once.
            self.sending_bytes -= former.sending_bytes;
            io.ring.close(former.id);
        }
        if !rest.is_empty() && core.inbound_received(io.now, inbound, rest).is_err() {
            self.lose_inbound(io.ring, core, inbound);
        }
    }

    /// Takes bytes of a connection that a peer dialled.
    fn inbound_received(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (place, socket): (u32, SocketId),
        received: &Received,
    ) {
        let Some(Some((inbound, open))) = self.inbounds.get_mut(place as usize) else { return };
        if open.id != socket {
            return;
        }
        let inbound = *inbound;
        let taken = match open.take(io.ring.bytes_mut(received), &mut self.plain) {
            Ok([]) => true,
            Ok(bytes) => core.inbound_received(io.now, inbound, bytes).is_ok(),
            Err(error) => {
                self.tls_failed += u64::from(error.is_some());
                false
            }
        };
        if !taken {
            self.lose_inbound(io.ring, core, inbound);
        }
    }

    /// Handles that a connection that a peer dialled has ended.
    fn inbound_ended(
        &mut self,
        ring: &mut Ring,
        core: &mut Core,
        (place, socket): (u32, SocketId),
    ) {
        if let Some((inbound, _)) = self.inbound_at(place, socket) {
            let inbound = *inbound;
            self.lose_inbound(ring, core, inbound);
        }
    }

    /// Handles that a send over a connection that a peer dialled has ended.
    fn inbound_sent(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (place, socket): (u32, SocketId),
        (buffer, is_ok): (Vec<u8>, bool),
    ) {
        self.pool.give_back(buffer);
        let Some((inbound, open)) = self.inbound_at(place, socket) else { return };
        let inbound = *inbound;
        let sent_bytes = std::mem::take(&mut open.sending_bytes);
        self.sending_bytes -= sent_bytes;
        let Some((_, open)) = self.inbound_at(place, socket) else { return };
        if !is_ok {
            return self.lose_inbound(io.ring, core, inbound);
        }
        open.is_sending = false;
        if std::mem::take(&mut open.is_paused) {
            io.ring.receive(open.id);
        }
        if open.has_output {
            self.send_inbound(io, core, inbound);
        }
    }

    fn dial(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        while self.dialled.len() <= peer.index() {
            self.dialled.push(Dialled {
                stage: DialProgress::Idle,
                began: io.now.mono,
                shard_tries: 0,
                is_original: false,
                is_plain: false,
                is_hushed: false,
                has_spoken_tls: false,
                asked: None,
                addresses: Vec::new(),
                next: 0,
                clear: None,
                secure_at: None,
                secure_pause_ms: SECURE_PAUSE_MS_FIRST,
            });
        }
        let dialled = &mut self.dialled[peer.index()];
        assert!(matches!(dialled.stage, DialProgress::Idle), "a peer is dialled once at a time");
        let is_plain = std::mem::take(&mut dialled.is_hushed);
        dialled.begin(io.now.mono, is_plain);
        match place_of(core.address_of(peer), self.listen.port()) {
            PeerAddress::At(address) => dialled.addresses = vec![address],
            PeerAddress::Named(name, port) => {
                let is_asked = dialled.asked.as_ref() == Some(&name)
                    || self.resolver.ask(Asker::Peer(peer), &name, port);
                if is_asked {
                    dialled.asked = Some(name);
                    dialled.stage = DialProgress::Resolving;
                    return;
                }
            }
        }
        self.connect(io, core, peer);
    }

    /// Connects with the next address of a peer.
    pub(super) fn connect(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        let dialled = &mut self.dialled[peer.index()];
        dialled.next = dialled.next.wrapping_add(1);
        let addresses = &dialled.addresses;
        let address = addresses.get(dialled.next % addresses.len().max(1)).copied();
        let owner = Owner::Peer(u32::from(peer.0)).to_bits();
        let connect = |address: SocketAddr| {
            let view = core.view();
            let own = &view.peers()[view.own().index()].address;
            io.ring.connect_from(&sources(own, self.listen.ip(), address.ip()), address, owner)
        };
        match address.map(connect) {
            Some(Ok(socket)) => dialled.stage = DialProgress::Connecting(socket),
            None | Some(Err(_)) => {
                dialled.stage = DialProgress::Idle;
                self.lose(io, core, peer);
            }
        }
    }

    /// Handles how a node has answered the Upgrade.
    fn greeted(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex, answered: Answered) {
        let dialled = &mut self.dialled[peer.index()];
        // A peer may answer before it has read the request: the send may still be under way.
        let DialProgress::Greeting { socket: open, greeting } = std::mem::take(&mut dialled.stage)
        else {
            unreachable!("it has just answered");
        };
        let is_site = greeting.protocol() == Protocol::Site;
        let socket = open.id;
        let is_contrary = answered == Answered::Original && open.is_secured();
        // No original speaks TLS.
        match if is_contrary { Answered::Refused } else { answered } {
            Answered::Upgraded { .. } if is_site => {
                let connected = Connected { dialect: Dialect::Http, hello: None };
                self.stands(io, core, (peer, open), &connected);
            }
            Answered::Upgraded { hello, head_bytes, .. } => {
                let own = core.hello();
                if hello.shards == own.shards
                    && hello.shard != own.shard
                    && dialled.shard_tries < SHARD_TRIES_MAX
                    && io.now.mono < dialled.began.plus_ms(SHARD_TRIES_MS)
                {
                    dialled.shard_tries += 1;
                    io.ring.close(socket);
                    // The next connection goes to the same address.
                    dialled.next = dialled.next.wrapping_sub(1);
                    return self.connect(io, core, peer);
                }
                let connected = Connected { dialect: Dialect::Frames, hello: Some(hello) };
                self.stands(io, core, (peer, open), &connected);
                let rest = greeting.rest(head_bytes);
                if !rest.is_empty() && core.peer_received(io.now, peer, rest).is_err() {
                    self.lose(io, core, peer);
                }
            }
            Answered::Original => {
                dialled.is_original = true;
                io.ring.close(socket);
                self.connect(io, core, peer);
            }
            Answered::Refused if is_site => {
                io.ring.close(socket);
                core.peer_shuts_out(io.now, peer);
            }
            Answered::Refused => {
                self.refused += 1;
                io.ring.close(socket);
                self.lose(io, core, peer);
            }
            other @ (Answered::Busy
            | Answered::Challenged { .. }
            | Answered::Uncertified
            | Answered::Unproven) => {
                self.unproven += u64::from(other == Answered::Unproven);
                self.tls_failed += u64::from(other == Answered::Uncertified);
                io.ring.close(socket);
                self.lose(io, core, peer);
            }
            Answered::Disowned => {
                self.refused += 1;
                io.ring.close(socket);
                if !self.falls_back(io, peer) {
                    core.peer_disowns(io.now, peer);
                }
            }
        }
    }

    /// Sends what the core has to say. While a send is under way this waits for its end, so that
    /// what gathers meanwhile goes into one send.
    fn send(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        let dialled = self.dialled.get_mut(peer.index());
        let Some(open) = dialled.and_then(Dialled::carrier) else { return };
        open.has_output = open.is_sending;
        if open.is_sending {
            return;
        }
        let mut output = self.pool.take();
        core.peer_output(io.now, peer, &mut output);
        if output.is_empty() {
            return self.pool.give_back(output);
        }
        open.is_sending = true;
        let output = open.seal(output, &mut self.pool);
        io.ring.send(open.id, output);
    }

    /// Does the same as [`PeerSockets::send`] for a connection that a peer dialled. A peer that
    /// does not take results is not received from, so at most the results of one turn's messages
    /// wait.
    fn send_inbound(&mut self, io: &mut Io<'_>, core: &mut Core, inbound: InboundId) {
        let Some(Some((id, open))) = self.inbounds.get_mut(inbound.place as usize) else { return };
        if *id != inbound {
            return;
        }
        open.has_output = open.is_sending;
        if open.is_sending {
            let is_taken_at_once = open.began == io.now.mono;
            if !is_taken_at_once && !std::mem::replace(&mut open.is_paused, true) {
                io.ring.pause(open.id);
            }
            return;
        }
        let mut output = self.pool.take();
        core.inbound_output(io.now, inbound, &mut output);
        if output.is_empty() {
            return self.pool.give_back(output);
        }
        (open.is_sending, open.began) = (true, io.now.mono);
        let output = open.seal(output, &mut self.pool);
        open.sending_bytes = output.len();
        self.sending_bytes += output.len();
        io.ring.send(open.id, output);
        self.shed(io.ring, core);
    }

    /// Keeps the bytes on their way within their limit: closes the connection that has most of
    /// them.
    fn shed(&mut self, ring: &mut Ring, core: &mut Core) {
        while self.sending_bytes > SENDING_BYTES_MAX {
            let all = self.inbounds.iter().flatten();
            let most = all.max_by_key(|(_, open)| open.sending_bytes);
            let inbound = most.map(|(inbound, _)| *inbound).expect("a sum above 0 has parts");
            self.shed += 1;
            self.lose_inbound(ring, core, inbound);
        }
    }

    /// Closes all connections to a peer, or gives up its dial. The core knows already.
    pub(super) fn close(&mut self, ring: &mut Ring, peer: PeerIndex) {
        self.close_stage(ring, peer);
        let Some(dialled) = self.dialled.get_mut(peer.index()) else { return };
        dialled.secure_at = None;
        if let Some(clear) = dialled.clear.take() {
            ring.close(clear.id);
        }
    }

    /// Closes what was dialled last.
    pub(super) fn close_stage(&mut self, ring: &mut Ring, peer: PeerIndex) {
        if let Some(socket) = self.socket_of(peer) {
            ring.close(socket);
        }
        let is_hushed =
            self.dialled.get(peer.index()).is_some_and(|dialled| self.is_hushed(dialled));
        if let Some(dialled) = self.dialled.get_mut(peer.index()) {
            dialled.is_hushed = is_hushed;
            dialled.stage = DialProgress::Idle;
        }
    }

    /// Gives up what was dialled last. A connection in the clear beside which it was dialled goes
    /// on.
    pub(super) fn lose(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        if !self.falls_back(io, peer) {
            self.lose_all(io, core, peer);
        }
    }

    pub(super) fn lose_all(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        self.close(io.ring, peer);
        core.peer_lost(io.now, peer);
    }

    fn close_inbound(&mut self, ring: &mut Ring, inbound: InboundId) {
        let Some(place) = self.inbounds.get_mut(inbound.place as usize) else { return };
        if let Some((_, open)) = place.take_if(|(id, _)| *id == inbound) {
            self.sending_bytes -= open.sending_bytes;
            ring.close(open.id);
        }
    }

    pub(super) fn lose_inbound(&mut self, ring: &mut Ring, core: &mut Core, inbound: InboundId) {
        self.close_inbound(ring, inbound);
        core.inbound_closed(inbound);
    }

    /// The socket of what was dialled last.
    fn socket_of(&self, peer: PeerIndex) -> Option<SocketId> {
        match &self.dialled.get(peer.index())?.stage {
            DialProgress::Idle | DialProgress::Resolving => None,
            DialProgress::Connecting(socket) => Some(*socket),
            DialProgress::Shaking { socket, .. } | DialProgress::Greeting { socket, .. } => {
                Some(socket.id)
            }
            DialProgress::Open(open) => Some(open.id),
        }
    }

    /// Returns the connection at a place, if it has this socket. A completion may name a socket
    /// that was closed earlier in the same turn, whose place has another connection.
    fn inbound_at(&mut self, place: u32, socket: SocketId) -> Option<&mut (InboundId, Socket)> {
        let place = self.inbounds.get_mut(place as usize)?.as_mut();
        place.filter(|(_, open)| open.id == socket)
    }
}
