//! The thread that is not hot: configuration, signals, the admin API, metrics, logs. Nothing here
//! is ever waited for by a core: it reads what cores count, and asks them to stop.

pub mod admin;
pub mod cluster_admin;
mod alarms;
pub mod config;
mod config_check;
mod config_error;
pub mod config_files;
mod config_identity;
pub mod config_keys;
mod config_suggest;
pub mod config_text;
pub mod config_value;
mod drop_in;
pub mod ini;
pub mod launch;
pub mod log;
pub mod membership_file;
mod metrics;
mod process;
pub mod originals;
mod originals_client;
mod originals_page;
mod originals_plan;
mod pid_file;
pub mod reload;
pub mod serve;
mod status;
mod tag_board;
pub mod tag_history;
pub mod tag_statistics;
mod view;
