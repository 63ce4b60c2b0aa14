//! Statistics of tags: what cores tell, summed, with its past.

pub(crate) mod board;
pub(crate) mod history;
pub(crate) mod statistics;
