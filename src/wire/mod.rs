//! Bytes to values and back: HTTP/1.1 heads, chunked bodies, timer JSON, callback URIs, timer ids
//! in paths, messages and frames between nodes, Thrift's binary protocol. This room knows formats,
//! not meanings: other rooms decide whether a negative interval is allowed.

pub mod accept;
pub mod answer_head;
pub(crate) mod answer_reader;
pub mod attributes;
pub mod callback_headers;
pub mod callback_uri;
pub mod chunked;
pub(crate) mod common_attributes;
pub mod conditions;
pub mod dead_letter;
pub mod destination;
pub mod internal_json;
pub mod jobs;
pub(crate) mod json;
pub(crate) mod lasting;
pub mod leb128;
pub mod ndjson;
pub mod list_query;
pub mod peer_frame;
pub mod peer_message;
mod plain_timer;
pub mod problem;
pub mod report;
pub mod request_head;
pub mod resync_json;
pub(crate) mod site_news;
pub mod site_question;
pub(crate) mod text;
pub mod thrift;
pub mod timer_action;
pub mod timer_count;
pub mod timer_json;
pub mod timer_list;
pub mod timer_name;
pub(crate) mod timer_options;
pub mod timer_path;
pub(crate) mod unknown_members;
pub mod wall_time;

#[cfg(test)]
mod internal_json_tests;
#[cfg(test)]
mod peer_message_tests;
#[cfg(test)]
mod request_head_tests;
#[cfg(test)]
mod thrift_tests;
#[cfg(test)]
mod timer_json_tests;
