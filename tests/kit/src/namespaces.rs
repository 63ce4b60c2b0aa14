//! Network namespaces, made with the tools of iproute2. They need root.

use std::ffi::{OsStr, OsString};

use super::children::{Guard, Tied, command};

/// A hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:00:99";

/// Runs `ip` with these words.
///
/// # Errors
///
/// What `ip` said, or why it does not run.
pub fn ip(words: &[&str]) -> Result<(), String> {
    tool("ip", words)
}

/// Runs a tool with these words.
///
/// # Errors
///
/// What the tool said, or why it does not run.
pub fn tool(name: &str, words: &[&str]) -> Result<(), String> {
    let told = |text: &str| format!("{name} {}: {}", words.join(" "), text.trim());
    match command(name).args(words).output_tied() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(told(&String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(told(&error.to_string())),
    }
}

/// Removes these namespaces if this process ends before the value is dropped.
pub fn guard(names: impl Iterator<Item = String>) -> Guard {
    let names: Vec<OsString> = names.map(OsString::from).collect();
    let names: Vec<&OsStr> = names.iter().map(OsString::as_os_str).collect();
    Guard::with("for name; do ip netns del \"$name\"; done", &names)
}

/// Loses packets of a namespace, whose interface is `eth0`, to an address on its network. Packets
/// of that address still arrive.
///
/// # Errors
///
/// What `ip` said.
pub fn lose(namespace: &str, address: &str) -> Result<(), String> {
    let of = ["-n", namespace, "neigh", "replace", address, "lladdr", NOBODY];
    ip(&[&of[..], &["dev", "eth0", "nud", "permanent"]].concat())
}

/// Lets packets of a namespace to an address arrive again.
///
/// # Errors
///
/// What `ip` said.
pub fn find(namespace: &str, address: &str) -> Result<(), String> {
    ip(&["-n", namespace, "neigh", "del", address, "dev", "eth0"])
}
