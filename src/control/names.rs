//! Look-ups of the control thread. They go by the operator's file of names first, as those of the
//! cores do: otherwise a member would be dialled at one address and be known by another.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::lookup_host;
use tokio::sync::watch;

use crate::node::resolver::statics::StaticNames;

/// Which names lead elsewhere now. The default has none, as for commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Option<watch::Receiver<Arc<StaticNames>>>);

impl Names {
    /// The names as they are, and how to set them for all holders.
    pub(crate) fn new(names: Arc<StaticNames>) -> (watch::Sender<Arc<StaticNames>>, Self) {
        let (sender, names) = watch::channel(names);
        (sender, Self(Some(names)))
    }

    /// Returns the addresses of a host, which is a name or an address.
    ///
    /// # Errors
    ///
    /// The system finds none.
    pub(crate) async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let names = self.0.as_ref().map(|names| names.borrow().clone()).unwrap_or_default();
        let asked = host.to_ascii_lowercase();
        let name = names.target(&asked);
        if let Some(addresses) = names.addresses(name) {
            return Ok(with_port(addresses.iter().copied(), port));
        }
        let found = lookup_host((name, port)).await?;
        Ok(with_port(found.map(|found| found.ip()), port))
    }

    /// Returns when other names lead elsewhere.
    pub(crate) async fn changed(&mut self) {
        if let Some(names) = &mut self.0
            && names.changed().await.is_ok()
        {
            return;
        }
        // Nobody sets them any more.
        std::future::pending().await
    }
}

fn with_port(addresses: impl Iterator<Item = IpAddr>, port: u16) -> Vec<SocketAddr> {
    addresses.map(|address| SocketAddr::new(address, port)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_lead_where_the_operator_says() {
        let mut file = StaticNames::default();
        file.set_addresses("node.invalid", vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]);
        file.set_target("alias.invalid", "node.invalid");
        file.set_target("loop.invalid", "localhost");
        let (sender, mut names) = Names::new(Arc::new(file));
        let found = names.look_up("Alias.Invalid", 7).await.expect("addresses");
        let expected: Vec<SocketAddr> =
            ["10.0.0.1:7", "10.0.0.2:7"].map(|text| text.parse().expect("an address")).to_vec();
        assert_eq!(found, expected);
        let found = names.look_up("loop.invalid", 7).await.expect("addresses");
        assert!(found.iter().all(|found| found.ip().is_loopback() && found.port() == 7));
        let found = names.look_up("::1", 7).await.expect("an address");
        assert_eq!(found, ["[::1]:7".parse().expect("an address")]);
        sender.send_replace(Arc::default());
        names.changed().await;
        assert!(names.look_up("alias.invalid", 7).await.is_err());
        assert!(Names::default().look_up("node.invalid", 7).await.is_err());
    }
}
