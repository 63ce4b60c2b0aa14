//! Clocks: the only place that reads them.

use crate::base::time::Now;

/// Both clocks now (CLOCK_MONOTONIC and CLOCK_REALTIME). Cost: two vDSO calls, about 40 ns.
pub fn now() -> Now {
    todo!()
}
