//! What a timer has beyond the original's document: a retry policy, a window, a time or a calendar
//! instead of an interval. What the model expects of it.

use std::collections::BTreeMap;

use chronos::base::time::Now;
use chronos::shard::effects::CallbackOutcome;
use chronos::timer::admission::admit;
use chronos::wire::answer_head::RetryAfter;
use chronos::wire::attributes::{Attributes, RetryPolicy};
use chronos::wire::callback_uri::AuthorityMemory;
use chronos::wire::timer_json::{JsonScratch, parse_timer};
use kit::simulator::callback_world::{Ending, Outcome};
use kit::simulator::random::{Purpose, Stream};

use super::calendar::Cron;
use super::invariants::Begun;
use super::model::{Checked, Write, broken};
use super::reports::URI;

/// The members of a wish that the original does not have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    pub policy: Option<RetryPolicy>,
    pub window_ms: Option<u64>,
    /// The client says when the timer pops, instead of after how long.
    pub has_time: bool,
    /// The time that it said, in ms since 1970.
    pub at_ms: Option<u64>,
    /// The calendar that the timer follows.
    pub cron: Option<Cron>,
    /// Whether pops that are delivered are reported.
    pub has_reports: bool,
}

impl Extras {
    /// Half of all timers have none.
    pub fn draw(draw: &mut Stream) -> Self {
        if draw.chance(50) {
            return Self::default();
        }
        let policy = RetryPolicy {
            max_attempts: draw.pick(&[1, 2, 3, 5, 200]),
            max_age_ms: draw.pick(&[0, 300, 5_000, 60_000, 60_000]),
            initial_ms: draw.pick(&[1, 30, 400, 2_000]),
            max_ms: draw.pick(&[20, 400, 3_000, 10_000]),
            multiplier_milli: draw.pick(&[1_000, 1_500, 2_000, 10_000]),
            jitter_milli: draw.pick(&[0, 200, 1_000]),
        };
        Self {
            policy: draw.chance(70).then_some(policy),
            window_ms: draw.chance(40).then(|| draw.pick(&[0, 1, 50, 700, 4_000])),
            has_time: draw.chance(15),
            at_ms: None,
            cron: None,
            has_reports: false,
        }
    }

    /// The attributes of a timer, with the headers of the write of this name.
    pub fn encoded(&self, name: usize) -> Vec<u8> {
        let expression = self.cron.map(|cron| cron.expression()).unwrap_or_default();
        let attributes = Attributes {
            cron: self.cron.map(|cron| cron.timing(&expression)),
            retry: self.policy,
            window_ms: self.window_ms,
            at_ms: self.at_ms,
            on_success: self.has_reports.then_some(URI),
            headers: headers(name),
            ..Attributes::default()
        };
        let mut encoded = Vec::new();
        attributes.write(&mut encoded);
        encoded
    }
}

/// The headers of a write. Some timers have none, others one of three sets: each set comes and goes.
pub fn headers(name: usize) -> &'static str {
    match name % 8 {
        0 => "X-Tenant: the-first-of-the-tenants\r\n",
        1 => "X-Tenant: the-second-one\r\nAuthorization: of-the-second-one\r\n",
        2 if name.is_multiple_of(3) => "X-Tenant: one-that-has-few-timers\r\n",
        _ => "",
    }
}

/// What a node that takes a timer with a time makes of it: the interval.
pub fn interval_until(at_ms: u64, now: Now) -> Result<u64, String> {
    let at = jiff::Timestamp::from_millisecond(at_ms as i64).expect("a time").to_string();
    let (interval_ms, _) = admitted(&format!(r#""at":"{at}""#), now)?;
    let expected = at_ms.saturating_sub(now.wall.0);
    match interval_ms == expected {
        true => Ok(expected),
        false => Err(format!("{at} is {interval_ms} ms ahead, not {expected}")),
    }
}

/// What a node makes of the members of `timing`: the interval, and the content.
pub fn admitted(members: &str, now: Now) -> Result<(u64, Vec<u8>), String> {
    let timing = format!(r#""timing":{{{members}}}"#);
    let callback = r#""callback":{"http":{"uri":"http://host/","opaque":""}}"#;
    let mut body = format!("{{{timing},{callback}}}").into_bytes();
    let scratch = &mut JsonScratch::default();
    let document = parse_timer(&mut body, scratch).map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    let limits = (None, 1_000, now.wall);
    let definition = admit(&document, limits, &mut AuthorityMemory::default(), &mut content);
    let definition = definition.map_err(|rejection| rejection.to_string())?;
    let (interval_ms, repeat_for_ms) = (definition.interval_ms, definition.repeat_for_ms);
    match interval_ms == repeat_for_ms {
        true => Ok((interval_ms, content)),
        false => Err(format!("{members}: not one pop, {interval_ms} and {repeat_for_ms} ms")),
    }
}

/// How an attempt ends that is answered with neither 2xx nor silence: some servers say that the
/// timer is to end, or when to come again.
pub fn outcome_of(seed: u64, key: u64, ending: &Ending, wall_s: u32) -> CallbackOutcome {
    let draw = &mut Stream::keyed(seed, Purpose::Rarities, key);
    match ending.outcome {
        Outcome::Delivered => CallbackOutcome::Delivered,
        Outcome::TimedOut => CallbackOutcome::TimedOut,
        Outcome::Unreachable => CallbackOutcome::Unreachable,
        Outcome::Stale => CallbackOutcome::Stale,
        Outcome::Rejected => match draw.range(0, 11) {
            0 => CallbackOutcome::Gone,
            1 => CallbackOutcome::Later(RetryAfter::Seconds(draw.range(0, 3) as u32)),
            2 => CallbackOutcome::Later(RetryAfter::At(wall_s + draw.range(0, 3) as u32)),
            _ => CallbackOutcome::Rejected,
        },
    }
}

/// Least and longest pause in milliseconds after so many failures and this outcome.
pub fn pause_ms(
    policy: &RetryPolicy,
    failed: u32,
    outcome: CallbackOutcome,
    now: Now,
) -> (u64, u64) {
    let longer = (f64::from(policy.multiplier_milli) / 1_000.0).powi(failed as i32 - 1);
    let pause_ms = (policy.initial_ms as f64 * longer).min(policy.max_ms as f64) as u64;
    let asked_ms = match outcome {
        CallbackOutcome::Later(RetryAfter::Seconds(seconds)) => u64::from(seconds) * 1_000,
        CallbackOutcome::Later(RetryAfter::At(unix_s)) => {
            (u64::from(unix_s) * 1_000).saturating_sub(now.wall.0)
        }
        _ => 0,
    };
    // Each pause is rounded up to a millisecond, and the next one grows from that.
    let rounded = if policy.multiplier_milli > 1_000 { pause_ms / 10 + 20 } else { 0 };
    let stretch_ms = (pause_ms + rounded) * u64::from(policy.jitter_milli) / 1_000;
    (pause_ms.max(asked_ms), (pause_ms + rounded).max(asked_ms) + stretch_ms)
}

/// Checks T11: attempts at a pop, pauses between them and their end are those of the policy.
pub fn keeps_policy(begun: &Begun<'_>, write: &Write, story: &str) -> Checked {
    let wish = write.wish.expect("only timers pop");
    let Some(policy) = wish.extras.policy else { return Ok(()) };
    let (tick, failed) = (begun.now.mono.tick_floor().0, write.failed);
    let is_again = begun.attempt.ticket.sequence == write.next && failed > 0;
    if !is_again || write.stale_in_a_row > 0 {
        return Ok(());
    }
    if failed >= u32::from(policy.max_attempts) {
        return broken("T11", format!("{story}: attempt {} of {policy:?}", failed + 1));
    }
    if tick < write.not_before {
        let early_ms = write.not_before - tick;
        return broken(
            "T11",
            format!("{story}: {early_ms} ms before its pause is over {policy:?}"),
        );
    }
    let age_ms = tick.saturating_sub(write.due(write.next));
    if age_ms > 0 && age_ms >= policy.max_age_ms {
        return broken("T11", format!("{story}: attempt at an age of {age_ms} ms, {policy:?}"));
    }
    Ok(())
}

/// By id and window: the least and the most by which the start may have moved.
#[derive(Default)]
pub struct Windows(BTreeMap<(u64, u64), (u64, u64)>);

impl Windows {
    /// Checks T12: pops come within the window, at a moment fixed by the id. `start` is the start
    /// that an attempt shows.
    pub fn see(&mut self, id: u64, write: &Write, start: u64, story: &str) -> Checked {
        let window_ms = write.wish.and_then(|wish| wish.extras.window_ms);
        // Later pops of a calendar keep to their plan (T14).
        let is_known = write.answered.is_some() && !write.is_anew;
        let Some(window_ms) = window_ms.filter(|_| is_known) else { return Ok(()) };
        let asked = write.asked_ns / 1_000_000;
        let answered = write.answered_ns.div_ceil(1_000_000);
        let (least, most) = (start.saturating_sub(answered), start.saturating_sub(asked));
        let known = self.0.entry((id, window_ms)).or_insert((0, window_ms));
        *known = (known.0.max(least), known.1.min(most));
        match known.0 <= known.1 {
            true => Ok(()),
            false => {
                broken("T12", format!("{story}: {least} to {most} of {window_ms} ms, {known:?}"))
            }
        }
    }
}
