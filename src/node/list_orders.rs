//! Pages of lists, numbers of timers and single timers that the control thread asks a core for, on
//! behalf of operators. The core answers into a place of the order; the control thread looks there.
//! Nobody waits for a lock.

use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crossbeam_queue::ArrayQueue;

use crate::base::ids::ShardIndex;
use crate::base::slots::{SlotKey, Slots};
use crate::core::lists::ListAsked;
use crate::shard::effects::{Answer, Condition, Conditional, Reply, Request, Requester, Target};
use crate::shard::requesters::ORDERED;
use crate::wire::dead_letter::LetterUse;
use crate::wire::timer_action::TimerAction;

/// What an operator asks for.
#[derive(Clone, Debug)]
pub enum Ordered {
    /// A page of a list, or numbers.
    List(ListAsked),
    /// What is to be done with one timer.
    Timer(Target, TimerUse),
}

/// What is to be done with one timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerUse {
    /// It is read.
    Read,
    /// It is deleted.
    Delete,
    /// It is paused, resumed or run.
    Act(TimerAction),
    /// What is to be done with it as a dead letter.
    Letter(LetterUse),
}

impl TimerUse {
    /// The request of a client who wants the same.
    pub fn request(self, target: Target) -> Request<'static> {
        match self {
            TimerUse::Read => Request::Read(target),
            TimerUse::Delete => Request::Delete(target),
            TimerUse::Letter(wanted) => Request::Letter(target, wanted, None),
            TimerUse::Act(action) => Request::Conditional(Conditional {
                target,
                condition: Condition::Present,
                definition: None,
                action: Some(action),
            }),
        }
    }
}

/// No core has seen an order yet.
const WAITS: u8 = 0;
/// A core does it, or has done it.
const BEGUN: u8 = 1;
/// Nobody does it any more.
const GIVEN_UP: u8 = 2;

/// What the control thread wants.
///
/// A core that reads a journal or hangs finds the order when its asker has been told long ago that
/// nobody answers, and has perhaps ordered something else. So either the core begins with it or the
/// control thread gives it up, never both.
#[derive(Debug)]
pub struct ListOrder {
    what: Ordered,
    stage: AtomicU8,
    answer: ArrayQueue<Answer>,
}

impl ListOrder {
    /// An order without an answer.
    pub fn new(what: Ordered) -> Self {
        Self { what, stage: AtomicU8::new(WAITS), answer: ArrayQueue::new(1) }
    }

    /// Waits no longer. Returns whether it is certain that the order will not be done.
    pub fn give_up(&self) -> bool {
        self.stage.compare_exchange(WAITS, GIVEN_UP, AcqRel, Acquire).is_ok()
    }

    /// Whether the order is to be done now, by the caller.
    fn begin(&self) -> bool {
        self.stage.compare_exchange(WAITS, BEGUN, AcqRel, Acquire).is_ok()
    }

    /// Takes the answer, if it is there.
    pub fn answer(&self) -> Option<Answer> {
        self.answer.pop()
    }
}

/// The orders that a core has not answered.
#[derive(Debug, Default)]
pub struct ListOrders(Slots<Arc<ListOrder>>);

impl ListOrders {
    /// Takes an order. Returns what is to be done, and the requester in whose name the core is to
    /// be asked. `None`: the order was given up.
    pub fn begin(
        &mut self,
        own: ShardIndex,
        order: Arc<ListOrder>,
    ) -> Option<(Requester, Ordered)> {
        if !order.begin() {
            return None;
        }
        let what = order.what.clone();
        let SlotKey { index, generation } = self.0.insert(order);
        Some((Requester { shard: own, connection: ORDERED, generation, request: index }, what))
    }

    /// Takes an answer that is for nobody but the control thread.
    pub fn end(&mut self, reply: Reply) {
        let Requester { connection, generation, request, .. } = reply.to;
        let key = SlotKey { index: request, generation };
        if connection == ORDERED
            && let Some(order) = self.0.remove(key)
        {
            // The place was empty, because the core answers once.
            let _ = order.answer.push(reply.answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_finds_its_order() {
        let mut orders = ListOrders::default();
        let asked = ListAsked::Count { has_spans: true };
        let order = Arc::new(ListOrder::new(Ordered::List(asked)));
        let (to, _) = orders.begin(ShardIndex(0), order.clone()).expect("it waits");
        orders.end(Reply::at_once(Requester { connection: 7, ..to }, Answer::NotFound));
        assert_eq!(order.answer(), None, "that was a client's");
        orders.end(Reply::at_once(to, Answer::NotFound));
        orders.end(Reply::at_once(to, Answer::NotFound));
        assert_eq!(order.answer(), Some(Answer::NotFound));
        assert_eq!(order.answer(), None);
    }

    #[test]
    fn an_order_that_was_given_up_is_never_done() {
        let mut orders = ListOrders::default();
        let order = || {
            let asked = ListAsked::Count { has_spans: true };
            Arc::new(ListOrder::new(Ordered::List(asked)))
        };
        let (late, begun) = (order(), order());
        assert!(late.give_up(), "no core has seen it");
        assert!(orders.begin(ShardIndex(0), late).is_none());
        assert!(orders.begin(ShardIndex(0), begun.clone()).is_some());
        assert!(!begun.give_up(), "it is done, or will be");
        assert!(orders.begin(ShardIndex(0), begun).is_none(), "once");
    }
}
