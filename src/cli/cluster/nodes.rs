//! The nodes of a survey, to be asked and ordered until they are where a command wants them.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::context::Context;
use super::survey::{NodeReport, Survey};
use crate::cli::admin_client::AdminError;
use crate::control::http_client::HttpError;

/// Pause between two looks at all nodes. A look costs each node some 100 us of its control thread.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many looks in a row must find nothing left to do. A node may have taken what another node
/// has just sent, and not counted it yet.
const LOOKS: u32 = 3;
/// How long a node may stay silent while the command waits for it.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// What is left to do; `None`: nothing. Error: the command cannot go on.
type Unrest = Result<Option<String>, String>;

/// The nodes of a cluster that a command works with.
pub(super) struct Nodes<'a> {
    context: &'a Context,
    /// Admin addresses by name of the node.
    admins: BTreeMap<String, String>,
    /// When the command began.
    pub(super) began: Instant,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(context: &'a Context, survey: &Survey) -> Self {
        let admins = survey.reports.values().map(|it| (it.name.clone(), it.admin.clone()));
        Self { context, admins: admins.collect(), began: Instant::now() }
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.admins.contains_key(name)
    }

    fn admin(&self, name: &str) -> Result<&str, String> {
        let admin = self.admins.get(name).map(String::as_str);
        admin.ok_or_else(|| format!("{name} was not asked: no admin API of it is known"))
    }

    pub(super) fn look_at(&self, name: &str) -> Result<NodeReport, String> {
        let admin = self.admin(name)?;
        self.context.ask(admin).map_err(|error| format!("{name}: no answer from {admin}: {error}"))
    }

    /// Gives a node an order, and returns what it answers.
    pub(super) fn order(
        &self,
        name: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let admin = self.admin(name)?;
        self.context.request(admin, method, path, body).map_err(|error| {
            let text = match error {
                AdminError::Http(HttpError::Refused { text, .. }) => text,
                AdminError::NotSent(text) => text,
                error => format!("no answer from {admin}: {error}"),
            };
            format!("{name}: {text}\nrun the same command again when that is repaired: it goes on")
        })
    }

    /// Looks at all these nodes until `unrest` finds nothing in [`LOOKS`] looks in a row, and
    /// returns what they said last. `give_up` says that it took too long, and what was left.
    pub(super) fn until(
        &self,
        all: &[String],
        give_up: &dyn Fn(&str) -> String,
        unrest: &dyn Fn(&[NodeReport]) -> Unrest,
    ) -> Result<Vec<NodeReport>, String> {
        let mut quiet = 0;
        let mut silent_since: Option<Instant> = None;
        let mut left;
        loop {
            match self.look(all) {
                Ok(reports) => {
                    silent_since = None;
                    left = unrest(&reports)?;
                    quiet = if left.is_none() { quiet + 1 } else { 0 };
                    if quiet == LOOKS {
                        return Ok(reports);
                    }
                }
                Err(error) => {
                    quiet = 0;
                    if silent_since.get_or_insert_with(Instant::now).elapsed() > SILENCE_MAX {
                        return Err(format!(
                            "{error}\nrun the same command again when it is back: it goes on"
                        ));
                    }
                    left = Some(error);
                }
            }
            if self.began.elapsed() > self.context.timeout {
                return Err(give_up(&left.unwrap_or_default()));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Looks at all these nodes once.
    pub(super) fn look(&self, all: &[String]) -> Result<Vec<NodeReport>, String> {
        all.iter().map(|name| self.look_at(name)).collect()
    }
}
