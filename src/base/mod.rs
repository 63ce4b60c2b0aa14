//! Words that every room uses: identities, units of time, limits, tables of slots. No file here
//! knows what a timer is.

pub mod destinations;
pub mod ids;
pub(crate) mod jobs;
pub mod limits;
#[cfg(feature = "planted")]
pub mod planted;
pub(crate) mod quota;
pub mod ranked;
pub(crate) mod slots;
pub mod time;
pub mod version;

/// Whether a planted bug is switched on. In a build without the feature `planted` no bug is, and
/// the question costs nothing.
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
