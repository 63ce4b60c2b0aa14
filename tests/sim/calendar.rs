//! Timers that follow the calendar (`timing.cron`): which of their pops are due when, which may be
//! missed, and which number each has (T13). The moments are found by arithmetic, without the
//! product's calendar.

use chronos::base::time::{Now, Tick};
use chronos::timer::definition::Content;
use chronos::wire::attributes::CronTiming;
use kit::simulator::random::{Purpose, Stream};

use super::clients::{Fault, Wish};
use super::extras::{Extras, admitted};
use super::invariants::Begun;
use super::model::{Checked, Model, Pop, Write, broken};
use super::options::Options;
use super::world::START_NS;

/// When runs begin: 15 January 2027, 08:00 UTC.
pub const WALL_MS: u64 = 1_800_000_000_000;
/// When the clocks of London are put forward in 2027 (from 01:00 to 02:00), and back (from 02:00 to
/// 01:00).
const FORWARD_MS: u64 = 1_806_195_600_000;
const BACK_MS: u64 = 1_824_944_400_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// A pop that is at most so late is made, whatever its catch-up window is.
const LATE_MS: u64 = 10_000;
/// Two clocks that agree are no further apart.
const SKEW_MS: u64 = 60_000;
/// Most moments between two pops that are looked at.
const MOMENTS_MAX: usize = 20_000;

/// What an expression says, so that its moments can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Each so many seconds of a minute, in any zone.
    Seconds(u64),
    /// Each full minute.
    Minutes,
    /// At this second of each day in London.
    London(u64),
    /// At this second of each day in London, and an hour later.
    LondonTwice(u64),
}

impl Pattern {
    fn expression(self) -> String {
        match self {
            Pattern::Seconds(1) => "* * * * * *".to_owned(),
            Pattern::Seconds(every) => format!("*/{every} * * * * *"),
            Pattern::Minutes => "* * * * *".to_owned(),
            Pattern::London(second) => {
                format!("{} {} {} * * *", second % 60, second / 60 % 60, second / 3_600)
            }
            Pattern::LondonTwice(second) => {
                let (hour, next) = (second / 3_600, (second / 3_600 + 1) % 24);
                let hours = format!("{},{}", hour.min(next), hour.max(next));
                format!("{} {} {hours} * * *", second % 60, second / 60 % 60)
            }
        }
    }

    fn zone(self) -> &'static str {
        match self {
            Pattern::Seconds(1) => "Asia/Kolkata",
            Pattern::Seconds(2) => "America/New_York",
            Pattern::Seconds(_) => "UTC",
            Pattern::Minutes | Pattern::London(_) | Pattern::LondonTwice(_) => "Europe/London",
        }
    }

    /// The first moment after one.
    pub fn next_after(self, ms: u64) -> u64 {
        let every = |step_ms: u64| (ms / step_ms + 1) * step_ms;
        match self {
            Pattern::Seconds(seconds) => every(seconds * 1_000),
            Pattern::Minutes => every(60_000),
            Pattern::London(second) => {
                let days = ms / DAY_MS - 1..ms / DAY_MS + 3;
                let mut moments = days.map(|day| in_london(day * DAY_MS + second * 1_000));
                moments.find(|moment| *moment > ms).expect("one of four days is later")
            }
            Pattern::LondonTwice(second) => {
                let seconds = [second, (second + 3_600) % 86_400];
                let [one, other] = seconds.map(|second| Pattern::London(second).next_after(ms));
                one.min(other)
            }
        }
    }
}

/// The moment at which the clocks of London show a time, which is written as if it were UTC. A time
/// that they leave out is the moment at which they are put forward.
fn in_london(shown_ms: u64) -> u64 {
    let is_summer = |ms: u64| (FORWARD_MS..BACK_MS).contains(&ms);
    match shown_ms {
        _ if is_summer(shown_ms - HOUR_MS) => shown_ms - HOUR_MS,
        _ if is_summer(shown_ms) && shown_ms < FORWARD_MS + HOUR_MS => FORWARD_MS,
        _ => shown_ms,
    }
}

/// A calendar that a client asks for, and which of its pops is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cron {
    pub pattern: Pattern,
    catch_up_ms: u64,
    /// The end, counted from when the node takes the timer.
    end_after_ms: Option<u64>,
    pub end_ms: Option<u64>,
    due_ms: u64,
    /// How many pops there were before the next one.
    done: u64,
}

impl Cron {
    fn draw(draw: &mut Stream, options: &Options) -> Self {
        let seconds = draw.pick(&[1, 1, 2, 5, 10, 30]);
        let near_s = options.safety_ms / 1_000 + 2;
        let pattern = match draw.range(0, 9) {
            0 => Pattern::Minutes,
            1..=2 => Pattern::London(london_second(draw, options.wall_ms, near_s)),
            3 => Pattern::LondonTwice(london_second(draw, options.wall_ms, near_s)),
            _ => Pattern::Seconds(seconds),
        };
        let catch_up_ms = draw.pick(&[0, 500, 1_000, 3_000, 15_000, 60_000]);
        let end = draw.chance(40) && matches!(pattern, Pattern::Seconds(_));
        let end_after_ms = end.then(|| seconds * 1_000 + draw.range(0, 20_000));
        Self { pattern, catch_up_ms, end_after_ms, end_ms: None, due_ms: 0, done: 0 }
    }

    /// Notes that a node takes the timer. Returns how far the first pop is ahead.
    pub fn take(&mut self, now: Now) -> Result<u64, String> {
        let wall_ms = now.wall.0;
        self.due_ms = self.pattern.next_after(wall_ms);
        self.end_ms = self.end_after_ms.map(|after_ms| wall_ms + after_ms);
        let end = self.end_ms.map(|end_ms| {
            let end = jiff::Timestamp::from_millisecond(end_ms as i64).expect("a time");
            format!(r#","end-at":"{end}""#)
        });
        let (expression, zone) = (self.pattern.expression(), self.pattern.zone());
        let catch_up_s = self.catch_up_ms as f64 / 1_000.0;
        let timing = format!(
            r#""cron":"{expression}","time-zone":"{zone}","catch-up-window":{catch_up_s}{}"#,
            end.unwrap_or_default()
        );
        let (interval_ms, content) = admitted(&timing, now)?;
        let ahead_ms = self.due_ms - wall_ms;
        let attributes = Content::decode(&content).attributes();
        if attributes.cron != Some(self.timing(&expression)) || interval_ms != ahead_ms {
            return Err(format!("{timing} at {wall_ms}: {attributes:?}, expected {self:?}"));
        }
        Ok(ahead_ms)
    }

    pub fn timing<'a>(&self, expression: &'a str) -> CronTiming<'a> {
        CronTiming {
            expression,
            zone: self.pattern.zone(),
            due_ms: self.due_ms,
            done: self.done,
            catch_up_ms: self.catch_up_ms,
            end_ms: self.end_ms,
        }
    }

    pub fn expression(&self) -> String {
        self.pattern.expression()
    }

    /// How long after a pop the next one is due at the earliest.
    pub fn pause_ms(&self) -> u64 {
        self.pattern.next_after(self.due_ms) - self.due_ms
    }

    /// Whether a pop that is so late is left out instead of made.
    pub fn is_missed(&self, late_ms: u64) -> bool {
        late_ms > LATE_MS && late_ms > self.catch_up_ms
    }

    /// The calendar after its pop is over; `None`: that was the last pop.
    fn after_pop(&self, wall_ms: u64, offset_ms: u64) -> Option<Self> {
        let wall_ms = wall_ms.saturating_sub(offset_ms);
        let made_up_from_ms = wall_ms.saturating_sub(self.catch_up_ms.max(LATE_MS) + 1);
        // A moment that is so far ahead was planned by a clock that has been set back since.
        let over_ms = if self.due_ms > wall_ms + SKEW_MS { wall_ms } else { self.due_ms };
        let due_ms = self.pattern.next_after(over_ms.max(made_up_from_ms));
        let is_there = self.end_ms.is_none_or(|end_ms| due_ms <= end_ms);
        is_there.then_some(Self { due_ms, done: self.done + 1, ..*self })
    }

    /// Whether a read may show this pop as the next one.
    pub fn may_show(&self, shown: &CronTiming<'_>) -> bool {
        let moment = Self { due_ms: shown.due_ms, done: shown.done, ..*self };
        let expression = self.expression();
        moment.timing(&expression) == *shown && moment.is_moment()
    }

    fn is_moment(&self) -> bool {
        self.pattern.next_after(self.due_ms - 1) == self.due_ms
            && self.end_ms.is_none_or(|end_ms| self.due_ms <= end_ms)
    }
}

/// A second of the day in London that is near the time at which the run begins, or that London
/// leaves out on that day.
fn london_second(draw: &mut Stream, wall_ms: u64, near_s: u64) -> u64 {
    let shown_s = wall_ms % DAY_MS / 1_000;
    let (near, left_out) = (draw.range(0, near_s), 3_600 + draw.range(0, 3_599));
    match wall_ms {
        WALL_MS => shown_s + near,
        _ if wall_ms > BACK_MS - DAY_MS => shown_s + 3_600 + near,
        _ => draw.pick(&[shown_s + near, shown_s + 3_600 + near, left_out]),
    }
}

/// When the run begins: in a third of the runs with calendars London is about to change its clocks.
pub fn wall_ms(draw: &mut Stream, safety_ms: u64) -> u64 {
    let before_ms = draw.range(0, safety_ms);
    draw.pick(&[WALL_MS, WALL_MS, FORWARD_MS - before_ms, BACK_MS - HOUR_MS / 2 - before_ms])
}

/// Lets some of the timers of a story follow the calendar.
pub fn draw_into(wish: &mut Wish, name: usize, options: &Options) {
    let draw = &mut Stream::keyed(options.seed, Purpose::Calendars, name as u64);
    if !options.has_calendars || wish.repeat_for_ms < wish.interval_ms || draw.chance(60) {
        return;
    }
    let cron = Some(Cron::draw(draw, options));
    wish.extras = Extras { cron, has_time: false, ..wish.extras };
    // Replaced by what the node that takes the timer makes of the expression.
    (wish.interval_ms, wish.repeat_for_ms) = (1, 1);
}

/// A core that gets no time for longer than a pop may be late, in some runs with calendars.
pub fn long_stall(options: &Options, end_ns: u64) -> Option<(u64, Fault)> {
    let draw = &mut Stream::keyed(options.seed, Purpose::Calendars, u64::MAX);
    let core = draw.range(0, u64::from(options.shards) - 1) as u16;
    let stall = Fault::Stall { core, phase: 0, ms: draw.pick(&[11_000, 20_000]) };
    let is_drawn = draw.chance(50) && options.has_calendars && options.has_stalls;
    is_drawn.then(|| (draw.range(0, end_ns), stall))
}

impl Write {
    pub fn cron(&self) -> Option<Cron> {
        self.wish.and_then(|wish| wish.extras.cron)
    }

    /// Notes that a pop of a timer that follows the calendar is over. To a core the next one is a
    /// new timer, which it takes at `now`. False: there is no next one.
    pub fn follow(&mut self, now: Now) -> bool {
        let offset_ms = self.offset_ms.unwrap_or(0);
        let next = self.cron().and_then(|cron| cron.after_pop(now.wall.0, offset_ms));
        let (Some(wish), Some(next)) = (&mut self.wish, next) else { return false };
        wish.extras.cron = Some(next);
        wish.interval_ms = next.due_ms.saturating_sub(now.wall.0);
        wish.repeat_for_ms = wish.interval_ms;
        let taken_ns = now.mono.tick_ceil().0 * 1_000_000;
        (self.asked_ns, self.answered_ns, self.is_anew) = (taken_ns, taken_ns, true);
        (self.next, self.pop, self.failed, self.start) = (1, Pop::Waiting, 0, None);
        true
    }

    /// Notes a pop that comes after others that were given up or missed unseen, at an unknown time
    /// since the one that was expected.
    fn jump(&mut self, cron: Cron, due: Tick) {
        // Planned anew, because the clock was set, it may come before the one that was expected.
        let earliest = (self.due(1) - self.unknown_ms()).min(due.0);
        let wish = self.wish.as_mut().expect("only timers pop");
        wish.extras.cron = Some(cron);
        (wish.interval_ms, wish.repeat_for_ms) = (0, 0);
        (self.asked_ns, self.answered_ns) = (earliest * 1_000_000, due.0 * 1_000_000);
        (self.next, self.pop, self.failed, self.start) = (1, Pop::Waiting, 0, Some(due.0));
        (self.is_anew, self.stale_in_a_row) = (true, 0);
    }
}

impl Model {
    /// Checks T13: a timer that follows the calendar makes the pop that is next, under its number.
    /// What it leaves out it may leave out.
    pub fn follows(&mut self, begun: &Begun<'_>, at: usize, story: &str) -> Checked {
        let id = begun.attempt.ticket.id.0;
        let write = &self.timers[&id].writes[at];
        let (cron, shown) = match (write.cron(), begun.cron) {
            (None, None) => return Ok(()),
            (Some(cron), Some(shown)) => (cron, shown),
            (_, shown) => return broken("T13", format!("{story}: shows {shown:?}")),
        };
        if !cron.may_show(&shown) {
            return broken("T13", format!("{story}: {shown:?} is no moment of {cron:?}"));
        }
        let next_ms = cron.pattern.next_after(shown.due_ms);
        let is_expected = (shown.due_ms, shown.done) == (cron.due_ms, cron.done);
        // A timer whose end was jumped over makes the pop that was planned, and no other.
        let ends_so =
            is_expected && cron.end_ms.is_some_and(|ms| self.clocks.is_before_jump(begun.core, ms));
        if self.clocks.jumped_over(begun.core, (shown.due_ms, next_ms + begun.offset_ms))
            && !ends_so
        {
            return broken("T14", format!("{story}: {shown:?} never was, nor was it the last"));
        }
        let begun_tick = begun.now.mono.tick_floor().0;
        if is_expected {
            let late_ms = begun_tick.saturating_sub(begun.attempt.due.0);
            let is_seen_late = begun.away_since.0 < begun.attempt.due.0 && write.failed == 0;
            let was_withheld = write.stale_in_a_row > 0;
            if is_seen_late && !was_withheld && cron.is_missed(late_ms) {
                return broken("T13", format!("{story}: {late_ms} ms late, {cron:?}"));
            }
            self.keeps_to_plan(begun, write, story)?;
            // What was missed counts from when the pop before was over, not from its request.
            let is_early = begun.attempt.due.begins().0 < write.asked_ns;
            return match is_early && write.is_anew {
                true => broken("T13", format!("{story}: before the pop before was over")),
                false => Ok(()),
            };
        }
        if let Some(what) = self.must_not_jump(begun, write, &shown) {
            return broken("T13", format!("{story}: {what}, {shown:?} {cron:?}"));
        }
        self.tally.given_up_max += shown.done.saturating_sub(cron.done);
        self.unfile(id);
        let next = Cron { due_ms: shown.due_ms, done: shown.done, ..cron };
        let timer = self.timers.get_mut(&id).expect("found by the caller");
        timer.writes[at].jump(next, begun.attempt.due);
        Ok(())
    }

    /// Why a pop must not come instead of the expected one; `None`: it may.
    fn must_not_jump(
        &self,
        begun: &Begun<'_>,
        write: &Write,
        shown: &CronTiming<'_>,
    ) -> Option<&'static str> {
        if self.clocks.has_moved(usize::from(begun.core)) {
            // It was planned anew.
            return None;
        }
        let cron = write.cron().expect("asked before");
        let skipped = shown.done.saturating_sub(cron.done);
        if skipped == 0 || shown.due_ms <= cron.due_ms {
            return Some("a number or a moment that was used");
        }
        if write.pop == Pop::Running {
            return Some("the pop before still runs");
        }
        let due = write.due(1) - write.unknown_ms();
        let tick = begun.now.mono.tick_floor().0;
        let host = &self.hosts[usize::from(begun.core)];
        let host = &host[write.wish.expect("only timers pop").host as usize];
        let was_away = cron.is_missed(tick.saturating_sub(due));
        let had_trouble = host.was_in_trouble_since(due);
        let given_up_at = write.give_up_at(1, self.give_up_ms) - write.unknown_ms();
        let is_given_up = tick >= given_up_at && (write.failed > 0 || had_trouble);
        if !is_given_up && !was_away {
            return Some("the pop before had no reason to be left out");
        }
        if skipped > 1 && !had_trouble && !was_away {
            return Some("several pops had no reason to be left out");
        }
        let moments = std::iter::successors(Some(cron.due_ms), |ms| {
            Some(cron.pattern.next_after(*ms)).filter(|ms| *ms < shown.due_ms)
        });
        let moments: Vec<u64> = moments.take(MOMENTS_MAX).collect();
        let Some(left_out) = moments.len().checked_sub(skipped as usize) else {
            return Some("more numbers than moments");
        };
        // At least so many moments must have been missed for too long.
        let missed_ms = moments[left_out] + cron.catch_up_ms.max(LATE_MS);
        if left_out > 0 && missed_ms >= begun.wall.0 && !self.has_clock_steps {
            return Some("a moment is left out within the window");
        }
        None
    }

    /// Checks T14: a pop comes by its offset later than its moment, however late the one before was.
    fn keeps_to_plan(&self, begun: &Begun<'_>, write: &Write, story: &str) -> Checked {
        let (Some(shown), false) = (begun.cron, write.is_brought_forward(begun)) else {
            return Ok(());
        };
        let is_followed = write.is_anew && write.start.is_none();
        if self.has_clock_steps || write.acts.is_vague || !is_followed {
            return Ok(());
        }
        let over_at = write.asked_ns.div_ceil(1_000_000);
        let planned = self.tick_of(shown.due_ms) + begun.offset_ms;
        let due = begun.attempt.due.0;
        match due.abs_diff(planned.max(over_at)) <= 2 {
            true => Ok(()),
            false => broken("T14", format!("{story}: due at {due}, planned for {planned}")),
        }
    }

    /// Whether a core may have planned a pop anew, because the time of calendars was set.
    pub fn may_be_planned_anew(&self, core: usize, id: u64) -> bool {
        let write = self.timers[&id].certain().expect("duties are of certain writes");
        self.clocks.has_moved(core) && write.cron().is_some()
    }

    /// The tick at which the wall clock shows a moment, where nobody sets the clock.
    fn tick_of(&self, moment_ms: u64) -> u64 {
        START_NS.div_ceil(1_000_000) + moment_ms.saturating_sub(self.wall_ms)
    }

    /// Checks that no pop comes before its moment, where nobody sets the clock.
    pub fn keeps_to_wall(&self, begun: &Begun<'_>, story: &str) -> Checked {
        match begun.cron {
            Some(shown) if !self.has_clock_steps && begun.wall.0 < shown.due_ms => {
                broken("T13", format!("{story}: at {} instead of {}", begun.wall.0, shown.due_ms))
            }
            _ => Ok(()),
        }
    }

    /// Whether the pop of a timer that follows the calendar may have been given up or missed unseen
    /// at `tick`, so that none is owed yet. `core`: the one that has the timer.
    pub fn calendar_may_wait(
        &self,
        write: &Write,
        tick: u64,
        core: usize,
        had_trouble: impl Fn(u64) -> bool,
    ) -> bool {
        if self.clocks.has_moved(core) {
            return true;
        }
        let cron = write.cron().expect("asked before");
        let (mut due, mut moment, mut has_failed) = (write.due(1), cron.due_ms, write.failed > 0);
        let mut earliest = due - write.unknown_ms();
        let lasts_ms = write.give_up_at(1, self.give_up_ms) - due;
        for count in 0.. {
            let next = cron.pattern.next_after(moment);
            let is_given_up = earliest + lasts_ms.min(next - moment) <= tick
                && (has_failed || had_trouble(earliest));
            if !is_given_up && !cron.is_missed(tick.saturating_sub(earliest)) {
                return count > 0 && tick <= due + self.look_ms;
            }
            if self.has_clock_steps || cron.end_ms.is_some_and(|end_ms| next > end_ms) {
                return true;
            }
            // What failed when its time was over is given up when the core looks after that.
            let failed_at = if has_failed { write.failed_at } else { 0 };
            let over = (due + lasts_ms.min(next - moment)).max(failed_at);
            // A core that gets no time gives a pop up, or leaves it out, when it looks again.
            let looks_again = self.looks_at(core, earliest).max(self.looks_at(core, over));
            (moment, has_failed, earliest) = (next, false, self.tick_of(next));
            // The next pop spreads over its window anew.
            due = earliest.max(over).max(looks_again) + write.window_ms();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn london_leaves_an_hour_out_and_has_one_twice() {
        let half_past_one = Pattern::London(5_400);
        assert_eq!(half_past_one.next_after(FORWARD_MS - 1), FORWARD_MS);
        assert_eq!(half_past_one.next_after(FORWARD_MS), FORWARD_MS + DAY_MS - HOUR_MS / 2);
        assert_eq!(half_past_one.next_after(BACK_MS - HOUR_MS), BACK_MS - HOUR_MS / 2);
        assert_eq!(half_past_one.next_after(BACK_MS), BACK_MS + DAY_MS + HOUR_MS / 2);
        let at_one_and_two = Pattern::LondonTwice(3_600);
        assert_eq!(at_one_and_two.next_after(FORWARD_MS - 1), FORWARD_MS, "both as one");
        assert_eq!(at_one_and_two.next_after(FORWARD_MS), FORWARD_MS + DAY_MS - HOUR_MS);
        assert_eq!(at_one_and_two.next_after(BACK_MS - HOUR_MS - 1), BACK_MS - HOUR_MS);
        assert_eq!(at_one_and_two.next_after(BACK_MS - HOUR_MS), BACK_MS + HOUR_MS);
    }
}
