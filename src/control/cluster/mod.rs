//! The members of the cluster: what operators see of them and can order, the file that names them,
//! and the addresses behind their names.

pub(crate) mod desk;
pub(crate) mod member_addresses;
pub(crate) mod membership_file;
