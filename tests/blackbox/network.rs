//! Where the nodes are: on loopback, or in sites, each on a network of its own that can be cut from
//! the others. Clients and callback servers reach all nodes at all times, and are reached by them.

use std::fmt::{Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;

use kit::children::Guard;
use kit::namespaces::{self, ip};

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
    /// The name of the switch. Empty: all nodes are on loopback.
    name: String,
    /// The addresses of the nodes, by place.
    pub hosts: Vec<IpAddr>,
    /// Where callback servers listen.
    pub sinks: IpAddr,
    _guard: Option<Guard>,
}

impl Drop for Network {
    fn drop(&mut self) {
        // Deleting a namespace deletes its interfaces, and the other end of each of them.
        self.namespaces().for_each(|name| drop(ip(&["netns", "del", &name])));
    }
}

impl Network {
    /// Makes the networks of these sites.
    ///
    /// # Errors
    ///
    /// What the machine lacks.
    pub fn of(layout: Layout) -> Result<Network, String> {
        let loopback = |last| IpAddr::from([127, 0, 0, last]);
        let mut network = Network {
            layout,
            name: String::new(),
            hosts: (0..layout.places()).map(|place| loopback(61 + place as u8)).collect(),
            sinks: loopback(1),
            _guard: None,
        };
        if layout.has_sites() {
            // The range for measuring between networks (RFC 2544). The third octet is this
            // process's own.
            let number = std::process::id();
            let host = |last| IpAddr::from([198, 19, number as u8, last]);
            network.name = format!("chb{number}");
            network.sinks = host(1);
            network.hosts = (0..layout.places()).map(|place| host(11 + place as u8)).collect();
            network._guard = Some(namespaces::guard(network.namespaces()));
            network.build()?;
        }
        Ok(network)
    }

    fn namespaces(&self) -> impl Iterator<Item = String> + use<> {
        let (name, sites) = (self.name.clone(), self.layout.sites);
        let all = (0..sites).map({
            let name = name.clone();
            move |site| format!("{name}-{site}")
        });
        all.chain([name.clone()]).filter(move |_| !name.is_empty())
    }

    fn namespace(&self, site: usize) -> String {
        format!("{}-{site}", self.name)
    }

    fn build(&self) -> Result<(), String> {
        let name = &self.name;
        ip(&["netns", "add", name])?;
        ip(&["-n", name, "link", "add", "switch", "type", "bridge"])?;
        ip(&["-n", name, "link", "set", "switch", "up"])?;
        // The name of an interface has at most 15 characters.
        let root = &format!("{name}r");
        ip(&["link", "add", root, "type", "veth", "peer", "name", "sinks", "netns", name])?;
        ip(&["addr", "add", &format!("{}/24", self.sinks), "dev", root])?;
        ip(&["link", "set", root, "up"])?;
        ip(&["-n", name, "link", "set", "sinks", "master", "switch", "up"])?;
        for site in 0..self.layout.sites {
            let (own, port) = (&self.namespace(site), &format!("port{site}"));
            ip(&["netns", "add", own])?;
            let veth = ["type", "veth", "peer", "name", "eth0", "netns", own];
            ip(&[&["-n", name, "link", "add", port], &veth[..]].concat())?;
            for place in self.layout.places_of(site) {
                let address = format!("{}/24", self.hosts[place]);
                ip(&["-n", own, "addr", "add", &address, "dev", "eth0"])?;
            }
            ip(&["-n", own, "link", "set", "eth0", "up"])?;
            ip(&["-n", own, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", port, "master", "switch", "up"])?;
        }
        Ok(())
    }

    /// Returns the words before the command line of a node.
    pub fn starter(&self, place: usize) -> Vec<String> {
        match self.layout.has_sites() {
            true => {
                let own = self.namespace(self.layout.site(place));
                ["ip", "netns", "exec", &own].map(str::to_owned).to_vec()
            }
            false => Vec::new(),
        }
    }

    /// Loses all packets of a site to another one, or lets them arrive again. Packets of the other
    /// site still arrive.
    pub fn set_cut(&self, from: usize, to: usize, is_cut: bool) {
        for place in self.layout.places_of(to) {
            let (own, address) = (self.namespace(from), self.hosts[place].to_string());
            let done = match is_cut {
                true => namespaces::lose(&own, &address),
                false => namespaces::find(&own, &address),
            };
            done.expect("it could be built");
        }
    }
}
