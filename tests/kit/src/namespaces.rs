//! Network namespaces, made with the tools of iproute2. They need root.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;

use super::children::{Guard, Tied, command};

/// A hardware address that no interface has.
const NOBODY: &str = "02:00:00:00:00:99";

/// Runs `ip` with these words.
fn ip(words: &[&str]) -> Result<(), String> {
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

/// A switch in a network namespace of its own. Into it are plugged machines, each of which is a
/// namespace with an interface `eth0`, and this process.
pub struct Switch {
    name: String,
    machines: usize,
    _guard: Guard,
}

impl Drop for Switch {
    fn drop(&mut self) {
        // Deleting a namespace deletes its interfaces, and the other end of each of them.
        all_of(&self.name, self.machines).for_each(|name| drop(ip(&["netns", "del", &name])));
    }
}

impl Switch {
    /// Makes a switch, and machines that have these addresses. This process has the address `home`.
    /// All are of one network of 256 addresses. A name has at most 14 characters.
    ///
    /// # Errors
    ///
    /// What the machine lacks.
    pub fn new(name: &str, home: IpAddr, machines: &[Vec<IpAddr>]) -> Result<Switch, String> {
        let guard = guard(all_of(name, machines.len()));
        let made = Switch { name: name.to_owned(), machines: machines.len(), _guard: guard };
        ip(&["netns", "add", name])?;
        ip(&["-n", name, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", name, "link", "set", "switch", "up"])?;
        let root = &format!("{name}r");
        ip(&["link", "add", root, "type", "veth", "peer", "name", "home", "netns", name])?;
        ip(&["addr", "add", &format!("{home}/24"), "dev", root])?;
        ip(&["link", "set", root, "up"])?;
        made.plug("home")?;
        for (machine, addresses) in machines.iter().enumerate() {
            let (own, port) = (&made.namespace(machine), &made.port(machine));
            ip(&["netns", "add", own])?;
            let veth = ["type", "veth", "peer", "name", "eth0", "netns", own];
            ip(&[&["-n", name, "link", "add", port], &veth[..]].concat())?;
            for address in addresses {
                ip(&["-n", own, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
            }
            ip(&["-n", own, "link", "set", "eth0", "up"])?;
            ip(&["-n", own, "link", "set", "lo", "up"])?;
            made.plug(port)?;
        }
        Ok(made)
    }

    fn plug(&self, port: &str) -> Result<(), String> {
        ip(&["-n", &self.name, "link", "set", port, "master", "switch", "up"])
    }

    /// Returns the namespace of the switch, in which its ports are.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of a machine's port.
    pub fn port(&self, machine: usize) -> String {
        format!("port{machine}")
    }

    fn namespace(&self, machine: usize) -> String {
        of_machine(&self.name, machine)
    }

    /// Returns the words before a command line that is to run on a machine.
    pub fn starter(&self, machine: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(machine)].map(str::to_owned).to_vec()
    }

    /// Pulls the cable of a machine, so that no packet to it or from it arrives, or puts it back.
    pub fn set_plugged(&self, machine: usize, is_plugged: bool) {
        let state = if is_plugged { "up" } else { "down" };
        let set = ip(&["-n", &self.name, "link", "set", &self.port(machine), state]);
        set.expect("it could be built");
    }

    /// Loses all packets of a machine to an address, or lets them arrive again. Packets of that
    /// address still arrive.
    pub fn set_cut(&self, machine: usize, address: IpAddr, is_cut: bool) {
        let (own, address) = (&self.namespace(machine), &address.to_string());
        let of = ["-n", own, "neigh", if is_cut { "replace" } else { "del" }, address];
        let nobody = ["lladdr", NOBODY, "nud", "permanent"];
        let how = if is_cut { &nobody[..] } else { &[] };
        ip(&[&of[..], how, &["dev", "eth0"]].concat()).expect("it could be built");
    }
}

fn of_machine(switch: &str, machine: usize) -> String {
    format!("{switch}-{machine}")
}

/// Returns the namespaces of a switch and of its machines.
fn all_of(switch: &str, machines: usize) -> impl Iterator<Item = String> {
    let of_machines = (0..machines).map(move |machine| of_machine(switch, machine));
    of_machines.chain([switch.to_owned()])
}

/// Removes these namespaces if this process ends before the value is dropped.
fn guard(names: impl Iterator<Item = String>) -> Guard {
    let names: Vec<OsString> = names.map(OsString::from).collect();
    let names: Vec<&OsStr> = names.iter().map(OsString::as_os_str).collect();
    Guard::with("for name; do ip netns del \"$name\"; done", &names)
}
