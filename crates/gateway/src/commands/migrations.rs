//! `weir migrations`: the tables of the database. Called as `kong`, it reports with Kong's words and exit codes.
use super::{Context, database, print};
use crate::cli::{MigrationsCommand, Program, SettingsArgs};
use crate::settings::{Database, Settings};
use crate::store::migrations::{self, Found, Migrated, Task};
use crate::store::{self, StoreError};
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// What is printed about the tables.
pub(super) struct Report {
    pub(super) text: String,
    exit_code: u8,
}

impl Report {
    fn good(text: String) -> Report {
        Report { text, exit_code: 0 }
    }
}

/// Does to the tables what a command asks for.
pub(super) fn migrate(command: &MigrationsCommand, context: &Context) -> Result<ExitCode, String> {
    let args = command.args();
    if !args.ignored.is_empty() {
        let ignored = args.ignored.join(" ");
        writeln!(io::stderr(), "warning: ignored: {ignored}: a shell would be needed to run it")
            .map_err(|error| error.to_string())?;
    }
    let task = match command {
        MigrationsCommand::Bootstrap(_) => Task::Bootstrap,
        MigrationsCommand::Up(_) => Task::Up,
        MigrationsCommand::Finish(_) => Task::Finish,
        MigrationsCommand::Status(_) => Task::Status,
        MigrationsCommand::List(_) => Task::List,
        MigrationsCommand::Reset(_) => Task::Reset,
        MigrationsCommand::ReinitializeWorkspaceEntityCounters(_) => {
            return print("entities are not counted in the database: nothing to do\n");
        }
    };
    let from = SettingsArgs::from(args.store.clone()).and(args.timeouts.setting());
    let settings = context.load(from)?.settings;
    if task == Task::Reset && !args.yes && !confirmed()? {
        return print("cancelled\n");
    }
    if task == Task::Bootstrap && args.force {
        report(Task::Reset, &settings, args.timeouts.lock_timeout, context)?;
    }
    let report = report(task, &settings, args.timeouts.lock_timeout, context)?;
    if !args.quiet {
        print(&report.text)?;
    }
    Ok(ExitCode::from(report.exit_code))
}

/// Performs a task, and reports on it.
pub(super) fn report(
    task: Task,
    settings: &Settings,
    lock_timeout: Duration,
    context: &Context,
) -> Result<Report, String> {
    let is_kong = context.program == Program::Kong;
    if is_kong && store::database(settings) == Database::Off {
        // There is nothing that could be missing.
        return Ok(of_kong(task, Found::Current));
    }
    let _prefix = if task.changes() { database::take_prefix(settings)? } else { None };
    let migrated = database::wait_for(migrations::perform(task, settings, lock_timeout))?;
    match migrated {
        Ok(migrated) if is_kong => Ok(of_kong(task, migrated.found)),
        Ok(migrated) => Ok(of_weir(task, &migrated)),
        Err(StoreError::NotMigrated(_)) if is_kong && task == Task::Up => {
            Err("Cannot run migrations: database needs bootstrapping; run 'kong migrations bootstrap'"
                .to_owned())
        }
        Err(StoreError::NotMigrated(_)) if is_kong && task == Task::Finish => {
            Err("Cannot run migrations; run 'kong migrations bootstrap' instead".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn of_weir(task: Task, migrated: &Migrated) -> Report {
    let exit_code = match task {
        Task::Status => u8::from(!migrated.leaves_usable(task)),
        Task::List => of_kong(task, migrated.found).exit_code,
        _ => 0,
    };
    Report { text: migrated.report(task) + "\n", exit_code }
}

/// Scripts compare these lines and exit codes.
fn of_kong(task: Task, found: Found) -> Report {
    let good = |text: &str| Report::good(text.to_owned() + "\n");
    match (task, found) {
        (Task::Status, found) => Report::good(status(found) + "\n"),
        (Task::List, Found::Missing) => Report {
            text: "Database needs bootstrapping; run 'kong migrations bootstrap'\n".to_owned(),
            exit_code: 3,
        },
        (Task::List, Found::Behind(version)) => Report {
            text: format!(
                "Executed migrations:\n{}\n\nNew migrations available:\n{}\n\nRun 'kong migrations up' to proceed\n",
                listed(0, version),
                listed(version, migrations::newest())
            ),
            exit_code: 5,
        },
        (Task::List, Found::Current) => {
            good(&format!("Executed migrations:\n{}", listed(0, migrations::newest())))
        }
        (Task::List, Found::Ahead(version)) => good(&format!("Executed migrations:\n{}", listed(0, version))),
        (Task::Bootstrap, Found::Missing) => good("Bootstrapping database...\nDatabase is up-to-date"),
        (Task::Bootstrap, _) => good("Database already bootstrapped"),
        (Task::Finish, _) => good("No pending migrations to finish"),
        (Task::Reset, Found::Missing) => {
            Report { text: "Database not bootstrapped, nothing to reset\n".to_owned(), exit_code: 1 }
        }
        (Task::Reset, _) => good("Resetting database...\nDatabase successfully reset"),
        (_, Found::Current | Found::Ahead(_)) => good("Database is already up-to-date"),
        (_, Found::Missing | Found::Behind(_)) => good("Database is up-to-date"),
    }
}

fn names(first: usize, end: usize) -> Vec<String> {
    (first..end).map(|step| format!("{step:03}")).collect()
}

fn listed(first: usize, end: usize) -> String {
    format!("weir: {}", names(first, end).join(", "))
}

/// Kong's state of the migrations, as JSON.
fn status(found: Found) -> String {
    let group = |first, end| match names(first, end) {
        names if names.is_empty() => serde_json::Value::Null,
        names => json!([{ "namespace": "weir", "subsystem": "weir", "migrations": names }]),
    };
    let (done, newest) = (found.version().unwrap_or(0), migrations::newest());
    json!({
        "needs_bootstrap": found == Found::Missing,
        "executed_migrations": group(0, done),
        "pending_migrations": null,
        "missing_migrations": null,
        "new_migrations": group(done, newest),
    })
    .to_string()
}

fn confirmed() -> Result<bool, String> {
    if !io::stdin().is_terminal() {
        return Err("not a tty: invoke 'reset' non-interactively with the --yes flag".to_owned());
    }
    let mut answer = String::new();
    write!(io::stdout(), "> Are you sure? This operation is irreversible. [y/n] ")
        .and_then(|()| io::stdout().flush())
        .and_then(|()| io::stdin().read_line(&mut answer))
        .map_err(|error| error.to_string())?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
