//! What keeps the files of a plugin from running here: text that does not parse, and the modules and functions that they need
//! and the host does not have.
//!
//! All is read from the text, so that no code runs. What there is, a VM says.

use super::methods;
use super::tokens::{Token, tokens};
use crate::search::Sources;
use crate::settings::LuaSettings;
use crate::source;
use crate::vm::{Vm, module};
use foldhash::HashMap;
use mlua::Value;
use mlua::chunk::ChunkMode;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that keeps a file of a plugin from running.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// What is said of it, such as `there is no kong.x.y here`.
    pub message: String,
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
pub fn plugin_needs(settings: &LuaSettings, folder: &Path) -> Result<Vec<PluginNeeds>, String> {
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
    let host = Host::new(settings, folder)?;
    found.iter().map(|plugin| host.needs(plugin)).collect()
}

/// Tables whose members are those of a request, or of a node that runs.
const OPEN: [&str; 9] = [
    "kong.configuration",
    "kong.ctx.core",
    "kong.ctx.plugin",
    "kong.ctx.shared",
    "kong.db",
    "ngx.ctx",
    "ngx.header",
    "ngx.shared",
    "ngx.var",
];

/// The methods of an endpoint in `api.lua`.
const METHODS: [&str; 6] = ["before", "DELETE", "GET", "PATCH", "POST", "PUT"];

/// What there is.
struct Host {
    vm: std::rc::Rc<Vm>,
    /// Modules that stand beside the plugins, or where the settings say.
    sources: Sources,
    folder: PathBuf,
}

/// What a name in a file stands for: members of a global, or of a module.
#[derive(Clone)]
struct Place {
    /// `kong`, `ngx`, or the name of a module.
    root: String,
    members: Vec<String>,
}

impl Place {
    fn text(&self) -> String {
        [std::slice::from_ref(&self.root), &self.members].concat().join(".")
    }
}

impl Host {
    fn new(settings: &LuaSettings, folder: &Path) -> Result<Self, String> {
        let settings = Arc::new(settings.clone());
        let vm = Vm::reading(&settings).map_err(|error| source::message(&error))?;
        let beside = folder.display();
        let sources =
            Sources::new(&format!("{beside}/?.lua;{beside}/?/init.lua;{}", settings.files.path()), "");
        Ok(Self { vm, sources, folder: folder.to_owned() })
    }

    fn needs(&self, plugin: &Path) -> Result<PluginNeeds, String> {
        let name = plugin.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (mut missing, mut files) = (Vec::new(), Vec::new());
        lua_files(plugin, &mut files);
        for file in files {
            let text = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            missing.extend(self.syntax_error(&file, &text));
            missing.extend(self.missing(&file, &String::from_utf8_lossy(&text), (&name, plugin)));
        }
        if !plugin.join("schema.lua").is_file() {
            let message = "there is no schema.lua beside it".to_owned();
            missing.push(Missing { file: plugin.join("handler.lua"), line: 1, message });
        }
        missing.sort();
        missing.dedup_by(|one, other| (&one.file, &one.message) == (&other.file, &other.message));
        Ok(PluginNeeds { name, missing })
    }

    /// What does not parse.
    fn syntax_error(&self, file: &Path, text: &[u8]) -> Option<Missing> {
        let chunk = self.vm.lua.load(text).set_name("=").set_mode(ChunkMode::Text);
        let error = source::message(&chunk.into_function().err()?);
        let (line, message) = error.trim_start_matches(':').split_once(": ")?;
        Some(Missing { file: file.to_owned(), line: line.parse().ok()?, message: message.to_owned() })
    }

    fn missing(&self, file: &Path, text: &str, plugin: (&str, &Path)) -> Vec<Missing> {
        let tokens = tokens(text);
        let mut found = own_endpoints(file, &tokens);
        found.extend(methods::contradiction(file, &tokens));
        let mut known: HashMap<String, Place> = HashMap::default();
        for root in ["kong", "ngx"] {
            known.insert(root.to_owned(), Place { root: root.to_owned(), members: Vec::new() });
        }
        let mut at = 0;
        while let Some((token, line)) = tokens.get(at) {
            let mut needs = |what: String| {
                let message = format!("there is no {what} here");
                found.push(Missing { file: file.to_owned(), line: *line, message });
            };
            let is_member = at > 0 && matches!(tokens[at - 1].0, Token::Sign('.' | ':'));
            let (place, next) = match token {
                Token::Name("require") if !is_member => match required(&tokens, at + 1) {
                    Some((name, next)) => {
                        if !self.has_module(&name, plugin) {
                            needs(format!("module '{name}'"));
                        }
                        (Some(Place { root: name, members: Vec::new() }), next)
                    }
                    None => (None, at + 1),
                },
                Token::Name(name) if !is_member => match known.get(*name) {
                    Some(place) => with_members(place, &tokens, at + 1),
                    None => (None, at + 1),
                },
                _ => (None, at + 1),
            };
            if let Some(place) = place {
                if !place.members.is_empty() && !self.has(&place) {
                    needs(place.text());
                }
                if let Some(alias) = alias(&tokens, at, next) {
                    known.insert(alias.to_owned(), place);
                }
            }
            at = next;
        }
        found
    }

    /// Whether `require` would find a module, here or beside the plugin.
    fn has_module(&self, name: &str, (plugin, folder): (&str, &Path)) -> bool {
        let own = name.strip_prefix(&format!("kong.plugins.{plugin}.")).map(|rest| rest.replace('.', "/"));
        let is_file = |rest: String| {
            folder.join(format!("{rest}.lua")).is_file() || folder.join(rest).join("init.lua").is_file()
        };
        let loaded = || {
            let loaded: mlua::Result<mlua::Table> =
                self.vm.lua.globals().get::<mlua::Table>("package").and_then(|package| package.get("loaded"));
            loaded.and_then(|loaded| loaded.contains_key(name)).unwrap_or(false)
        };
        own.is_some_and(is_file)
            || crate::modules::names().any(|known| known == name)
            || loaded()
            || matches!(self.sources.find(name), Ok(Some(_)))
            || self.folder.join(format!("{}.lua", name.replace('.', "/"))).is_file()
    }

    /// Whether the VM has the member that a place names. What only a request has is taken to be there.
    fn has(&self, place: &Place) -> bool {
        let lua = &self.vm.lua;
        let root = match place.root.as_str() {
            "kong" | "ngx" => lua.globals().get::<Value>(place.root.as_str()).ok(),
            name => module(lua, name).ok().flatten(),
        };
        let Some(mut value) = root else { return true };
        for (name, at) in place.members.iter().zip(0..) {
            if OPEN.contains(
                &Place { root: place.root.clone(), members: place.members[..at].to_vec() }.text().as_str(),
            ) {
                return true;
            }
            let Value::Table(table) = &value else { return true };
            match table.get::<Value>(name.as_str()) {
                Ok(Value::Nil) => return false,
                Ok(member) => value = member,
                Err(_) => return true,
            }
        }
        true
    }
}

/// The name of a required module, and where it ends.
pub(super) fn required(tokens: &[(Token<'_>, usize)], at: usize) -> Option<(String, usize)> {
    let after = match tokens.get(at)?.0 {
        Token::Sign('(' | ',') => at + 1,
        _ => at,
    };
    let Token::Text(name) = tokens.get(after)?.0 else { return None };
    let closed = matches!(tokens.get(after + 1), Some((Token::Sign(')'), _))) && after > at;
    Some((name.to_owned(), after + 1 + usize::from(closed)))
}

/// A place with the members that follow it, and where they end.
fn with_members(place: &Place, tokens: &[(Token<'_>, usize)], mut at: usize) -> (Option<Place>, usize) {
    let mut place = place.clone();
    while let [(Token::Sign('.'), _), (Token::Name(name), _), ..] = tokens[at.min(tokens.len())..] {
        place.members.push(name.to_owned());
        at += 2;
    }
    // A method that is called.
    if let [(Token::Sign(':'), _), (Token::Name(name), _), (Token::Sign('(' | '{') | Token::Text(_), _), ..] =
        tokens[at.min(tokens.len())..]
    {
        place.members.push(name.to_owned());
        at += 2;
    }
    (Some(place), at)
}

/// Functions that `api.lua` has for methods: the Admin API runs none.
fn own_endpoints(file: &Path, tokens: &[(Token<'_>, usize)]) -> Vec<Missing> {
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
    let missing = |(method, line)| Missing { file: file.to_owned(), line, message: message(method) };
    of_method.map(missing).collect()
}

/// The name that `local name = …` gives to what stands between these tokens.
fn alias<'t>(tokens: &[(Token<'t>, usize)], from: usize, to: usize) -> Option<&'t str> {
    let [.., (Token::Name("local"), _), (Token::Name(name), _), (Token::Sign('='), _)] = tokens[..from]
    else {
        return None;
    };
    let goes_on = matches!(tokens.get(to), Some((Token::Sign('(' | '[' | ':' | '.') | Token::Text(_), _)));
    (!goes_on).then_some(name)
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
