//! Journals on a disk: what a node's writer leaves, and what crashes, disks and people make of it,
//! read back as a restart does and by `chronos journal`.

mod disk;
mod reading;
mod strange;
mod tools;
