//! The JSON of jobs.

use crate::base::time::WallMs;
use crate::node::clients::list_answers::write_incomplete;
use crate::shard::effects::JobList;
use crate::wire::jobs::JobReport;
use crate::wire::json::{write_number, write_string};
use crate::wire::timer_path::hex_digits;
use crate::wire::wall_time::write_wall_time;

/// The reason where a job is asked for that no node knows.
pub const NO_JOB: &str = "no such job: no node that was reached has it; it ended long ago, or its \
    node was restarted";

/// The reason where a job is ordered on a condition: it would delete timers of any version.
pub const CONDITION_WITH_FILTERS: &str = "If-Match, If-None-Match: expected at \
    /timers/by-name/<name>, got one of them with filters: delete each timer by its name, or leave \
    the header out";

/// The path of a job.
pub fn job_path(id: u64) -> String {
    format!("/jobs/{}", String::from_utf8_lossy(&hex_digits(id)))
}

/// Appends a job as a JSON document.
pub fn write_job(job: &JobReport, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":\"");
    out.extend_from_slice(&hex_digits(job.id));
    out.extend_from_slice(b"\",\"state\":");
    write_string(job.state.name(), out);
    let filter = job.filter.borrow();
    out.extend_from_slice(b",\"filter\":{");
    let mut separator: &[u8] = b"";
    let texts = [("tag", filter.tag), ("name-prefix", filter.name_prefix), ("host", filter.host)];
    for (name, text) in texts {
        let Some(text) = text else { continue };
        out.extend_from_slice(std::mem::replace(&mut separator, b","));
        write_string(name, out);
        out.push(b':');
        write_string(text, out);
    }
    for (name, at) in [("due-after", filter.due_after), ("due-before", filter.due_before)] {
        let Some(at) = at else { continue };
        out.extend_from_slice(std::mem::replace(&mut separator, b","));
        write_string(name, out);
        out.push(b':');
        write_time(at, out);
    }
    out.push(b'}');
    if !job.owner.is_empty() {
        out.extend_from_slice(b",\"token\":");
        write_string(&job.owner, out);
    }
    for (name, number) in [("seen", job.seen), ("deleted", job.deleted), ("failed", job.failed)] {
        out.push(b',');
        write_string(name, out);
        out.push(b':');
        write_number(number, out);
    }
    let complete: &[u8] = if job.is_incomplete { b"false" } else { b"true" };
    out.extend_from_slice(b",\"complete\":");
    out.extend_from_slice(complete);
    out.extend_from_slice(b",\"started\":");
    write_time(job.began, out);
    if let Some(ended) = job.ended {
        out.extend_from_slice(b",\"ended\":");
        write_time(ended, out);
    }
    out.push(b'}');
}

/// Appends jobs, or the one that was asked for. Returns false if nothing is known of that one.
#[must_use]
pub fn write_jobs(jobs: &JobList, out: &mut Vec<u8>) -> bool {
    if jobs.is_of_one {
        jobs.jobs.first().into_iter().for_each(|job| write_job(job, out));
        return !jobs.jobs.is_empty();
    }
    out.extend_from_slice(b"{\"jobs\":[");
    for (number, job) in jobs.jobs.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write_job(job, out);
    }
    out.push(b']');
    write_incomplete(&jobs.incomplete, out);
    out.push(b'}');
    true
}

fn write_time(at: WallMs, out: &mut Vec<u8>) {
    out.push(b'"');
    write_wall_time(at, out);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::jobs::JobState;
    use crate::wire::list_query::OwnedFilter;
    use crate::wire::timer_list::Filter;

    #[test]
    fn jobs_are_json() {
        let due_before = Some(WallMs(1_796_115_600_250));
        let filter = Filter { tag: Some("a\"b"), due_before, ..Filter::ALL };
        let job = JobReport {
            id: 0xc0ffee,
            state: JobState::Running,
            is_incomplete: true,
            seen: 9,
            deleted: 7,
            failed: 1,
            began: WallMs(1_796_115_600_000),
            ended: None,
            owner: "billing".into(),
            filter: OwnedFilter::copy(&filter),
        };
        let (mut one, mut all) = (Vec::new(), Vec::new());
        let of_one = JobList { jobs: vec![job.clone()], is_of_one: true, incomplete: vec![] };
        assert!(write_jobs(&of_one, &mut one));
        let expected = serde_json::json!({
            "id": "0000000000c0ffee", "state": "running", "token": "billing",
            "filter": {"tag": "a\"b", "due-before": "2026-12-01T09:00:00.250Z"},
            "seen": 9, "deleted": 7, "failed": 1, "complete": false,
            "started": "2026-12-01T09:00:00.000Z"
        });
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&one).unwrap(), expected);
        let jobs = vec![job.clone(), job];
        let of_all = JobList { jobs, is_of_one: false, incomplete: vec!["b: down".into()] };
        assert!(write_jobs(&of_all, &mut all));
        let shown: serde_json::Value = serde_json::from_slice(&all).unwrap();
        assert_eq!(shown["jobs"], serde_json::json!([expected, expected]));
        assert_eq!(shown["incomplete"][0], "b: down");
        let none = JobList { jobs: vec![], is_of_one: true, incomplete: vec![] };
        assert!(!write_jobs(&none, &mut all));
    }
}
