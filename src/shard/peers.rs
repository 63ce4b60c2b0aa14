//! What this shard believes of its peers: who lives, and how each is talked to.

use std::sync::Arc;

use crate::base::ids::{NodeHash, PeerIndex, PeerSet};
use crate::base::time::Tick;
use crate::cluster::detector::Liveness;
use crate::cluster::view::View;

use super::effects::Dialect;

/// The cluster as this shard believes it to be.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    pub view: Arc<View>,
    alive: PeerSet,
    dead: PeerSet,
    http: PeerSet,
    /// Those that are to be offered all they are to hold when they are alive again: another node
    /// could not tell them something.
    pub owed: PeerSet,
    /// Those that see other members than this node does.
    pub other_view: PeerSet,
    /// When one was last believed alive again.
    pub returned_at: Tick,
}

impl Peers {
    pub fn new(view: Arc<View>) -> Self {
        let alive = PeerSet::EMPTY.with(view.own());
        Self {
            view,
            alive,
            dead: PeerSet::EMPTY,
            http: PeerSet::EMPTY,
            other_view: PeerSet::EMPTY,
            owed: PeerSet::EMPTY,
            returned_at: Tick(0),
        }
    }

    /// Takes note of what is believed now; returns what was.
    pub fn believe(&mut self, peer: PeerIndex, liveness: Liveness, dialect: Dialect) -> Liveness {
        let former = self.liveness(peer);
        self.alive = self.alive.without(peer);
        self.dead = self.dead.without(peer);
        match liveness {
            Liveness::Alive => self.alive = self.alive.with(peer),
            Liveness::Suspect => {}
            Liveness::Dead => self.dead = self.dead.with(peer),
        }
        self.http = self.http.without(peer);
        if dialect == Dialect::Http {
            self.http = self.http.with(peer);
        }
        former
    }

    pub fn liveness(&self, peer: PeerIndex) -> Liveness {
        if self.alive.contains(peer) {
            Liveness::Alive
        } else if self.dead.contains(peer) {
            Liveness::Dead
        } else {
            Liveness::Suspect
        }
    }

    pub fn own(&self) -> PeerIndex {
        self.view.own()
    }

    pub fn own_hash(&self) -> NodeHash {
        self.view.own_hash()
    }

    /// Those heard of lately, this node included.
    pub fn alive(&self) -> PeerSet {
        self.alive
    }

    pub fn dead(&self) -> PeerSet {
        self.dead
    }

    /// Members that are not declared dead, this node included.
    pub fn not_dead(&self) -> PeerSet {
        self.view.new_nodes().minus(self.dead)
    }

    /// Whether the peer understands whole copies only.
    pub fn speaks_http(&self, peer: PeerIndex) -> bool {
        self.http.contains(peer)
    }

    pub fn http(&self) -> PeerSet {
        self.http
    }

    /// Whether there is anybody to replicate to.
    pub fn is_alone(&self) -> bool {
        self.view.connected_nodes().is_empty() && self.view.connected_sites().is_empty()
    }
}
