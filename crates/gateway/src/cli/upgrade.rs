//! The options of `weir upgrade`.
use super::NodeArgs;
use clap::Args;
use std::path::PathBuf;

/// A node whose process is to be replaced.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// The new program; otherwise the one at the path that the node was started from.
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// How long the new process may take to be ready, in seconds; otherwise 60.
    #[arg(short, long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,
}
