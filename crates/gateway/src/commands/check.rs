//! `weir check`: the errors and warnings of declarative files, without starting a node.
use crate::configuration::{Origin, Source, located, process_environment};
use crate::data_plane::try_out;
use crate::plugins::{Definitions, schemas};
use crate::settings::Settings;
use std::io::{self, Write};
use std::path::PathBuf;

/// Checks files; true if all are good. Errors and warnings go to `errors`, one line each.
pub(crate) fn check(
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
