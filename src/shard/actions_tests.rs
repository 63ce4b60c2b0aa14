//! What clients pause, resume and run, on one node and on two.
