//! Timestamps over Thrift and HTTP, from a node in this process: real cores and real TCP, and an
//! oracle that the test drives as a keeper would.

mod crowd;
mod harness;
mod hostile;
mod http;
mod requests;
mod waiting;
