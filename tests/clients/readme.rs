//! The example of a client's README, as the reader types the example but for the addresses.

use std::net::{IpAddr, Ipv4Addr};

use kit::documents::read;
use kit::ports::free_port;

use super::nodes::Nodes;

/// Addresses of the example.
const NODE: &str = "http://127.0.0.1:7253";
const RECEIVER: &str = "9000";
/// Lines of the text beside the example.
const LINES_MAX: usize = 12;

/// The first block of code of a README, with the addresses of the story.
pub fn example(file: &str, nodes: &Nodes) -> String {
    let text = read(file);
    let prose = text.lines().filter(|line| !line.starts_with("    ") && !line.is_empty());
    assert!(prose.count() <= LINES_MAX, "{file} is short");
    let lines = text.lines().skip_while(|line| !line.starts_with("    "));
    let block = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    let code: Vec<&str> = block.map(|line| line.get(4..).unwrap_or_default()).collect();
    let code = code.join("\n");
    assert!(code.contains(NODE) && code.contains(RECEIVER), "{code}");
    let port = free_port(&[IpAddr::V4(Ipv4Addr::LOCALHOST)]);
    code.replace(NODE, &nodes.urls()).replace(RECEIVER, &port.to_string())
}
