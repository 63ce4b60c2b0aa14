//! Where the nodes are: on loopback, or in sites, each on a network of its own that can be cut from
//! the others. Clients and callback servers reach all nodes at all times, and are reached by them.

use std::fmt::{Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;

use kit::namespaces::Switch;

/// Nodes of a cluster without other sites: 127.0.0.61 to 127.0.0.64. Three are members at first.
const ALONE: Layout = Layout { sites: 1, nodes: 4 };
const MEMBERS_FIRST: usize = 3;

/// How many sites there are, and how many places for nodes each of them has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub sites: usize,
    nodes: usize,
}

impl Default for Layout {
    fn default() -> Layout {
        ALONE
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        let number = |text: &str| text.parse().ok().filter(|number| (1..=4).contains(number));
        let read = text.split_once('x').and_then(|(sites, nodes)| {
            Some(Layout { sites: number(sites)?, nodes: number(nodes)? })
        });
        let read = read.filter(|layout| layout.sites > 1);
        read.ok_or_else(|| format!("--sites: expected 2x2 or 3x1, up to 4x4, got {text:?}"))
    }
}

impl Display for Layout {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}x{}", self.sites, self.nodes)
    }
}

impl Layout {
    /// Returns how many places for nodes there are.
    pub fn places(self) -> usize {
        self.sites * self.nodes
    }

    /// Returns the site of a place.
    pub fn site(self, place: usize) -> usize {
        place / self.nodes
    }

    /// Returns the places of a site.
    pub fn places_of(self, site: usize) -> Vec<usize> {
        (site * self.nodes..(site + 1) * self.nodes).collect()
    }

    /// Reports whether there are several sites.
    pub fn has_sites(self) -> bool {
        self.sites > 1
    }

    /// Returns the members of a site at first. In a cluster without other sites more can join.
    pub fn members_first(self, site: usize) -> Vec<usize> {
        let mut places = self.places_of(site);
        places.truncate(if self.has_sites() { self.nodes } else { MEMBERS_FIRST });
        places
    }

    /// Reports whether each site is one node.
    pub fn is_single(self) -> bool {
        self.nodes == 1
    }
}

/// The networks of all sites, on one switch.
pub struct Network {
    layout: Layout,
    /// `None`: all nodes are on loopback.
    switch: Option<Switch>,
    /// The addresses of the nodes, by place.
    pub hosts: Vec<IpAddr>,
    /// Where callback servers listen.
    pub sinks: IpAddr,
}

impl Network {
    /// Makes the networks of these sites.
    ///
    /// # Errors
    ///
    /// What the machine lacks.
    pub fn of(layout: Layout) -> Result<Network, String> {
        let number = std::process::id();
        let host = |first: u8, last: usize| match layout.has_sites() {
            // The range for measuring between networks (RFC 2544). The third octet is this
            // process's own.
            true => IpAddr::from([198, 19, number as u8, last as u8]),
            false => IpAddr::from([127, 0, 0, first + last as u8]),
        };
        let hosts: Vec<_> = (0..layout.places()).map(|place| host(50, 11 + place)).collect();
        let of_site = |site| layout.places_of(site).into_iter().map(|place| hosts[place]).collect();
        let sites: Vec<Vec<IpAddr>> = (0..layout.sites).map(of_site).collect();
        let sinks = host(0, 1);
        let make = || Switch::new(&format!("chb{number}"), sinks, &sites);
        let switch = layout.has_sites().then(make).transpose()?;
        Ok(Network { layout, switch, hosts, sinks })
    }

    /// Returns the site that an address is of. Without sites there is one.
    pub fn site_of(&self, address: IpAddr) -> usize {
        let place = self.hosts.iter().position(|host| *host == address);
        place.map_or(0, |place| self.layout.site(place))
    }

    /// Returns the words before the command line of a node.
    pub fn starter(&self, place: usize) -> Vec<String> {
        let site = self.layout.site(place);
        self.switch.as_ref().map(|switch| switch.starter(site)).unwrap_or_default()
    }

    /// Loses all packets of a site to another one, or lets them arrive again. Packets of the other
    /// site still arrive.
    pub fn set_cut(&self, from: usize, to: usize, is_cut: bool) {
        for place in self.layout.places_of(to) {
            self.switch.iter().for_each(|switch| switch.set_cut(from, self.hosts[place], is_cut));
        }
    }
}
