//! The commands on the database: `weir migrations` and `weir config`.
use crate::cli::{ConfigCommand, ExportTarget, MigrationsCommand};
use crate::configuration::{Origin, Source, process_environment};
use crate::data_plane::try_out;
use crate::plugins::{Definitions, schemas};
use crate::prefix::{self, Prefix};
use crate::settings::{Database, Settings};
use crate::store::migrations::{self, Task};
use crate::store::transfer::{self, Unset};
use crate::store::{self, Store, StoreError};
use std::fs::OpenOptions;
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_model::Entities;

/// `weir migrations`: returns its report; false if `status` finds tables that cannot be used as they are.
pub(crate) fn migrate(command: MigrationsCommand, settings: &Settings) -> Result<(String, bool), String> {
    let task = match command {
        MigrationsCommand::Bootstrap(_) => Task::Bootstrap,
        MigrationsCommand::Up(_) => Task::Up,
        MigrationsCommand::Status(_) => Task::Status,
    };
    let _prefix = if task == Task::Status { None } else { take_prefix(settings)? };
    let (said, usable) = wait_for(migrations::perform(task, settings))?.map_err(|error| error.to_string())?;
    Ok((format!("{said}\n"), usable || task != Task::Status))
}

/// `weir config`: returns its report.
pub(crate) fn transfer(
    command: ConfigCommand,
    settings: &Settings,
    definitions: Definitions,
) -> Result<String, String> {
    match command {
        ConfigCommand::DbImport { file, .. } => import(file, settings, definitions),
        ConfigCommand::DbExport { file, target, .. } => export(&file, target, settings, definitions),
    }
}

fn import(file: PathBuf, settings: &Settings, definitions: Definitions) -> Result<String, String> {
    let (plugins, _) = schemas(definitions, &settings.plugins);
    let origin = Origin::File(file);
    let source = Source { origin, environment: process_environment(), definitions, plugins: plugins.clone() };
    let document = try_out(&source, settings).map_err(|errors| errors.join("\n"))?.document;
    let _prefix = take_prefix(settings)?;
    let count = wait_for(async {
        let store = named(store::open(settings, plugins.clone()).await)?;
        let imported = transfer::import(&*store, document, &plugins, now()).await;
        imported.map_err(|error| format!("{}: {error}", source.origin))
    })??;
    Ok(format!("{}: {count} entities imported\n", source.origin))
}

fn export(
    file: &Path,
    target: ExportTarget,
    settings: &Settings,
    definitions: Definitions,
) -> Result<String, String> {
    let (plugins, _) = schemas(definitions, &settings.plugins);
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
fn take_prefix(settings: &Settings) -> Result<Option<Prefix>, String> {
    if store::database(settings) != Database::Sqlite {
        return Ok(None);
    }
    let folder = prefix::or_default(settings.prefix.clone());
    folder.and_then(Prefix::take).map(Some).map_err(|error| error.to_string())
}

fn wait_for<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| error.to_string())?.block_on(work))
}
