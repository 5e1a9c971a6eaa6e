//! The options that Kong's commands have and others do not.
use super::{NodeArgs, SettingsArgs, StoreArgs};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// A node to start.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    #[command(flatten)]
    pub(crate) nginx: NginxArgs,
    /// Migrate the tables of an older version before.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) run_migrations: Option<bool>,
    #[command(flatten)]
    pub(crate) timeouts: DatabaseTimeouts,
}

/// A node to restart, or its folder to prepare.
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    #[command(flatten)]
    pub(crate) nginx: NginxArgs,
}

/// A node to reload.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    #[command(flatten)]
    pub(crate) nginx: NginxArgs,
}

/// A node to drain and stop.
#[derive(Debug, Args)]
pub(crate) struct QuitArgs {
    #[command(flatten)]
    pub(crate) node: NodeArgs,
    /// How long requests in flight may take, in seconds; otherwise `drain_timeout`.
    #[arg(short, long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,
    /// How long the node still accepts connections while it is not ready, in seconds; otherwise `shutdown_delay`.
    #[arg(short, long, value_name = "SECONDS")]
    pub(crate) wait: Option<f64>,
}

/// Which tables are meant, and how they are migrated.
#[derive(Debug, Clone, Args)]
pub(crate) struct MigrationArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Answer all questions with yes.
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// With `bootstrap`: remove the tables before. Migrations that were done are never done again.
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) timeouts: DatabaseTimeouts,
    /// Ignored, as by Kong: in Compose files, `command: kong migrations up && kong migrations finish` is no line of a
    /// shell.
    #[arg(hide = true)]
    pub(crate) ignored: Vec<String>,
}

/// How long a database may take.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DatabaseTimeouts {
    /// How long each response of the database may take, in seconds, apart from those to the steps of a migration; otherwise
    /// `pg_timeout`.
    #[arg(long, value_name = "SECONDS")]
    db_timeout: Option<f64>,
    /// How long to wait for other sessions of PostgreSQL that use the tables, or migrate them, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) lock_timeout: Duration,
}

impl DatabaseTimeouts {
    /// The setting that they stand for.
    pub(crate) fn setting(self) -> Option<(String, String)> {
        let milliseconds = (self.db_timeout? * 1000.0).round();
        Some(("pg_timeout".to_owned(), milliseconds.to_string()))
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "write a number of seconds, such as 60".to_owned())
}

/// Options that concern nginx.
#[derive(Debug, Args)]
pub(crate) struct NginxArgs {
    /// Refused, because there is no nginx whose configuration a template could make.
    #[arg(long, value_name = "FILE", hide = true)]
    nginx_conf: Option<PathBuf>,
    /// Refused, as `--nginx-conf`.
    #[arg(long, value_name = "FLAGS", hide = true)]
    nginx_conf_flags: Option<String>,
}

impl NginxArgs {
    /// Refuses them, because without effect they would be missed.
    pub(crate) fn refuse(&self) -> Result<(), String> {
        let option = match (&self.nginx_conf, &self.nginx_conf_flags) {
            (Some(_), _) => "--nginx-conf",
            (None, Some(_)) => "--nginx-conf-flags",
            (None, None) => return Ok(()),
        };
        Err(format!(
            "{option}: there is no nginx here, so a template of its configuration has no effect: leave it out, and write \
             settings instead; `weir settings` lists those that directives of nginx stand for"
        ))
    }
}
