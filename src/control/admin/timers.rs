//! Lists and numbers of timers, jobs, dead letters, for operators: as holders of tokens get them on
//! the clients' port. A core puts each answer together; its JSON is written here, off the cores.

// Reads the wall clock: told 3.

use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::node_view::{NodeView, Silence};
use crate::base::ids::TimerId;
use crate::base::jobs::digest;
use crate::core::jobs::JOB_PAGE;
use crate::core::lists::ListAsked;
use crate::node::clients::document::write_document;
use crate::node::clients::job_answers::{
    CONDITION_WITH_FILTERS, NO_JOB, job_path, write_job, write_jobs,
};
use crate::node::clients::list_answers::{write_count, write_list};
use crate::node::list_orders::{Ordered, TimerUse};
use crate::ring;
use crate::shard::effects::{Answer, Internal, Refusal, Target};
use crate::wire::dead_letter::LetterUse;
use crate::wire::jobs::JobsAsk;
use crate::wire::list_query::{ListQuery, ListQueryError, read_count_query};
use crate::wire::timer_path::{PublicId, TimerPath, parse_path, write_public_id};

/// The name under which jobs count that operators order here. No token has it.
const OPERATOR: &str = "";
/// Seconds after which who is refused may come again, as on the clients' port.
const LATER_S: &str = "1";

/// Answers a page of a list.
pub(super) async fn list(State(view): State<NodeView>, uri: Uri) -> Response {
    let query = ListQuery::read(uri.query().unwrap_or(""), ring::now().wall);
    answer(&view, query.map(|query| ListAsked::Page(query, digest(OPERATOR)))).await
}

/// Answers numbers of timers.
pub(super) async fn count(State(view): State<NodeView>, uri: Uri) -> Response {
    let query = read_count_query(uri.query().unwrap_or(""));
    answer(&view, query.map(|has_spans| ListAsked::Count { has_spans })).await
}

/// Begins a job that deletes timers.
pub(super) async fn delete(State(view): State<NodeView>, headers: HeaderMap, uri: Uri) -> Response {
    if has_condition(&headers) {
        return (StatusCode::BAD_REQUEST, format!("{CONDITION_WITH_FILTERS}\n")).into_response();
    }
    let query = ListQuery::read_delete(uri.query().unwrap_or(""), JOB_PAGE, ring::now().wall);
    answer(&view, query.map(|query| ListAsked::Delete(query, OPERATOR.into()))).await
}

/// Answers all jobs.
pub(super) async fn jobs(State(view): State<NodeView>) -> Response {
    answer(&view, Ok(ListAsked::Jobs(JobsAsk { job: None, is_stop: false }))).await
}

/// Answers one job.
pub(super) async fn job(State(view): State<NodeView>, uri: Uri) -> Response {
    one_job(&view, &uri, false).await
}

/// Stops a job.
pub(super) async fn stop_job(State(view): State<NodeView>, uri: Uri) -> Response {
    one_job(&view, &uri, true).await
}

/// Whether a request depends on how a timer is.
pub(super) fn has_condition(headers: &HeaderMap) -> bool {
    headers.contains_key(IF_MATCH) || headers.contains_key(IF_NONE_MATCH)
}

async fn one_job(view: &NodeView, uri: &Uri, is_stop: bool) -> Response {
    match parse_path(uri.path()) {
        TimerPath::Job(id) => {
            answer(view, Ok(ListAsked::Jobs(JobsAsk { job: Some(id), is_stop }))).await
        }
        _ => (StatusCode::NOT_FOUND, format!("{NO_JOB}\n")).into_response(),
    }
}

/// Answers a page of dead letters.
pub(super) async fn letters(State(view): State<NodeView>, uri: Uri) -> Response {
    page_of_letters(&view, &uri, LetterUse::Show).await
}

/// Tries the pops of a page of dead letters again.
pub(super) async fn replay_all(State(view): State<NodeView>, uri: Uri) -> Response {
    page_of_letters(&view, &uri, LetterUse::Replay).await
}

/// Deletes a page of dead letters.
pub(super) async fn delete_all(State(view): State<NodeView>, uri: Uri) -> Response {
    page_of_letters(&view, &uri, LetterUse::Delete).await
}

/// Answers one dead letter.
pub(super) async fn letter(State(view): State<NodeView>, Path(id): Path<String>) -> Response {
    one(&view, &id, LetterUse::Show).await
}

/// Tries the pop of one dead letter again.
pub(super) async fn replay(State(view): State<NodeView>, Path(id): Path<String>) -> Response {
    one(&view, &id, LetterUse::Replay).await
}

/// Deletes one dead letter.
pub(super) async fn delete_letter(
    State(view): State<NodeView>,
    Path(id): Path<String>,
) -> Response {
    one(&view, &id, LetterUse::Delete).await
}

async fn page_of_letters(view: &NodeView, uri: &Uri, wanted: LetterUse) -> Response {
    let query = uri.query().unwrap_or("");
    let query = ListQuery::read_letters(query, wanted, ring::now().wall);
    answer(view, query.map(|query| ListAsked::Page(query, digest(OPERATOR)))).await
}

async fn answer(view: &NodeView, asked: Result<ListAsked, ListQueryError>) -> Response {
    match asked {
        Ok(asked) => shown(view.list(Ordered::List(asked)).await),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    }
}

async fn one(view: &NodeView, id: &str, wanted: LetterUse) -> Response {
    let TimerPath::DeadLetter(named) = parse_path(&format!("/dead-letters/{id}")) else {
        return (StatusCode::NOT_FOUND, "no dead letter has such an id\n").into_response();
    };
    let PublicId { id, factor, filter } = named;
    shown(view.list(Ordered::Timer(Target { id, factor, filter }, TimerUse::Letter(wanted))).await)
}

fn shown(answer: Result<Answer, Silence>) -> Response {
    let mut body = Vec::new();
    let reason = match answer {
        Ok(Answer::Internal(internal)) => match *internal {
            Internal::List(page) => {
                write_list(&page, write_document, &mut body);
                return ([(CONTENT_TYPE, "application/json")], body).into_response();
            }
            Internal::Count(count) => {
                write_count(&count, &mut body);
                return ([(CONTENT_TYPE, "application/json")], body).into_response();
            }
            Internal::JobBegun(job) => {
                write_job(&job, &mut body);
                let headers =
                    [(CONTENT_TYPE, "application/json".to_owned()), (LOCATION, job_path(job.id))];
                return (StatusCode::ACCEPTED, headers, body).into_response();
            }
            Internal::Jobs(jobs) if write_jobs(&jobs, &mut body) => {
                return ([(CONTENT_TYPE, "application/json")], body).into_response();
            }
            Internal::Jobs(_) => {
                return (StatusCode::NOT_FOUND, format!("{NO_JOB}\n")).into_response();
            }
            _ => Silence::Begun.to_string(),
        },
        Ok(Answer::Found(view)) => {
            write_document(&view, &mut body);
            return ([(CONTENT_TYPE, "application/json")], body).into_response();
        }
        Ok(Answer::Done { id, factor, filter }) => return done((id, factor, filter)),
        Ok(Answer::Identified(it)) => return done((it.id, it.factor, it.filter)),
        Ok(Answer::NotFound | Answer::Refused(Refusal::NoTimer)) => {
            return (StatusCode::NOT_FOUND, "no dead letter with this id\n").into_response();
        }
        Ok(Answer::Refused(refusal @ Refusal::JobsOfNameFull)) => {
            let told = format!("{refusal}\n");
            return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, LATER_S)], told).into_response();
        }
        Ok(Answer::Refused(refusal)) => refusal.to_string(),
        Err(silence) => silence.to_string(),
    };
    refused(&reason)
}

/// Tells where the timer is that a dead letter was.
fn done((id, factor, filter): (TimerId, u8, u64)) -> Response {
    let mut location = b"/timers/".to_vec();
    write_public_id(id, factor, filter, &mut location);
    ([(LOCATION, String::from_utf8_lossy(&location).into_owned())], "").into_response()
}

/// Answers that the cores did not do what was asked.
pub(super) fn refused(reason: &str) -> Response {
    let told = format!("{reason}\n");
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, LATER_S)], told).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_is_told_when_to_come_again() {
        for (refusal, status) in [
            (Refusal::JobsOfNameFull, StatusCode::TOO_MANY_REQUESTS),
            (Refusal::JobsFull, StatusCode::SERVICE_UNAVAILABLE),
            (Refusal::ListsFull, StatusCode::SERVICE_UNAVAILABLE),
        ] {
            let answer = shown(Ok(Answer::Refused(refusal)));
            assert_eq!(answer.status(), status, "{refusal}");
            assert_eq!(answer.headers()[RETRY_AFTER], LATER_S, "{refusal}");
        }
        for none in [Answer::NotFound, Answer::Refused(Refusal::NoTimer)] {
            assert_eq!(shown(Ok(none)).status(), StatusCode::NOT_FOUND);
        }
    }
}
