//! What keeps the files of a plugin from running here: text that does not parse, modules and functions that they need and the
//! host does not have, handlers and schemas that Kong would refuse.
//!
//! All but schemas is read from the text, so that no handler runs. What there is, a VM says.

use super::methods;
use super::names::Names;
use super::schemas::Running;
use crate::dicts;
use crate::files::PluginFiles;
use crate::schema::meta::Subject;
use crate::search::Sources;
use crate::settings::LuaSettings;
use crate::source;
use crate::tokens::{Token, Tokens, tokens};
use crate::vm::Vm;
use foldhash::HashSet;
use mlua::Table;
use mlua::chunk::ChunkMode;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use weir_plugin::Definition;
use weir_plugin::entity::EntityKind;

/// Something that keeps a file of a plugin from running.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// What is said of it, such as `there is no kong.x.y here`.
    pub message: String,
    /// The file can be loaded all the same.
    pub is_warning: bool,
}

impl Missing {
    /// Something that keeps a file from running.
    pub(super) fn new(file: &Path, line: usize, message: String) -> Self {
        Self { file: file.to_owned(), line, message, is_warning: false }
    }

    /// Something that does not do what it seems to.
    pub(super) fn warning(file: &Path, line: usize, message: String) -> Self {
        Self { is_warning: true, ..Self::new(file, line, message) }
    }
}

/// A plugin below a folder, and what it needs that is not here.
#[derive(Debug)]
pub struct PluginNeeds {
    /// Its name.
    pub name: String,
    /// In the order of files and lines.
    pub missing: Vec<Missing>,
}

/// The plugins below a folder: `kong/plugins/NAME`, `NAME`, or the folder itself, each with a `handler.lua`.
///
/// `definitions` are the node's own plugins, whose entities are in `kong.db`.
pub fn plugin_needs(
    settings: &LuaSettings,
    folder: &Path,
    definitions: &[Definition],
) -> Result<Vec<PluginNeeds>, String> {
    let mut found = Vec::new();
    for place in [folder.join("kong/plugins"), folder.to_owned()] {
        let entries = fs::read_dir(&place).into_iter().flatten().filter_map(Result::ok);
        let plugins = entries.map(|entry| entry.path()).filter(|path| path.join("handler.lua").is_file());
        found.extend(plugins);
    }
    if folder.join("handler.lua").is_file() {
        found.push(folder.to_owned());
    }
    found.sort();
    if found.is_empty() {
        let folder = folder.display();
        return Err(format!(
            "{folder}: no plugin here: name a folder with kong/plugins/NAME/handler.lua below it"
        ));
    }
    let collections = collections(definitions, &found);
    let host = Host::new(settings, folder, collections)?;
    found.iter().map(|plugin| host.needs(plugin)).collect()
}

/// The folder that holds the `kong/plugins` that a folder is in: `lua_package_path` begins there.
pub fn plugins_root(folder: &Path) -> Option<&Path> {
    let of_plugins = folder.ancestors().find(|place| place.ends_with("kong/plugins"))?;
    let root = of_plugins.ancestors().nth(2)?;
    Some(if root.as_os_str().is_empty() { Path::new(".") } else { root })
}

/// The names in `kong.db`: kinds of the gateway, of its plugins, and of those that are found.
fn collections(definitions: &[Definition], found: &[PathBuf]) -> HashSet<String> {
    let own = EntityKind::BUILT_IN.iter().map(|kind| kind.as_str());
    let of_plugins = definitions.iter().flat_map(|plugin| plugin.schema.entities).map(|entity| entity.name);
    let names = own.chain(of_plugins).chain(["strategy", "tags", "workspaces"]).map(str::to_owned);
    let texts = found.iter().filter_map(|plugin| fs::read_to_string(plugin.join("daos.lua")).ok());
    names.chain(texts.flat_map(|text| declared_names(&tokens(&text)))).collect()
}

/// The texts that a file gives as `name`.
fn declared_names(tokens: &Tokens<'_>) -> Vec<String> {
    let names = tokens.windows(3).filter_map(|tokens| match *tokens {
        [(Token::Name("name"), _), (Token::Sign('='), _), (Token::Text(name), _)] => Some(name.to_owned()),
        _ => None,
    });
    names.collect()
}

/// The methods of an endpoint in `api.lua`.
const METHODS: [&str; 6] = ["before", "DELETE", "GET", "PATCH", "POST", "PUT"];

/// What there is.
struct Host {
    names: Names,
    /// Modules that stand beside the plugins, or where the settings say.
    sources: Sources,
    settings: LuaSettings,
    folder: PathBuf,
}

/// A new VM, in which no plugin has run, with the settings that it is known by.
fn vm(settings: &LuaSettings) -> Result<(Arc<LuaSettings>, Rc<Vm>), String> {
    let settings = Arc::new(settings.clone());
    let vm = Vm::reading(&settings).map_err(|error| source::message(&error))?;
    Ok((settings, vm))
}

impl Host {
    fn new(settings: &LuaSettings, folder: &Path, collections: HashSet<String>) -> Result<Self, String> {
        let beside = [Some(folder), plugins_root(folder)].into_iter().flatten().map(Path::display);
        let beside: String = beside.map(|place| format!("{place}/?.lua;{place}/?/init.lua;")).collect();
        let path = beside + settings.files.path();
        // Schemas are run, and find what is beside them. They are not trusted yet.
        let files = PluginFiles::new(&path, "").into();
        let settings = LuaSettings { files, opens_files: false, ..settings.clone() };
        let dicts = dicts::names(&settings).map(str::to_owned).collect();
        let names = Names::new(vm(&settings)?.1, collections, dicts);
        Ok(Self { names, sources: Sources::new(&path, ""), settings, folder: folder.to_owned() })
    }

    fn needs(&self, plugin: &Path) -> Result<PluginNeeds, String> {
        let name = plugin.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (mut missing, mut files) = (Vec::new(), Vec::new());
        lua_files(plugin, &mut files);
        for file in files {
            let text = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            missing.extend(self.of_file(&file, &text, (&name, plugin)));
        }
        missing.extend(self.of_schemas(plugin, &name, &missing)?);
        if !plugin.join("schema.lua").is_file() {
            let message = "there is no schema.lua beside it".to_owned();
            missing.push(Missing::new(&plugin.join("handler.lua"), 1, message));
        }
        missing.sort();
        missing.dedup_by(|one, other| (&one.file, &one.message) == (&other.file, &other.message));
        Ok(PluginNeeds { name, missing })
    }

    fn of_file(&self, file: &Path, text: &[u8], plugin: (&str, &Path)) -> Vec<Missing> {
        let source = String::from_utf8_lossy(text);
        let tokens = tokens(&source);
        let mut found = self.names.missing(file, &tokens, &|name| self.has_module(name, plugin));
        found.extend(own_endpoints(file, &tokens));
        match self.syntax_error(file, text) {
            Some(error) => found.push(error),
            None if file.parent() == Some(plugin.1) => found.extend(methods::problems(file, &tokens)),
            None => {}
        }
        found
    }

    /// What is wrong with the schemas of a plugin, which run in a VM of their own: no plugin changes what is said of another.
    fn of_schemas(&self, plugin: &Path, name: &str, found: &[Missing]) -> Result<Vec<Missing>, String> {
        let (settings, vm) = vm(&self.settings)?;
        let running = Running { settings: &settings, vm: &vm, plugin: name, found };
        let mut problems = Vec::new();
        for (file, subject) in [("schema.lua", Subject::Plugin), ("daos.lua", Subject::Entity)] {
            let file = plugin.join(file);
            let Ok(text) = fs::read(&file) else { continue };
            let source = String::from_utf8_lossy(&text);
            if self.syntax_error(&file, &text).is_none() {
                problems.extend(running.problems((&file, &text), subject, &tokens(&source)));
            }
        }
        Ok(problems)
    }

    /// What does not parse.
    fn syntax_error(&self, file: &Path, text: &[u8]) -> Option<Missing> {
        let chunk = self.names.vm.lua.load(text).set_name("=").set_mode(ChunkMode::Text);
        let error = source::message(&chunk.into_function().err()?);
        let (line, message) = error.trim_start_matches(':').split_once(": ")?;
        Some(Missing::new(file, line.parse().ok()?, message.to_owned()))
    }

    /// Whether `require` would find a module, here or beside the plugin.
    fn has_module(&self, name: &str, (plugin, folder): (&str, &Path)) -> bool {
        let own = name.strip_prefix(&format!("kong.plugins.{plugin}.")).map(|rest| rest.replace('.', "/"));
        let is_file = |rest: String| {
            folder.join(format!("{rest}.lua")).is_file() || folder.join(rest).join("init.lua").is_file()
        };
        let loaded = || {
            let package = self.names.vm.lua.globals().get::<Table>("package");
            let loaded = package.and_then(|package| package.get::<Table>("loaded"));
            loaded.and_then(|loaded| loaded.contains_key(name)).unwrap_or(false)
        };
        own.is_some_and(is_file)
            || crate::modules::names().any(|known| known == name)
            || loaded()
            || matches!(self.sources.find(name), Ok(Some(_)))
            || self.folder.join(format!("{}.lua", name.replace('.', "/"))).is_file()
    }
}

/// Functions that `api.lua` has for methods: the Admin API runs none.
fn own_endpoints(file: &Path, tokens: &Tokens<'_>) -> Vec<Missing> {
    let is_api = file.file_name().is_some_and(|name| name == "api.lua");
    let tokens = if is_api { tokens } else { &[] };
    let of_method = tokens.windows(3).filter_map(|tokens| match *tokens {
        [(Token::Name(method), line), (Token::Sign('='), _), (Token::Name("function"), _)] => {
            METHODS.contains(&method).then_some((method, line))
        }
        _ => None,
    });
    let message = |method| {
        format!("the Admin API does not run the function for {method}: it has generated endpoints alone")
    };
    of_method.map(|(method, line)| Missing::new(file, line, message(method))).collect()
}

/// The files of Lua in a folder, without tests and migrations.
fn lua_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(name.as_str(), "spec" | "migrations") {
            lua_files(&path, found);
        } else if name.ends_with(".lua") {
            found.push(path);
        }
    }
}
