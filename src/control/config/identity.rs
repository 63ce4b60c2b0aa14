//! The instance and deployment ids of a node where the operator has set none: they are made from
//! the node's name.
//!
//! Ids and versions end in ten bits of node instance. Two nodes with the same bits could hand out
//! one id twice in the same millisecond. They could also give two different writes one version;
//! such writes are never merged, so the two replicas would differ for ever. Existing deployments
//! mostly leave `[identity]` out, so a default of 0 for all nodes would be such a case. The names
//! of members differ by definition, so the bits come from the names. 0 is left to nodes that are
//! alone and have no name.

use crate::base::ids::{NodeHash, mix};
use crate::cluster::view::{PeerKind, View};

/// How many values of ten bits are not 0.
const ALL_BITS_COUNT: u64 = 1_023;
/// How many values of seven bits are not 0. Seven bits are left where the operator has set the
/// three bits of the deployment.
const INSTANCE_BITS_COUNT: u64 = 127;

/// The ids of a node, made from its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DerivedIdentity {
    /// The low seven bits, 0..=127.
    pub instance_id: u8,
    /// The high three bits, 0..=7.
    pub deployment_id: u8,
    /// Says what to do if the names of two members give the same bits.
    pub warning: Option<String>,
}

/// Returns the identity of the own node of `view`. Members whose names give the same bits (one pair
/// in 1 023) get the next free bits in the order of the lists. With `deployment` set, only the
/// seven bits of the instance are made.
pub(super) fn derive(view: &View, deployment: Option<u8>) -> DerivedIdentity {
    let count = if deployment.is_some() { INSTANCE_BITS_COUNT } else { ALL_BITS_COUNT };
    let mut taken: Vec<u64> = Vec::new();
    let mut own = (0, None);
    for peer in view.peers() {
        let PeerKind::Node(NodeHash(hash)) = peer.kind else { continue };
        let wished = mix(u64::from(hash)) % count;
        // At most PEERS_MAX (128) bits are taken. Of 127 values the last member would then find
        // none free.
        let free =
            (0..count).map(|step| (wished + step) % count).find(|bits| !taken.contains(bits));
        let bits = free.unwrap_or(wished);
        taken.push(bits);
        if peer.name == view.name_of(view.own()) {
            let collides = bits != wished || free.is_none();
            let warning = collides.then(|| {
                format!(
                    "the name \"{}\" gives the same identity as that of another member: give each \
                     node its own [identity] instance_id ([node] instance_id)",
                    peer.name
                )
            });
            own = (1 + bits, warning);
        }
    }
    let (bits, warning) = own;
    DerivedIdentity {
        instance_id: (bits % 128) as u8,
        deployment_id: deployment.unwrap_or((bits / 128) as u8),
        warning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::view::Membership;
    use std::collections::HashSet;

    fn identity(own: usize, names: &[String], deployment: Option<u8>) -> DerivedIdentity {
        let membership = Membership {
            localhost: names[own].clone(),
            nodes: names.to_vec(),
            ..Membership::default()
        };
        derive(&View::build(None, &membership).expect("a cluster"), deployment)
    }

    #[test]
    fn members_differ_and_none_is_like_a_node_alone() {
        let names: Vec<_> = (0..64).map(|node| format!("10.0.0.{node}:7253")).collect();
        for deployment in [None, Some(5)] {
            let all: Vec<_> = (0..64).map(|own| identity(own, &names, deployment)).collect();
            let bits: HashSet<_> = all.iter().map(|i| (i.instance_id, i.deployment_id)).collect();
            assert_eq!(bits.len(), names.len());
            for one in &all {
                assert!(one.instance_id <= 127 && one.deployment_id <= 7, "{one:?}");
                assert_ne!((one.instance_id, one.deployment_id), (0, 0));
                assert!(deployment.is_none_or(|asked| asked == one.deployment_id));
            }
        }
    }

    #[test]
    fn a_name_has_its_identity_whoever_else_is_a_member() {
        let all: Vec<_> = ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec();
        assert_eq!(identity(1, &all, None), identity(1, &all[..2], None));
        assert_eq!(identity(1, &all, None).warning, None);
    }
}
