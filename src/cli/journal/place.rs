//! What all commands want to know: which directory, and how to print.

use std::path::PathBuf;

use clap::Args;

use super::survey::ToolError;
use crate::node::journal::directory::DataDirectory;

/// The flags of all commands.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// The data directory of the node
    #[arg(long, value_name = "DIR", env = "CHRONOS_JOURNAL_DATA_DIR")]
    data_dir: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

impl Place {
    /// Opens the directory, which nobody else uses then.
    pub(super) fn open(&self) -> Result<DataDirectory, ToolError> {
        Ok(DataDirectory::open_existing(&self.data_dir)?)
    }
}
