//! `weir config`: declarative files, and the database that they are imported to and exported from.
use super::{Context, print};
use crate::cli::{ConfigCommand, ExportTarget, Program};
use crate::configuration::{Origin, Source, process_environment};
use crate::data_plane::try_out;
use crate::plugins::NodePlugins;
use crate::prefix::{self, Prefix, PrefixError};
use crate::settings::{Database, Settings};
use crate::store::transfer::{self, Unset};
use crate::store::{self, Store, StoreError};
use std::fs::OpenOptions;
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_model::Entities;

const EXAMPLE: &str = include_str!("example.yml");

/// Does what the command asks for.
pub(super) fn configure(command: ConfigCommand, context: &Context) -> Result<ExitCode, String> {
    if let ConfigCommand::Init { file, .. } = &command {
        return write_example(file);
    }
    let settings = context.load(command.store().clone().into())?.settings;
    let is_kong = context.program == Program::Kong;
    match command {
        ConfigCommand::Init { file, .. } => write_example(&file),
        ConfigCommand::Parse { file, .. } => {
            try_out(&source(file, &settings, context)?, &settings)
                .map_err(|invalid| format!("Failed parsing:\n{}", invalid.errors.join("\n")))?;
            print("parse successful\n")
        }
        ConfigCommand::DbImport { file, .. } => {
            let report = import(source(file, &settings, context)?, &settings)?;
            print(if is_kong { "parse successful, beginning import\nimport successful\n" } else { &report })
        }
        ConfigCommand::DbExport { file, target, .. } => print(&export(&file, target, &settings, context)?),
    }
}

fn write_example(file: &Path) -> Result<ExitCode, String> {
    let created = OpenOptions::new().write(true).create_new(true).open(file);
    created.and_then(|mut file| file.write_all(EXAMPLE.as_bytes())).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!("{} already exists in the current directory.\nWill not overwrite it.", file.display())
        }
        _ => refused(file, &error),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn source(file: PathBuf, settings: &Settings, context: &Context) -> Result<Source, String> {
    source_at(Origin::File(file), settings, context)
}

/// A configuration as a node with these settings reads it.
pub(super) fn source_at(origin: Origin, settings: &Settings, context: &Context) -> Result<Source, String> {
    let NodePlugins { definitions, schemas: plugins, lua, .. } = context.plugins(settings)?;
    Ok(Source { origin, environment: process_environment(), definitions, plugins, lua })
}

fn import(source: Source, settings: &Settings) -> Result<String, String> {
    let plugins = &source.plugins;
    let document = try_out(&source, settings).map_err(|invalid| invalid.errors.join("\n"))?.document;
    let _prefix = take_prefix(settings)?;
    let count = wait_for(async {
        let store = named(store::open_database(settings, plugins.clone()).await)?;
        let imported = transfer::import(&*store, document, plugins, now()).await;
        imported.map_err(|error| format!("{}: {error}", source.origin))
    })??;
    Ok(format!("{}: {count} entities imported\n", source.origin))
}

fn export(
    file: &Path,
    target: ExportTarget,
    settings: &Settings,
    context: &Context,
) -> Result<String, String> {
    let plugins = context.plugins(settings)?.schemas;
    let loaded = wait_for(async {
        let store = named(store::open_to_read(settings, plugins.clone()).await)?;
        store.load().await.map_err(|error| error.to_string())
    })??;
    let mut entities = Entities::from_iter(loaded.entities);
    entities.expire(now().as_secs().cast_signed());
    let entities: Vec<_> = entities.iter().cloned().collect();
    let text = match target {
        ExportTarget::Weir => transfer::export(&entities, &plugins, Unset::LeftOut),
        ExportTarget::Kong => {
            let (text, left_out) = transfer::export_for_kong(&entities, &plugins);
            let said = left_out.iter().map(|line| format!("left out, because Kong 3.9 lacks it: {line}\n"));
            io::stderr().write_all(said.collect::<String>().as_bytes()).map_err(|error| error.to_string())?;
            text
        }
    };
    if file == Path::new("-") {
        return Ok(text);
    }
    // The file holds credentials.
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    created.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| refused(file, &error))?;
    Ok(format!("{}: {} entities exported\n", file.display(), entities.len()))
}

/// Since 1970.
fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

fn refused(file: &Path, error: &io::Error) -> String {
    let file = file.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{file} exists already: remove it, or name another file"),
        _ => format!("{file}: {error}: name a file that can be written"),
    }
}

fn named(opened: Result<Option<Arc<dyn Store>>, StoreError>) -> Result<Arc<dyn Store>, String> {
    let store = opened.map_err(|error| error.to_string())?;
    store.ok_or_else(|| "database is `off`: set it to `postgres` or `sqlite`".to_owned())
}

/// Keeps a node from running meanwhile, because a node follows changes in PostgreSQL, but not in its SQLite file.
pub(super) fn take_prefix(settings: &Settings) -> Result<Option<Prefix>, String> {
    if store::database(settings) != Database::Sqlite {
        return Ok(None);
    }
    let folder = prefix::or_default(settings.prefix.clone());
    folder.and_then(Prefix::take).map(Some).map_err(|error| match error {
        PrefixError::InUse { prefix, pid } => format!(
            "a node (process {pid}) runs in {} and has the database open: stop it with `weir quit`, run this again, and \
             start the node. Its Admin API takes changes while it runs",
            prefix.display()
        ),
        error => error.to_string(),
    })
}

/// Waits for work that needs a runtime.
pub(super) fn wait_for<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| error.to_string())?.block_on(work))
}
