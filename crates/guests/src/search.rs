//! Where modules of Lua are looked for on disk, and what was read of them.

use foldhash::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Where LuaRocks installs modules: looked through after the places of `lua_package_path`.
const ROCKS: [&str; 2] = ["/usr/local/share/lua/5.1/?.lua", "/usr/local/share/lua/5.1/?/init.lua"];

/// Where LuaRocks installs C modules.
const C_ROCKS: &str = "/usr/local/lib/lua/5.1/?.so";

/// A file of Lua.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Its path, as messages name it.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) text: Vec<u8>,
}

/// The modules on disk. Each file is read once, so that all workers run the same code until the node reads it anew.
#[derive(Debug)]
pub(crate) struct Sources {
    /// Paths with a `?` for the module's name.
    places: Vec<String>,
    c_places: Vec<String>,
    found: Mutex<HashMap<String, Option<Arc<SourceFile>>>>,
}

impl Sources {
    /// Modules in the places of `lua_package_path` and `lua_package_cpath`.
    pub(crate) fn new(path: &str, c_path: &str) -> Self {
        let places = |path: &str, more: &[&str]| {
            let given = path.split(';').map(str::trim).filter(|place| !place.is_empty());
            let mut places: Vec<String> = Vec::new();
            for place in given.chain(more.iter().copied()) {
                if !places.iter().any(|known| known == place) {
                    places.push(place.to_owned());
                }
            }
            places
        };
        Self { places: places(path, &ROCKS), c_places: places(c_path, &[C_ROCKS]), found: Mutex::default() }
    }

    /// The file of a module, if there is one.
    pub(crate) fn find(&self, module: &str) -> Result<Option<Arc<SourceFile>>, String> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = found.get(module) {
            return Ok(known.clone());
        }
        let file = paths(&self.places, module).find(|path| Path::new(path).is_file());
        let file = file.map(read).transpose()?.map(Arc::new);
        found.insert(module.to_owned(), file.clone());
        Ok(file)
    }

    /// What is said of a module that there is not: where it was looked for.
    pub(crate) fn not_found(&self, module: &str) -> String {
        let mut message = format!("module '{module}' not found: Weir has no module of this name");
        if let Some(file) = paths(&self.c_places, module).find(|path| Path::new(path).is_file()) {
            message.push_str(&format!(
                "; {file} is a C module, and Weir loads none: install a version of the module in Lua"
            ));
        }
        for path in paths(&self.places, module) {
            message.push_str(&format!("\n\tno file '{path}'"));
        }
        message
    }
}

/// The paths where a module could be.
fn paths<'p>(places: &'p [String], module: &str) -> impl Iterator<Item = String> + use<'p> {
    let name = module.replace('.', "/");
    places.iter().map(move |place| place.replace('?', &name))
}

fn read(path: String) -> Result<SourceFile, String> {
    match std::fs::read(&path) {
        Ok(text) => Ok(SourceFile { path, text }),
        Err(error) => Err(format!("{path}: cannot be read: {error}: make the file readable for this user")),
    }
}
