//! `weir check`: the errors and warnings of declarative files and of settings, without starting a node.
use super::Context;
use crate::cli::{CheckArgs, SettingsArgs};
use crate::configuration::{Origin, Source, located, process_environment};
use crate::data_plane::try_out;
use crate::plugins::{Definitions, schemas};
use crate::settings::{self, Settings};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What Kong checks if no file is named.
const DEFAULT_FILE: &str = "/etc/kong/kong.conf";

/// Checks files of both kinds.
pub(super) fn check(
    mut files: Vec<PathBuf>,
    settings: CheckArgs,
    context: &Context,
) -> Result<ExitCode, String> {
    if files.is_empty() {
        files.push(PathBuf::from(DEFAULT_FILE));
    }
    let (of_settings, declarative): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| holds_settings(file));
    let (output, errors) = (&mut io::stdout(), &mut io::stderr());
    let mut good = true;
    for file in of_settings {
        good &= check_settings(file, context, output, errors).map_err(|error| error.to_string())?;
    }
    if !declarative.is_empty() {
        let settings = context.load(settings.into())?.settings;
        let checked = check_declarative(declarative, &settings, context.definitions, output, errors);
        good &= checked.map_err(|error| error.to_string())?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn holds_settings(file: &Path) -> bool {
    // Standard input can be read only once.
    file != Path::new("-") && fs::read_to_string(file).is_ok_and(|text| settings::is_kong_conf(file, &text))
}

fn check_settings(
    file: PathBuf,
    context: &Context,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<bool> {
    match settings::load(SettingsArgs::of_file(file.clone()).sources(context.program)) {
        Ok(loaded) => {
            loaded.warnings.iter().try_for_each(|warning| writeln!(errors, "warning: {warning}"))?;
            writeln!(output, "configuration at {} is valid", file.display())?;
            Ok(true)
        }
        Err(problems) => {
            problems.iter().try_for_each(|problem| writeln!(errors, "{problem}"))?;
            Ok(false)
        }
    }
}

/// Checks declarative files; true if all are good. Errors and warnings go to `errors`, one line each.
fn check_declarative(
    files: Vec<PathBuf>,
    settings: &Settings,
    definitions: Definitions,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<bool> {
    let mut good = true;
    for path in files {
        let (plugins, _) = schemas(definitions, &settings.plugins);
        let source =
            Source { origin: Origin::File(path), environment: process_environment(), definitions, plugins };
        match try_out(&source, settings) {
            Ok(configuration) => {
                let ignored_fields = located(&source.origin, &configuration.ignored_fields);
                let mut warnings = configuration.warnings.iter().chain(&ignored_fields);
                warnings.try_for_each(|warning| writeln!(errors, "warning: {warning}"))?;
                writeln!(output, "{}: good", source.origin)?;
            }
            Err(found) => {
                good = false;
                found.iter().try_for_each(|error| writeln!(errors, "{error}"))?;
            }
        }
    }
    Ok(good)
}
