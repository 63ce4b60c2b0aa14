//! The mesh between the cores of a node. Each ordered pair of cores has one bounded lock-free queue
//! of requests and one of replies.
//!
//! - A core has at most as many requests under way to a sibling as a queue holds. So a reply always
//!   finds room and is never lost.
//! - A part of these is for messages of peers alone. A client's request may wait for an answer of a
//!   peer, and the peer's request for an answer of this node. If requests took all places, two
//!   nodes would wait for each other.
//! - While a sibling has not taken long replies, its further requests wait.
//! - A sender wakes a sibling only when the sibling has said that it sleeps.
//!
//! The mesh is pure memory. The driver does the waking, so the simulator drives this same code.

// May panic: assertions 6, expectations 1, indices 17.
// Why it does not: found 2, encoded 1, cores 16, ordered 4, compiled 1.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;

use crate::base::ids::{PeerIndex, ShardCount, ShardIndex};
use crate::base::planted::{Bug, is_planted};
use crate::base::time::MonoNs;
use crate::shard::effects::{Condition, Conditional, PageAsk, Reply, Request, Requester, Target};
use crate::timer::definition::OwnedDefinition;
use crate::timer::version::Version;
use crate::wire::dead_letter::LetterUse;
use crate::wire::peer_message::{PeerMessage, decode_message};
use crate::wire::resync_json::Reference;
use crate::wire::site_question::SiteQuestion;
use crate::wire::timer_action::TimerAction;

use crate::core::gather::PageAsked;
use crate::core::peers::actions::InboundId;

/// Replies with more bytes of content than this are counted.
const LONG_BYTES_MIN: usize = 4 << 10;
/// Bytes of counted replies on their way to a sibling above which the sibling's requests wait. This
/// bounds the memory of each ordered pair of cores, beside short replies.
const LONG_REPLY_BYTES_MAX: usize = 1 << 20;

/// A request on its way to the core that owns the timer.
#[derive(Debug)]
pub enum Remote {
    /// A client's PUT.
    Update(Target, Box<OwnedDefinition>),
    /// A client's DELETE.
    Delete(Target),
    /// A client's GET.
    Read(Target),
    /// A client's write with a condition; without a definition and an action a DELETE.
    Conditional(Box<(Target, Condition, Option<OwnedDefinition>, Option<TimerAction>)>),
    /// What a client wants done with a dead letter.
    Letter(Box<(Target, LetterUse, Option<Version>)>),
    /// A copy that came over the internal API, encoded as a message.
    Merge(Box<[u8]>),
    /// The question for one shard's part of a page of timers.
    Collect(PageAsk),
    /// References to timers that another node has taken over.
    Forget(Box<[Reference]>),
    /// The question for one shard's part of a page of a list.
    List(Box<[u8]>),
    /// Another site's question about a timer.
    Compare(SiteQuestion),
    /// The question for a whole page. The core that keeps the asking node's cursor gets it.
    Page(PageAsked),
}

impl Remote {
    /// Copies a request. Panics for a create, which never leaves its core.
    pub fn copy(request: &Request<'_>) -> Self {
        match *request {
            Request::Create(_) => unreachable!("a create is served by the core that received it"),
            Request::Update(target, ref definition) => {
                Remote::Update(target, Box::new(OwnedDefinition::copy(definition)))
            }
            Request::Delete(target) => Remote::Delete(target),
            Request::Read(target) => Remote::Read(target),
            Request::Letter(target, wanted, version) => {
                Remote::Letter(Box::new((target, wanted, version)))
            }
            Request::Merge(copy) => {
                let mut bytes = Vec::new();
                PeerMessage::Copy(copy).encode(&mut bytes);
                Remote::Merge(bytes.into())
            }
            Request::Conditional(ref ask) => {
                let definition = ask.definition.as_ref().map(OwnedDefinition::copy);
                Remote::Conditional(Box::new((ask.target, ask.condition, definition, ask.action)))
            }
            Request::Collect(ask) => Remote::Collect(ask),
            Request::Forget(references) => Remote::Forget(references.into()),
            Request::List(ask) => Remote::List(ask.into()),
            Request::Compare(question) => Remote::Compare(question),
        }
    }

    /// Returns the request, borrowed. Panics for [`Remote::Page`], which is no request to a shard.
    pub fn borrow(&self) -> Request<'_> {
        match self {
            Remote::Update(target, definition) => Request::Update(*target, definition.borrow()),
            Remote::Delete(target) => Request::Delete(*target),
            Remote::Read(target) => Request::Read(*target),
            Remote::Letter(letter) => Request::Letter(letter.0, letter.1, letter.2),
            Remote::Merge(bytes) => match decode_message(&mut &bytes[..]) {
                Ok(PeerMessage::Copy(copy)) => Request::Merge(copy),
                other => unreachable!("a copy was encoded by a sibling, not {other:?}"),
            },
            Remote::Conditional(ask) => {
                let (target, condition, definition, action) = &**ask;
                let definition = definition.as_ref().map(OwnedDefinition::borrow);
                let (target, condition, action) = (*target, *condition, *action);
                Request::Conditional(Conditional { target, condition, definition, action })
            }
            Remote::Collect(ask) => Request::Collect(*ask),
            Remote::Forget(references) => Request::Forget(references),
            Remote::List(ask) => Request::List(ask),
            Remote::Compare(question) => Request::Compare(*question),
            Remote::Page(_) => unreachable!("a core puts a page together itself"),
        }
    }
}

/// Messages of one peer for timers of a sibling, on their way there, or their results on the way
/// back. One batch travels each way, however many messages came in one portion.
#[derive(Debug, Default)]
pub struct PeerBatch {
    /// The connection over which the messages came.
    pub inbound: InboundId,
    /// This node's monotonic clock minus the sender's, in ns.
    pub clock_offset_ns: i64,
    /// The peer that sent the messages. `None`: the view does not know the sender.
    pub from: Option<PeerIndex>,
    /// For each entry its number on the connection, and where its bytes end in `bytes`.
    pub entries: Vec<(u32, u32)>,
    /// The encoded messages, or the encoded results.
    pub bytes: Vec<u8>,
}

impl PeerBatch {
    /// Adds the bytes that `write` appends as an entry under `number`.
    pub fn push(&mut self, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        let end = u32::try_from(self.bytes.len()).expect("a batch is one turn's bytes of a socket");
        self.entries.push((number, end));
    }

    /// Returns every entry: its number and its bytes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut begin = 0;
        self.entries.iter().map(move |&(number, end)| {
            let bytes = &self.bytes[begin..end as usize];
            begin = end as usize;
            (number, bytes)
        })
    }

    /// Removes all entries and keeps their memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }
}

/// What arrives from a sibling.
#[derive(Debug)]
pub enum Message {
    /// A request that this core serves and answers over the mesh. The time is the sibling's clock
    /// when it sent the request. This core must serve the request at that time or later, although
    /// this core's turn may have begun earlier: a timer counted from that turn would pop early, and
    /// a write could get a version below that of an earlier write at another site.
    Request(Requester, Remote, MonoNs),
    /// An answer for a client of this core.
    Reply(Reply),
    /// Messages of a peer. This core answers them over the mesh with one batch of results.
    PeerMessages(ShardIndex, Box<PeerBatch>),
    /// Results for a peer that is connected with this core.
    PeerResults(Box<PeerBatch>),
}

/// An entry in a queue of requests. One [`Answered`] answers each.
#[derive(Debug)]
enum Asked {
    Request(Requester, Remote, MonoNs),
    Peer(Box<PeerBatch>),
}

/// An entry in a queue of replies.
#[derive(Debug)]
enum Answered {
    Reply(Reply),
    Peer(Box<PeerBatch>),
}

impl Answered {
    /// Bytes that count while the reply is on its way; 0 for a short reply.
    fn long_bytes(&self) -> usize {
        let bytes = match self {
            Answered::Reply(reply) => reply.answer.heap_bytes(),
            Answered::Peer(results) => results.bytes.len(),
        };
        if bytes > LONG_BYTES_MIN { bytes } else { 0 }
    }
}

#[derive(Debug)]
struct Channel {
    requests: ArrayQueue<Asked>,
    replies: ArrayQueue<Answered>,
    /// Bytes of long replies in `replies`.
    long_bytes: CachePadded<AtomicUsize>,
}

impl Channel {
    fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self {
            requests: ArrayQueue::new(capacity),
            replies: ArrayQueue::new(capacity),
            long_bytes: CachePadded::new(AtomicUsize::new(0)),
        })
    }

    fn has_room_for_replies(&self) -> bool {
        self.long_bytes.load(Relaxed) <= LONG_REPLY_BYTES_MAX
    }
}

const _: () = assert!(size_of::<Asked>() <= 64 && size_of::<Answered>() <= 48);

/// The sibling's queue is full. The request must be answered 503.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueFull;

/// One core's end of the mesh.
#[derive(Debug)]
pub struct MeshPort {
    own: ShardIndex,
    outbound: Vec<Arc<Channel>>,
    inbound: Vec<Arc<Channel>>,
    asleep: Arc<[CachePadded<AtomicBool>]>,
    /// For each sibling, how many requests were sent and not answered, those of peers among them.
    under_way: Vec<u32>,
    /// For each sibling, how many of these are batches of peers.
    of_peers: Vec<u32>,
    queue_max: u32,
    /// Siblings to wake, each at most once a turn.
    wakes: Vec<ShardIndex>,
    /// The sibling looked at last. The next look begins behind it, so that no sibling is starved.
    next: usize,
    /// How many messages were sent.
    pub sent: u64,
    /// How many requests were refused because a queue was full.
    pub refused: u64,
    /// The most messages that were ever seen waiting here.
    pub depth_max: u64,
}

/// Places of a queue that only messages of peers get. A queue with one place has none.
fn kept_for_peers(queue_max: u32) -> u32 {
    queue_max.div_ceil(4).min(queue_max - 1)
}

/// Makes the ports of all cores of a node. Memory: about 110 B x `queue_max` per ordered pair.
pub fn mesh(shards: ShardCount, queue_max: u32) -> Vec<MeshPort> {
    let count = usize::from(shards.get());
    let channel = || Channel::new(queue_max.max(1) as usize);
    let alone = Channel::new(1);
    let from_to: Vec<Vec<_>> = (0..count)
        .map(|from| {
            (0..count).map(|to| if from == to { alone.clone() } else { channel() }).collect()
        })
        .collect();
    let asleep: Arc<[_]> = (0..count).map(|_| CachePadded::new(AtomicBool::new(false))).collect();
    (0..count)
        .map(|own| MeshPort {
            own: ShardIndex(own as u16),
            outbound: from_to[own].clone(),
            inbound: from_to.iter().map(|row| row[own].clone()).collect(),
            asleep: asleep.clone(),
            under_way: vec![0; count],
            of_peers: vec![0; count],
            queue_max: queue_max.max(1),
            wakes: Vec::new(),
            next: 0,
            sent: 0,
            refused: 0,
            depth_max: 0,
        })
        .collect()
}

impl MeshPort {
    /// Sends a request to the sibling that owns the timer. `at` is when the request came, or later.
    pub fn send_request(
        &mut self,
        at: MonoNs,
        to: ShardIndex,
        from: Requester,
        request: Remote,
    ) -> Result<(), QueueFull> {
        let sibling = usize::from(to.0);
        let (all, of_peers) = (self.under_way[sibling], self.of_peers[sibling]);
        if all >= self.queue_max
            || all - of_peers >= self.queue_max - kept_for_peers(self.queue_max)
        {
            self.refused += 1;
            return Err(QueueFull);
        }
        self.ask(to, Asked::Request(from, request, at));
        Ok(())
    }

    /// Sends messages of a peer to the sibling that owns their timers. `Err` returns them when the
    /// sibling's queue is full.
    pub fn send_peer_messages(
        &mut self,
        to: ShardIndex,
        batch: Box<PeerBatch>,
    ) -> Result<(), Box<PeerBatch>> {
        if self.under_way[usize::from(to.0)] >= self.queue_max {
            self.refused += 1;
            return Err(batch);
        }
        self.of_peers[usize::from(to.0)] += 1;
        self.ask(to, Asked::Peer(batch));
        Ok(())
    }

    /// Sends a reply to the sibling that holds the client's connection.
    pub fn send_reply(&mut self, reply: Reply) {
        self.answer(reply.to.shard, Answered::Reply(reply));
    }

    /// Sends the results of a batch to the sibling from which the batch came.
    pub fn send_peer_results(&mut self, to: ShardIndex, results: Box<PeerBatch>) {
        self.answer(to, Answered::Peer(results));
    }

    /// Returns the next message. Siblings take turns.
    pub fn receive(&mut self) -> Option<Message> {
        for _ in 0..self.inbound.len() {
            self.next = (self.next + 1) % self.inbound.len();
            let channel = &self.inbound[self.next];
            // A pop from an empty queue is a full fence and costs some 20 ns. A look at the queue
            // is two loads.
            if !channel.replies.is_empty()
                && let Some(answered) = channel.replies.pop()
            {
                self.under_way[self.next] -= 1;
                let long_bytes = answered.long_bytes();
                if long_bytes > 0 {
                    channel.long_bytes.fetch_sub(long_bytes, Relaxed);
                }
                return Some(match answered {
                    Answered::Reply(reply) => Message::Reply(reply),
                    Answered::Peer(results) => {
                        self.of_peers[self.next] -= 1;
                        Message::PeerResults(results)
                    }
                });
            }
            if !channel.requests.is_empty()
                && self.outbound[self.next].has_room_for_replies()
                && let Some(asked) = channel.requests.pop()
            {
                return Some(match asked {
                    Asked::Request(from, request, at) => Message::Request(from, request, at),
                    Asked::Peer(batch) => {
                        Message::PeerMessages(ShardIndex(self.next as u16), batch)
                    }
                });
            }
        }
        None
    }

    /// Returns how many messages wait here, and updates `depth_max`.
    pub fn depth(&mut self) -> u64 {
        let waiting = |channel: &Arc<Channel>| channel.requests.len() + channel.replies.len();
        let depth = self.inbound.iter().map(waiting).sum::<usize>() as u64;
        self.depth_max = self.depth_max.max(depth);
        depth
    }

    /// Says that this core is about to sleep, then looks at the queues once more. `false` means
    /// that a message arrived meanwhile and that the core counts as awake. The order matters: this
    /// look sees a message that was pushed before the flag was set, and the sender of a later
    /// message sees the flag and wakes this core.
    pub fn may_sleep(&mut self) -> bool {
        let asleep = &self.asleep[usize::from(self.own.0)];
        asleep.store(true, SeqCst);
        if is_planted(Bug::LostWakeUp) {
            return true;
        }
        let is_empty = self
            .inbound
            .iter()
            .all(|channel| channel.requests.is_empty() && channel.replies.is_empty());
        if !is_empty {
            asleep.store(false, SeqCst);
        }
        is_empty
    }

    /// Says that this core is awake again.
    pub fn woke(&mut self) {
        self.asleep[usize::from(self.own.0)].store(false, SeqCst);
    }

    /// Returns the next sibling that the driver must wake.
    pub fn next_wake(&mut self) -> Option<ShardIndex> {
        self.wakes.pop()
    }

    /// Pushes a request. The caller has checked that the queue has room.
    fn ask(&mut self, to: ShardIndex, asked: Asked) {
        let sibling = usize::from(to.0);
        self.under_way[sibling] += 1;
        let pushed = self.outbound[sibling].requests.push(asked);
        assert!(pushed.is_ok(), "no more requests are under way than the queue holds");
        self.wake_if_asleep(to);
    }

    fn answer(&mut self, to: ShardIndex, answered: Answered) {
        let channel = &self.outbound[usize::from(to.0)];
        let long_bytes = answered.long_bytes();
        if long_bytes > 0 {
            channel.long_bytes.fetch_add(long_bytes, Relaxed);
        }
        let pushed = channel.replies.push(answered);
        assert!(pushed.is_ok(), "a sibling has no more requests under way than replies find room");
        self.wake_if_asleep(to);
    }

    /// Asks to wake a sibling that sleeps. The sender that wakes it clears the flag, so that no
    /// other sender wakes it again.
    fn wake_if_asleep(&mut self, sibling: ShardIndex) {
        self.sent += 1;
        let asleep = &self.asleep[usize::from(sibling.0)];
        std::sync::atomic::fence(SeqCst);
        if asleep.load(SeqCst) && asleep.swap(false, SeqCst) {
            self.wakes.push(sibling);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::TimerId;
    use crate::shard::effects::{Answer, Internal};

    fn read() -> Remote {
        Remote::Read(Target { id: TimerId(1), factor: None, filter: None })
    }

    fn requester(shard: u16) -> Requester {
        Requester { shard: ShardIndex(shard), connection: 0, generation: 0, request: 0 }
    }

    #[test]
    fn a_full_queue_refuses_requests_and_still_has_room_for_every_reply() {
        let mut ports = mesh(ShardCount::new(2), 3);
        let mut second = ports.pop().expect("two ports");
        let mut first = ports.pop().expect("two ports");
        for _ in 0..2 {
            first.send_request(MonoNs(0), ShardIndex(1), requester(0), read()).expect("room");
        }
        let third = first.send_request(MonoNs(0), ShardIndex(1), requester(0), read());
        assert_eq!(third, Err(QueueFull));
        while let Some(Message::Request(from, ..)) = second.receive() {
            second.send_reply(Reply::at_once(from, Answer::NotFound));
            let still_under_way =
                first.send_request(MonoNs(0), ShardIndex(1), requester(0), read());
            assert_eq!(still_under_way, Err(QueueFull), "until the reply is taken");
        }
        assert!(matches!(first.receive(), Some(Message::Reply(_))));
        first.send_request(MonoNs(0), ShardIndex(1), requester(0), read()).expect("room again");
    }

    #[test]
    fn requests_that_wait_leave_room_for_messages_of_peers() {
        for (queue_max, of_clients) in [(2, 1), (4, 3), (16, 12)] {
            let mut ports = mesh(ShardCount::new(2), queue_max);
            let mut second = ports.pop().expect("two ports");
            let mut first = ports.pop().expect("two ports");
            let ask = |first: &mut MeshPort| {
                first.send_request(MonoNs(0), ShardIndex(1), requester(0), read())
            };
            while ask(&mut first).is_ok() {}
            assert_eq!(first.under_way[1], of_clients);
            for _ in of_clients..queue_max {
                first.send_peer_messages(ShardIndex(1), Box::default()).expect("room");
            }
            assert!(first.send_peer_messages(ShardIndex(1), Box::default()).is_err());
            // The peers' results come first. That makes no room for requests.
            while let Some(message) = second.receive() {
                if let Message::PeerMessages(from, batch) = message {
                    second.send_peer_results(from, batch);
                }
            }
            while first.receive().is_some() {}
            assert_eq!(ask(&mut first), Err(QueueFull));
            first.send_peer_messages(ShardIndex(1), Box::default()).expect("room again");
        }
    }

    #[test]
    fn long_replies_that_are_not_taken_hold_up_further_requests() {
        let mut ports = mesh(ShardCount::new(2), 1_024);
        let mut second = ports.pop().expect("two ports");
        let mut first = ports.pop().expect("two ports");
        for _ in 0..100 {
            first.send_request(MonoNs(0), ShardIndex(1), requester(0), read()).expect("room");
        }
        let body = vec![0; 300_000];
        let page = Internal::Page { body, count: 1, has_more: false };
        let answer = Answer::Internal(Box::new(page));
        let serve = |second: &mut MeshPort| {
            let mut served = 0;
            while let Some(Message::Request(from, ..)) = second.receive() {
                second.send_reply(Reply::at_once(from, answer.clone()));
                served += 1;
            }
            served
        };
        assert_eq!(serve(&mut second), 4, "a megabyte, and what makes it full");
        assert!(matches!(first.receive(), Some(Message::Reply(_))));
        assert_eq!(serve(&mut second), 1);
        while let Some(Message::Reply(_)) = first.receive() {}
        assert_eq!(serve(&mut second), 4);
    }

    #[test]
    fn a_batch_of_a_peer_counts_as_one_request_and_comes_back_once() {
        let mut ports = mesh(ShardCount::new(2), 1);
        let mut second = ports.pop().expect("two ports");
        let mut first = ports.pop().expect("two ports");
        let mut batch = Box::new(PeerBatch::default());
        for (number, bytes) in [(7, &b"one"[..]), (8, b""), (9, b"three")] {
            batch.push(number, |out| out.extend_from_slice(bytes));
        }
        first.send_peer_messages(ShardIndex(1), batch).expect("room");
        let second_batch = first.send_peer_messages(ShardIndex(1), Box::default());
        assert!(second_batch.is_err(), "the queue holds one");
        let Some(Message::PeerMessages(from, mut batch)) = second.receive() else {
            panic!("a batch was sent")
        };
        assert_eq!(from, ShardIndex(0));
        let entries: Vec<_> = batch.iter().collect();
        assert_eq!(entries, [(7, &b"one"[..]), (8, b""), (9, b"three")]);
        batch.clear();
        second.send_peer_results(from, batch);
        assert!(matches!(first.receive(), Some(Message::PeerResults(_))));
        first.send_peer_messages(ShardIndex(1), Box::default()).expect("room again");
    }

    #[test]
    fn a_sleeping_sibling_is_woken_once() {
        let mut ports = mesh(ShardCount::new(3), 8);
        assert!(ports[2].may_sleep());
        for _ in 0..3 {
            ports[0].send_request(MonoNs(0), ShardIndex(2), requester(0), read()).expect("room");
        }
        assert_eq!(ports[0].next_wake(), Some(ShardIndex(2)));
        assert_eq!(ports[0].next_wake(), None);
        ports[1].send_request(MonoNs(0), ShardIndex(2), requester(1), read()).expect("room");
        assert_eq!(ports[1].next_wake(), None, "it has been woken already");
        assert!(!ports[2].may_sleep(), "messages wait");
    }

    #[test]
    fn threads_that_sleep_only_when_allowed_lose_no_wake_up() {
        const ROUNDS: u64 = 20_000;
        let mut ports = mesh(ShardCount::new(2), 4);
        let mut server = ports.pop().expect("two ports");
        let mut client = ports.pop().expect("two ports");
        let server_thread = std::thread::spawn(move || {
            let mut served = 0;
            while served < ROUNDS {
                match server.receive() {
                    Some(Message::Request(to, ..)) => {
                        server.send_reply(Reply::at_once(to, Answer::NotFound));
                        served += 1;
                    }
                    Some(_) => unreachable!("the server asks nothing, and there are no peers"),
                    None if server.may_sleep() => {
                        std::thread::park_timeout(std::time::Duration::from_secs(20));
                        server.woke();
                    }
                    None => {}
                }
            }
        });
        let mut answered = 0;
        let mut sent = 0;
        while answered < ROUNDS {
            if sent < ROUNDS {
                let request =
                    Remote::Read(Target { id: TimerId(sent), factor: None, filter: None });
                sent += u64::from(
                    client.send_request(MonoNs(0), ShardIndex(1), requester(0), request).is_ok(),
                );
            }
            if client.next_wake().is_some() {
                server_thread.thread().unpark();
            }
            while let Some(message) = client.receive() {
                assert!(matches!(message, Message::Reply(_)));
                answered += 1;
            }
        }
        server_thread.join().expect("the server ends");
    }
}
