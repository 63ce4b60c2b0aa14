//! Bulk requests of a connection: their lines are taken like further requests, as many in a turn,
//! and their results wait for each other like answers.

use std::ops::ControlFlow;

use crate::base::quota::Quota;
use crate::shard::effects::{Answer, Requester};
use crate::wire::ndjson::Line;
use crate::wire::problem::Kind;
use crate::wire::request_head::{Framing, HeadProgress};

use crate::node::clients::access::{Access, renew};
use crate::node::clients::bulk::{
    BulkBody, LINES_PER_TURN_MAX, write_end, write_failure, write_head, write_result,
};
use crate::node::clients::connection::{ClientConnection, Pending, RequestPart};
use crate::node::clients::request_line::RequestLine;
use crate::node::clients::service::{Api, Service};
use crate::node::clients::warnings::add_member;

/// The answer to a bulk request of HTTP/1.0, which knows no chunks.
const NEEDS_CHUNKS: &str = "version: expected HTTP/1.1 for /timers/bulk, whose answer is chunked, \
                            got HTTP/1.0";
/// The last line of an answer whose request did not come to its end.
pub(super) const CUT: &str = "body: expected the rest of it, got the end of the connection; what \
                              was answered stands";
/// The last line of an answer when the node stops.
const STOPPING: &str = "the node stops; send the lines that were not answered to another node";

impl ClientConnection {
    /// Begins to take a body of timers.
    pub(super) fn begin_bulk(&mut self, api: &mut Api<'_>, line: RequestLine, framing: Framing) {
        if line.persistence.is_http10 {
            return self.fail_with(api.service, (505, ""), NEEDS_CHUNKS, line.persistence);
        }
        let body = BulkBody::new(line, framing, api.limits.body_bytes_max);
        self.stage = RequestPart::Bulk(Box::new(body));
    }

    /// Takes lines of the body, from what was kept and then from the front of `input`: as many as
    /// this connection, and all connections together, may have taken in a turn. Returns how many
    /// bytes were used, and whether to go on with what follows.
    pub(super) fn take_bulk(
        &mut self,
        api: &mut Api<'_>,
        input: &[u8],
        budget: &mut u32,
    ) -> ControlFlow<usize, usize> {
        let stage = std::mem::replace(&mut self.stage, RequestPart::Head(HeadProgress::default()));
        let RequestPart::Bulk(mut body) = stage else { return ControlFlow::Break(0) };
        if let Err(denial) = renew(&mut self.access, api.service) {
            self.stage = RequestPart::Bulk(body);
            self.fail(api.service, denial.status(), &denial.to_string());
            return ControlFlow::Break(0);
        }
        let turn = api.now.mono;
        let of_all = *api.service.bulk_budget.of(turn, LINES_PER_TURN_MAX);
        let of_one = *api.service.bulk_budget.left_of_one(turn, &mut body.budget);
        let lines_max = of_one.min(of_all);
        self.is_deferred = of_all == 0;
        let mut lines = 0;
        while lines < lines_max && !self.is_backed_up(api.limits) {
            if api.service.time.is_over() {
                self.is_deferred = true;
                break;
            }
            let Some((number, line)) = body.lines.next_line() else {
                spend(api, &mut body, lines);
                return self.take_more(api.service, body, input);
            };
            lines += 1;
            if line == Line::Blank {
                continue;
            }
            if !std::mem::replace(&mut body.is_answered, true) {
                let head = body.line;
                self.in_order(|out| write_head(out, &head));
            }
            // Each line has the time of a request.
            self.began = None;
            self.serve_line(api, body.line.is_strict, (number, line));
        }
        spend(api, &mut body, lines);
        self.stage = RequestPart::Bulk(body);
        if !self.is_deferred || lines > 0 {
            *budget = 0;
        }
        ControlFlow::Break(0)
    }

    /// Takes more of the body, or ends the request.
    fn take_more(
        &mut self,
        service: &mut Service,
        mut body: Box<BulkBody>,
        input: &[u8],
    ) -> ControlFlow<usize, usize> {
        if body.is_complete() {
            self.began = None;
            self.is_closing = !body.line.persistence.keep_alive;
            self.end_bulk(&body);
            service.written += 1;
            return ControlFlow::Continue(0);
        }
        let received = body.receive(input);
        self.stage = RequestPart::Bulk(body);
        match received {
            Ok(0) => ControlFlow::Break(0),
            Ok(used) => ControlFlow::Continue(used),
            Err(error) => {
                self.fail_chunk(service, error);
                ControlFlow::Break(0)
            }
        }
    }

    fn serve_line(&mut self, api: &mut Api<'_>, is_strict: bool, (number, line): (u64, Line<'_>)) {
        let from = Requester {
            shard: self.own,
            connection: self.key.index,
            generation: self.key.generation,
            request: self.next_request(),
        };
        let (service, core) = (&mut *api.service, &mut *api.core);
        let quota = self.access.as_deref().and_then(Access::quota);
        let taken = match line {
            Line::Text(text) => {
                let bytes = text.len();
                let taken = service.create_line((api.now, core), (from, quota), (text, is_strict));
                service.time.spend(bytes);
                taken
            }
            Line::TooLong => {
                let max = api.limits.body_bytes_max;
                let reason =
                    format!("line: expected at most {max} bytes (limits.body_bytes_max), got more");
                Err((413, reason))
            }
            Line::Blank => return,
        };
        let warning = service.warning.take();
        match taken {
            Ok(()) => match api.core.take_answer(from) {
                None => {
                    self.lines_awaited += 1;
                    self.pending.push_back(Pending::AwaitedLine { number });
                    if let Some(warning) = warning {
                        self.await_warning(from.request, warning);
                    }
                }
                Some(answer) => self.put_result(api.service, number, (&answer, warning)),
            },
            Err((status, reason)) => {
                service.written += 1;
                service.bad += 1;
                let kind = Kind::of(status, &reason);
                self.put_line(|out| write_failure(out, number, (status, kind), &reason));
            }
        }
    }

    /// Writes the result of a line that was answered at once.
    fn put_result(
        &mut self,
        service: &mut Service,
        number: u64,
        (answer, warning): (&Answer, Option<Box<str>>),
    ) {
        service.written += 1;
        let quota = self.access.as_deref().and_then(Access::quota);
        service.note_refused_timer(answer, quota);
        if self.pending.is_empty() {
            self.chunk.begin_line(&mut self.out);
            return write_warned(&mut self.out, number, (answer, warning), quota);
        }
        let mut bytes = Vec::new();
        write_warned(&mut bytes, number, (answer, warning), quota);
        self.put_ready(bytes);
    }

    /// Appends a line behind the lines and answers that are still awaited.
    fn put_line(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.pending.is_empty() {
            self.chunk.begin_line(&mut self.out);
            return write(&mut self.out);
        }
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.put_ready(bytes);
    }

    fn put_ready(&mut self, bytes: Vec<u8>) {
        self.ready_bytes += bytes.len();
        self.pending.push_back(Pending::ReadyLine(bytes));
    }

    /// Writes the answer of a shard to the create of a line, and what waited for it. False: the
    /// request is none of a line.
    pub(super) fn answer_line(
        &mut self,
        request: u32,
        answer: &Answer,
        service: &mut Service,
    ) -> bool {
        let position = request.wrapping_sub(self.first_pending) as usize;
        let Some(&Pending::AwaitedLine { number }) = self.pending.get(position) else {
            return false;
        };
        self.lines_awaited -= 1;
        let warning = self.take_warning(request);
        let quota = self.access.as_deref().and_then(Access::quota);
        service.note_refused_timer(answer, quota);
        if position == 0 {
            self.chunk.begin_line(&mut self.out);
            write_warned(&mut self.out, number, (answer, warning), quota);
            self.release_first();
            return true;
        }
        let mut bytes = Vec::new();
        write_warned(&mut bytes, number, (answer, warning), quota);
        self.ready_bytes += bytes.len();
        if let Some(pending) = self.pending.get_mut(position) {
            *pending = Pending::ReadyLine(bytes);
        }
        true
    }

    /// Keeps a warning for the answer to a request, of a line or another one.
    #[cold]
    pub(super) fn await_warning(&mut self, request: u32, warning: Box<str>) {
        self.ready_bytes += warning.len();
        self.warnings.put(request, warning);
    }

    /// The warning for the answer to this request.
    #[inline]
    pub(super) fn take_warning(&mut self, request: u32) -> Option<Box<str>> {
        let warning = self.warnings.take(request)?;
        self.ready_bytes -= warning.len();
        Some(warning)
    }

    /// Ends the answer.
    fn end_bulk(&mut self, body: &BulkBody) {
        if !body.is_answered {
            self.in_order(|out| write_head(out, &body.line));
        }
        if self.pending.is_empty() {
            self.chunk.close(&mut self.out);
        }
        self.in_order(write_end);
    }

    /// Ends the answer with a line that tells why the request ends before its body does. False: no
    /// bulk request is under way that has been answered in part.
    pub(super) fn fail_bulk(&mut self, service: &mut Service, status: u16, reason: &str) -> bool {
        let is_begun =
            |part: &RequestPart| matches!(part, RequestPart::Bulk(body) if body.is_answered);
        if !is_begun(&self.stage) {
            return false;
        }
        let stage = std::mem::replace(&mut self.stage, RequestPart::Head(HeadProgress::default()));
        if let RequestPart::Bulk(body) = stage {
            let (number, kind) = (body.lines.number(), Kind::of(status, reason));
            self.put_line(|out| write_failure(out, number, (status, kind), reason));
            self.end_bulk(&body);
        }
        service.written += 1;
        service.bad += u64::from(status < 500);
        true
    }

    /// Takes no further request. A bulk request that is under way ends with a line that says so.
    pub fn end_requests(&mut self, service: &mut Service, is_stopping: bool) {
        let (status, reason) = if is_stopping { (503, STOPPING) } else { (400, CUT) };
        match &self.stage {
            RequestPart::Bulk(_) if !self.is_closing => self.fail(service, status, reason),
            _ => self.is_closing = true,
        }
    }
}

/// Appends the result of a line, and what its client is told beside it.
#[inline]
fn write_warned(
    out: &mut Vec<u8>,
    number: u64,
    (answer, warning): (&Answer, Option<Box<str>>),
    quota: Option<&Quota>,
) {
    let begins = out.len();
    write_result(out, number, answer, quota);
    if let Some(warning) = warning {
        add_member(out, begins, &warning);
    }
}

/// Takes note of lines that were taken in this turn.
fn spend(api: &mut Api<'_>, body: &mut BulkBody, lines: u32) {
    let turn = api.now.mono;
    let all = &mut api.service.bulk_budget;
    *all.left_of_one(turn, &mut body.budget) -= lines;
    *all.of(turn, LINES_PER_TURN_MAX) -= lines;
}

/// Counts a create that is refused because the token's name has all its timers.
impl Service {
    #[inline]
    fn note_refused_timer(&mut self, answer: &Answer, quota: Option<&Quota>) {
        use crate::shard::effects::Refusal;
        if matches!(answer, Answer::Refused(Refusal::TokenFull)) {
            self.denied.timers += 1;
            quota.into_iter().for_each(Quota::note_timer_refused);
        }
    }
}
