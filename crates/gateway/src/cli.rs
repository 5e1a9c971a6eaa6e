//! The command line: Weir's own commands, and those of Kong.
mod compare;
mod kong;
mod program;
mod upgrade;

pub(crate) use compare::CompareArgs;
pub(crate) use kong::{MigrationArgs, PrepareArgs, QuitArgs, ReloadArgs, StartArgs};
pub(crate) use program::Program;
pub(crate) use upgrade::UpgradeArgs;

use crate::settings::{self, Flag, Sources};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// An API gateway that reads Kong's configuration.
#[derive(Debug, Parser)]
#[command(name = "weir", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print what is done; twice, or as `--vv`, also which settings are given.
    #[arg(short = 'v', long = "v", global = true, action = ArgAction::Count)]
    verbose: u8,
    /// As `-v -v`.
    #[arg(long = "vv", global = true, hide = true)]
    debug: bool,
}

impl Cli {
    /// How much is printed about what is done: nothing, what is done, or also the settings.
    pub(crate) fn verbosity(&self) -> u8 {
        if self.debug { 2 } else { self.verbose }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve in the foreground. SIGHUP reloads, SIGUSR1 reopens the logs, SIGUSR2 upgrades; SIGTERM, SIGQUIT and SIGINT drain, a
    /// second one stops at once.
    Run(RunArgs),
    /// Start a node in the background: returns once it serves. With `nginx_daemon=off` it stays in the foreground.
    Start(StartArgs),
    /// Stop the running node at once.
    Stop(NodeArgs),
    /// Stop the running node, if there is one, and start it again.
    Restart(PrepareArgs),
    /// Report whether the node serves.
    Health(NodeArgs),
    /// Check the settings and create the node's folder.
    Prepare(PrepareArgs),
    /// Prepare the folder and serve in the foreground, as the command of a container.
    DockerStart(PrepareArgs),
    /// Check declarative files and kong.conf: every error as `file:line:column: message`.
    Check {
        /// The files, YAML or JSON, or kong.conf; `-` is the standard input. A URL such as `http://kong:8001` is the Admin API
        /// of a Kong, whose configuration is checked. Without any, `/etc/kong/kong.conf`.
        files: Vec<PathBuf>,
        /// Say for each entity, field, plugin and setting whether it works as in this gateway; fails if something is
        /// missing here.
        #[arg(long, value_name = "GATEWAY")]
        against: Option<Rival>,
        /// Say for each plugin in Lua in this folder what keeps it from running here: modules, functions, syntax; fails if something does.
        #[arg(long, value_name = "FOLDER")]
        plugins: Option<PathBuf>,
        #[command(flatten)]
        settings: CheckArgs,
    },
    /// Explain how a request would be handled: its route, plugins and upstream. Nothing is sent.
    Explain(ExplainArgs),
    /// Send the same requests to two gateways, and report how their responses differ.
    Compare(CompareArgs),
    /// Make the running node read its declarative file again; fails with the errors if the file is invalid.
    Reload(ReloadArgs),
    /// Replace the running process by a new one without losing a connection: of the program as it is now on the disk, with the
    /// settings of now. If the new one does not start, the old one goes on, and this says why.
    Upgrade(UpgradeArgs),
    /// Make the running node drain and stop; waits until it has.
    Quit(QuitArgs),
    /// Serve a sample configuration with a built-in upstream, and print requests to try.
    Demo(SettingsArgs),
    /// Serve the demo's upstream alone, which echoes requests.
    Echo {
        /// Where to listen.
        #[arg(default_value = "127.0.0.1:9000")]
        addresses: Vec<SocketAddr>,
    },
    /// Manage access to the Admin API.
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Manage the tables of the database.
    #[command(subcommand)]
    Migrations(MigrationsCommand),
    /// Import configurations into the database, and export them.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Read secrets that configurations refer to.
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Generate the certificate that the nodes of a fleet share.
    #[command(subcommand)]
    Hybrid(HybridCommand),
    /// Print the manual of all settings.
    Settings,
    /// Print the names of the plugins that configurations may use: those of this program, and those on disk that the setting
    /// `plugins` names.
    Plugins(ExplainSettings),
    /// Print what completes the words of this command line in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages of all commands, for `man`.
    #[command(name = "man", hide = true)]
    ManualPages {
        /// The folder, which is created if it is missing.
        folder: PathBuf,
    },
    /// Print the version.
    Version {
        /// Print the versions of what it is made of, too.
        #[arg(short, long)]
        all: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HybridCommand {
    /// Generate a certificate and its key, by default in `cluster.crt` and `cluster.key`.
    #[command(name = "gen_cert")]
    GenCert {
        /// The files of the certificate and of its key.
        files: Vec<PathBuf>,
        /// For how many days it is valid; 1095 by default.
        #[arg(short, long)]
        days: Option<u32>,
    },
}

/// The gateway whose behaviour is the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Rival {
    Kong,
    Apisix,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Generate a token for the Admin API: print it, and its hash for the setting `admin_auth`.
    Token {
        /// A token that reads and does not write.
        #[arg(long)]
        read_only: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum VaultCommand {
    /// Print the secret that a reference leads to.
    Get {
        /// The reference: `{vault://env/my-secret}`, or `env/my-secret` in short.
        reference: Option<String>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum MigrationsCommand {
    /// Create the tables.
    Bootstrap(MigrationArgs),
    /// Migrate the tables of an older version.
    Up(MigrationArgs),
    /// Complete migrations after `up`, of which there are none.
    Finish(MigrationArgs),
    /// Report the state of the tables; fails unless they can be used as they are.
    Status(MigrationArgs),
    /// The same: exits with 3 if there are no tables, and with 5 if they must be migrated.
    List(MigrationArgs),
    /// Remove the tables, and all that is in them.
    Reset(MigrationArgs),
    /// Kong Enterprise's counters of entities, of which there are none.
    #[command(name = "reinitialize-workspace-entity-counters")]
    ReinitializeWorkspaceEntityCounters(MigrationArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write an example of a declarative file.
    Init {
        /// The file, which must not exist yet.
        #[arg(default_value = "kong.yml")]
        file: PathBuf,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Check a declarative file.
    Parse {
        /// The file, YAML or JSON; `-` is the standard input.
        file: PathBuf,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Import a declarative file; its entities replace those with the same ids.
    #[command(name = "db_import", alias = "db-import")]
    DbImport {
        /// The file, YAML or JSON; `-` is the standard input.
        file: PathBuf,
        #[command(flatten)]
        store: StoreArgs,
    },
    /// Export everything to a declarative file, which must not exist yet.
    #[command(name = "db_export", alias = "db-export")]
    DbExport {
        /// The file; `-` is the standard output.
        #[arg(default_value = "kong.yml")]
        file: PathBuf,
        /// Who is to read the file; what Kong 3.9 lacks is left out for it, and named on the standard error.
        #[arg(long = "for", value_name = "GATEWAY", value_enum, default_value = "weir")]
        target: ExportTarget,
        #[command(flatten)]
        store: StoreArgs,
    },
}

/// The gateway that an exported file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportTarget {
    Weir,
    Kong,
}

impl MigrationsCommand {
    /// Which tables are meant, and how.
    pub(crate) fn args(&self) -> &MigrationArgs {
        let (MigrationsCommand::Bootstrap(args)
        | MigrationsCommand::Up(args)
        | MigrationsCommand::Finish(args)
        | MigrationsCommand::Status(args)
        | MigrationsCommand::List(args)
        | MigrationsCommand::Reset(args)
        | MigrationsCommand::ReinitializeWorkspaceEntityCounters(args)) = self;
        args
    }
}

impl ConfigCommand {
    /// Which database is meant.
    pub(crate) fn store(&self) -> &StoreArgs {
        let (ConfigCommand::Init { store, .. }
        | ConfigCommand::Parse { store, .. }
        | ConfigCommand::DbImport { store, .. }
        | ConfigCommand::DbExport { store, .. }) = self;
        store
    }
}

/// A node to run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    /// Leave the terminal once the node serves: how `weir start` runs it.
    #[arg(long, hide = true)]
    pub(crate) detach: bool,
}

/// Where the settings come from.
#[derive(Debug, Clone, Args)]
pub(crate) struct SettingsArgs {
    /// The declarative file to serve, as `--set declarative_config=…`.
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// A file of settings, in TOML.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// A file of settings, in the format of kong.conf. Without any file `/etc/kong/kong.conf` or `/etc/kong.conf` is read,
    /// if there is one.
    #[arg(short = 'c', long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// The node's own folder, as `--set prefix=…`.
    #[arg(short, long, value_name = "DIR")]
    prefix: Option<String>,
    /// One setting; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

/// Where the settings of a check come from.
#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArgs {
    /// A file of settings, in TOML.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// One setting, such as `plugins`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

/// A request to explain.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The declarative file, YAML or JSON; `-` is the standard input.
    pub(crate) file: PathBuf,
    /// The method.
    pub(crate) method: String,
    /// The URL of the request: `https://host:port/path?query`.
    pub(crate) url: String,
    /// A header, as `name: value`; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME:VALUE", value_parser = name_and_value)]
    pub(crate) headers: Vec<(String, String)>,
    /// The client's address.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) client_ip: String,
    #[command(flatten)]
    pub(crate) settings: ExplainSettings,
    /// Print the response of `POST /explain`.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the settings come from of a node that something is said about.
#[derive(Debug, Args)]
pub(crate) struct ExplainSettings {
    /// A file of settings, in TOML.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// The same, in the format of kong.conf.
    #[arg(short = 'c', long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// One setting, such as `router_flavor`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

/// Which node is meant.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    /// The file of settings that the node was started with.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// The same, in the format of kong.conf.
    #[arg(short = 'c', long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// The node's own folder.
    #[arg(short, long, value_name = "DIR")]
    prefix: Option<String>,
}

/// Which database is meant.
#[derive(Debug, Clone, Args)]
pub(crate) struct StoreArgs {
    /// The file of settings that nodes are started with.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// The same, in the format of kong.conf.
    #[arg(short = 'c', long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// The node's own folder.
    #[arg(short, long, value_name = "DIR")]
    prefix: Option<String>,
    /// One setting, such as `pg_host`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

impl From<StoreArgs> for SettingsArgs {
    fn from(StoreArgs { settings, conf, prefix, set }: StoreArgs) -> Self {
        SettingsArgs { config: None, settings, conf, prefix, set }
    }
}

impl From<CheckArgs> for SettingsArgs {
    fn from(CheckArgs { settings, set }: CheckArgs) -> Self {
        SettingsArgs { config: None, settings, conf: None, prefix: None, set }
    }
}

impl From<ExplainSettings> for SettingsArgs {
    fn from(ExplainSettings { settings, conf, set }: ExplainSettings) -> Self {
        SettingsArgs { config: None, settings, conf, prefix: None, set }
    }
}

impl From<NodeArgs> for SettingsArgs {
    fn from(NodeArgs { settings, conf, prefix }: NodeArgs) -> Self {
        SettingsArgs { config: None, settings, conf, prefix, set: Vec::new() }
    }
}

impl SettingsArgs {
    /// Those of the environment and of this file alone: TOML by its name, otherwise a kong.conf.
    pub(crate) fn of_file(file: PathBuf) -> SettingsArgs {
        let (settings, conf) = match file.extension().is_some_and(|extension| extension == "toml") {
            true => (Some(file), None),
            false => (None, Some(file)),
        };
        SettingsArgs { config: None, settings, conf, prefix: None, set: Vec::new() }
    }

    /// Adds a setting.
    pub(crate) fn and(mut self, setting: Option<(String, String)>) -> SettingsArgs {
        self.set.extend(setting);
        self
    }

    /// Names the folder.
    pub(crate) fn in_prefix(mut self, prefix: &Path) -> SettingsArgs {
        self.prefix = Some(prefix.display().to_string());
        self
    }

    /// The settings' sources: these flags, and the environment.
    pub(crate) fn sources(self, program: Program) -> Sources {
        let named = [("--config", "declarative_config", self.config), ("--prefix", "prefix", self.prefix)];
        let named = named.into_iter().filter_map(|(written, name, value)| {
            Some(Flag { written: written.to_owned(), name: name.to_owned(), value: value? })
        });
        let set =
            self.set.into_iter().map(|(name, value)| Flag { written: format!("--set {name}"), name, value });
        let no_file = self.conf.is_none() && self.settings.is_none();
        Sources {
            flags: set.chain(named).collect(),
            environment: environment(),
            kong_conf: self.conf.or_else(|| settings::default_kong_conf().filter(|_| no_file)),
            file: self.settings,
            as_kong: program == Program::Kong,
            without_secrets: false,
        }
    }

    /// The options that stand for these, for another process.
    pub(crate) fn options(&self) -> Vec<OsString> {
        let option = |name: &str, value: Option<OsString>| value.map(|value| [OsString::from(name), value]);
        let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        let text = |text: &Option<String>| text.clone().map(OsString::from);
        let named = [
            option("--config", text(&self.config)),
            option("--settings", path(&self.settings)),
            option("--conf", path(&self.conf)),
            option("--prefix", text(&self.prefix)),
        ];
        let set =
            self.set.iter().map(|(name, value)| [OsString::from("--set"), format!("{name}={value}").into()]);
        named.into_iter().flatten().chain(set).flatten().collect()
    }
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as key=value")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as name: value")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The environment, without variables that are not UTF-8.
fn environment() -> std::collections::BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
