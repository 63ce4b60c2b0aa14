//! A node as the command line starts it: the variables of the environment, and the node's life.

use std::path::Path;

use super::admin_client::VARIABLES;
use super::exit::{EXIT_FAILURE, EXIT_OK};
use super::node_flags::NodeFlags;
use super::terminal::fail;
use super::token::VARIABLE;
use crate::control::config::error::{Origin, Problem};
use crate::control::config::files::{ConfigFiles, IniFiles, LOCAL_FILE};
use crate::control::config::load::Loaded;
use crate::control::launch::{self, Launch, LaunchError};
use crate::control::log;

/// Runs a node until it ends and returns the exit code.
pub(super) fn launch_node(launch: &Launch, files: ConfigFiles, loaded: Loaded) -> u8 {
    let code = match launch::launch(launch, files, loaded) {
        Ok(()) => EXIT_OK,
        Err(LaunchError::Told) => EXIT_FAILURE,
        Err(error) => fail(&error, EXIT_FAILURE),
    };
    log::finish();
    code
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

/// Collects file, environment and flags without checking them.
pub(super) fn files_of(flags: &NodeFlags) -> Result<ConfigFiles, Problem> {
    let environment = environment()?;
    // A machine that has the original service's files, and no file named by --config, is a
    // deployment of the original.
    let is_found = || flags.config.is_none() && Path::new(LOCAL_FILE).exists();
    let ini = flags.ini_files().or_else(|| is_found().then(IniFiles::default));
    Ok(ConfigFiles::new(flags.config.as_deref(), ini.as_ref(), environment, flags.settings()))
}
