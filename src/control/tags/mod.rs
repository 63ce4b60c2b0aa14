//! Statistics of tags: the counts of all cores, summed, and their past.

pub(crate) mod board;
pub(crate) mod history;
pub(crate) mod statistics;
