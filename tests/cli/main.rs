//! The command line against real nodes: what each command prints, as text and as JSON, and its exit
//! code; over TLS and with tokens; names and answers that are hostile to a terminal.

mod clusters;
mod doctor;
mod failures;
mod harness;
mod hostile;
mod operators;
mod secured;
mod timers;
mod top;
mod usage;
