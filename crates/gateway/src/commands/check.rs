//! `weir check`: the errors and warnings of declarative files, without starting a node.
use super::against::{self, Catalogue, Report, Rival};
use crate::configuration::{Configuration, Origin, Source, located, process_environment};
use crate::data_plane::try_out;
use crate::plugins::{Definitions, schemas};
use crate::settings::Settings;
use std::io::Write;

/// What to check files for.
pub(crate) struct Question<'q> {
    /// The files, or URLs of Admin APIs.
    pub(crate) files: Vec<String>,
    /// The gateway to compare with.
    pub(crate) against: Option<Rival>,
    pub(crate) settings: &'q Settings,
    pub(crate) definitions: Definitions,
}

/// Checks files; true if all are good. Errors and warnings go to `errors`, one line each.
pub(crate) fn check(
    question: Question<'_>,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> Result<bool, String> {
    let mut good = true;
    for file in &question.files {
        let (plugins, _) = schemas(question.definitions, &question.settings.plugins);
        let (environment, definitions) = (process_environment(), question.definitions);
        let source = Source { origin: origin(file)?, environment, definitions, plugins };
        let tried = try_out(&source, question.settings);
        good &= tell(&source.origin, &tried, output, errors).map_err(|error| error.to_string())?;
        if let Some(rival) = question.against {
            good &= compare(rival, &source.origin, tried.ok().as_ref(), output)?;
        }
    }
    Ok(good)
}

/// A file, or the configuration that an Admin API has.
fn origin(name: &str) -> Result<Origin, String> {
    match name.starts_with("http://") || name.starts_with("https://") {
        true => Ok(Origin::AdminApi { url: name.to_owned(), text: against::fetched(name)? }),
        false => Ok(Origin::File(name.into())),
    }
}

fn tell(
    origin: &Origin,
    tried: &Result<Configuration, Vec<String>>,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> std::io::Result<bool> {
    match tried {
        Ok(configuration) => {
            let ignored_fields = located(origin, &configuration.ignored_fields);
            let mut warnings = configuration.warnings.iter().chain(&ignored_fields);
            warnings.try_for_each(|warning| writeln!(errors, "warning: {warning}"))?;
            writeln!(output, "{origin}: good")?;
        }
        Err(found) => found.iter().try_for_each(|error| writeln!(errors, "{error}"))?,
    }
    Ok(tried.is_ok())
}

/// Tells what of a configuration works as there; true if nothing is missing here.
fn compare(
    rival: Rival,
    origin: &Origin,
    configuration: Option<&Configuration>,
    output: &mut dyn Write,
) -> Result<bool, String> {
    let catalogue = Catalogue::of(rival)?;
    let text = origin.text_again().unwrap_or_default();
    let variables: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let mut report = Report::of(&catalogue, &text, origin.format(), &variables);
    if let Some(configuration) = configuration {
        report.add_without_effect(origin, &configuration.ignored_fields);
    }
    report.write(origin, output).map_err(|error| error.to_string())?;
    Ok(report.is_complete())
}
