//! Plugins on disk, as Kong has them: `kong.plugins.NAME.handler` with a method for each phase, and
//! `kong.plugins.NAME.schema`.
//!
//! `handler` reads what a handler says of itself, `hooks` calls its methods with the `conf` of an
//! entity, and `worker` those that run on each worker before it serves. `needs` says what keeps plugins from running here.

mod api;
mod conf;
mod entities;
pub(crate) mod handler;
mod hooks;
mod methods;
mod names;
mod needs;
mod schema;
mod schemas;
mod worker;

pub use needs::{Missing, PluginNeeds, plugin_needs, plugins_root};

use crate::files::{Code, FormerFiles, Generation, Handler, PluginFiles};
use crate::functions::{BODY_READERS, SERVICE_READERS};
use crate::search::Sources;
use crate::settings::LuaSettings;
use crate::tokens::{Token, tokens};
use crate::vm::Vm;
use handler::module;
use hooks::DiskPlugin;
use std::sync::{Arc, PoisonError};
use weir_plugin::{BuildContext, Built, Definition, Json};

impl LuaSettings {
    /// Reads the files of these plugins anew, in a VM of this thread. All workers run them from now on, each in a new VM.
    /// Nothing changes if one cannot be loaded: the errors say why.
    pub fn read_files_anew(&self, names: &[&str]) -> Result<FormerFiles, Vec<String>> {
        let files = Arc::new(PluginFiles::new(&self.files.path, &self.files.c_path));
        let settings = Arc::new(Self { files: files.clone(), ..self.clone() });
        let errors = names.iter().filter_map(|name| installed(&settings, name).err());
        let errors: Vec<_> = errors.collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        for name in names {
            for warning in warnings(&settings, name) {
                tracing::warn!(plugin = name, "{warning}");
            }
        }
        let former = self.files.current();
        self.files.go_back(FormerFiles(files.current()));
        Ok(FormerFiles(former))
    }
}

/// What the files of a plugin say, read in a VM of this thread when it is first asked for.
fn code(settings: &Arc<LuaSettings>, name: &str) -> Result<Arc<Code>, String> {
    code_in(&settings.files.current(), settings, name)
}

/// The same of these files.
fn code_in(files: &Generation, settings: &Arc<LuaSettings>, name: &str) -> Result<Arc<Code>, String> {
    let plugins = || files.plugins.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = plugins().get(name) {
        return Ok(known.clone());
    }
    let vm = Vm::reading(settings).map_err(|error| error.to_string())?;
    let handler = Handler::read(&vm, name)?;
    let names = |what: &[&str]| names(&files.sources, name, what);
    let (reads_bodies, reads_service) = (names(&BODY_READERS), names(&SERVICE_READERS));
    let code = Arc::new(Code { handler, reads_bodies, reads_service });
    plugins().insert(name.to_owned(), code.clone());
    Ok(code)
}

/// Whether the handler, or a file that it requires by a name in its text, has one of these names.
fn names(sources: &Sources, plugin: &str, wanted: &[&str]) -> bool {
    let mut left = vec![module(plugin, "handler")];
    let mut seen: Vec<String> = Vec::new();
    while let Some(module) = left.pop() {
        let Ok(Some(file)) = sources.find(&module) else { continue };
        let text = String::from_utf8_lossy(&file.text);
        if wanted.iter().any(|name| text.contains(name)) {
            return true;
        }
        let more = required_in(&text).into_iter();
        left.extend(more.filter(|name| !seen.contains(name)));
        seen.push(module);
    }
    false
}

/// The modules that a text requires by their names.
fn required_in(text: &str) -> Vec<String> {
    let words = tokens(text);
    let at = (0..words.len()).filter(|at| words[*at].0 == Token::Name("require"));
    at.filter_map(|at| names::required(&words, at + 1)).map(|(name, _)| name).collect()
}

/// The rows of these plugins in the list of plugins, or what is wrong with their files. They last as long as the process.
pub fn definitions(settings: &Arc<LuaSettings>, names: &[&str]) -> Result<Vec<Definition>, Vec<String>> {
    let read = names.iter().map(|name| definition(settings, name));
    let (good, bad): (Vec<_>, Vec<_>) = read.partition(Result::is_ok);
    match bad.is_empty() {
        true => Ok(good.into_iter().filter_map(Result::ok).collect()),
        false => Err(bad.into_iter().filter_map(Result::err).collect()),
    }
}

/// What the handler and the schema of a plugin have that does not do what it seems to. Each begins with its file.
pub fn warnings(settings: &Arc<LuaSettings>, name: &str) -> Vec<String> {
    let of_both = [methods::warnings(settings, name), schema::warnings(settings, name)];
    // What cannot be loaded is refused elsewhere.
    of_both.into_iter().flat_map(Result::unwrap_or_default).collect()
}

/// Whether the files of a plugin are there and can be loaded.
fn installed(settings: &Arc<LuaSettings>, name: &str) -> Result<Arc<Code>, String> {
    let files = settings.files.current();
    let sources = &files.sources;
    if sources.find(&module(name, "handler"))?.is_none() {
        let looked = sources.not_found(&module(name, "handler"));
        return Err(format!(
            "{name} plugin is enabled but not installed;\n{looked}\nInstall it in one of these places, add its place to \
             lua_package_path, or take `{name}` out of the setting plugins"
        ));
    }
    if sources.find(&module(name, "schema"))?.is_none() {
        let looked = sources.not_found(&module(name, "schema"));
        return Err(format!("no configuration schema found for plugin: {name}\n{looked}"));
    }
    let code = code(settings, name)?;
    schema::loads(settings, name)?;
    Ok(code)
}

fn definition(settings: &Arc<LuaSettings>, name: &str) -> Result<Definition, String> {
    let code = installed(settings, name)?;
    let entities = entities::entities(settings, name)?;
    api::warn(settings, name, entities);
    let schema = schema::plugin(settings, name)?.with_entities(entities);
    let name: &'static str = name.to_owned().leak();
    Ok(Definition {
        name,
        priority: code.handler.priority,
        version: code.handler.version.clone().leak(),
        schema,
        fails_open: false,
        admin_routes: &[],
        handovers: &[],
        build,
        init: Some(worker::init),
        // Files that are read anew may have one.
        configure: Some(worker::configure),
    })
}

fn build(config: &Json, build: &BuildContext<'_>) -> Built {
    let plugin = DiskPlugin::new(config, build);
    plugin.code().map(|_| ())?;
    Ok(Arc::new(plugin))
}
