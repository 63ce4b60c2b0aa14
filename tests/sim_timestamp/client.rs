//! A server's session with the ensemble, as a client library keeps it: one connection at a time,
//! pings, and a new connection at another peer when a connection breaks or is silent.

use chronos::base::time::MonoNs;

use super::ensemble::{Link, LinkId, Op, Reply, Request, Session, Way};
use super::model::MS;
use super::world::{Event, World};

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    xid: u64,
    op: Op,
    pub sent: MonoNs,
    /// The connection that carries the request; `None`: it waits for a connection.
    link: Option<LinkId>,
}

/// The session of a server, and its connection.
#[derive(Debug, Default)]
pub struct Client {
    pub session: Option<Session>,
    link: Option<LinkId>,
    is_connected: bool,
    asked: Option<Asked>,
    xid: u64,
    /// The state of the master's node that was seen last; `None` if the node is not watched.
    watched: Option<usize>,
    heard_ns: u64,
    pinged_ns: u64,
}

/// What the session tells the keeper.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    Answer { sent: MonoNs, reply: Reply },
    Lost { sent: MonoNs },
    Changed,
    Expired,
    Disconnected,
}

impl World {
    pub fn client_asks(&mut self, server: usize, op: Op) {
        let sent = MonoNs(self.servers[server].clocks.mono.at(self.now_ns));
        self.trace.add(self.now_ns, op.name(), [server as u64, 0, 0, 0]);
        let asks_wait = self.options.asks_wait;
        let client = &mut self.servers[server].client;
        assert!(client.asked.is_none(), "one at a time");
        client.xid += 1;
        client.asked = Some(Asked { xid: client.xid, op, sent, link: None });
        if op == Op::Open {
            client.session = None;
            client.watched = None;
            self.drop_link(server);
            return self.connect(server);
        }
        if client.session.is_none() {
            client.asked = None;
            return self.tell(server, Told::Answer { sent, reply: Reply::Expired });
        }
        if client.is_connected {
            return self.send_asked(server);
        }
        if !asks_wait {
            client.asked = None;
            self.tell(server, Told::Lost { sent });
        }
    }

    fn send_asked(&mut self, server: usize) {
        let client = &mut self.servers[server].client;
        let (Some(asked), Some(link)) = (&mut client.asked, client.link) else { return };
        asked.link = Some(link);
        let (xid, op) = (asked.xid, asked.op);
        self.send_to_peer(Request { link, xid, op });
    }

    fn send_to_peer(&mut self, request: Request) {
        let (low, high) = self.options.latency_ns;
        let latency_ns = self.network.range(low, high);
        let link = &mut self.links[request.link];
        if !link.is_open {
            return;
        }
        // A request that is sent while the way is cut is sent again later.
        let from_ns = self.servers[link.server].isolated_until_ns.max(self.now_ns);
        let at_ns = link.to_peer.arrival(from_ns, latency_ns);
        self.schedule_request(at_ns, request);
    }

    pub fn schedule_request(&mut self, at_ns: u64, request: Request) {
        self.requests.push(request);
        self.schedule(at_ns, Event::ToPeer(self.requests.len() - 1));
    }

    /// Takes a request at its peer. A request that was sent before its connection broke may arrive
    /// or not.
    pub fn request_arrives(&mut self, at: usize) {
        let request = self.requests[at];
        if self.links[request.link].is_open || self.network.chance(50) {
            self.peer_takes(request);
        }
    }

    pub fn send_to_client(&mut self, link: LinkId, xid: u64, reply: Reply) {
        let (low, high) = self.options.latency_ns;
        let latency_ns = self.network.range(low, high);
        let one = &mut self.links[link];
        if !one.is_open {
            return;
        }
        let from_ns = self.servers[one.server].isolated_until_ns.max(self.now_ns);
        let at_ns = one.to_client.arrival(from_ns, latency_ns);
        self.replies.push((link, xid, reply));
        self.schedule(at_ns, Event::ToClient(self.replies.len() - 1));
    }

    pub fn reply_arrives(&mut self, at: usize) {
        let (link, xid, reply) = self.replies[at];
        let one = &self.links[link];
        let (server, life) = (one.server, one.life);
        if !self.is_alive(server, life) || !one.is_open {
            return;
        }
        let frozen_until_ns = self.servers[server].frozen_until_ns;
        if frozen_until_ns > self.now_ns {
            return self.schedule(frozen_until_ns, Event::ToClient(at));
        }
        let now_ns = self.now_ns;
        let client = &mut self.servers[server].client;
        if client.link != Some(link) {
            return;
        }
        client.heard_ns = now_ns;
        match reply {
            Reply::Pong => {}
            Reply::MasterChanged => {
                client.watched = None;
                self.tell(server, Told::Changed);
            }
            Reply::Resumed => {
                client.is_connected = true;
                if let Some(seen) = client.watched {
                    self.watch_again(link, seen);
                }
                self.send_asked(server);
            }
            Reply::Expired => self.session_ends(server),
            reply => self.answer_arrives(server, xid, reply),
        }
    }

    fn answer_arrives(&mut self, server: usize, xid: u64, reply: Reply) {
        let client = &mut self.servers[server].client;
        let Some(asked) = client.asked.take_if(|asked| asked.xid == xid) else { return };
        match reply {
            Reply::Session(session) => {
                client.session = Some(session);
                client.is_connected = true;
            }
            Reply::Master(_, at) => client.watched = Some(at),
            _ => {}
        }
        if asked.op == Op::Close {
            client.session = None;
            self.drop_link(server);
        }
        self.tell(server, Told::Answer { sent: asked.sent, reply });
    }

    fn session_ends(&mut self, server: usize) {
        let client = &mut self.servers[server].client;
        client.session = None;
        client.watched = None;
        let asked = client.asked.take();
        self.drop_link(server);
        if asked.is_none() || self.network.chance(50) {
            self.tell(server, Told::Expired);
        }
        if let Some(asked) = asked {
            self.tell(server, Told::Answer { sent: asked.sent, reply: Reply::Expired });
        }
    }

    fn drop_link(&mut self, server: usize) {
        let client = &mut self.servers[server].client;
        client.is_connected = false;
        if let Some(link) = client.link.take() {
            self.links[link].is_open = false;
        }
    }

    /// Ends a connection: a peer closes it, or it breaks.
    pub fn break_link(&mut self, link: LinkId) {
        let one = &mut self.links[link];
        let server = one.server;
        if !one.is_open {
            return;
        }
        one.is_open = false;
        let delay_ns = self.network.range(100_000, 5 * MS);
        let from_ns = self.servers[server].isolated_until_ns.max(self.now_ns);
        self.schedule(from_ns + delay_ns, Event::LinkDown(link));
    }

    pub fn link_down(&mut self, link: LinkId) {
        let (server, life) = (self.links[link].server, self.links[link].life);
        if !self.is_alive(server, life) || self.servers[server].client.link != Some(link) {
            return;
        }
        let frozen_until_ns = self.servers[server].frozen_until_ns;
        if frozen_until_ns > self.now_ns {
            return self.schedule(frozen_until_ns, Event::LinkDown(link));
        }
        self.drop_link(server);
        self.tell(server, Told::Disconnected);
        let client = &mut self.servers[server].client;
        let lost = client.asked.take_if(|asked| asked.op != Op::Open && asked.link.is_some());
        if let Some(asked) = lost {
            self.tell(server, Told::Lost { sent: asked.sent });
        }
        let delay_ns = self.network.range(MS, 50 * MS);
        self.schedule(self.now_ns + delay_ns, Event::Connect { server, life });
    }

    /// Tries to connect to one peer.
    pub fn connect(&mut self, server: usize) {
        let one = &self.servers[server];
        let life = one.life;
        if one.client.link.is_some() {
            return;
        }
        let op = match (one.client.session, one.client.asked) {
            (Some(session), _) => Op::Resume(session),
            (None, Some(asked)) if asked.op == Op::Open => Op::Open,
            _ => return,
        };
        let peer = self.network.range(0, self.options.peers as u64 - 1) as usize;
        if one.isolated_until_ns > self.now_ns || !self.zoo.peers[peer].is_up {
            let delay_ns = self.network.range(20 * MS, 100 * MS);
            return self.schedule(self.now_ns + delay_ns, Event::Connect { server, life });
        }
        let session = self.servers[server].client.session;
        self.links.push(Link {
            server,
            life,
            peer,
            session,
            is_open: true,
            is_watching: false,
            to_peer: Way::default(),
            to_client: Way::default(),
        });
        let link = self.links.len() - 1;
        let now_ns = self.now_ns;
        let client = &mut self.servers[server].client;
        client.link = Some(link);
        client.heard_ns = now_ns;
        let xid = match &mut client.asked {
            Some(asked) if op == Op::Open => {
                asked.link = Some(link);
                asked.xid
            }
            _ => 0,
        };
        self.send_to_peer(Request { link, xid, op });
    }

    /// Pings, and drops a connection that is silent.
    pub fn client_looks(&mut self, server: usize, life: u64) {
        let session_ns = self.options.session_ms * MS;
        let frozen_until_ns = self.servers[server].frozen_until_ns;
        if !self.is_alive(server, life) {
            return;
        }
        if frozen_until_ns > self.now_ns {
            return self.schedule(frozen_until_ns, Event::ClientLooks { server, life });
        }
        let now_ns = self.now_ns;
        let client = &mut self.servers[server].client;
        if let Some(link) = client.link {
            let patience_ns = session_ns / if client.is_connected { 3 } else { 6 } * 2;
            if now_ns - client.heard_ns > patience_ns {
                self.links[link].is_open = false;
                self.link_down(link);
            } else if client.is_connected && now_ns - client.pinged_ns >= session_ns / 3 {
                client.pinged_ns = now_ns;
                self.send_to_peer(Request { link, xid: 0, op: Op::Ping });
            }
        }
        self.schedule(now_ns + session_ns / 12, Event::ClientLooks { server, life });
    }
}
