//! Lists and numbers of timers for operators, and jobs: `/timers`, `/timers/count` and `/jobs`, as
//! holders of tokens get them on the clients' port. A core puts each answer together; its JSON is
//! written here, off the cores.

use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use super::node_view::NodeView;
use crate::base::jobs::digest;
use crate::core::jobs::JOB_PAGE;
use crate::core::lists::ListAsked;
use crate::node::clients::document::write_document;
use crate::node::clients::job_answers::{NO_JOB, job_path, write_job, write_jobs};
use crate::node::clients::list_answers::{write_count, write_list};
use crate::ring;
use crate::shard::effects::{Answer, Internal};
use crate::wire::jobs::JobsAsk;
use crate::wire::list_query::{ListQuery, ListQueryError, read_count_query};
use crate::wire::timer_path::{TimerPath, parse_path};

/// The name under which jobs count that operators order here. No token has it.
const OPERATOR: &str = "";

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
pub(super) async fn delete(State(view): State<NodeView>, uri: Uri) -> Response {
    let query = ListQuery::read_delete(uri.query().unwrap_or(""), JOB_PAGE, ring::now().wall);
    answer(&view, query.map(|query| ListAsked::Delete(query, OPERATOR.into()))).await
}

/// Answers all jobs.
pub(super) async fn jobs(State(view): State<NodeView>) -> Response {
    answer(&view, Ok(ListAsked::Jobs(JobsAsk { job: None, is_stop: false }))).await
}

/// Answers one job.
pub(super) async fn job(State(view): State<NodeView>, uri: Uri) -> Response {
    one(&view, &uri, false).await
}

/// Stops a job.
pub(super) async fn stop_job(State(view): State<NodeView>, uri: Uri) -> Response {
    one(&view, &uri, true).await
}

async fn one(view: &NodeView, uri: &Uri, is_stop: bool) -> Response {
    match parse_path(uri.path()) {
        TimerPath::Job(id) => {
            answer(view, Ok(ListAsked::Jobs(JobsAsk { job: Some(id), is_stop }))).await
        }
        _ => (StatusCode::NOT_FOUND, format!("{NO_JOB}\n")).into_response(),
    }
}

async fn answer(view: &NodeView, asked: Result<ListAsked, ListQueryError>) -> Response {
    let asked = match asked {
        Ok(asked) => asked,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let mut body = Vec::new();
    match view.list(asked).await {
        Some(Answer::Internal(internal)) => match *internal {
            Internal::List(page) => write_list(&page, write_document, &mut body),
            Internal::Count(count) => write_count(&count, &mut body),
            Internal::JobBegun(job) => {
                write_job(&job, &mut body);
                let headers =
                    [(CONTENT_TYPE, "application/json".to_owned()), (LOCATION, job_path(job.id))];
                return (StatusCode::ACCEPTED, headers, body).into_response();
            }
            Internal::Jobs(jobs) if write_jobs(&jobs, &mut body) => {}
            Internal::Jobs(_) => {
                return (StatusCode::NOT_FOUND, format!("{NO_JOB}\n")).into_response();
            }
            _ => {}
        },
        Some(Answer::Refused(refusal)) => {
            return (StatusCode::SERVICE_UNAVAILABLE, format!("{refusal}\n")).into_response();
        }
        _ => {}
    }
    if body.is_empty() {
        let reason = "the cores do not answer; retry in a moment\n";
        return (StatusCode::SERVICE_UNAVAILABLE, reason).into_response();
    }
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
