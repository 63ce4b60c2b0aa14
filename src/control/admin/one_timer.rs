//! One timer for operators: `/timers/<id>` and `/timers/by-name/<name>`, beside what clients see of
//! it with its replicas and its next pops.

// Reads the wall clock: told 1.

use axum::extract::{Path, State};
use axum::http::header::{ALLOW, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::answers::NOT_ALLOWED;
use super::node_view::{NodeView, Silence};
use super::timers::{has_condition, refused};
use crate::base::ids::TimerId;
use crate::node::clients::document::write_document;
use crate::node::list_orders::{Ordered, TimerUse};
use crate::ring;
use crate::shard::effects::{Answer, Refusal, Target, TimerView};
use crate::timer::calendar::Calendar;
use crate::timer::naming::id_of_name;
use crate::wire::attributes::{Attributes, CronTiming};
use crate::wire::timer_action::TimerAction;
use crate::wire::timer_name::{before_action, name_in};
use crate::wire::timer_path::{TimerPath, parse_path, write_public_id};

/// Most pops that are told in advance.
const NEXT_POPS: usize = 5;
const NO_ACTION: &str = "no such order for a timer; expected pause, resume or run-now\n";
/// An order that went on although its condition is not met would be worse than none.
const CONDITION: &str = "If-Match, If-None-Match: expected at the port of clients, got one of them \
                         at the admin port: send the request there, or leave the header out\n";

/// Shows the timer of an id.
pub(super) async fn show(State(view): State<NodeView>, Path(id): Path<String>) -> Response {
    by_id(&view, &id, TimerUse::Read).await
}

/// Deletes the timer of an id.
pub(super) async fn delete(
    State(view): State<NodeView>,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Response {
    if has_condition(&headers) {
        return (StatusCode::BAD_REQUEST, CONDITION).into_response();
    }
    by_id(&view, &id, TimerUse::Delete).await
}

/// Shows the timer of a name.
pub(super) async fn show_named(State(view): State<NodeView>, uri: Uri) -> Response {
    if let TimerPath::NamedAction(_) = parse_path(uri.path()) {
        return other(uri).await;
    }
    by_name(&view, uri.path(), TimerUse::Read).await
}

/// Deletes the timer of a name.
pub(super) async fn delete_named(
    State(view): State<NodeView>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if let TimerPath::NamedAction(_) = parse_path(uri.path()) {
        return other(uri).await;
    }
    if has_condition(&headers) {
        return (StatusCode::BAD_REQUEST, CONDITION).into_response();
    }
    by_name(&view, uri.path(), TimerUse::Delete).await
}

/// Pauses, resumes or runs the timer of an id.
pub(super) async fn act(
    State(view): State<NodeView>,
    headers: HeaderMap,
    Path((id, action)): Path<(String, String)>,
) -> Response {
    if has_condition(&headers) {
        return (StatusCode::BAD_REQUEST, CONDITION).into_response();
    }
    match TimerAction::ALL.into_iter().find(|known| known.name() == action) {
        Some(action) => by_id(&view, &id, TimerUse::Act(action)).await,
        None => (StatusCode::NOT_FOUND, NO_ACTION).into_response(),
    }
}

/// Pauses, resumes or runs the timer of a name.
pub(super) async fn act_named(
    State(view): State<NodeView>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if has_condition(&headers) {
        return (StatusCode::BAD_REQUEST, CONDITION).into_response();
    }
    match parse_path(uri.path()) {
        TimerPath::NamedAction(action) => {
            by_name(&view, before_action(uri.path()), TimerUse::Act(action)).await
        }
        _ => (StatusCode::NOT_FOUND, NO_ACTION).into_response(),
    }
}

/// Answers methods that neither a name nor an action below it has: one route has both, because a
/// name may have slashes.
pub(super) async fn other(uri: Uri) -> Response {
    let allowed = match parse_path(uri.path()) {
        TimerPath::NamedAction(_) => "POST",
        _ => "GET,HEAD,DELETE",
    };
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, allowed)], NOT_ALLOWED).into_response()
}

async fn by_id(view: &NodeView, id: &str, wanted: TimerUse) -> Response {
    let TimerPath::Timer(named) = parse_path(&format!("/timers/{id}")) else {
        let told = "no timer has such an id; expected <16 hex>-<factor>-<16 hex>\n";
        return (StatusCode::NOT_FOUND, told).into_response();
    };
    let target = Target { id: named.id, factor: named.factor, filter: named.filter };
    answered(view, view.list(Ordered::Timer(target, wanted)).await, "no timer with this id\n")
}

async fn by_name(view: &NodeView, path: &str, wanted: TimerUse) -> Response {
    match name_in(path) {
        Ok(name) => {
            let target = Target { id: id_of_name(&name), factor: None, filter: None };
            let answer = view.list(Ordered::Timer(target, wanted)).await;
            answered(view, answer, "no timer with this name\n")
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

/// `none` says that there is no such timer.
fn answered(view: &NodeView, answer: Result<Answer, Silence>, none: &'static str) -> Response {
    let reason = match answer {
        Ok(Answer::Found(timer)) => match document(view, &timer) {
            Some(document) => {
                let whole = format!("{document}\n");
                return ([(CONTENT_TYPE, "application/json")], whole).into_response();
            }
            None => Silence::Begun.to_string(),
        },
        Ok(Answer::Done { id, factor, filter }) => return done(id, factor, filter),
        Ok(Answer::Identified(it)) => return done(it.id, it.factor, it.filter),
        Ok(Answer::NotFound | Answer::Refused(Refusal::NoTimer)) => {
            return (StatusCode::NOT_FOUND, none).into_response();
        }
        Ok(Answer::Refused(
            refusal @ (Refusal::Paused | Refusal::NoteTooLong | Refusal::Original),
        )) => return (StatusCode::CONFLICT, format!("{refusal}\n")).into_response(),
        Ok(Answer::Refused(refusal)) => refusal.to_string(),
        Ok(_) => Silence::Begun.to_string(),
        Err(silence) => silence.to_string(),
    };
    refused(&reason)
}

fn done(id: TimerId, factor: u8, filter: u64) -> Response {
    ([(LOCATION, location(id, factor, filter))], "").into_response()
}

fn location(id: TimerId, factor: u8, filter: u64) -> String {
    let mut location = b"/timers/".to_vec();
    write_public_id(id, factor, filter, &mut location);
    String::from_utf8_lossy(&location).into_owned()
}

/// The timer as clients see it, and what operators want to know besides.
fn document(view: &NodeView, timer: &TimerView) -> Option<Value> {
    let mut text = Vec::new();
    write_document(timer, &mut text);
    let mut document: Value = serde_json::from_slice(&text).ok()?;
    let now_ms = ring::now().wall.0;
    let attributes = Attributes::read(&timer.attributes).unwrap_or_default();
    let pops = next_pops(timer, &attributes, now_ms);
    let moments = pops.iter().map(|ms| Value::from(super::moment(*ms)));
    let due_in_ms = pops.first().map(|ms| *ms as i64 - now_ms as i64);
    let members = document.as_object_mut()?;
    for (name, value) in [
        ("location", location(timer.id, timer.factor, timer.filter).into()),
        ("next-pops", moments.collect()),
        ("due-in-ms", json!(due_in_ms)),
        ("replicas", view.cluster.replicas(&view.meters, timer.id, timer.factor)),
    ] {
        members.insert(name.into(), value);
    }
    Some(document)
}

/// When the next pops are due, in ms since 1970, without what a window adds.
fn next_pops(timer: &TimerView, attributes: &Attributes<'_>, now_ms: u64) -> Vec<u64> {
    if let Some(cron) = &attributes.cron {
        return next_of_calendar(cron);
    }
    let start_ms = now_ms.saturating_sub(timer.age_ms);
    let all = timer.repeat_for_ms.checked_div(timer.interval_ms).unwrap_or(1);
    let due = |pop: u64| start_ms.saturating_add(timer.interval_ms.saturating_mul(pop));
    (timer.sequence + 1..=all).take(NEXT_POPS).map(due).collect()
}

fn next_of_calendar(cron: &CronTiming<'_>) -> Vec<u64> {
    let calendar = Calendar::kept(cron).ok();
    let next = |at_ms: &u64| {
        let next_ms = calendar.as_ref()?.next_after(*at_ms)?;
        cron.end_ms.is_none_or(|end_ms| next_ms <= end_ms).then_some(next_ms)
    };
    std::iter::successors(Some(cron.due_ms), next).take(NEXT_POPS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timer::version::Version;

    #[test]
    fn pops_are_told_until_the_last() {
        let timer = |interval_ms, repeat_for_ms, sequence| TimerView {
            id: TimerId(1),
            factor: 2,
            filter: 0,
            interval_ms,
            repeat_for_ms,
            age_ms: 100,
            sequence,
            version: Version(1),
            uri: "http://h/".into(),
            opaque: Box::default(),
            attributes: Box::default(),
            tags: vec![],
        };
        let of = |timer: &TimerView| next_pops(timer, &Attributes::default(), 10_000);
        assert_eq!(of(&timer(1_000, 3_500, 1)), [11_900, 12_900]);
        assert_eq!(of(&timer(0, 0, 0)), [9_900]);
        assert_eq!(of(&timer(1_000, 1_000_000, 0)).len(), NEXT_POPS);
        assert_eq!(of(&timer(u64::MAX, u64::MAX, 0)), [u64::MAX]);
        assert_eq!(of(&timer(1_000, 1_000, 1)), [0_u64; 0]);
    }
}
