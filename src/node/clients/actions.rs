//! Requests that do something with a timer: pause, resume, run-now.

use crate::base::time::Now;
use crate::shard::effects::Requester;

use crate::core::Core;
use crate::node::clients::answers::Persistence;
use crate::node::clients::service::{Caller, NO_PATH, Served, Service};

impl Service {
    /// Takes a POST for an action. What was done with a timer has room like a timer, so it counts
    /// towards the rate of the token's name.
    #[cold]
    pub(super) fn act(
        &mut self,
        (now, core): (Now, &mut Core),
        (from, caller): (Requester, Caller<'_>),
        persistence: Persistence,
        out: &mut Vec<u8>,
    ) -> Served {
        let timer = match caller.addressed {
            Some(Ok(timer)) => timer,
            Some(Err(reason)) => {
                return self.settle(Err((400, reason.clone())), persistence, out);
            }
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
}
