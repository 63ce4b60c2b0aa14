//! What cores and the control thread tell each other of destinations.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::base::destinations::DestinationTable;
use crate::base::ids::PeerIndex;
use crate::base::time::Now;
use crate::node::callbacks::failing::{Failing, FailingHosts};
use crate::shard::Shard;
use crate::shard::effects::HostState;
use crate::wire::destination::destination_to;

/// Most messages of peers that wait for the control thread. It looks four times a second; peers
/// tell again what was lost.
const HEARD_MAX: usize = 256;
/// Hosts that a core looks at in a turn. Each costs some tens of nanoseconds.
const HOSTS_PER_TURN: usize = 512;
/// Most surveys that wait for a core. Whoever asked for another one gets no answer of the core.
const SURVEYS_MAX: usize = 16;

/// The rules that hold from now on, and what the other nodes are to be told.
#[derive(Debug)]
pub struct DestinationRules {
    /// The rules.
    pub table: Arc<DestinationTable>,
    /// Messages for all other nodes of the site, each a number of lines (`wire::destination`). The
    /// first core tells them.
    pub tell: Vec<Box<[u8]>>,
    /// Messages with all orders, for nodes that return.
    pub all: Arc<Vec<Box<[u8]>>>,
    /// Takes what other nodes tell.
    pub heard: Heard,
}

/// What other nodes told of orders, for the control thread.
#[derive(Clone, Debug)]
pub struct Heard(Arc<ArrayQueue<Told>>);

/// A node, and lines of orders that it told. No line: it has told all that it knows.
type Told = (PeerIndex, Box<[u8]>);

impl Default for Heard {
    fn default() -> Self {
        Self(Arc::new(ArrayQueue::new(HEARD_MAX)))
    }
}

impl Heard {
    /// Adds a message. When the queue is full it is lost.
    pub fn push(&self, told: Told) {
        let _ = self.0.push(told);
    }

    /// Takes the next message.
    pub fn next(&self) -> Option<Told> {
        self.0.pop()
    }
}

/// A question to all cores: how are callback hosts?
#[derive(Debug)]
pub struct Survey {
    /// The destination that is asked for, in its one form; `None`: all.
    name: Option<String>,
    parts: ArrayQueue<SurveyPart>,
}

/// What a core answers.
#[derive(Debug, Default)]
pub struct SurveyPart {
    /// Hosts at which pops wait, run or fail.
    pub hosts: Vec<HostState>,
    /// Hosts that have failed since their last success.
    pub failing: Vec<(Box<str>, Failing)>,
}

impl Survey {
    /// A question to so many cores, for one destination or for all.
    pub fn new(cores: usize, name: Option<&str>) -> Self {
        Self { name: name.map(str::to_owned), parts: ArrayQueue::new(cores.max(1)) }
    }

    /// Takes the answer of a core.
    pub fn next(&self) -> Option<SurveyPart> {
        self.parts.pop()
    }

    fn asks_for(&self, authority: &str) -> bool {
        let Some(name) = &self.name else { return true };
        let to = destination_to(authority);
        *name == to || to.rsplit_once(':').is_some_and(|(host, _)| name == host)
    }
}

/// What a core has to do for operators: where it passes on what peers tell, and questions.
#[derive(Debug, Default)]
pub struct Duties {
    /// `None`: the control thread does not hear yet.
    pub heard: Option<Heard>,
    /// Questions of operators.
    pub surveys: Surveys,
}

/// The questions that a core has not answered.
#[derive(Debug, Default)]
pub struct Surveys(VecDeque<(Arc<Survey>, usize, Vec<HostState>)>);

impl Surveys {
    /// Takes a question.
    pub fn push(&mut self, survey: Arc<Survey>) {
        if self.0.len() < SURVEYS_MAX {
            self.0.push_back((survey, 0, Vec::new()));
        }
    }

    /// Whether a question waits.
    pub fn has_more(&self) -> bool {
        !self.0.is_empty()
    }

    /// Looks at a portion of the hosts.
    pub fn go_on(&mut self, now: Now, shard: &Shard, failing: &FailingHosts) {
        let Some((survey, from, found)) = self.0.front_mut() else { return };
        let portion = (*from, HOSTS_PER_TURN);
        match shard.survey(now, portion, |authority| survey.asks_for(authority), found) {
            Some(next) => *from = next,
            None => {
                let failing = failing.all().filter(|(authority, _)| survey.asks_for(authority));
                let failing = failing.map(|(authority, how)| (authority.into(), *how)).collect();
                let hosts = std::mem::take(found);
                let _ = survey.parts.push(SurveyPart { hosts, failing });
                self.0.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survey_asks_for_a_host_at_one_port_or_at_all() {
        let asks = |name: &str, authority: &str| Survey::new(1, Some(name)).asks_for(authority);
        assert!(asks("a:80", "A") && asks("a", "A:81") && asks("a:443", "https://a"));
        assert!(!asks("a:80", "a:81") && !asks("b", "a"));
        assert!(Survey::new(1, None).asks_for("a"));
    }
}
