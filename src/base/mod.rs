//! Words that every room uses: identities, units of time, limits. Nothing here knows what a timer
//! is.

pub mod ids;
pub mod limits;
#[cfg(feature = "planted")]
pub mod planted;
pub mod ranked;
pub(crate) mod slots;
pub mod time;

/// Asks whether a planted bug is switched on; constantly false, and free, outside the simulator's
/// build.
#[cfg(not(feature = "planted"))]
pub mod planted {
    pub use super::planted_bugs::Bug;

    /// Always false: this build carries no planted bug.
    #[inline(always)]
    pub const fn is_planted(_: Bug) -> bool {
        false
    }
}

mod planted_bugs;
