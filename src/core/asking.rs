//! Questions to all shards of all nodes of a site, for answers that this core puts together: pages
//! of lists (`core::lists`), numbers and jobs (`core::counts`).

use crate::base::ids::{PeerIndex, ShardIndex};
use crate::base::slots::{SlotKey, Slots};
use crate::base::time::Tick;
use crate::cluster::view::View;
use crate::shard::effects::Requester;
use crate::shard::requesters::LISTED;

/// A node that has not answered a question for this long is left out.
pub(crate) const PEER_MS: u64 = 1_000;

/// Whom a question goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    /// A shard of this node.
    Shard(ShardIndex),
    /// A shard of another node.
    Peer(PeerIndex, u16),
}

/// A question that the core must ask.
#[derive(Debug)]
pub(crate) struct Order {
    pub whom: Whom,
    /// In whose name.
    pub from: Requester,
    /// The question, encoded.
    pub ask: Vec<u8>,
}

/// Another node of the site; `Err` says why it cannot be asked.
pub(crate) type Asked = (PeerIndex, Result<(), &'static str>);

/// An answer that is being put together.
pub(crate) trait Whole {
    /// Leaves out who takes too long.
    fn give_up_late(&mut self, tick: Tick, view: &View);

    /// Asks who is to be asked now: by number, whom, and what.
    fn ask(&mut self, tick: Tick, order: &mut dyn FnMut(u32, Whom, Vec<u8>));
}

/// Appends the questions to ask now, for all answers. `mark` stands in the numbers of the requests.
/// Returns the keys of all answers: some may be complete now.
pub(crate) fn ask_all<T: Whole>(
    wholes: &mut Slots<T>,
    tick: Tick,
    (own, view): (ShardIndex, &View),
    mark: u32,
    orders: &mut Vec<Order>,
) -> Vec<SlotKey> {
    let mut keys = Vec::with_capacity(wholes.len());
    for place in 0..wholes.places() {
        let Some(key) = wholes.key_at(place) else { continue };
        let Some(whole) = wholes.get_mut(key) else { continue };
        whole.give_up_late(tick, view);
        let SlotKey { index, generation } = key;
        whole.ask(tick, &mut |number, whom, ask| {
            let request = mark | index << 16 | number;
            let from = Requester { shard: own, connection: LISTED, generation, request };
            orders.push(Order { whom, from, ask });
        });
        keys.push(key);
    }
    keys
}
