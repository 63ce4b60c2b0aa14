//! What a shard is made of beside its records. Each file holds one part: plain data with the
//! methods and bounds that need nothing else. No part knows the shard or its rules. The rules stand
//! in the files of `shard/`, most of them under the name of their part.

pub(super) mod ages;
pub(super) mod calendars;
pub(super) mod collect;
pub(super) mod count;
pub(crate) mod jobs;
pub(crate) mod give_ups;
pub(super) mod list;
pub(super) mod conditions;
pub(super) mod minting;
pub(super) mod pace;
pub(super) mod peers;
pub(super) mod pops;
pub(super) mod questions;
pub(super) mod readings;
pub(super) mod reads;
pub(super) mod reconcile;
pub(super) mod returned;
pub(super) mod said;
pub(super) mod turns;
pub(super) mod writes;
