//! A node as the command line starts it: the variables of the environment, and the node's life.

use super::admin_client::VARIABLES;
use super::exit::{EXIT_FAILURE, EXIT_OK};
use super::terminal::fail;
use super::token::VARIABLE;
use crate::control::config::error::{Origin, Problem};
use crate::control::config::files::ConfigFiles;
use crate::control::config::load::Loaded;
use crate::control::launch::{self, Launch, LaunchError};

/// Runs a node until it ends and returns the exit code.
pub(super) fn launch_node(launch: &Launch, files: ConfigFiles, loaded: Loaded) -> u8 {
    match launch::launch(launch, files, loaded) {
        Ok(()) => EXIT_OK,
        Err(LaunchError::Told) => EXIT_FAILURE,
        Err(error) => fail(&error, EXIT_FAILURE),
    }
}

/// Returns the environment variables of Chronos. Returns an error for a value that is no UTF-8.
pub(super) fn environment() -> Result<Vec<(String, String)>, Problem> {
    let mut environment = Vec::new();
    for (name, value) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("CHRONOS_") && name != VARIABLE && !VARIABLES.contains(&&*name) {
            environment.push((name.clone(), value.into_string().map_err(|_| not_utf8(name))?));
        }
    }
    Ok(environment)
}

fn not_utf8(variable: String) -> Problem {
    Problem::Value {
        key: "value of a variable".into(),
        origin: Origin::Environment(variable),
        expected: "UTF-8 text".into(),
        found: "other bytes".into(),
    }
}
