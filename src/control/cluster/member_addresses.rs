//! Looks up the members that are configured by name, and their admin APIs, so that the cores know
//! their addresses. A core refuses a peer that calls from another address, and callbacks to any of
//! these.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::cluster::view::View;
use crate::core::gate::{NamedAddresses, addresses};
use crate::core::peers::address::{PeerAddress, place_of};
use crate::node::commands::Command;

use crate::control::http_client::place_in;
use crate::control::names::Names;

/// Pause between two look-ups of all names. A change of the members, or of where names lead, starts
/// a look-up at once.
const EVERY: Duration = Duration::from_secs(60);

/// Tells the cores the addresses of the members' names, and those of `admins`, the admin APIs as
/// `host:port` or `https://host:port`, again and again, until the node stops. `leads` says where
/// names lead.
pub(crate) async fn tell(
    mut views: watch::Receiver<Arc<View>>,
    admins: Vec<String>,
    mut leads: Names,
    commands: mpsc::Sender<Command>,
) {
    let admins: Vec<String> = admins.iter().filter_map(|admin| name_of(place_in(admin))).collect();
    let (mut known, mut known_admins) = (Vec::new(), Vec::new());
    loop {
        let (_, names) = addresses(&views.borrow_and_update().clone());
        // A name that is looked up for its member is not looked up again.
        let others = admins.iter().filter(|name| !names.contains(name)).cloned().collect();
        let (found, found_admins) =
            tokio::join!(look_up(&leads, names, &known), look_up(&leads, others, &known_admins));
        // Sent even if nothing has changed: a core that hung may have missed the last command.
        let told = [
            (take_over(&mut known, found), Command::Members as fn(NamedAddresses) -> Command),
            (take_over(&mut known_admins, found_admins), Command::Admins),
        ];
        for (found, command) in told {
            let Some(found) = found else { continue };
            if commands.send(command(found.into())).await.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = timeout(EVERY, views.changed()) => {
                if matches!(changed, Ok(Err(_))) {
                    return;
                }
            }
            () = leads.changed() => {}
        }
    }
}

/// The name in an address; `None`: it is none.
fn name_of(address: &str) -> Option<String> {
    match place_of(address, 0) {
        PeerAddress::At(_) => None,
        PeerAddress::Named(name, _) => Some(name),
    }
}

type Found = Vec<(String, Vec<IpAddr>)>;

/// Notes what was found. Returns what there is to tell: `None` if there was no name and is none.
fn take_over(known: &mut Found, found: Found) -> Option<Found> {
    let is_told = !found.is_empty() || !known.is_empty();
    known.clone_from(&found);
    is_told.then_some(found)
}

/// Looks up all names at the same time, because a name that no server answers for takes seconds. A
/// name that fails keeps its last addresses.
async fn look_up(leads: &Names, names: Vec<String>, known: &[(String, Vec<IpAddr>)]) -> Found {
    let begin = |name: String| -> (String, JoinHandle<std::io::Result<Vec<IpAddr>>>) {
        let (asked, leads) = (name.clone(), leads.clone());
        let look = async move {
            let found = leads.look_up(&asked, 0).await?;
            let mut found: Vec<_> = found.iter().map(|found| found.ip().to_canonical()).collect();
            // Servers change the order with each answer.
            found.sort_unstable();
            found.dedup();
            Ok(found)
        };
        (name, tokio::spawn(look))
    };
    let mut all = Vec::new();
    for (name, lookup) in names.into_iter().map(begin).collect::<Vec<_>>() {
        let reason = match lookup.await {
            Ok(Ok(found)) => {
                all.push((name, found));
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        warn!("cannot resolve the member {name}: {reason}");
        let last = known.iter().find(|(known, _)| *known == name);
        all.push((name, last.map_or(Vec::new(), |(_, last)| last.clone())));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::view::Membership;
    use crate::node::resolver::statics::StaticNames;

    #[tokio::test]
    async fn every_name_is_told_with_what_is_known_of_it() {
        let view = |nodes: &[&str]| {
            let membership = Membership {
                localhost: nodes[0].into(),
                nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
                ..Membership::default()
            };
            Arc::new(View::build(None, &membership).expect("a cluster"))
        };
        let (views, changes) = watch::channel(view(&["10.0.0.1", "localhost:7253", "no.invalid"]));
        let (commands, mut told) = mpsc::channel(1);
        let admins = ["https://admin.invalid:7254", "localhost:7254", "https://10.0.0.1:7254"];
        let admins = admins.map(str::to_owned).to_vec();
        let (leads, names) = Names::new(Arc::default());
        let task = tokio::spawn(tell(changes, admins, names, commands));
        let Some(Command::Members(found)) = told.recv().await else { panic!("names are told") };
        let names: Vec<&str> = found.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["localhost", "no.invalid"]);
        assert!(found[0].1.iter().all(IpAddr::is_loopback) && !found[0].1.is_empty());
        assert!(found[1].1.is_empty(), "a name that fails is no reason to wait for the others");
        let Some(Command::Admins(found)) = told.recv().await else { panic!("admin APIs, too") };
        assert_eq!(*found, [("admin.invalid".to_owned(), Vec::new())]);
        views.send(view(&["10.0.0.1", "10.0.0.2"])).expect("the task listens");
        let Some(Command::Members(found)) = told.recv().await else { panic!("names went") };
        assert!(found.is_empty());
        let Some(Command::Admins(found)) = told.recv().await else { panic!("admin APIs stay") };
        let names: Vec<&str> = found.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["admin.invalid", "localhost"], "no member has that name any more");
        let mut file = StaticNames::default();
        file.set_addresses("admin.invalid", vec![[10, 0, 0, 9].into()]);
        leads.send_replace(Arc::new(file));
        let Some(Command::Admins(found)) = told.recv().await else { panic!("it leads elsewhere") };
        assert_eq!(found[0], ("admin.invalid".to_owned(), vec![[10, 0, 0, 9].into()]));
        drop(views);
        task.await.expect("it ends with the node");
    }

    #[tokio::test]
    async fn a_name_that_fails_keeps_its_last_addresses() {
        let last = vec![("no.invalid".to_owned(), vec![IpAddr::from([10, 0, 0, 2])])];
        assert_eq!(look_up(&Names::default(), vec!["no.invalid".into()], &last).await, last);
    }
}
