//! The public API of one node, seen from outside: the real binary in a process of its own, real
//! TCP, nothing of the project linked in. There is one file per concern. `harness` and `sink` are
//! the two ends that the node talks to.

mod bad_http;
mod bad_timers;
mod calendar;
mod bulk;
mod callbacks;
mod console;
mod contract;
mod control;
mod deadlines;
mod destinations;
mod flow;
mod harness;
mod hosts;
mod http;
mod internal;
mod limits;
mod lists;
mod memory;
mod options;
mod problems;
mod names;
mod semantics;
mod signatures;
mod sink;
mod stop;
mod token_limits;
mod tokens;
