//! Plugins in Lua on disk, as an operator installs them.
mod example;
mod loading;
mod named;
mod needs;
mod reload;
mod schemas;
mod scopes;

use crate::harness::{Builder, Gateway};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A folder with plugins: each a path below `kong/plugins`, and the text of the file.
struct Plugins(TempDir);

/// A schema without rules.
const SCHEMA: &str = "return { name = 'mine', fields = { { config = { type = 'record', fields = {} } } } }";

impl Plugins {
    fn new(files: &[(&str, &str)]) -> Self {
        let plugins = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| plugins.write(path, text));
        plugins
    }

    /// One plugin, `mine`, with this handler.
    fn mine(handler: &str) -> Self {
        Self::new(&[("mine/handler.lua", handler), ("mine/schema.lua", SCHEMA)])
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join("kong/plugins").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    /// A gateway to be with these plugins, by their names.
    fn builder(&self, names: &str, configuration: &str) -> Builder {
        self.set(Gateway::builder(configuration), names)
    }

    /// A gateway with these plugins, whose Admin API can be written to.
    fn start_empty(&self, names: &str) -> Gateway {
        self.set(Gateway::empty(), names).start()
    }

    fn set(&self, builder: Builder, names: &str) -> Builder {
        let path = format!("{0}/?.lua;{0}/?/init.lua", self.folder().display());
        builder.set("plugins", &format!("bundled,{names}")).set("lua_package_path", &path)
    }

    /// One service to an address, and the plugin `mine` for all requests.
    fn start_mine(&self, upstream: std::net::SocketAddr) -> Gateway {
        let configuration = format!("{}plugins:\n- name: mine\n", crate::harness::one_route(upstream));
        self.builder("mine", &configuration).start()
    }
}
