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
mod dead_letters;
mod dead_letters_beside;
mod deadlines;
mod destinations;
mod flow;
mod harness;
mod head;
mod hosts;
mod http;
mod internal;
mod jobs;
mod limits;
mod lists;
mod memory;
mod options;
mod problems;
mod reports;
mod names;
mod semantics;
mod signatures;
mod sink;
mod stop;
mod timer_headers;
mod token_limits;
mod tokens;
mod trouble;
mod warnings;
