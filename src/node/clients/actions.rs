//! Requests that do something with a timer: pause, resume, run-now.

use crate::base::time::Now;
use crate::shard::effects::Requester;
use crate::wire::request_head::Method;

use crate::core::Core;
use crate::node::clients::answers::{Persistence, write_not_allowed};
use crate::node::clients::caller::Caller;
use crate::node::clients::request_line::RequestLine;
use crate::node::clients::service::{NO_PATH, Served, Service};

impl Service {
    /// Takes a request for an action. What was done with a timer has room like a timer, so it
    /// counts towards the rate of the token's name.
    #[cold]
    pub(super) fn act(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        line: &RequestLine,
        out: &mut Vec<u8>,
    ) -> Served {
        let persistence = line.persistence;
        if line.method != Method::Post {
            self.bad += 1;
            write_not_allowed(out, "POST", persistence);
            return Served::Written;
        }
        let timer = match caller.addressed {
            Some(Ok(timer)) => timer,
            Some(Err(reason)) => return self.refuse(reason, persistence, out),
            None => return self.settle(Err((404, NO_PATH.into())), persistence, out),
        };
        if let Some(quota) = caller.quota
            && self.is_beyond_rate(now, quota, persistence, out)
        {
            return Served::Written;
        }
        core.request(now, from, timer.write(None));
        Served::Later
    }

    /// Refuses a request whose head names no timer, or asks for what does not go.
    #[cold]
    pub(super) fn refuse(
        &mut self,
        reason: &str,
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> Served {
        self.settle(Err((400, reason.to_owned())), persistence, out)
    }
}
