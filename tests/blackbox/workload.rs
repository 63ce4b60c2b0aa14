//! Clients. Each client owns timers, writes them through random nodes one after the other, and
//! reads them through every node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kit::simulator::random::Stream;
use serde_json::{Value, json};

use super::client::{Answer, Client, Failure};
use super::history::{
    Act, Action, Handling, LONG_MS, LetterUse, Outcome, Read, Recorder, TimerNumber, Wish, Write,
};
use super::nodes::Nodes;
use super::sink::{self, Manner, Sinks};
use super::worlds::World;

/// Most timers of one client that are not deleted.
const OWNED_MAX: usize = 150;
/// How long a job may take.
const JOB: Duration = Duration::from_secs(30);
/// How many tags each client has.
const TAGS: u64 = 4;
/// Why the outcome of a job is not known that ran at a site that need not have heard of a timer.
const OTHER_SITE: &str = "a job of another site";
/// The longest interval of timers that pop within a run.
pub const INTERVAL_MS_MAX: u64 = 12_000;

/// A timer as its client knows it.
struct Owned {
    number: TimerNumber,
    /// The path of the last answer, or a path that this client chose.
    path: String,
    factor: u8,
    is_deleted: bool,
    /// What the last write asked for.
    wish: Option<Wish>,
    /// Whether the client did something with the timer that the last write made.
    is_handled: bool,
    is_paused: bool,
    tag: u64,
}

impl Owned {
    fn new(number: TimerNumber, path: String, factor: u8, tag: u64) -> Owned {
        let (is_deleted, is_handled, is_paused) = (false, false, false);
        Owned { number, path, factor, is_deleted, wish: None, is_handled, is_paused, tag }
    }

    fn is_named(&self) -> bool {
        self.path.contains("/by-name/")
    }
}

/// One client and its timers.
pub struct Worker<'a> {
    nodes: &'a Nodes,
    recorder: &'a Recorder,
    sinks: Sinks,
    client: Client,
    admins: Client,
    draw: Stream,
    /// The number of the client.
    me: u64,
    factor: Option<u8>,
    /// Whether the client also sends to nodes that are frozen or dead.
    is_bold: bool,
    owned: Vec<Owned>,
    /// Timers that live and that only jobs reach any more.
    forgotten: Vec<Owned>,
}

impl<'a> Worker<'a> {
    pub fn new(
        nodes: &'a Nodes,
        recorder: &'a Recorder,
        sinks: Sinks,
        (me, draw): (u64, Stream),
        factor: Option<u8>,
        is_bold: bool,
    ) -> Worker<'a> {
        let client = Client::new(nodes.addresses());
        let admins = Client::new(nodes.admins());
        let (owned, forgotten) = (Vec::new(), Vec::new());
        Worker {
            nodes,
            recorder,
            sinks,
            client,
            admins,
            draw,
            me,
            factor,
            is_bold,
            owned,
            forgotten,
        }
    }

    fn has(&self, world: World) -> bool {
        self.nodes.worlds().has(world)
    }

    /// Writes and reads until the load is over.
    pub fn run(&mut self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::SeqCst) {
            self.act();
            thread::sleep(Duration::from_millis(self.draw.range(10, 60)));
        }
    }

    fn act(&mut self) {
        let is_full = self.owned.len() >= OWNED_MAX;
        match self.draw.range(0, 99) {
            0..32 if !is_full => self.create(),
            32..40 if !is_full => self.put_own_id(),
            40..47 if !is_full && self.has(World::Names) => self.put_name(),
            47..60 => self.change(false),
            60..74 => self.change(true),
            74..82 if self.has(World::Actions) => self.act_on_one(),
            82..87 if self.has(World::Letters) => self.handle_letter(),
            87..88 if self.has(World::Jobs) => self.delete_by_tag(),
            _ => {
                if let Some(place) = self.choose() {
                    self.read_everywhere(place);
                }
            }
        }
        if is_full {
            // Timers that were deleted long ago are not looked at any more.
            let place = self.owned.iter().position(|owned| owned.is_deleted).unwrap_or(0);
            let owned = self.owned.remove(place);
            if !owned.is_deleted {
                self.forgotten.push(owned);
            }
        }
    }

    fn choose(&mut self) -> Option<usize> {
        let count = self.owned.len() as u64;
        (count > 0).then(|| self.draw.range(0, count - 1) as usize)
    }

    fn node(&mut self) -> usize {
        let serving = self.nodes.serving();
        if self.is_bold || serving.is_empty() {
            let layout = self.nodes.layout();
            // The last place of a cluster without other sites is a member for a time only.
            let places = layout.places() - usize::from(!layout.has_sites());
            let place = self.draw.range(0, places as u64 - 1) as usize;
            if !self.nodes.is_stranger(place) || serving.is_empty() {
                return place;
            }
        }
        self.draw.pick(&serving)
    }

    fn wish(&mut self, owned: &Owned) -> Wish {
        let factor = owned.factor;
        if self.has(World::Cron) && self.draw.chance(6) {
            return Wish::Cron { every_s: self.draw.range(1, 3), factor };
        }
        if self.has(World::Letters) && !owned.is_named() && self.draw.chance(10) {
            return Wish::Letter { interval_ms: self.draw.range(200, 4_000), factor };
        }
        let interval_ms = match self.draw.range(0, 99) {
            0..15 => self.draw.range(200, 1_000),
            15..55 => self.draw.range(1_000, 5_000),
            55..85 => self.draw.range(5_000, INTERVAL_MS_MAX),
            _ => LONG_MS,
        };
        let many = (INTERVAL_MS_MAX / interval_ms).clamp(1, 8);
        let pops = if self.draw.chance(60) { 1 } else { self.draw.range(1, many) };
        let is_ruled = pops == 1 && self.has(World::Rules) && self.draw.chance(20);
        Wish::Timer { interval_ms, pops, factor, is_ruled }
    }

    /// Makes a timer of this client's, and its first write.
    fn begin(&mut self, path: impl FnOnce(&mut Stream, TimerNumber, u8) -> String) {
        let factor = self.factor.unwrap_or_else(|| self.draw.pick(&[2, 3]));
        let number = self.recorder.new_timer();
        let path = path(&mut self.draw, number, factor);
        let owned = Owned::new(number, path, factor, self.draw.range(0, TAGS - 1));
        let wish = self.wish(&owned);
        self.owned.push(owned);
        let place = self.owned.len() - 1;
        self.write(place, wish);
        if self.owned[place].path.is_empty() {
            self.owned.remove(place);
        }
    }

    fn create(&mut self) {
        self.begin(|_, _, _| String::new());
    }

    /// Creates a timer under an id that this client chose.
    fn put_own_id(&mut self) {
        self.begin(|draw, _, factor| format!("/timers/{:016x}-{factor}", draw.next()));
    }

    /// Creates a timer under a name.
    fn put_name(&mut self) {
        let me = self.me;
        self.begin(|_, number, _| format!("/timers/by-name/client%20{me}%2F{number}"));
    }

    /// Deletes a timer or replaces it, even if it was deleted or has ended.
    fn change(&mut self, deletes: bool) {
        let Some(place) = self.choose() else { return };
        let owned = self.owned.swap_remove(place);
        let wish = if deletes { Wish::Delete } else { self.wish(&owned) };
        self.owned.push(owned);
        self.write(self.owned.len() - 1, wish);
    }

    /// Makes one write, then often reads the timer through every node.
    fn write(&mut self, place: usize, wish: Wish) {
        let number = self.owned[place].number;
        let index = self.recorder.with(|history| history.timers[number].writes.len());
        let body = self.body(place, index, wish);
        let path = self.owned[place].path.clone();
        let method = match wish {
            Wish::Delete => "DELETE",
            _ if path.is_empty() => "POST",
            _ => "PUT",
        };
        let target = if path.is_empty() { "/timers" } else { &path };
        let via = self.node();
        let sent = self.recorder.clock.now();
        let answered = self.client.request(via, method, target, &body);
        let ended = self.recorder.clock.now();
        if let Ok(answer) = &answered
            && let Some(location) = answer.header("Location")
            && answer.status == 200
            && !self.owned[place].is_named()
        {
            self.owned[place].path = location.to_owned();
        }
        let outcome = outcome_of(answered);
        let owned = &mut self.owned[place];
        if outcome != Outcome::NotSent {
            owned.is_deleted = wish == Wish::Delete;
            owned.wish = Some(wish);
            (owned.is_handled, owned.is_paused) = (false, false);
        }
        let write = Write { wish, via, sent, ended, outcome };
        self.recorder.with(|history| history.timers[number].writes.push(write));
        if !self.owned[place].path.is_empty() && self.draw.chance(35) {
            self.read_everywhere(place);
        }
    }

    /// Returns the document of a write. Some timers that pop once have their first attempt refused.
    fn body(&self, place: usize, index: usize, wish: Wish) -> String {
        let Owned { number, tag, .. } = self.owned[place];
        let seconds = |ms: u64| ms as f64 / 1_000.0;
        let (timing, manner) = match wish {
            Wish::Timer { interval_ms, pops, .. } => (
                json!({
                    "interval": seconds(interval_ms), "repeat-for": seconds(interval_ms * pops),
                }),
                if pops == 1 && number % 16 == 7 { Manner::FailsFirst } else { Manner::Takes },
            ),
            Wish::Cron { every_s, .. } => {
                (json!({ "cron": format!("*/{every_s} * * * * *") }), Manner::TakesMoments)
            }
            Wish::Letter { interval_ms, .. } => {
                (json!({ "interval": seconds(interval_ms) }), Manner::Refuses)
            }
            Wish::Delete => return String::new(),
        };
        let is_ruled = matches!(wish, Wish::Timer { is_ruled: true, .. });
        let sink = if is_ruled { self.sinks.ruled } else { self.sinks.free };
        let uri = format!("http://{sink}{}", sink::path(number, index, manner));
        let mut document = json!({
            "timing": timing,
            "callback": { "http": { "uri": uri, "opaque": sink::opaque(number, index) } },
            "reliability": { "replication-factor": wish.factor() },
        });
        if manner == Manner::Refuses {
            // Dead letters have no tag: a job is about timers.
            document["callback"]["retry"] = json!({ "max-attempts": 1 });
        } else {
            let tag = self.tag(tag);
            document["statistics"] = json!({ "tag-info": [{ "type": tag }] });
        }
        document.to_string()
    }

    fn tag(&self, tag: u64) -> String {
        format!("W{}-{tag}", self.me)
    }

    /// Returns one of this client's timers of which the last write is so.
    fn choose_one(&mut self, is_so: impl Fn(Wish) -> bool) -> Option<usize> {
        let fits = |owned: &Owned| !owned.path.is_empty() && owned.wish.is_some_and(&is_so);
        let places: Vec<_> =
            (0..self.owned.len()).filter(|place| fits(&self.owned[*place])).collect();
        (!places.is_empty()).then(|| self.draw.pick(&places))
    }

    /// Pauses, resumes or runs a timer that pops once.
    fn act_on_one(&mut self) {
        let is_once = |wish| matches!(wish, Wish::Timer { pops: 1, .. });
        let Some(place) = self.choose_one(is_once) else { return };
        let is_paused = self.owned[place].is_paused;
        let (act, word) = match self.draw.range(0, 9) {
            0..8 if is_paused => (Act::Resume, "resume"),
            8.. if !is_paused => (Act::RunNow, "run-now"),
            _ => (Act::Pause, "pause"),
        };
        let via = self.node();
        let path = format!("{}/{word}", self.owned[place].path);
        let sent = self.recorder.clock.now();
        let outcome = outcome_of(self.client.request(via, "POST", &path, ""));
        let ended = self.recorder.clock.now();
        let owned = &mut self.owned[place];
        owned.is_handled = true;
        owned.is_paused = match act {
            Act::Pause => true,
            Act::Resume => outcome != Outcome::Acknowledged,
            Act::RunNow => is_paused,
        };
        let number = owned.number;
        self.recorder.with(|history| {
            let timer = &mut history.timers[number];
            let write = timer.last_write();
            timer.actions.push(Action { act, write, via, sent, ended, outcome });
        });
    }

    /// Reads, deletes or replays the dead letter of a timer.
    fn handle_letter(&mut self) {
        let is_letter = |wish| matches!(wish, Wish::Letter { .. });
        let Some(place) = self.choose_one(is_letter) else { return };
        let path = self.owned[place].path.replace("/timers/", "/dead-letters/");
        let (handling, method, path) = match self.draw.range(0, 9) {
            0..6 => (Handling::Look, "GET", path),
            6..8 => (Handling::Delete, "DELETE", path),
            _ => (Handling::Replay, "POST", format!("{path}/replay")),
        };
        let via = self.node();
        let sent = self.recorder.clock.now();
        let outcome = outcome_of(self.client.request(via, method, &path, ""));
        let ended = self.recorder.clock.now();
        let number = self.owned[place].number;
        self.recorder.with(|history| {
            let timer = &mut history.timers[number];
            let write = timer.last_write();
            timer.letters.push(LetterUse { handling, write, via, sent, ended, outcome });
        });
    }

    /// Deletes all timers that have one of this client's tags, in a job.
    fn delete_by_tag(&mut self) {
        let tag = self.draw.range(0, TAGS - 1);
        let via = self.node();
        let path = format!("/timers?tag={}", self.tag(tag));
        let sent = self.recorder.clock.now();
        let ordered = self.admins.order(via, "DELETE", &path, "");
        let outcome = match &ordered {
            Err(Failure::NotSent) => return,
            Ok(answer) if answer.status == 202 => self.await_job(via, answer),
            // A core that has begun with an order and does not answer may do it.
            Ok(answer) if answer.body.starts_with(b"a core has begun") => {
                Outcome::Unknown("a job that may have begun".to_owned())
            }
            Ok(_) => return,
            Err(Failure::Unknown(_)) => Outcome::Unknown("the job is not known".to_owned()),
        };
        let ended = self.recorder.clock.now();
        let write = Write { wish: Wish::Delete, via, sent, ended, outcome };
        let layout = self.nodes.layout();
        let is_of_job = |owned: &&mut Owned| owned.tag == tag;
        let all = self.owned.iter_mut().chain(&mut self.forgotten);
        for owned in all.filter(is_of_job) {
            let is_letter = matches!(owned.wish, Some(Wish::Letter { .. }));
            let mut write = write.clone();
            let is_done = self.recorder.with(|history| {
                let writes = &mut history.timers[owned.number].writes;
                // A job ends what its site has heard of: also what a write without a tag has
                // replaced at another site. That a job came before it tells it nothing.
                let last = writes.iter().rev().find(|write| !is_of_other_site(write));
                let last = last.map(|last| layout.site(last.via));
                let is_elsewhere = last.is_some_and(|site| site != layout.site(via));
                if is_letter && !(is_elsewhere && writes.len() > 1) {
                    return false;
                }
                if is_elsewhere && write.outcome == Outcome::Acknowledged {
                    write.outcome = Outcome::Unknown(OTHER_SITE.to_owned());
                }
                writes.push(write);
                true
            });
            if is_done {
                (owned.is_deleted, owned.is_handled) = (true, false);
                owned.wish = Some(Wish::Delete);
            }
        }
    }

    /// Waits for the end of a job, and returns what became of its deletes.
    fn await_job(&mut self, via: usize, ordered: &Answer) -> Outcome {
        let deadline = Instant::now() + JOB;
        let path = ordered.header("Location").unwrap_or("/jobs/none").to_owned();
        loop {
            let Ok(answer) = self.admins.request(via, "GET", &path, "") else {
                return Outcome::Unknown("the node of the job is gone".to_owned());
            };
            let job: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            if job["state"] == "done" && job["complete"] == true && job["failed"] == 0 {
                return Outcome::Acknowledged;
            }
            if job["state"] == "done" && job["failed"] == 0 {
                return Outcome::Unknown("a job that could not ask all nodes".to_owned());
            }
            if job["state"] != "running" || Instant::now() > deadline {
                return Outcome::Unknown(format!("job: {} {job}", answer.status));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a GET through every member.
    fn read_everywhere(&mut self, place: usize) {
        let serving = self.nodes.serving();
        for via in serving {
            self.read(place, via);
        }
    }

    fn read(&mut self, place: usize, via: usize) {
        let (number, path) = (self.owned[place].number, self.owned[place].path.clone());
        let sent = self.recorder.clock.now();
        let answered = self.client.request(via, "GET", &path, "");
        let ended = self.recorder.clock.now();
        let (status, write) = match answered {
            Ok(answer) => (Some(answer.status), write_of(number, &answer.body)),
            Err(_) => (None, None),
        };
        let read = Read { via, sent, ended, status, write };
        self.recorder.with(|history| history.timers[number].reads.push(read));
    }

    /// Deletes every timer of which this client is unsure whether it lives, and every one that has
    /// no end of its own, until the delete is acknowledged. After that the timers that are left can
    /// be counted.
    pub fn make_sure(&mut self) {
        self.owned.append(&mut self.forgotten);
        for place in 0..self.owned.len() {
            for _ in 0..20 {
                let Owned { number, is_handled, wish, .. } = self.owned[place];
                let is_known = self.recorder.with(|history| {
                    let writes = &history.timers[number].writes;
                    let last = writes.iter().rev().find(|write| write.outcome != Outcome::NotSent);
                    last.is_none_or(|write| write.outcome == Outcome::Acknowledged)
                });
                let is_endless = matches!(wish, Some(Wish::Cron { .. } | Wish::Letter { .. }));
                if is_known && !is_handled && !is_endless {
                    break;
                }
                self.write(place, Wish::Delete);
                thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// Reads all timers of this client once more.
    pub fn look_at_all(&mut self) {
        for place in 0..self.owned.len() {
            self.read_everywhere(place);
        }
    }
}

/// Whether a write was made by a job of a site that need not have heard of the timer.
fn is_of_other_site(write: &Write) -> bool {
    matches!(&write.outcome, Outcome::Unknown(why) if why == OTHER_SITE)
}

fn outcome_of(answered: Result<Answer, Failure>) -> Outcome {
    match answered {
        Ok(answer) if answer.status == 200 => Outcome::Acknowledged,
        Ok(answer) => {
            let reason = answer.header("Reason").unwrap_or_default().to_owned();
            Outcome::Refused(answer.status, reason)
        }
        Err(Failure::NotSent) => Outcome::NotSent,
        Err(Failure::Unknown(why)) => Outcome::Unknown(why),
    }
}

/// Returns the number of the write whose opaque text a GET answered.
fn write_of(number: TimerNumber, body: &[u8]) -> Option<usize> {
    let document: Value = serde_json::from_slice(body).ok()?;
    let opaque = document["callback"]["http"]["opaque"].as_str()?;
    opaque.strip_prefix(&format!("timer {number} write "))?.parse().ok()
}
