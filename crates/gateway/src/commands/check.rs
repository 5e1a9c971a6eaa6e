//! `weir check`: the errors and warnings of declarative files and of settings, without starting a node.
use super::Context;
use super::against::{self, Catalogue, GivenSetting, Report};
use crate::apisix::standalone::is_apisixs;
use crate::apisix::translate::is_plugin_available;
use crate::cli::{CheckArgs, Rival, SettingsArgs};
use crate::configuration::{Configuration, Origin, Source, located, process_environment};
use crate::data_plane::try_out;
use crate::options;
use crate::plugins::{self, NodePlugins};
use crate::settings::{self, Settings};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_guests::{Missing, PluginNeeds, plugin_needs};

/// What Kong checks if no file is named.
const DEFAULT_FILE: &str = "/etc/kong/kong.conf";

/// Checks files of both kinds, and Admin APIs.
pub(super) fn check(
    mut files: Vec<PathBuf>,
    (against, plugins): (Option<Rival>, Option<PathBuf>),
    settings: CheckArgs,
    context: &Context,
) -> Result<ExitCode, String> {
    if files.is_empty() && plugins.is_none() {
        files.push(PathBuf::from(DEFAULT_FILE));
    }
    let (of_settings, declarative): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| holds_settings(file));
    let (output, errors) = (&mut io::stdout(), &mut io::stderr());
    let mut good = true;
    let mut own = None;
    if let Some(folder) = plugins {
        let settings = context.load(settings.clone().into())?.settings;
        let (names, all_run) = check_plugins(&folder, &settings, output)?;
        good &= all_run;
        own = Some((folder, names));
    }
    for file in of_settings {
        good &= check_settings(&file, context, output, errors).map_err(|error| error.to_string())?;
        if let Some(rival) = against {
            let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            let (catalogue, mut report) = (Catalogue::of(rival)?, Report::default());
            report.add_settings(&catalogue, &of_kong_conf(&file, &text));
            report.write(&Origin::File(file), output).map_err(|error| error.to_string())?;
            good &= report.is_complete();
        }
    }
    if !declarative.is_empty() {
        let mut settings = context.load(settings.into())?.settings;
        if let Some((folder, names)) = own {
            settings = with_plugins(settings, &folder, names);
        }
        good &= check_declarative((declarative, against), &settings, context, output, errors)?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says of each plugin below a folder what keeps it from running here. Returns their names, and whether nothing does.
fn check_plugins(
    folder: &Path,
    settings: &Settings,
    output: &mut dyn Write,
) -> Result<(Vec<String>, bool), String> {
    let plugins = plugin_needs(&options::lua(settings), folder)?;
    let mut lines = Vec::new();
    for PluginNeeds { name, missing } in &plugins {
        match missing.len() {
            0 => lines.push(format!("{name}: has all that it needs")),
            1 => lines.push(format!("{name}: 1 problem")),
            count => lines.push(format!("{name}: {count} problems")),
        }
        let line = |it: &Missing| format!("{}:{}: {}", it.file.display(), it.line, it.message);
        lines.extend(missing.iter().map(line));
    }
    lines.iter().try_for_each(|line| writeln!(output, "{line}")).map_err(|error| error.to_string())?;
    let all_run = plugins.iter().all(|plugin| plugin.missing.is_empty());
    Ok((plugins.into_iter().map(|plugin| plugin.name).collect(), all_run))
}

/// The settings with which a node loads the plugins of a folder, too, where they are in `kong/plugins` as on a node.
fn with_plugins(settings: Settings, folder: &Path, names: Vec<String>) -> Settings {
    let root = folder.to_str().and_then(|folder| folder.trim_end_matches('/').strip_suffix("kong/plugins"));
    let root = root.map_or(folder, |root| Path::new(if root.is_empty() { "." } else { root }));
    let is_new = |name: &String| {
        root.join("kong/plugins").join(name).is_dir() && !settings.plugins.iter().any(|known| known == name)
    };
    let mut plugins = settings.plugins.clone();
    plugins.extend(names.into_iter().filter(is_new));
    let root = root.display();
    let path = format!("{root}/?.lua;{root}/?/init.lua;{}", settings.lua_package_path);
    Settings { lua_package_path: path, plugins, ..settings }
}

fn holds_settings(file: &Path) -> bool {
    // Standard input can be read only once.
    file != Path::new("-") && fs::read_to_string(file).is_ok_and(|text| settings::is_kong_conf(file, &text))
}

fn check_settings(
    file: &Path,
    context: &Context,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<bool> {
    match settings::load(SettingsArgs::of_file(file.to_owned()).sources(context.program)) {
        Ok(loaded) => {
            loaded.warnings.iter().try_for_each(|warning| writeln!(errors, "warning: {warning}"))?;
            if let Err(problems) = context.plugins(&loaded.settings) {
                writeln!(errors, "{problems}")?;
                return Ok(false);
            }
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
    (files, against): (Vec<PathBuf>, Option<Rival>),
    settings: &Settings,
    context: &Context,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> Result<bool, String> {
    let loaded = context.plugins(settings);
    let mut good = loaded.is_ok();
    let loaded = loaded.or_else(|problems| {
        // What else is wrong is worth knowing.
        let own = NodePlugins::of_program(context.definitions, settings);
        writeln!(errors, "{problems}").map(|()| own)
    });
    let NodePlugins { definitions, schemas, lua } = loaded.map_err(|error| error.to_string())?;
    for file in files {
        let (environment, plugins, lua) = (process_environment(), schemas.clone(), lua.clone());
        let source = Source { origin: origin(file)?, environment, definitions, plugins, lua };
        let tried = try_out(&source, settings);
        good &= tell(&source.origin, &tried, output, errors).map_err(|error| error.to_string())?;
        if let Some(rival) = against {
            good &= compare(rival, &source, tried.ok().as_ref(), output)?;
        }
    }
    Ok(good)
}

/// A file, or the configuration that an Admin API has.
fn origin(file: PathBuf) -> Result<Origin, String> {
    let is_url = |name: &&str| name.starts_with("http://") || name.starts_with("https://");
    match file.to_str().filter(is_url) {
        Some(url) => Ok(Origin::AdminApi { url: url.to_owned(), text: against::fetched(url)? }),
        None => Ok(Origin::File(file)),
    }
}

fn tell(
    origin: &Origin,
    tried: &Result<Configuration, Vec<String>>,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> io::Result<bool> {
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

/// Shows what of a configuration works as there; true if nothing is missing here.
fn compare(
    rival: Rival,
    source: &Source,
    configuration: Option<&Configuration>,
    output: &mut dyn Write,
) -> Result<bool, String> {
    let (catalogue, origin) = (Catalogue::of(rival)?, &source.origin);
    // What cannot be read has been reported.
    let Some(text) = origin.text_again() else { return Ok(false) };
    let has_plugin = |name: &str| match is_apisixs(origin.path(), &text) {
        true => is_plugin_available(name, &source.plugins),
        false => plugins::find(source.definitions, name).is_some(),
    };
    let mut report = Report::of(&catalogue, origin, &text, &has_plugin);
    report.add_settings(&catalogue, &std::env::vars_os().filter_map(of_kong).collect::<Vec<_>>());
    if let Some(configuration) = configuration {
        report.add_without_effect(origin, &configuration.ignored_fields);
    }
    report.write(origin, output).map_err(|error| error.to_string())?;
    Ok(report.is_complete())
}

/// A setting of Kong's, from an environment variable.
fn of_kong((variable, value): (OsString, OsString)) -> Option<GivenSetting> {
    let place = variable.into_string().ok()?;
    let name = place.strip_prefix("KONG_")?.to_ascii_lowercase();
    Some(GivenSetting { name, value: value.into_string().ok()?, place })
}

/// The settings of a kong.conf.
fn of_kong_conf(file: &Path, text: &str) -> Vec<GivenSetting> {
    let lines = settings::of_kong_conf(text).into_iter();
    let given =
        |(line, name, value)| GivenSetting { name, value, place: format!("{}:{line}", file.display()) };
    lines.map(given).collect()
}
