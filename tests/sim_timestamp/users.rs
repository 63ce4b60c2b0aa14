//! Users. Each operation is a user that calls, waits for the answer or gives up, and calls again.

use chronos::timestamp::Timestamp;

use super::model::{Checked, MS, Range};
use super::servers::Call;
use super::world::{Event, World};

/// How long a user that stays with no server waits for an answer.
const PATIENCE_MS: u64 = 500;

#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    Given(Timestamp),
    Refused,
}

/// A call of a user.
#[derive(Clone, Copy, Debug)]
pub struct Calling {
    operation: usize,
    server: usize,
    /// The highest value that any user had received when the call was sent.
    floor: u64,
    is_over: bool,
}

impl World {
    pub fn user_calls(&mut self, operation: usize) {
        let asked = self.story.operations[operation];
        if self.calls_left[operation] == 0 {
            return;
        }
        self.calls_left[operation] -= 1;
        let server = asked.stays_with.unwrap_or(self.believed);
        let floor = self.model.received;
        self.calling.push(Calling { operation, server, floor, is_over: false });
        let number = self.calling.len() - 1;
        let call = Call { number, count: asked.count };
        let delay_ns = self.users.range(50_000, 2 * MS);
        self.calls.push((server, call));
        self.schedule(self.now_ns + delay_ns, Event::CallArrives(self.calls.len() - 1));
        let patience_ms = match asked.stays_with {
            Some(_) => 3 * self.options.session_ms,
            None => PATIENCE_MS,
        };
        self.schedule(self.now_ns + patience_ms * MS, Event::Impatient(number));
    }

    pub fn reply(&mut self, server: usize, call: Call, outcome: Outcome) {
        let delay_ns = self.users.range(50_000, 2 * MS);
        if self.users.chance(self.options.lost_reply_percent) {
            return;
        }
        // Whether the answer was valid is decided when it leaves, not when it arrives.
        let is_original = self.servers[server].is_original;
        let counts = !is_original || self.is_valid_master(server);
        self.answers.push((server, call, outcome, counts));
        self.schedule(self.now_ns + delay_ns, Event::Answer(self.answers.len() - 1));
    }

    pub fn answer_comes(&mut self, at: usize) -> Checked {
        let (server, call, outcome, counts) = self.answers[at];
        let calling = self.calling[call.number];
        if calling.is_over {
            return Ok(());
        }
        match outcome {
            Outcome::Given(first) => {
                let range = Range { first, count: call.count };
                let numbers = [server as u64, first.0, u64::from(call.count), calling.floor];
                self.trace.add(self.now_ns, "received", numbers);
                let is_original = self.servers[server].is_original;
                if counts {
                    let now_ns = self.now_ns;
                    self.model.receives(now_ns, server, is_original, range, calling.floor)?;
                }
                self.believed = server;
            }
            Outcome::Refused => self.refused += 1,
        }
        self.over(call.number, matches!(outcome, Outcome::Given(_)));
        Ok(())
    }

    pub fn impatient(&mut self, number: usize) {
        if !self.calling[number].is_over {
            self.over(number, false);
        }
    }

    fn over(&mut self, number: usize, is_given: bool) {
        let Calling { operation, server, .. } = self.calling[number];
        self.calling[number].is_over = true;
        let asked = self.story.operations[operation];
        if !is_given && asked.stays_with.is_none() && self.believed == server {
            self.believed = (server + 1) % self.servers.len();
        }
        // A user that was refused does not ask again at once.
        let gap_ns = asked.gap_ns.max(if is_given { 0 } else { 20 * MS });
        self.schedule(self.now_ns + gap_ns, Event::UserCalls(operation));
    }
}
