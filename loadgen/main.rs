mod arrival;
mod client;
mod creator;
mod frames;
mod ledger;
mod random;
mod recorder;
mod request;
mod server;
mod server_cpu;
mod sessions;
mod sink;
fn main() {}
