//! The numbers that tell nodes apart where an operator gave none: made from the node's name.
//!
//! Ids and versions end in ten bits of node instance. Two nodes with the same bits could hand out
//! one id twice in the same millisecond, and give two different writes one version, which would
//! then never be merged: the two replicas would differ for ever. Existing deployments mostly leave
//! `[identity]` out, so a default of 0 for all would be such a pair. The names of members differ
//! by definition, so the bits come from them; 0 is left to nodes that are alone and have no name.

use crate::base::ids::{NodeHash, mix};
use crate::cluster::view::{PeerKind, View};

/// Values of ten bits that are not 0.
const ALL_BITS_COUNT: u64 = 1_023;
/// The same of the seven bits that an operator who set the other three leaves.
const INSTANCE_BITS_COUNT: u64 = 127;

/// What tells this node apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DerivedIdentity {
    /// 0..=127.
    pub instance_id: u8,
    /// 0..=7.
    pub deployment_id: u8,
    /// What the operator should do about two members whose names give the same bits.
    pub warning: Option<String>,
}

/// The identity of the own node of `view`. Members whose names give the same bits (one pair in
/// 1 023) get the next ones in the order of the lists; with `deployment` set, only the seven bits
/// of the instance are made.
pub(super) fn derive(view: &View, deployment: Option<u8>) -> DerivedIdentity {
    let count = if deployment.is_some() { INSTANCE_BITS_COUNT } else { ALL_BITS_COUNT };
    let mut taken: Vec<u64> = Vec::new();
    let mut own = (0, None);
    for peer in view.peers() {
        let PeerKind::Node(NodeHash(hash)) = peer.kind else { continue };
        let wished = mix(u64::from(hash)) % count;
        // At most PEERS_MAX (128) are taken; of 127 values the last would never be free.
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
