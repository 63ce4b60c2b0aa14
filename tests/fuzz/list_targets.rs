//! Targets of lists of timers: queries of clients, and the questions and parts between nodes.

use chronos::base::limits::{SHARDS_MAX, TAG_BYTES_MAX};
use chronos::base::time::WallMs;
use chronos::wire::jobs::{JOBS_TOLD_MAX, JobsAsk, JobsPart};
use chronos::wire::list_query::{Cursor, ListQuery, is_of_nodes, read_count_query};
use chronos::wire::timer_count::{CountAsk, CountPart, HOSTS_NAMED_MAX};
use chronos::wire::timer_list::{
    Filter, LIST_LIMIT_MAX, ListAsk, Place, STATES_ALL, begin_part, end_part, read_listed,
    read_part, write_listed,
};
use chronos::wire::timer_name::NAME_BYTES_MAX;

/// Queries of lists: what is taken is within its limits, and gives out cursors that it takes.
pub fn list_query(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    is_of_nodes(&text);
    let _ = read_count_query(&text);
    let now = WallMs(1_796_115_600_000);
    let query = match ListQuery::read(&text, now) {
        Ok(query) => query,
        Err(error) => {
            assert!(error.to_string().contains(": "), "{error}");
            return false;
        }
    };
    assert!((1..=LIST_LIMIT_MAX).contains(&query.limit));
    let filter = query.filter.borrow();
    assert!(filter.states != 0 && filter.states & !STATES_ALL == 0);
    assert!(filter.tag.is_none_or(|tag| (1..=TAG_BYTES_MAX).contains(&tag.len())));
    assert!(filter.name_prefix.is_none_or(|name| (1..=NAME_BYTES_MAX).contains(&name.len())));
    if let (Some(after), Some(before)) = (filter.due_after, filter.due_before) {
        assert!(after < before);
    }
    if query.cursor.is_none() {
        let cursor = Cursor { from: Place(u64::MAX), walk: 0, began: now };
        let next = format!("{text}&cursor={}", query.write_cursor(&cursor));
        match ListQuery::read(&next, now) {
            Ok(next) => {
                assert_eq!((next.cursor, next.filter), (Some(cursor), query.filter));
            }
            Err(error) => panic!("{next}: {error}"),
        }
    }
    true
}

/// Queries of jobs: what is taken says which timers are meant.
pub fn delete_query(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let now = WallMs(1_796_115_600_000);
    let query = match ListQuery::read_delete(&text, 250, now) {
        Ok(query) => query,
        Err(error) => {
            assert!(error.to_string().contains(": "), "{error}");
            return false;
        }
    };
    let filter = query.filter.borrow();
    assert!(filter != Filter::ALL && filter.states == STATES_ALL);
    assert_eq!((query.limit, query.cursor), (250, None));
    let cursor = Cursor { from: Place(9), walk: 1, began: now };
    let behind = query.behind(&query.write_cursor(&cursor)).expect("a cursor of this query");
    assert_eq!((behind.cursor, &behind.filter), (Some(cursor), &query.filter));
    true
}

/// Questions of nodes for jobs: what is taken has one form.
pub fn jobs_ask(data: &[u8]) -> bool {
    let Ok(ask) = JobsAsk::decode(data) else { return false };
    let mut written = Vec::new();
    ask.encode(&mut written);
    assert_eq!(written, data, "written again, it is the same bytes");
    true
}

/// Jobs of nodes: what is taken has one form.
pub fn jobs_part(data: &[u8]) -> bool {
    let Ok(part) = JobsPart::decode(data) else { return false };
    assert!(part.jobs.len() <= JOBS_TOLD_MAX);
    let mut written = Vec::new();
    part.encode(&mut written);
    assert_eq!(written, data, "written again, it is the same bytes");
    true
}

/// Questions of nodes: what is taken has one form.
pub fn list_ask(data: &[u8]) -> bool {
    let Ok(ask) = ListAsk::decode(data) else { return false };
    let mut written = Vec::new();
    ask.encode(&mut written);
    assert_eq!(written, data, "written again, it is the same bytes");
    (0..data.len()).for_each(|cut| assert!(ListAsk::decode(&data[..cut]).is_err(), "{cut}"));
    true
}

/// Questions of nodes for numbers: what is taken has one form.
pub fn count_ask(data: &[u8]) -> bool {
    let Ok(ask) = CountAsk::decode(data) else { return false };
    let mut written = Vec::new();
    ask.encode(&mut written);
    assert_eq!(written, data, "written again, it is the same bytes");
    true
}

/// Numbers of nodes: what is taken has one form, and can be summed up.
pub fn count_part(data: &[u8]) -> bool {
    let Ok(part) = CountPart::decode(data) else { return false };
    let mut written = Vec::new();
    part.encode(&mut written);
    assert_eq!(written, data, "written again, it is the same bytes");
    if let Some(numbers) = part.numbers {
        let mut sum = numbers.clone();
        sum.add(numbers);
        sum.name_fewer_hosts();
        assert!(sum.hosts.len() <= HOSTS_NAMED_MAX);
    }
    true
}

/// Parts of lists: what is taken is the same bytes when it is written again.
pub fn list_part(data: &[u8]) -> bool {
    let mut rest = data;
    let Ok(head) = read_part(&mut rest) else { return false };
    assert!((1..=SHARDS_MAX).contains(&head.shards));
    let mut written = Vec::new();
    begin_part(&mut written);
    while !rest.is_empty() {
        let Ok(listed) = read_listed(&mut rest) else { return false };
        assert!(listed.copy.body.is_some());
        write_listed(&listed, &mut written);
    }
    end_part(&mut written, &head);
    // A copy may say that it is a client's write; it is told all the same.
    assert_eq!(written, data);
    true
}
