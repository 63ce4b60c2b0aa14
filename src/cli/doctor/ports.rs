//! Whether the addresses of a configuration are free, or who has them.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};

use super::check::Check;
use crate::cli::shown::clean;
use crate::control::config::settings::Config;

/// The state of a listening socket in /proc/net/tcp.
const LISTENING: &str = "0A";

/// Looks at each address at which a node of this configuration listens.
pub(super) fn checks(config: &Config) -> Vec<Check> {
    addresses(config).into_iter().map(|(key, address)| look(key, address)).collect()
}

fn addresses(config: &Config) -> Vec<(&'static str, SocketAddr)> {
    let mut addresses = Vec::new();
    if config.opens_listen() {
        addresses.push(("[node] listen", config.node.listen));
    }
    let of_tls = config.node.tls.as_ref().and_then(|tls| tls.listen);
    addresses.extend(of_tls.map(|address| ("[node] listen_tls", address)));
    if config.admin.enabled {
        addresses.push(("[admin] listen", config.admin.listen));
    }
    addresses.extend(config.admin.listen_tls.map(|address| ("[admin] listen_tls", address)));
    if let Some(timestamp) = &config.node.timestamp {
        addresses.extend(timestamp.listen.map(|address| ("[timestamp] listen", address)));
        addresses.extend(timestamp.listen_tls.map(|address| ("[timestamp] listen_tls", address)));
    }
    addresses
}

fn look(key: &str, address: SocketAddr) -> Check {
    let what = format!("{key} {address}");
    let error = match TcpListener::bind(address) {
        Ok(_) => return Check::ok(what, "free"),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::AddrInUse => taken(what, key, address),
        ErrorKind::AddrNotAvailable => Check::fail(
            what,
            "this machine has no such address",
            format!("set {key} to an address of ip -br address"),
        ),
        ErrorKind::PermissionDenied => Check::fail(
            what,
            "this user may not listen there",
            "take a port from 1024 on, or give the unit CAP_NET_BIND_SERVICE",
        ),
        _ => Check::fail(what, format!("nobody can listen there: {error}"), format!("set {key}")),
    }
}

fn taken(what: String, key: &str, address: SocketAddr) -> Check {
    let port = address.port();
    match owner(address) {
        Some((pid, name)) if name == "chronos" => {
            Check::ok(what, format!("a node listens there already (process {pid})"))
        }
        Some((pid, name)) => Check::fail(
            what,
            format!("taken by process {pid} ({})", clean(&name)),
            format!("end that process, or set {key} to another port"),
        ),
        None => Check::fail(
            what,
            "taken, by a process that this user may not look at",
            format!("type: ss -ltnp 'sport = :{port}' as root; end it, or set {key}"),
        ),
    }
}

/// The process that listens at an address, or at all addresses: its number and name.
fn owner(address: SocketAddr) -> Option<(u32, String)> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables.iter().filter_map(|path| fs::read_to_string(path).ok());
    let inodes: Vec<String> = texts.flat_map(|text| listening_at(&text, address)).collect();
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let mut links = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
        if links.any(|link| wanted.iter().any(|inode| link.as_os_str() == inode.as_str())) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some((pid, name.trim().to_owned()));
        }
    }
    None
}

/// The inodes of the sockets in /proc/net/tcp that keep others from listening at this address.
fn listening_at(table: &str, address: SocketAddr) -> Vec<String> {
    let wanted = address.ip().to_canonical();
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.rsplit_once(':')?;
        let ip = ip_of(ip)?;
        let is_port = u16::from_str_radix(port, 16) == Ok(address.port());
        let is_ip = ip == wanted || ip.is_unspecified() || wanted.is_unspecified();
        let is_it = is_port && is_ip && fields.get(3) == Some(&LISTENING);
        fields.get(9).filter(|_| is_it).map(|inode| (*inode).to_owned())
    };
    table.lines().skip(1).filter_map(inode).collect()
}

/// Reads an address of /proc/net/tcp: words of 32 bits in the machine's order of bytes.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let word = u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    if hex.len() == 8 {
        return word(0).map(IpAddr::from);
    }
    let mut bytes = [0; 16];
    for (at, chunk) in bytes.chunks_mut(4).enumerate() {
        chunk.copy_from_slice(&word(at)?);
    }
    (hex.len() == 32).then(|| IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::check::Verdict;

    #[test]
    fn who_listens_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        assert_eq!(owner(address).map(|(pid, _)| pid), Some(std::process::id()));
        let check = look("[node] listen", address);
        assert_eq!(check.verdict, Verdict::Fail, "{check:?}");
        drop(listener);
        assert_eq!(look("[node] listen", address).verdict, Verdict::Ok);
        let nobodys: SocketAddr = "192.0.2.1:7253".parse().expect("an address");
        assert!(look("[node] listen", nobodys).found.contains("no such address"));
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let table = "sl local_address rem_address st queues tr retrnsmt uid timeout inode\n\
                     0: 0100007F:1C55 00000000:0000 0A 0:0 00:0 0 0 0 123 1\n\
                     1: 0100007F:1C55 00000000:0000 01 0:0 00:0 0 0 0 124 1\n\
                     2: 0200007F:1C55 00000000:0000 0A 0:0 00:0 0 0 0 125 1\n\
                     3: 00000000:1C56 00000000:0000 0A 0:0 00:0 0 0 0 126 1\nnonsense\n";
        let six = "sl local_address remote_address st queues tr retrnsmt uid timeout inode\n\
                   0: 00000000000000000000000001000000:1C55 0:0 0A 0:0 00:0 0 0 0 127 1\n\
                   1: 0000000000000000FFFF00000100007F:1C57 0:0 0A 0:0 00:0 0 0 0 128 1\n";
        let at =
            |table: &str, address: &str| listening_at(table, address.parse().expect("an address"));
        assert_eq!(at(table, "127.0.0.1:7253"), ["123"]);
        assert_eq!(at(table, "127.0.0.2:7253"), ["125"]);
        assert_eq!(at(table, "127.0.0.3:7253"), [""; 0], "the port of others");
        assert_eq!(at(table, "0.0.0.0:7253"), ["123", "125"]);
        assert_eq!(at(table, "127.0.0.3:7254"), ["126"], "it holds all addresses");
        assert_eq!(at(table, "127.0.0.1:1"), [""; 0]);
        assert_eq!(at(six, "[::1]:7253"), ["127"]);
        assert_eq!(at(six, "127.0.0.1:7255"), ["128"]);
    }
}
