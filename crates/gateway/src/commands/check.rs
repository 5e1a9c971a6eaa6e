//! `weir check`: the errors and warnings of declarative files and of settings, without starting a node.
use super::Context;
use super::against::{self, Availability, Catalogue, GivenSetting, Report};
use crate::admin::plugin_conflicts;
use crate::apisix::standalone::is_apisixs;
use crate::apisix::translate::is_plugin_available;
use crate::cli::{CheckArgs, Rival, SettingsArgs};
use crate::configuration::{
    Configuration, InvalidConfiguration, Origin, Source, located, process_environment,
};
use crate::data_plane::try_out;
use crate::options;
use crate::plugins::{self, Broken, NodePlugins};
use crate::settings::{self, Loaded, Settings};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_guests::{LuaSettings, Missing, PluginNeeds, plugin_needs, plugins_root};
use weir_model::schema::printable;

/// What Kong checks if no file is named.
const DEFAULT_FILE: &str = "/etc/kong/kong.conf";

/// Checks files of both kinds, and Admin APIs. Errors in one of them, or in the settings, hide none in others.
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
    let mut check = Check { context, against, failures: 0, reported: HashSet::new() };
    for file in of_settings {
        check.settings_file(file)?;
    }
    if (plugins.is_some() || !declarative.is_empty())
        && let Some(mut loaded) = check.load(settings.into())?
    {
        check.warn(&loaded.warnings)?;
        let mut checked = None;
        if let Some(folder) = plugins {
            let (settings, found) = check.plugins(&folder, loaded.settings)?;
            (loaded.settings, checked) = (settings, Some(found));
        }
        check.declarative(declarative, &loaded.settings, checked.as_deref())?;
    }
    Ok(if check.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A check in progress.
struct Check<'c> {
    context: &'c Context,
    against: Option<Rival>,
    failures: usize,
    /// The errors and warnings that were written: those of the environment concern every file of settings.
    reported: HashSet<String>,
}

impl Check<'_> {
    /// Writes errors, a line each.
    fn report(&mut self, errors: impl IntoIterator<Item = impl ToString>) -> Result<(), String> {
        for error in errors {
            self.failures += 1;
            let error = error.to_string();
            if !self.reported.contains(&error) {
                print_line(&mut io::stderr(), &error)?;
                self.reported.insert(error);
            }
        }
        Ok(())
    }

    /// Writes warnings about settings, a line each.
    fn warn(&mut self, warnings: &[String]) -> Result<(), String> {
        let new: Vec<_> =
            warnings.iter().filter(|warning| self.reported.insert((*warning).clone())).collect();
        warn(new)
    }

    /// Reads settings. Their errors are reported, and what has one is left out.
    fn load(&mut self, args: SettingsArgs) -> Result<Option<Loaded>, String> {
        let program = self.context.program;
        match self.context.load_or_problems(args.clone().sources(program)) {
            Ok(loaded) => Ok(Some(loaded)),
            Err(problems) => {
                self.report(problems)?;
                Ok(settings::load_good_ones(args.sources(program)))
            }
        }
    }

    /// Checks a file of settings.
    fn settings_file(&mut self, file: PathBuf) -> Result<(), String> {
        let failures = self.failures;
        if let Some(loaded) = self.load(SettingsArgs::of_file(file.clone()))? {
            self.warn(&loaded.warnings)?;
            match self.context.plugins(&loaded.settings) {
                Ok(plugins) => warn(plugins.warnings.iter().map(|(_, warning)| warning))?,
                Err(errors) => self.report(errors.lines().map(printable_line))?,
            }
        }
        if self.failures == failures {
            print_line(&mut io::stdout(), &format!("configuration at {} is valid", file.display()))?;
        }
        let Some(rival) = self.against else { return Ok(()) };
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let (catalogue, mut report) = (Catalogue::of(rival)?, Report::default());
        report.add_settings(&catalogue, &of_kong_conf(&file, &text));
        self.conclude(&report, &Origin::File(file))
    }

    /// Checks the plugins below a folder. Returns the settings with which a node has them, and what was found of them.
    fn plugins(&mut self, folder: &Path, settings: Settings) -> Result<(Settings, Vec<PluginNeeds>), String> {
        let plugins = plugin_needs(&options::lua(&settings), folder, self.context.definitions)?;
        write_needs(&plugins, &mut io::stdout())?;
        self.failures += usize::from(plugins.iter().any(has_problems));
        let names = plugins.iter().map(|plugin| plugin.name.clone()).collect();
        Ok((with_plugins(settings, folder, names), plugins))
    }

    /// The plugins with which files are checked. What is wrong with them is reported, unless it was written with a folder's.
    fn node_plugins(
        &mut self,
        settings: &Settings,
        checked: Option<&[PluginNeeds]>,
    ) -> Result<NodePlugins, String> {
        let of_folder = |name: &str| checked.unwrap_or_default().iter().find(|it| it.name == name);
        // Plugins that are checked are not trusted yet.
        let lua = LuaSettings { opens_files: checked.is_none(), ..options::lua(settings) };
        let own = self.context.definitions;
        let (plugins, broken) = NodePlugins::load_good_ones(own, (settings, lua), plugin_conflicts::check);
        for Broken { plugin, message } in broken {
            if !of_folder(&plugin).is_some_and(has_problems) {
                self.report(message.lines().map(printable_line))?;
            }
        }
        let warnings = plugins.warnings.iter().filter(|(name, _)| of_folder(name).is_none());
        warn(warnings.map(|(_, warning)| warning))?;
        Ok(plugins)
    }

    /// Checks declarative files and Admin APIs.
    fn declarative(
        &mut self,
        files: Vec<PathBuf>,
        settings: &Settings,
        checked: Option<&[PluginNeeds]>,
    ) -> Result<(), String> {
        if files.is_empty() {
            return Ok(());
        }
        let NodePlugins { definitions, schemas, lua, .. } = self.node_plugins(settings, checked)?;
        for file in files {
            let origin = match origin(file) {
                Ok(origin) => origin,
                Err(error) => {
                    self.report([error])?;
                    continue;
                }
            };
            let (environment, plugins, lua) = (process_environment(), schemas.clone(), lua.clone());
            let source = Source { origin, environment, definitions, plugins, lua };
            let tried = try_out(&source, settings);
            self.tell(&source.origin, &tried)?;
            if let Some(rival) = self.against {
                self.compare(rival, &source, tried.ok().as_ref())?;
            }
        }
        Ok(())
    }

    fn tell(
        &mut self,
        origin: &Origin,
        tried: &Result<Configuration, InvalidConfiguration>,
    ) -> Result<(), String> {
        match tried {
            Ok(configuration) => {
                let ignored_fields = located(origin, &configuration.ignored_fields);
                warn(configuration.warnings.iter().chain(&ignored_fields))?;
                print_line(&mut io::stdout(), &format!("{origin}: good"))
            }
            Err(invalid) => {
                self.report(&invalid.errors)?;
                warn(&invalid.warnings)
            }
        }
    }

    /// Shows what of a configuration works as there.
    fn compare(
        &mut self,
        rival: Rival,
        source: &Source,
        configuration: Option<&Configuration>,
    ) -> Result<(), String> {
        let (catalogue, origin) = (Catalogue::of(rival)?, &source.origin);
        // What cannot be read has been reported.
        let Some(text) = origin.text_again() else {
            self.failures += 1;
            return Ok(());
        };
        let is_apisixs = is_apisixs(origin.path(), &text);
        let availability = |name: &str| match plugins::find(source.definitions, name) {
            _ if is_apisixs && is_plugin_available(name, &source.plugins) => Availability::Both,
            None => Availability::NotHere,
            Some(_) if is_apisixs => Availability::NotHere,
            Some(plugin) if plugin.schema.extension => Availability::OnlyHere,
            Some(_) => Availability::Both,
        };
        let mut report = Report::of(&catalogue, origin, &text, &availability);
        report.add_settings(&catalogue, &std::env::vars_os().filter_map(of_kong).collect::<Vec<_>>());
        if let Some(configuration) = configuration {
            report.add_without_effect(origin, &configuration.ignored_fields);
        }
        self.conclude(&report, origin)
    }

    /// Writes what differs; the check fails if something is missing here.
    fn conclude(&mut self, report: &Report<'_>, origin: &Origin) -> Result<(), String> {
        self.failures += usize::from(!report.is_complete());
        report.write(origin, &mut io::stdout()).map_err(|error| error.to_string())
    }
}

fn warn<'w>(warnings: impl IntoIterator<Item = &'w String>) -> Result<(), String> {
    let mut warnings = warnings.into_iter();
    warnings.try_for_each(|warning| print_line(&mut io::stderr(), &format!("warning: {warning}")))
}

/// A line in which code of plugins may have a part. Its first tabs are the host's.
fn printable_line(line: &str) -> String {
    let text = line.trim_start_matches('\t');
    format!("{}{}", &line[..line.len() - text.len()], printable(text))
}

fn has_problems(plugin: &PluginNeeds) -> bool {
    plugin.missing.iter().any(|it| !it.is_warning)
}

fn print_line(output: &mut dyn Write, line: &str) -> Result<(), String> {
    writeln!(output, "{line}").map_err(|error| error.to_string())
}

/// Says of each plugin below a folder what keeps it from running here.
fn write_needs(plugins: &[PluginNeeds], output: &mut dyn Write) -> Result<(), String> {
    let mut lines = Vec::new();
    for PluginNeeds { name, missing } in plugins {
        let warnings = missing.iter().filter(|it| it.is_warning).count();
        let counts = [count(missing.len() - warnings, "problem"), count(warnings, "warning")];
        let counts: Vec<_> = counts.into_iter().flatten().collect();
        match counts.is_empty() {
            true => lines.push(format!("{name}: has all that it needs")),
            false => lines.push(format!("{name}: {}", counts.join(", "))),
        }
        let kind = |it: &Missing| if it.is_warning { "warning: " } else { "" };
        let line = |it: &Missing| format!("{}:{}: {}{}", it.file.display(), it.line, kind(it), it.message);
        lines.extend(missing.iter().map(line));
    }
    lines.iter().try_for_each(|line| print_line(output, &printable(line)))
}

/// How many of something there are, if there are any.
fn count(number: usize, what: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {what}")),
        number => Some(format!("{number} {what}s")),
    }
}

/// The settings with which a node loads the plugins of a folder, too, where they are in `kong/plugins` as on a node.
fn with_plugins(settings: Settings, folder: &Path, names: Vec<String>) -> Settings {
    let root = plugins_root(folder).unwrap_or(folder);
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

/// A file, or the configuration that an Admin API has.
fn origin(file: PathBuf) -> Result<Origin, String> {
    let is_url = |name: &&str| name.starts_with("http://") || name.starts_with("https://");
    match file.to_str().filter(is_url) {
        Some(url) => Ok(Origin::AdminApi { url: url.to_owned(), text: against::fetched(url)? }),
        None => Ok(Origin::File(file)),
    }
}

/// A setting of Kong's, from an environment variable. Those that Kubernetes sets for a Service named `kong` are none.
fn of_kong((variable, value): (OsString, OsString)) -> Option<GivenSetting> {
    let place = variable.into_string().ok()?;
    let (name, value) = (place.strip_prefix("KONG_")?.to_ascii_lowercase(), value.into_string().ok()?);
    (!settings::is_service_link(&name, &value)).then_some(GivenSetting { name, value, place })
}

/// The settings of a kong.conf.
fn of_kong_conf(file: &Path, text: &str) -> Vec<GivenSetting> {
    let lines = settings::of_kong_conf(text).into_iter();
    let given =
        |(line, name, value)| GivenSetting { name, value, place: format!("{}:{line}", file.display()) };
    lines.map(given).collect()
}
