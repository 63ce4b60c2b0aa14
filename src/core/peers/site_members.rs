//! The nodes of a site, as the site tells them to another site that is configured with the address
//! of one of them. The other site asks with `GET /ping?members`, first on every connection and then
//! with every heartbeat. The site refuses a caller that is no member of a site known to it (403).
//!
//! ```text
//! site site2
//! node 10.2.0.1:7253
//! node node-2.example:7253
//! address 10.2.0.2
//! ```
//!
//! Names are written as the site's members write them. Addresses are those to which the site
//! resolves the members that it configures by name.

// May panic: expectations 4.
// Why it does not: found 1, memory 3.

use std::fmt::Write;
use std::net::IpAddr;

use crate::base::limits::PEERS_MAX;

use crate::core::peers::address::{PeerAddress, place_of};
use crate::wire::text::Text;

/// The query of the request.
pub const QUERY: &str = "members";
/// Most bytes of an answer that are read.
pub const ANSWER_BYTES_MAX: usize = 128 << 10;
/// Most bytes of a name: a host name has at most 253, a port 6.
const NAME_BYTES_MAX: usize = 260;
/// Most addresses that are told: some for each member.
const ADDRESSES_MAX: usize = 4 * PEERS_MAX;

/// The nodes of another site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteMembers {
    /// What the site calls itself.
    pub site: String,
    /// The names of the site's members.
    pub nodes: Vec<String>,
    /// The addresses of the members that the site configures by host names.
    pub addresses: Vec<IpAddr>,
}

impl SiteMembers {
    /// Appends the answer's body.
    pub fn write<'n>(
        site: &str,
        nodes: impl Iterator<Item = &'n str>,
        addresses: impl Iterator<Item = IpAddr>,
        out: &mut Vec<u8>,
    ) {
        writeln!(Text(out), "site {site}").expect("memory does not fail");
        nodes.for_each(|node| writeln!(Text(out), "node {node}").expect("memory does not fail"));
        addresses.take(ADDRESSES_MAX).for_each(|address| {
            writeln!(Text(out), "address {address}").expect("memory does not fail");
        });
    }

    /// Reads an answer's body. `None`: the body tells no members, as an original node's.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        let is_name = |name: &&str| {
            (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic())
        };
        let mut lines = text.lines();
        let site = lines.next()?.strip_prefix("site ").filter(is_name)?;
        let mut told = Self { site: site.to_owned(), ..Self::default() };
        for line in lines {
            match line.split_once(' ')? {
                ("node", name) if is_name(&name) && told.nodes.len() < PEERS_MAX => {
                    told.nodes.push(name.to_owned());
                }
                ("address", text) if told.addresses.len() < ADDRESSES_MAX => {
                    told.addresses.push(text.parse().ok()?);
                }
                _ => return None,
            }
        }
        Some(told)
    }

    /// Returns the addresses from which the site's members call, as far as they are known.
    pub fn callers(&self) -> impl Iterator<Item = IpAddr> {
        let literal = self.nodes.iter().filter_map(|name| match place_of(name, 0) {
            PeerAddress::At(address) => Some(address.ip()),
            PeerAddress::Named(..) => None,
        });
        literal.chain(self.addresses.iter().copied()).map(|address| address.to_canonical())
    }
}

/// Where another site is dialled: at its configured addresses, and at nodes that it told.
#[derive(Debug)]
pub(crate) struct SiteBook {
    configured: Vec<String>,
    told: SiteMembers,
    /// Counts to the address that is dialled.
    choice: usize,
}

impl SiteBook {
    /// A book of configured addresses, before the site told any node.
    pub fn new<'a>(configured: impl Iterator<Item = &'a str>) -> Self {
        let configured = configured.map(str::to_owned).collect();
        Self { configured, told: SiteMembers::default(), choice: 0 }
    }

    /// Takes the configured addresses. If they changed, the book forgets what the site told.
    pub fn configure<'a>(&mut self, configured: impl Iterator<Item = &'a str> + Clone) {
        if !configured.clone().eq(self.configured.iter().map(String::as_str)) {
            *self = Self::new(configured);
        }
    }

    /// What the site told last.
    pub fn told(&self) -> &SiteMembers {
        &self.told
    }

    /// Takes what the site told. Returns whether it is news.
    pub fn take(&mut self, told: SiteMembers) -> bool {
        let is_news = self.told != told;
        self.told = told;
        is_news
    }

    /// The address at which the site is dialled at present.
    pub fn address(&self) -> &str {
        let others = self.told.nodes.iter().filter(|node| !self.configured.contains(*node));
        let mut all = self.configured.iter().chain(others);
        let count = all.clone().count();
        all.nth(self.choice % count).expect("less than there are")
    }

    /// Turns to the next address, because the present one could not be talked to.
    pub fn turn(&mut self) {
        self.choice = self.choice.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(told: &SiteMembers) -> Vec<u8> {
        let mut body = Vec::new();
        let nodes = told.nodes.iter().map(String::as_str);
        SiteMembers::write(&told.site, nodes, told.addresses.iter().copied(), &mut body);
        body
    }

    #[test]
    fn what_is_written_is_read() {
        let told = SiteMembers {
            site: "site2".into(),
            nodes: vec!["10.2.0.1:7253".into(), "[fd00::1]:80".into(), "node-2".into()],
            addresses: vec!["10.2.0.2".parse().expect("an address")],
        };
        assert_eq!(SiteMembers::parse(&written(&told)), Some(told.clone()));
        let callers: Vec<String> = told.callers().map(|address| address.to_string()).collect();
        assert_eq!(callers, ["10.2.0.1", "fd00::1", "10.2.0.2"]);
    }

    #[test]
    fn a_site_is_dialled_at_each_of_its_nodes_in_turn() {
        let mut book = SiteBook::new(["10.2.0.1:7253"].into_iter());
        book.turn();
        assert_eq!(book.address(), "10.2.0.1:7253");
        let nodes = vec!["10.2.0.1:7253".into(), "10.2.0.2:7253".into(), "10.2.0.3:7253".into()];
        let told = SiteMembers { site: "b".into(), nodes, addresses: Vec::new() };
        assert!(book.take(told.clone()) && !book.take(told));
        let mut seen: Vec<String> = (0..3)
            .map(|_| {
                book.turn();
                book.address().to_owned()
            })
            .collect();
        seen.sort();
        assert_eq!(seen, ["10.2.0.1:7253", "10.2.0.2:7253", "10.2.0.3:7253"]);
        book.configure(["10.2.0.1:7253"].into_iter());
        assert_eq!(book.told().nodes.len(), 3);
        book.configure(["10.3.0.1:7253"].into_iter());
        assert_eq!((book.address(), book.told().nodes.len()), ("10.3.0.1:7253", 0));
    }

    #[test]
    fn anything_else_tells_nothing() {
        let bodies: [&[u8]; 8] = [
            b"OK",
            b"",
            b"site ",
            b"site a b\n",
            b"site a\nnode \n",
            b"site a\naddress 10.0.0\n",
            b"site a\nother x\n",
            b"site a\n\xff\n",
        ];
        for body in bodies {
            assert_eq!(SiteMembers::parse(body), None, "{body:?}");
        }
        let many: String = (0..=PEERS_MAX).map(|node| format!("node n{node}\n")).collect();
        assert_eq!(SiteMembers::parse(format!("site a\n{many}").as_bytes()), None);
    }

    proptest! {
        #[test]
        fn bytes_never_panic_and_are_read_as_they_are_written(
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Some(told) = SiteMembers::parse(&body) {
                prop_assert_eq!(SiteMembers::parse(&written(&told)), Some(told));
            }
        }
    }
}
