//! Who may say over TLS that it is a node of another site: nobody by its certificate alone.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use kit::client::{Answer, read_answer};
use kit::runner::Story;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::certificates::{Authority, Kind, dial, host_of};
use super::files::{Roles, cluster_file, replace};
use super::harness::{Cluster, Setup, until};

pub const STORIES: &[Story] = &[
    ("a_certificate_makes_nobody_a_node_of_another_site", a_certificate_makes_nobody_one),
    ("without_sites_nobody_is_a_node_of_one", without_sites_nobody_is_a_node_of_one),
];

/// A connection of a dialler over TLS.
type Line = StreamOwned<ClientConnection, TcpStream>;

/// Who dials, and what it says of itself.
struct Dialler<'c> {
    config: &'c Arc<ClientConfig>,
    from: SocketAddr,
    /// The name of the node.
    name: &'c str,
    /// The header line that tells its site, or nothing.
    site: &'c str,
}

impl Dialler<'_> {
    /// Asks a node to open the API between nodes.
    fn open(&self, to: SocketAddr) -> std::io::Result<(Line, Answer)> {
        let mut line = dial(self.config, self.from, to);
        write!(
            line,
            "GET /peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: chronos-site/1\r\n\
             X-Chronos-Name: {}\r\nX-Chronos-Instance: 9\r\nX-Chronos-Incarnation: bad\r\n\
             X-Chronos-View: 1\r\nX-Chronos-Shard: 0\r\nX-Chronos-Shards: 1\r\n{}\r\n",
            self.name, self.site
        )?;
        let answer = read_answer(&mut line)?;
        Ok((line, answer))
    }

    /// Waits until a node refuses with a sentence that has this in it. It never opens. Each core is
    /// told on its own: one that does not know the address yet refuses in the clear.
    fn assert_refused(&self, to: SocketAddr, told: &str) {
        let what = format!("{} {:?} to be refused: {told}", self.name, self.site);
        until(&what, || {
            let (_, answer) = self.open(to).ok()?;
            assert_eq!(answer.status, 403, "{} {:?}: {answer:?}", self.name, self.site);
            answer.header("Reason").expect("a reason").contains(told).then_some(())
        });
    }

    /// Waits until a node opens the API. Returns the connection.
    fn await_open(&self, to: SocketAddr) -> Line {
        until("a node of the site to be let in", || {
            self.open(to).ok().filter(|(_, answer)| answer.status == 101).map(|(line, _)| line)
        })
    }
}

fn members(line: &mut Line) -> Answer {
    write!(line, "GET /ping?members HTTP/1.1\r\nHost: x\r\n\r\n").expect("taken");
    read_answer(line).expect("an answer")
}

fn equip(cluster: &mut Cluster, authority: &Authority, places: &[usize]) {
    for place in places {
        let good = authority.sign(host_of(&cluster.names[*place].clone()), Kind::Good);
        authority.equip(cluster, *place, "required", &good);
    }
}

/// Nodes 1 and 2 are site 1, nodes 3 and 4 are site 2. Site 1 is configured with node 3 alone. The
/// story plays nodes of site 2, first while none of them runs.
fn a_certificate_makes_nobody_one() {
    let authority = Authority::new();
    let mut cluster = Cluster::with(Setup { two_sites: true, ..Setup::default() });
    equip(&mut cluster, &authority, &[0, 1, 2, 3]);
    cluster.begin(&[0, 1]);
    let names = cluster.names.clone();
    let shows = |name: &str, kind| authority.dialler(Some(&authority.sign(name, kind)));
    let configs = [0, 1, 2, 3].map(|place| shows(host_of(&names[place]), Kind::Good));
    let to = cluster.address(0);
    let ours = "X-Chronos-Site: site2\r\n";
    let of = |place: usize, site| Dialler {
        config: &configs[place],
        from: cluster.address(place),
        name: &names[place],
        site,
    };
    of(2, "").assert_refused(to, "X-Chronos-Site");
    of(2, "X-Chronos-Site: nosuchsite\r\n").assert_refused(to, "[sites] remote");
    of(2, "X-Chronos-Site: site1\r\n").assert_refused(to, "[sites] remote");
    // A member of this site is none of the other, nor is a neighbour on its host.
    of(1, ours).assert_refused(to, "the site site2 has no node at 127.0.0.12");
    let neighbour = format!("{}:1", host_of(&names[2]));
    let config = &shows(&neighbour, Kind::WholeName);
    let from = cluster.address(2);
    let neighbour = Dialler { config, from, name: &neighbour, site: ours };
    neighbour.assert_refused(to, "the site site2 has no member 127.0.0.13:1");
    // The node that is configured is let in before its site has told of it. Others are not known.
    of(2, ours).await_open(to);
    assert!(of(3, ours).open(to).map_or(true, |(_, answer)| answer.status == 403));
    let (from, refused) =
        (cluster.address(3), cluster.metric(0, "chronos_internal_strangers_total"));
    assert!(refused >= 5, "{refused}");

    // The site tells of its other node.
    cluster.begin(&[2, 3]);
    let of = |place: usize, site| Dialler {
        config: &configs[place],
        from: cluster.address(place),
        name: &names[place],
        site,
    };
    let mut line = of(3, ours).await_open(to);
    assert_eq!(members(&mut line).status, 200);
    neighbour.assert_refused(to, "the site site2 has no member 127.0.0.13:1");
    let other = Dialler { config: &configs[2], from, name: &names[2], site: ours };
    other.await_open(to);
    let stale = format!("{}:1", host_of(&names[3]));
    let config = &shows(&stale, Kind::WholeName);
    Dialler { config, from, name: &stale, site: ours }.assert_refused(to, "no member");

    // A node that its site takes out is shut out, on connections that stand as well.
    cluster.stop(3);
    let alone = cluster_file(&names[2], &Roles::staying(&[2]), &names);
    replace(&cluster.cluster_file(2), &alone);
    cluster.signal(2, "HUP");
    until("the connection to end", || {
        let answer = members(&mut line);
        (answer.status == 403).then_some(())
    });
    let of = |place: usize, site| Dialler {
        config: &configs[place],
        from: cluster.address(place),
        name: &names[place],
        site,
    };
    // Each core is told on its own.
    let is_shut = || of(3, ours).open(to).map_or(true, |(_, answer)| answer.status == 403);
    until("all cores to shut it out", || (0..8).all(|_| is_shut()).then_some(()));
    of(2, ours).await_open(to);
}

/// A node that was taken out of the members, or a neighbour of a member, has a good certificate.
fn without_sites_nobody_is_a_node_of_one() {
    let authority = Authority::new();
    let mut cluster = Cluster::new();
    equip(&mut cluster, &authority, &[0, 1]);
    cluster.start_with(&[0, 1], &Roles::staying(&[0, 1]));
    cluster.await_alive(&[0, 1]);
    let (to, from) = (cluster.address(0), cluster.address(1));
    let neighbour = format!("{}:1", host_of(&cluster.names[1]));
    for name in [&cluster.names[1], &neighbour] {
        let shown = authority.sign(name, Kind::WholeName);
        let config = &authority.dialler(Some(&shown));
        Dialler { config, from, name, site: "" }.assert_refused(to, "X-Chronos-Site");
        for site in ["X-Chronos-Site: site1\r\n", "X-Chronos-Site: site2\r\n"] {
            Dialler { config, from, name, site }.assert_refused(to, "[sites] remote");
        }
    }
}
