//! Where callbacks may go. A client names a URI, and this node connects to it: without a policy a
//! client could reach what only this node can (metadata services of clouds, databases, other
//! services of the same machine).
//!
//! The order of the questions:
//!
//! 1. Does a node of this deployment listen there ([`ClusterListeners`])? Never.
//! 2. Does a rule of `deny` name the host or the address? No.
//! 3. Is it a link-local address or a metadata service? Only if a rule of `allow` names such
//!    addresses and no others.
//! 4. Are there rules in `allow`? Then one of them must name the host or the address.
//!
//! A host is judged when a client names it, as far as its text tells, and *each address is judged
//! again before a connection is opened to it*: names lead where their owners want, and elsewhere a
//! moment later. Redirects are never followed.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::node::callbacks::listeners::ClusterListeners;
use crate::wire::callback_uri::{Host, host_and_port, is_host_name, parse_authority};

/// Why no callback goes somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// A node of this deployment listens there.
    Node,
    /// A rule of `callbacks.deny`.
    Rule,
    /// A link-local address.
    LinkLocal,
    /// A metadata service of a cloud.
    Metadata,
    /// No rule of `callbacks.allow`.
    NotAllowed,
}

impl Denial {
    /// All of them.
    pub const ALL: [Denial; 5] =
        [Denial::Node, Denial::Rule, Denial::LinkLocal, Denial::Metadata, Denial::NotAllowed];
}

/// Says the reason, as the end of a sentence that begins with the address.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Denial::Node => "where a node of this cluster listens",
            Denial::Rule => "which a rule of callbacks.deny names",
            Denial::LinkLocal => "a link-local address, which no rule of callbacks.allow names",
            Denial::Metadata => "a metadata service, which no rule of callbacks.allow names",
            Denial::NotAllowed => "which no rule of callbacks.allow names",
        })
    }
}

/// A block of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Net {
    ip: IpAddr,
    prefix: u8,
}

impl Net {
    const fn v4(ip: [u8; 4], prefix: u8) -> Net {
        let [a, b, c, d] = ip;
        Net { ip: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    const fn v6(segments: [u16; 8], prefix: u8) -> Net {
        let [a, b, c, d, e, f, g, h] = segments;
        Net { ip: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix }
    }

    /// Whether the block has an address in its canonical form.
    fn has(&self, address: IpAddr) -> bool {
        match (self.ip, address) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(self.prefix);
                (u64::from(net.to_bits()) >> shift) == (u64::from(ip.to_bits()) >> shift)
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(self.prefix);
                let high = |bits: u128| bits.checked_shr(shift).unwrap_or(0);
                high(net.to_bits()) == high(ip.to_bits())
            }
            _ => false,
        }
    }

    /// The block in the form in which addresses are judged, see [`meant`].
    fn meant(self) -> Net {
        let is_whole = self.prefix == if self.ip.is_ipv4() { 32 } else { 128 };
        match (self.ip, meant(self.ip)) {
            (IpAddr::V6(_), ip @ IpAddr::V4(_)) if self.prefix >= 96 => {
                Net { ip, prefix: self.prefix - 96 }
            }
            (_, ip) if is_whole && ip.is_ipv4() == self.ip.is_ipv4() => Net { ip, ..self },
            _ => self,
        }
    }

    fn is_within(&self, other: &Net) -> bool {
        self.prefix >= other.prefix && other.has(self.ip)
    }
}

/// RFC 3927 and RFC 4291 section 2.5.6.
const LINK_LOCAL: [Net; 2] =
    [Net::v4([169, 254, 0, 0], 16), Net::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10)];
/// Services that tell whoever asks from a machine the secrets of that machine: those of Amazon,
/// Google, Microsoft and others at 169.254.169.254; Amazon (two) and Google over IPv6; Alibaba;
/// Oracle; Microsoft.
const METADATA: [Net; 7] = [
    Net::v4([169, 254, 169, 254], 32),
    Net::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
    Net::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128),
    Net::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    Net::v4([100, 100, 100, 200], 32),
    Net::v4([192, 0, 0, 192], 32),
    Net::v4([168, 63, 129, 16], 32),
];

/// Through it a gateway reaches the IPv4 address of the last four bytes (RFC 6052).
const NAT64: Net = Net::v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

/// What a rule names.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Pattern {
    Everything,
    Net(Net),
    /// A host name in lower case.
    Host(String),
    /// All names that end in this text, which begins with a dot.
    Under(String),
}

/// A rule of `callbacks.allow` or `callbacks.deny`: hosts or addresses, and ports.
///
/// `10.0.0.0/8`, `10.1.2.3:8080`, `[2001:db8::]/32`, `a.example.com`, `*.example.com:8000-8999`;
/// `*` for everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    text: String,
    pattern: Pattern,
    ports: RangeInclusive<u16>,
}

/// The text is no rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRule;

impl FromStr for Rule {
    type Err = NoRule;

    fn from_str(text: &str) -> Result<Rule, NoRule> {
        let (pattern, ports) = match text.rsplit_once(':') {
            // The last colon of an IPv6 address stands inside its brackets.
            Some((pattern, ports)) if !ports.contains(']') => (pattern, ports_of(ports)?),
            _ => (text, 0..=u16::MAX),
        };
        let pattern = pattern_of(pattern).ok_or(NoRule)?;
        Ok(Rule { text: text.to_owned(), pattern, ports })
    }
}

fn ports_of(text: &str) -> Result<RangeInclusive<u16>, NoRule> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| number::<u16>(text).filter(|port| *port > 0).ok_or(NoRule);
    let (first, last) = (port(first)?, port(last)?);
    if first <= last { Ok(first..=last) } else { Err(NoRule) }
}

/// A number as people write it: digits alone, the first of several not 0. Elsewhere `010` may mean
/// 8.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    (is_plain || text == "0").then(|| text.parse().ok())?
}

fn pattern_of(text: &str) -> Option<Pattern> {
    if text == "*" {
        return Some(Pattern::Everything);
    }
    let (host, prefix) = match text.split_once('/') {
        Some((host, prefix)) => (host, Some(number::<u8>(prefix)?)),
        None => (text, None),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let ip = match bare {
        Some(bare) => Some(IpAddr::V6(bare.parse().ok()?)),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    };
    if let Some(ip) = ip {
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(bits);
        return (prefix <= bits).then(|| Pattern::Net(Net { ip, prefix }.meant()));
    }
    let (name, is_under) = match host.strip_prefix("*.") {
        Some(name) => (name, true),
        None => (host, false),
    };
    if prefix.is_some() || !is_host_name(name) {
        return None;
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    Some(if is_under { Pattern::Under(format!(".{name}")) } else { Pattern::Host(name) })
}

impl Rule {
    fn names_host(&self, name: &str, port: u16) -> bool {
        let name = name.trim_end_matches('.');
        let ends = |end: &str| {
            let begins = name.len().checked_sub(end.len());
            let tail = begins.and_then(|begins| name.as_bytes().get(begins..));
            tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end.as_bytes()))
        };
        self.ports.contains(&port)
            && match &self.pattern {
                Pattern::Everything => true,
                Pattern::Net(_) => false,
                Pattern::Host(host) => name.eq_ignore_ascii_case(host),
                Pattern::Under(end) => ends(end),
            }
    }

    fn names_address(&self, ip: IpAddr, port: u16) -> bool {
        self.ports.contains(&port)
            && match &self.pattern {
                Pattern::Everything => true,
                Pattern::Net(net) => net.has(ip),
                Pattern::Host(_) | Pattern::Under(_) => false,
            }
    }

    /// Whether the rule names this address among addresses of `kind` only, such as all link-local
    /// ones.
    fn names_of_kind(&self, ip: IpAddr, port: u16, kind: &Net) -> bool {
        let Pattern::Net(net) = &self.pattern else { return false };
        net.is_within(kind) && self.names_address(ip, port)
    }

    fn is_of_addresses(&self) -> bool {
        matches!(self.pattern, Pattern::Net(_))
    }
}

/// The rules of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Where callbacks may go. Empty: everywhere that is not denied.
    pub allow: Vec<Rule>,
    /// Where no callback goes.
    pub deny: Vec<Rule>,
}

/// The texts of rules, as they were configured.
pub fn texts_of(rules: &[Rule]) -> Vec<String> {
    rules.iter().map(|rule| rule.text.clone()).collect()
}

/// Where callbacks may go: the rules, and where the nodes of the deployment listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Destinations {
    /// Where nodes of the deployment listen.
    pub listeners: ClusterListeners,
    /// The rules of the configuration.
    pub rules: Rules,
}

impl Destinations {
    /// Judges the authority that a client wrote. Without rules most authorities cost a look at
    /// their port and at their first bytes.
    #[inline]
    pub fn judge_authority(&self, authority: &str) -> Result<(), Denial> {
        if self.listeners.has_authority(authority) {
            return Err(Denial::Node);
        }
        let Rules { allow, deny } = &self.rules;
        let is_plain =
            allow.is_empty() && deny.is_empty() && !may_be_special(host_and_port(authority));
        if is_plain { Ok(()) } else { self.judge_text(authority) }
    }

    fn judge_text(&self, authority: &str) -> Result<(), Denial> {
        // What cannot be parsed is refused for that.
        let Ok((host, port)) = parse_authority(authority) else { return Ok(()) };
        match host {
            Host::Address(ip) => self.judge(None, SocketAddr::new(ip, port)),
            Host::Name(name) => {
                let Rules { allow, deny } = &self.rules;
                if deny.iter().any(|rule| rule.names_host(name, port)) {
                    return Err(Denial::Rule);
                }
                let may_be = |rule: &Rule| rule.is_of_addresses() || rule.names_host(name, port);
                let is_allowed = allow.is_empty() || allow.iter().any(may_be);
                if is_allowed { Ok(()) } else { Err(Denial::NotAllowed) }
            }
        }
    }

    /// Judges an address to which a connection is to be opened. `name`: the host's name, if it has
    /// one.
    pub fn judge(&self, name: Option<&str>, address: SocketAddr) -> Result<(), Denial> {
        let (ip, port) = (meant(address.ip()), address.port());
        if self.listeners.has(SocketAddr::new(ip, port)) {
            return Err(Denial::Node);
        }
        let names = |rule: &Rule| {
            rule.names_address(ip, port) || name.is_some_and(|name| rule.names_host(name, port))
        };
        let Rules { allow, deny } = &self.rules;
        if deny.iter().any(names) {
            return Err(Denial::Rule);
        }
        // The metadata services first: the most precise reason is told.
        let kinds = METADATA.iter().map(|kind| (kind, Denial::Metadata));
        let kinds = kinds.chain(LINK_LOCAL.iter().map(|kind| (kind, Denial::LinkLocal)));
        let mut kinds = kinds.filter(|(kind, _)| kind.has(ip));
        if let Some((_, denial)) = kinds.clone().next() {
            let is_named =
                kinds.any(|(kind, _)| allow.iter().any(|it| it.names_of_kind(ip, port, kind)));
            return if is_named { Ok(()) } else { Err(denial) };
        }
        let is_allowed = allow.is_empty() || allow.iter().any(names);
        if is_allowed { Ok(()) } else { Err(Denial::NotAllowed) }
    }
}

/// Which machine is reached: an IPv4 address may stand inside one of IPv6 (also behind the prefix
/// of RFC 6052), and the kernel takes the unspecified address for this machine.
fn meant(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if NAT64.has(ip.into()) => Ipv4Addr::from_bits(ip.to_bits() as u32).into(),
        ip => ip,
    }
}

/// Whether the text of an authority may name an address that is denied without a rule. `true` for
/// all literal addresses of IPv6.
fn may_be_special(authority: &str) -> bool {
    let first = ["169.254.", "100.100.100.200", "192.0.0.192", "168.63.129.16", "["];
    first.iter().any(|first| authority.starts_with(first))
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
