//! The desk at which operators set rules of destinations and ask how the hosts are. It tells the
//! cores, keeps orders in the data directory, and passes them on to the other nodes of the site.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::http::StatusCode;
use serde_json::Value;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::book::{Book, messages, read};
use super::document::{Known, Page};
use super::file::OrdersFile;
use super::hold::Hold;
use super::keeper::{Keeper, Kept};
use crate::base::destinations::{DestinationTable, Rule};
use crate::control::config::settings::Config;
use crate::node::NodeHandle;
use crate::node::commands::{Command, Commander};
use crate::node::destinations::{DestinationRules, Heard, Survey, SurveyPart};
use crate::node::meters::CoreMeters;
use crate::wire::destination::{Ordered, destination_of, parse_rule};
use crate::wire::timer_json::JsonScratch;

/// How often the desk takes what other nodes tell.
const HEAR_EVERY: Duration = Duration::from_millis(250);
/// How often it does while callbacks wait for that.
const HEAR_EVERY_ON_HOLD: Duration = Duration::from_millis(10);
/// How often it tells other nodes all orders again: a node that was away hears of them at the
/// latest then.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Longest wait for the cores.
const SURVEY_WAIT: Duration = Duration::from_secs(1);
const SURVEY_PAUSE: Duration = Duration::from_millis(1);

/// Why there is no document: the status of the answer and a sentence.
pub(crate) type Unanswered = (StatusCode, String);

/// What is known, and where it is kept.
#[derive(Debug, Default)]
struct State {
    book: Book,
    table: Arc<DestinationTable>,
    keeper: Option<Keeper>,
    /// `None`: callbacks do not wait for the rules of other members.
    hold: Option<Hold>,
}

/// The cores of a node.
#[derive(Debug)]
struct Cores {
    commander: Commander,
    meters: Arc<[CoreMeters]>,
    /// This node in the stamps of orders.
    node: u32,
}

/// The desk.
#[derive(Debug, Default)]
pub(crate) struct DestinationDesk {
    state: Mutex<State>,
    heard: Heard,
    /// `None` before the node is started, and in tests of texts.
    cores: Option<Cores>,
}

impl DestinationDesk {
    /// A desk with the rules of the configuration, and with the orders that the data directory has.
    pub(crate) fn open(config: &Config) -> Self {
        let data_dir = config.node.journal.directory().map(PathBuf::as_path);
        Self::of(&config.destinations, data_dir)
    }

    fn of(configured: &[(String, Rule)], data_dir: Option<&Path>) -> Self {
        let keeper = data_dir.map(|folder| Keeper::new(OrdersFile::of(folder)));
        let mut state = State { keeper, ..State::default() };
        state.book.configure(configured.to_vec());
        if let Some(file) = state.keeper.as_ref().map(|keeper| keeper.file().clone()) {
            match file.read() {
                Ok(lines) => {
                    let (orders, wrong) = read(&lines);
                    let now_ms = wall_ms();
                    orders.into_iter().for_each(|one| _ = state.book.take(one, now_ms));
                    if wrong > 0 {
                        let file = file.path();
                        warn!("{}: {wrong} lines are no orders (ignored)", file.display());
                    }
                }
                Err(error) => warn!(
                    "{}: {error}; the orders in it for destinations are not known until another \
                     node tells them",
                    file.path().display()
                ),
            }
        }
        state.table = Arc::new(state.book.table(&DestinationTable::default()));
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// The rules at the start, for a node that has other members, or has none.
    pub(crate) fn first_table(&self, is_alone: bool) -> Arc<DestinationTable> {
        if is_alone { self.table() } else { Arc::new(DestinationTable::hold()) }
    }

    fn table(&self) -> Arc<DestinationTable> {
        Arc::clone(&self.state().table)
    }

    /// The same desk, in front of cores that have been started with
    /// [`DestinationDesk::first_table`].
    pub(crate) fn with_cores(self, node: &NodeHandle) -> Self {
        let (commander, meters) = (node.commander(), Arc::clone(&node.meters));
        self.state().hold = Hold::new(node.view.connected_nodes(), Instant::now());
        let cores = Cores { commander, meters, node: node.view.own_hash().0 };
        Self { cores: Some(cores), ..self }
    }

    /// Takes what the configuration says now.
    pub(crate) fn configure(&self, configured: &[(String, Rule)]) {
        let mut state = self.state();
        state.book.configure(configured.to_vec());
        self.tell(&mut state, Vec::new());
    }

    /// Takes what other nodes tell, and tells them, until the future is dropped.
    pub(crate) async fn listen(&self) {
        let mut told_at = None::<Instant>;
        loop {
            self.hear();
            if told_at.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
                told_at = Some(Instant::now());
                let mut state = self.state();
                let all = state.book.messages();
                self.tell(&mut state, all);
            }
            sleep(if self.is_on_hold() { HEAR_EVERY_ON_HOLD } else { HEAR_EVERY }).await;
        }
    }

    fn hear(&self) {
        let mut state = self.state();
        let mut taken = 0_usize;
        while let Some((peer, lines)) = self.heard.next() {
            if lines.is_empty() {
                state.hold.iter_mut().for_each(|hold| hold.note(peer));
                continue;
            }
            let now_ms = wall_ms();
            let orders = read(&lines).0.into_iter();
            taken += orders.filter(|one| state.book.take(one.clone(), now_ms)).count();
        }
        if taken > 0 {
            info!(taken, "other nodes told of orders for destinations");
            self.tell(&mut state, Vec::new());
            state.keep();
        }
    }

    /// Whether callbacks wait for the rules of other members. If they need not wait any more, the
    /// cores are told the rules.
    fn is_on_hold(&self) -> bool {
        let mut state = self.state();
        let (Some(hold), Some(cores)) = (&state.hold, &self.cores) else { return false };
        let is_over = hold.is_over(&cores.meters, Instant::now());
        if is_over {
            state.hold = None;
            self.tell(&mut state, Vec::new());
        }
        !is_over
    }

    /// Sets the rule of a destination from the body of a request.
    pub(crate) async fn put(&self, name: &str, body: &[u8]) -> Result<(), Unanswered> {
        let rule = parse_rule(&mut body.to_vec(), &mut JsonScratch::default());
        let rule = rule.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        self.order(name, Some(rule)).await
    }

    /// Takes the order for a destination back: what is configured holds.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Unanswered> {
        self.order(name, None).await
    }

    async fn order(&self, name: &str, rule: Option<Rule>) -> Result<(), Unanswered> {
        let Some(kept) = self.take(name, rule)? else { return Ok(()) };
        kept.wait().await.map_err(|told| (StatusCode::INTERNAL_SERVER_ERROR, told))
    }

    /// Takes an order, and tells it. Returns what to wait for until the disk has it.
    fn take(&self, name: &str, rule: Option<Rule>) -> Result<Option<Kept>, Unanswered> {
        let name = named(name)?;
        let mut state = self.state();
        let node = self.cores.as_ref().map_or(0, |cores| cores.node);
        if rule.is_none() && !state.book.rule(&name).is_some_and(|(_, is_order)| is_order) {
            let told = match state.book.rule(&name) {
                Some(_) => "its rule is one of the configuration: change [callbacks] destinations",
                None => "it has no rule",
            };
            return Err((StatusCode::NOT_FOUND, format!("{name}: {told}")));
        }
        let was_paused = state.book.rule(&name).is_some_and(|(former, _)| former.is_paused);
        let ordered = state.book.order(name, rule, (wall_ms(), node));
        let ordered = ordered.map_err(|full| (StatusCode::CONFLICT, full.to_string()))?;
        let is_paused = rule.is_some_and(|rule| rule.is_paused);
        match was_paused == is_paused {
            true => debug!(destination = ordered.name, "an order for a destination"),
            false => info!(destination = ordered.name, is_paused, "an order for a destination"),
        }
        // What is told to others counts even if this disk does not take it.
        self.tell(&mut state, messages(std::iter::once::<&Ordered>(&ordered)));
        Ok(state.keep())
    }

    /// One destination.
    pub(crate) async fn one(&self, name: &str) -> Result<Value, Unanswered> {
        let name = named(name)?;
        let found = self.survey(Some(&name)).await?;
        let state = self.state();
        Known::new(&state.book, &state.table, &found).one(&name).ok_or_else(|| {
            let told = "it has no rule, and no callback waits, runs or fails there on this node";
            (StatusCode::NOT_FOUND, format!("{name}: {told}"))
        })
    }

    /// One destination, of which nothing need be known.
    pub(crate) async fn now(&self, name: &str) -> Result<Value, Unanswered> {
        let name = named(name)?;
        let found = self.survey(Some(&name)).await?;
        let state = self.state();
        Ok(Known::new(&state.book, &state.table, &found).show(&name))
    }

    /// A page of all destinations.
    pub(crate) async fn all(&self, query: &str) -> Result<Value, Unanswered> {
        let page = Page::parse(query).map_err(|told| (StatusCode::BAD_REQUEST, told))?;
        let found = self.survey(None).await?;
        let state = self.state();
        Ok(Known::new(&state.book, &state.table, &found).page(&page))
    }

    /// How many destinations have rules, and how many of them are paused.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let table = self.table();
        (table.all().len(), table.all().iter().filter(|one| one.rule.is_paused).count())
    }

    async fn survey(&self, name: Option<&str>) -> Result<SurveyPart, Unanswered> {
        let Some(cores) = &self.cores else { return Ok(SurveyPart::default()) };
        let survey = Arc::new(Survey::new(cores.meters.len(), name));
        cores.commander.command(&Command::Survey(Arc::clone(&survey)));
        let deadline = Instant::now() + SURVEY_WAIT;
        let (mut found, mut answered) = (SurveyPart::default(), 0);
        while answered < cores.meters.len() {
            match survey.next() {
                Some(part) => {
                    answered += 1;
                    found.hosts.extend(part.hosts);
                    found.failing.extend(part.failing);
                }
                None if Instant::now() > deadline => {
                    let told = format!("{answered} of {} cores have answered", cores.meters.len());
                    return Err((StatusCode::SERVICE_UNAVAILABLE, told));
                }
                None => tokio::time::sleep(SURVEY_PAUSE).await,
            }
        }
        Ok(found)
    }

    /// Tells the cores the present rules, and other nodes `tell`.
    fn tell(&self, state: &mut State, tell: Vec<Box<[u8]>>) {
        state.table = Arc::new(state.book.table(&state.table));
        let Some(cores) = &self.cores else { return };
        let table = match state.hold {
            Some(_) => Arc::new(DestinationTable::hold()),
            None => Arc::clone(&state.table),
        };
        let heard = self.heard.clone();
        let all = Arc::new(state.book.messages());
        let rules = DestinationRules { table, tell, all, heard };
        cores.commander.command(&Command::Destinations(Arc::new(rules)));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&self) -> Option<Kept> {
        self.keeper.as_ref().map(|keeper| keeper.give(self.book.text()))
    }
}

fn named(name: &str) -> Result<String, Unanswered> {
    destination_of(name).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(order: impl Future<Output = Result<(), Unanswered>>) -> Result<(), Unanswered> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(order)
    }

    fn status(order: impl Future<Output = Result<(), Unanswered>>) -> Result<(), u16> {
        done(order).map_err(|(status, _)| status.as_u16())
    }

    #[test]
    fn orders_are_kept_and_told_apart_from_the_configuration() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = || {
            let paused = Rule { is_paused: true, ..Rule::default() };
            DestinationDesk::of(&[("a".into(), paused)], Some(folder.path()))
        };
        let desk = open();
        assert_eq!(desk.counts(), (1, 1));
        assert_eq!(status(desk.delete("a")), Err(404), "it is configured");
        assert_eq!(status(desk.put("a b", b"{}")), Err(400));
        assert_eq!(status(desk.put("a", b"{")), Err(400));
        assert_eq!(status(desk.put("A", b"{\"max-in-flight\":1}")), Ok(()));
        assert_eq!(status(desk.put("b:80", b"{\"paused\":true}")), Ok(()));
        let desk = open();
        assert_eq!(desk.counts(), (2, 1), "the order goes before the configuration");
        assert_eq!(status(desk.delete("a")), Ok(()));
        assert_eq!(open().counts(), (2, 2));
        desk.configure(&[]);
        assert_eq!(desk.counts(), (1, 1));
        let mut lines = std::fs::read(folder.path().join("destinations")).expect("kept");
        lines.extend(b"nonsense\n");
        std::fs::write(folder.path().join("destinations"), lines).expect("written");
        assert_eq!(open().counts(), (2, 2), "a line that is none costs no other");
    }

    #[test]
    fn an_order_that_the_disk_does_not_take_holds_and_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("missing");
        let desk = DestinationDesk::of(&[], Some(&missing));
        let (status, told) = done(desk.put("a", b"{\"paused\":true}")).expect_err("no folder");
        assert!(status == 500 && told.contains("the order holds"), "{told}");
        assert_eq!(desk.counts(), (1, 1));
    }
}
