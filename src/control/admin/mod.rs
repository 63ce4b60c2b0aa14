//! What operators ask a running node for, and what the node tells them unasked: the admin API,
//! metrics, status, and alarms in the log.

pub(crate) mod alarm_board;
mod alarm_conditions;
pub(crate) mod alarms;
mod answers;
pub(crate) mod api;
mod backups;
mod console;
mod destinations;
pub(crate) mod doors;
pub(crate) mod facts;
mod give_up_news;
pub(crate) mod guard;
pub(crate) mod listener;
mod members;
mod metrics;
mod metrics_text;
pub(crate) mod node_view;
mod one_timer;
mod overview;
mod problems;
mod process;
mod status;
mod timers;

/// A wall time, in ms since 1970, in the form of RFC 3339.
fn moment(ms: u64) -> String {
    let mut text = Vec::new();
    crate::wire::wall_time::write_wall_time(crate::base::time::WallMs(ms), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}
