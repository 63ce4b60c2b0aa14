//! The orders about other sites: which of them this node names, and what a site answers that is to
//! be added.

use std::sync::Arc;

use serde::Deserialize;

use super::desk::{ClusterDesk, OrderError, lists_of};
use super::site_probe::{NamedSite, SiteProbe};
use crate::cluster::view::{Membership, View};
use crate::control::config::value::ValueKind;

/// Most addresses of a site that is asked. Two are enough.
const ADDRESSES_MAX: usize = 16;

/// The body of `PUT /cluster/sites`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SitesChange {
    sites: Vec<NamedSite>,
    /// What the sites must be at present. A change that expects other sites is refused, so two
    /// operators cannot undo each other's work.
    expected: Option<Vec<NamedSite>>,
}

impl ClusterDesk {
    /// Changes the other sites: writes them into the file that names them, then reloads. When the
    /// reload fails, the file gets its former text back.
    pub(crate) fn change_sites(&self, body: &[u8]) -> Result<(), OrderError> {
        let change: SitesChange =
            read(body, "{\"sites\": [{\"name\": ..., \"addresses\": [...]}]}")?;
        change.sites.iter().chain(change.expected.iter().flatten()).try_for_each(has_addresses)?;
        let view = Arc::clone(&self.state().view);
        let (held, wanted) = (items_of(&sites_of(&view)), items_of(&change.sites));
        if change.expected.is_some_and(|expected| !is_same(&items_of(&expected), &held)) {
            return Err(OrderError::Refused(format!(
                "the sites have changed meanwhile: {}. Another order may be under way; look with \
                 chronos site list",
                told(&held)
            )));
        }
        check(&view, &wanted)?;
        let own = view.name_of_site(view.local_site()).unwrap_or_default();
        let source = self.source()?;
        let former = source.sites_file.write_sites(own, &wanted);
        let former = former.map_err(|error| OrderError::Refused(error.to_string()))?;
        let is_growing = wanted.iter().any(|site| !held.contains(site));
        self.reload_written(&source.sites_file, &former, |view| {
            let now = items_of(&sites_of(view));
            if !is_same(&now, &wanted) {
                return Err(OrderError::Refused(format!(
                    "the sites were written and are not what the node has read: {}. Something \
                     overrides the file (a variable CHRONOS_SITES_...?); remove that",
                    told(&now)
                )));
            }
            // Whoever adds a site wants it to hold the timers.
            if is_growing && view.sites().is_empty() {
                return Err(OrderError::Refused(
                    "[sites] replicate_across is false: other sites would be told of no timer; set \
                     it to true on all nodes, SIGHUP, then give the order once more"
                        .into(),
                ));
            }
            Ok(())
        })
    }

    /// Takes the site that is to be asked, and returns it with what asks it.
    pub(crate) fn probe(&self, body: &[u8]) -> Result<(SiteProbe, NamedSite), OrderError> {
        let site: NamedSite = read(body, "{\"name\": ..., \"addresses\": [...]}")?;
        has_addresses(&site)?;
        read_items(items_of(std::slice::from_ref(&site)))?;
        Ok(((self.source()?.probe)(), site))
    }
}

fn read<T: for<'d> Deserialize<'d>>(body: &[u8], form: &str) -> Result<T, OrderError> {
    serde_json::from_slice(body)
        .map_err(|error| OrderError::Wrong(format!("expected JSON of the form {form}: {error}")))
}

fn has_addresses(site: &NamedSite) -> Result<(), OrderError> {
    let count = site.addresses.len();
    if (1..=ADDRESSES_MAX).contains(&count) {
        return Ok(());
    }
    Err(OrderError::Wrong(format!(
        "expected 1 to {ADDRESSES_MAX} addresses of a site, got {count}; name two nodes of it"
    )))
}

/// The other sites of a view.
fn sites_of(view: &View) -> Vec<NamedSite> {
    let sites = view.connected_sites().iter().map(|peer| NamedSite {
        name: view.name_of(peer).to_owned(),
        addresses: view.addresses_of(peer).map(str::to_owned).collect(),
    });
    sites.collect()
}

/// Sites as the key `[sites] remote` has them: `name=address`, one for each address.
fn items_of(sites: &[NamedSite]) -> Vec<String> {
    let of = |site: &NamedSite| {
        let name = site.name.clone();
        site.addresses.clone().into_iter().map(move |address| format!("{name}={address}"))
    };
    sites.iter().flat_map(of).collect()
}

fn read_items(items: Vec<String>) -> Result<Vec<(String, String)>, OrderError> {
    let halves = |item: &String| {
        let (name, address) = item.split_once('=').unwrap_or((item, ""));
        (name.to_owned(), address.to_owned())
    };
    let read = ValueKind::Sites.read_texts(items.clone());
    read.map(|_| items.iter().map(halves).collect()).map_err(|mismatch| {
        OrderError::Wrong(format!("sites: expected {}, got {}", mismatch.expected, mismatch.found))
    })
}

fn check(view: &View, wanted: &[String]) -> Result<(), OrderError> {
    let [nodes, joining, leaving] = lists_of(view);
    let membership = Membership {
        localhost: view.name_of(view.own()).to_owned(),
        nodes,
        joining,
        leaving,
        local_site: view.name_of_site(view.local_site()).unwrap_or_default().to_owned(),
        remote_sites: read_items(wanted.to_vec())?,
        replicate_across_sites: true,
    };
    View::build(Some(view), &membership)
        .map(|_| ())
        .map_err(|error| OrderError::Wrong(error.to_string()))
}

/// Reports whether both name the same sites. The order means nothing.
fn is_same(a: &[String], b: &[String]) -> bool {
    let sorted = |items: &[String]| {
        let mut items = items.to_vec();
        items.sort();
        items
    };
    sorted(a) == sorted(b)
}

fn told(items: &[String]) -> String {
    if items.is_empty() { "none".into() } else { items.join(" ") }
}
