//! The sockets of a core's peers: dials and upgrades, accepted Upgrades, bytes between ring and
//! core. Decides nothing about peers: whom to dial, what to say and when to give up is the core's
//! ([`Core::peers`]).

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
use crate::node::resolver::threads::{Asker, Resolver};

/// How often a node with as many cores as this one is dialled until the core that accepts is the
/// one that owns what this one owns. With two cores, one in 2^8 links is content with a hop over
/// the mesh.
const SHARD_TRIES_MAX: u32 = 8;
/// And for how long: a dial is given up after [`crate::cluster::detector::DIAL_MS_MAX`], and the
/// last try must have time to succeed where a round trip takes long.
const SHARD_TRIES_MS: u64 = 200;
/// Send buffers kept for reuse, and the largest kept: frames are cut at about 64 KiB.
const POOL_MAX: usize = 256;
const POOLED_BYTES_MAX: usize = 256 << 10;
/// Bytes on their way to peers that dialled, over all connections of a core.
const SENDING_BYTES_MAX: usize = 64 << 20;

/// A connection that carries frames or HTTP.
#[derive(Debug)]
struct Socket {
    id: SocketId,
    is_sending: bool,
    /// Bytes of the send under way, if the peer dialled.
    sending_bytes: usize,
    /// When the send under way began.
    began: MonoNs,
    /// The core has something to say as soon as the send under way has ended.
    has_output: bool,
    /// Not received from, because what is said to it is not taken.
    is_paused: bool,
}

impl Socket {
    fn new(id: SocketId) -> Self {
        Self {
            id,
            is_sending: false,
            sending_bytes: 0,
            began: MonoNs(0),
            has_output: false,
            is_paused: false,
        }
    }
}

/// How far a dial is.
#[derive(Debug)]
enum DialProgress {
    Idle,
    /// The name is being looked up.
    Resolving,
    Connecting(SocketId),
    /// The Upgrade has been asked for.
    Greeting {
        socket: SocketId,
        greeting: Box<Greeting>,
        /// The kernel has taken what was said: nothing else can be sent before.
        is_sent: bool,
    },
    Open(Socket),
}

#[derive(Debug)]
struct Dialled {
    stage: DialProgress,
    /// When the dial began.
    began: MonoNs,
    /// Its connections that met another core than the one wanted.
    shard_tries: u32,
    /// In this dial the node has said that it does not know the Upgrade. The next dial asks again:
    /// that is how a node is met again after it has been replaced by one of ours.
    is_original: bool,
    /// The name asked for, while the resolver has not answered.
    asked: Option<String>,
    addresses: Vec<SocketAddr>,
    next: usize,
}

/// The sockets of the peers of one core.
pub struct PeerSockets {
    /// Upgrades that nodes refused.
    pub refused: u64,
    /// Dialled connections of which one end did not prove that it knows the cluster's secret.
    pub unproven: u64,
    /// What other nodes must prove.
    pub guard: Guard,
    /// Connections that peers dialled, closed because they took too little of what they asked for.
    pub shed: u64,
    /// Where this node listens; peers without a port listen at the same one.
    listen: SocketAddr,
    dialled: Vec<Dialled>,
    /// By the place of their [`InboundId`].
    inbounds: Vec<Option<(InboundId, Socket)>>,
    /// Bytes on their way to them.
    sending_bytes: usize,
    resolver: Resolver,
    pool: BufferPool,
}

impl PeerSockets {
    /// None yet.
    pub fn new(resolver: Resolver, listen: SocketAddr, guard: Guard) -> Self {
        Self {
            refused: 0,
            unproven: 0,
            guard,
            shed: 0,
            listen,
            dialled: Vec::new(),
            inbounds: Vec::new(),
            sending_bytes: 0,
            resolver,
            pool: BufferPool::new(POOL_MAX, POOLED_BYTES_MAX),
        }
    }

    /// Does what the core wants done for a peer.
    pub fn act(&mut self, io: &mut Io<'_>, core: &mut Core, action: PeerAction) {
        match action {
            PeerAction::Dial(peer) => self.dial(io, core, peer),
            PeerAction::Close(peer) => self.close(io.ring, peer),
            PeerAction::Send(peer) => self.send(io, core, peer),
            PeerAction::SendInbound(inbound) => self.send_inbound(io, core, inbound),
            PeerAction::CloseInbound(inbound) => self.close_inbound(io.ring, inbound),
        }
    }

    /// Something happened to a connection that was dialled.
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
            Completion::Accepted { .. } | Completion::AcceptFailed(_) | Completion::Woken => {}
        }
    }

    /// Something happened to a connection that a peer dialled.
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

    /// A connection stands or failed.
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
            return core.peer_lost(io.now, peer);
        }
        io.ring.receive(socket);
        let is_site = matches!(core.view().peers()[peer.index()].kind, PeerKind::Site(_));
        let protocol = if is_site { Protocol::Site } else { Protocol::Frames };
        if dialled.is_original || (is_site && self.guard.secrets.is_none()) {
            let connected = Connected { dialect: Dialect::Http, hello: None };
            dialled.stage = DialProgress::Open(Socket::new(socket));
            return core.peer_connected(io.now, peer, &connected);
        }
        let (view, nonce) = (core.view(), Word(unpredictable()));
        let greeting =
            Greeting::new(protocol, &self.guard, core.hello(), view.name_of(peer), nonce);
        let mut request = self.pool.take();
        greeting.write(&view.peers()[peer.index()].address, &mut request);
        let greeting = Box::new(greeting);
        dialled.stage = DialProgress::Greeting { socket, greeting, is_sent: false };
        io.ring.send(socket, request);
    }

    /// Bytes over a connection that was dialled.
    fn received(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (peer, socket): (PeerIndex, SocketId),
        received: &Received,
    ) {
        let Some(dialled) = self.dialled.get_mut(peer.index()) else { return };
        match &mut dialled.stage {
            DialProgress::Open(open) if open.id == socket => {
                let taken = core.peer_received(io.now, peer, io.ring.bytes_mut(received));
                if taken.is_err() {
                    self.lose(io, core, peer);
                }
            }
            DialProgress::Greeting { socket: greeted, greeting, is_sent } if *greeted == socket => {
                match greeting.received(io.ring.bytes_mut(received)) {
                    Step::Wait => {}
                    // A peer may answer before it has read the request: one of ours does not.
                    Step::Say if !*is_sent => self.lose(io, core, peer),
                    Step::Say => {
                        *is_sent = false;
                        let mut request = self.pool.take();
                        let host = &core.view().peers()[peer.index()].address;
                        greeting.write(host, &mut request);
                        io.ring.send(socket, request);
                    }
                    Step::Ended(answered) => self.greeted(io, core, peer, answered),
                    Step::Broken => self.lose(io, core, peer),
                }
            }
            _ => {}
        }
    }

    /// A connection that was dialled has ended.
    fn ended(&mut self, io: &mut Io<'_>, core: &mut Core, (peer, socket): (PeerIndex, SocketId)) {
        if self.socket_of(peer) == Some(socket) {
            self.lose(io, core, peer);
        }
    }

    /// A send over a connection that was dialled has ended.
    fn sent(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (peer, socket): (PeerIndex, SocketId),
        (buffer, is_ok): (Vec<u8>, bool),
    ) {
        self.pool.give_back(buffer);
        if self.socket_of(peer) != Some(socket) {
            return;
        }
        if !is_ok {
            return self.lose(io, core, peer);
        }
        match &mut self.dialled[peer.index()].stage {
            DialProgress::Open(open) => {
                open.is_sending = false;
                if open.has_output {
                    self.send(io, core, peer);
                }
            }
            DialProgress::Greeting { is_sent, .. } => *is_sent = true,
            _ => {}
        }
    }

    /// The resolver has answered.
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
        // A name that no longer resolves keeps its last addresses: better an old one than none.
        if !addresses.is_empty() {
            dialled.addresses = addresses;
        }
        if matches!(dialled.stage, DialProgress::Resolving) {
            self.connect(io, core, peer);
        }
    }

    /// Takes over a client connection that asked for an Upgrade which the core accepted. `rest` is
    /// what came behind its request, `proof` that this node knows the cluster's secret.
    pub fn adopt(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (inbound, socket): (InboundId, SocketId),
        (rest, proof): (&[u8], Option<Word>),
    ) {
        let place = inbound.place as usize;
        if self.inbounds.len() <= place {
            self.inbounds.resize_with(place + 1, || None);
        }
        io.ring.set_owner(socket, Owner::Inbound(inbound.place).to_bits());
        let mut acceptance = self.pool.take();
        write_acceptance(&mut acceptance, Protocol::Frames, &core.hello(), proof);
        io.ring.send(socket, acceptance);
        let adopted = Socket { is_sending: true, began: io.now.mono, ..Socket::new(socket) };
        if let Some((_, former)) = self.inbounds[place].replace((inbound, adopted)) {
            // The core has given it up in this turn; its place was free at once.
            self.sending_bytes -= former.sending_bytes;
            io.ring.close(former.id);
        }
        if !rest.is_empty() && core.inbound_received(io.now, inbound, rest).is_err() {
            self.lose_inbound(io.ring, core, inbound);
        }
    }

    /// Bytes over a connection that a peer dialled.
    fn inbound_received(
        &mut self,
        io: &mut Io<'_>,
        core: &mut Core,
        (place, socket): (u32, SocketId),
        received: &Received,
    ) {
        let Some((inbound, _)) = self.inbound_at(place, socket) else { return };
        let inbound = *inbound;
        if core.inbound_received(io.now, inbound, io.ring.bytes_mut(received)).is_err() {
            self.lose_inbound(io.ring, core, inbound);
        }
    }

    /// A connection that a peer dialled has ended.
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

    /// A send over a connection that a peer dialled has ended.
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
                asked: None,
                addresses: Vec::new(),
                next: 0,
            });
        }
        let dialled = &mut self.dialled[peer.index()];
        assert!(matches!(dialled.stage, DialProgress::Idle), "a peer is dialled once at a time");
        (dialled.shard_tries, dialled.is_original) = (0, false);
        dialled.began = io.now.mono;
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
    fn connect(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
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
                core.peer_lost(io.now, peer);
            }
        }
    }

    /// A node has answered to the Upgrade.
    fn greeted(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex, answered: Answered) {
        let dialled = &mut self.dialled[peer.index()];
        let DialProgress::Greeting { socket, greeting, is_sent } =
            std::mem::replace(&mut dialled.stage, DialProgress::Idle)
        else {
            unreachable!("it has just answered");
        };
        let is_site = greeting.protocol() == Protocol::Site;
        // A peer may answer before it has read the request.
        let open = Socket { is_sending: !is_sent, ..Socket::new(socket) };
        match answered {
            Answered::Upgraded { .. } if is_site => {
                dialled.stage = DialProgress::Open(open);
                let connected = Connected { dialect: Dialect::Http, hello: None };
                core.peer_connected(io.now, peer, &connected);
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
                    // Another connection to the same address.
                    dialled.next = dialled.next.wrapping_sub(1);
                    return self.connect(io, core, peer);
                }
                dialled.stage = DialProgress::Open(open);
                let connected = Connected { dialect: Dialect::Frames, hello: Some(hello) };
                core.peer_connected(io.now, peer, &connected);
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
            // Two sites that do not know each other yet tell each other who they are.
            Answered::Refused if !is_site => {
                self.refused += 1;
                io.ring.close(socket);
                core.peer_lost(io.now, peer);
            }
            Answered::Refused
            | Answered::Busy
            | Answered::Challenged { .. }
            | Answered::Unproven => {
                self.unproven += u64::from(answered == Answered::Unproven);
                io.ring.close(socket);
                core.peer_lost(io.now, peer);
            }
            Answered::Disowned => {
                self.refused += 1;
                io.ring.close(socket);
                core.peer_disowns(io.now, peer);
            }
        }
    }

    /// Says what the core has to say, unless a send is under way: then when that has ended, so that
    /// what gathers meanwhile goes into one.
    fn send(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
        let Some(Dialled { stage: DialProgress::Open(open), .. }) =
            self.dialled.get_mut(peer.index())
        else {
            return;
        };
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
        io.ring.send(open.id, output);
    }

    /// As [`PeerSockets::send`]. A peer that does not take the results is not listened to either:
    /// so many results wait at most as one turn's messages ask for.
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
        open.sending_bytes = output.len();
        self.sending_bytes += output.len();
        io.ring.send(open.id, output);
        self.shed(io.ring, core);
    }

    /// Keeps what is on its way within its limit: the connection that takes most of it is closed.
    fn shed(&mut self, ring: &mut Ring, core: &mut Core) {
        while self.sending_bytes > SENDING_BYTES_MAX {
            let all = self.inbounds.iter().flatten();
            let most = all.max_by_key(|(_, open)| open.sending_bytes);
            let inbound = most.map(|(inbound, _)| *inbound).expect("a sum above 0 has parts");
            self.shed += 1;
            self.lose_inbound(ring, core, inbound);
        }
    }

    /// Closes the connection to a peer, or gives up its dial; the core knows.
    fn close(&mut self, ring: &mut Ring, peer: PeerIndex) {
        if let Some(socket) = self.socket_of(peer) {
            ring.close(socket);
        }
        if let Some(dialled) = self.dialled.get_mut(peer.index()) {
            dialled.stage = DialProgress::Idle;
        }
    }

    fn lose(&mut self, io: &mut Io<'_>, core: &mut Core, peer: PeerIndex) {
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

    fn lose_inbound(&mut self, ring: &mut Ring, core: &mut Core, inbound: InboundId) {
        self.close_inbound(ring, inbound);
        core.inbound_closed(inbound);
    }

    fn socket_of(&self, peer: PeerIndex) -> Option<SocketId> {
        match &self.dialled.get(peer.index())?.stage {
            DialProgress::Idle | DialProgress::Resolving => None,
            DialProgress::Connecting(socket) | DialProgress::Greeting { socket, .. } => {
                Some(*socket)
            }
            DialProgress::Open(open) => Some(open.id),
        }
    }

    /// A completion may be of a socket that was closed earlier in the same turn, whose place has
    /// another since.
    fn inbound_at(&mut self, place: u32, socket: SocketId) -> Option<&mut (InboundId, Socket)> {
        let place = self.inbounds.get_mut(place as usize)?.as_mut();
        place.filter(|(_, open)| open.id == socket)
    }
}
