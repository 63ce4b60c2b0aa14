//! The members of the cluster and the other sites: what operators see of them and can order, the
//! file that names them, the addresses behind their names, and the news of them in the log.

pub(crate) mod desk;
mod list_edits;
pub(crate) mod member_addresses;
pub(crate) mod membership_file;
pub(crate) mod moving;
pub(crate) mod peer_news;
pub(crate) mod site_orders;
pub(crate) mod site_probe;
pub(crate) mod sites;
mod sites_file;
