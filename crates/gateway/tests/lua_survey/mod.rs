//! Plugins in Lua that use what public plugins use: `kong/plugins/NAME` is a plugin, `cases/NAME.toml` what it does.
//! `PLUGIN=name` runs the cases of one. `${redis}` in a file of cases is the port of a Redis server.
#![allow(clippy::unwrap_used, clippy::panic)]

mod certificate;

use crate::harness::RedisServer;
use crate::plugin_cases::{case::File, run};
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lua_survey")
}

fn names() -> Vec<String> {
    let plugins = fs::read_dir(folder().join("kong/plugins")).unwrap();
    let mut names: Vec<_> = plugins.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn plugins_in_lua_do_as_their_cases_say() {
    let only = env::var("PLUGIN").ok();
    let names = names();
    let wanted = names.iter().filter(|name| only.as_ref().is_none_or(|only| only == *name));
    let faults: Vec<String> = thread::scope(|scope| {
        let running: Vec<_> = wanted.map(|name| scope.spawn(|| run_plugin(name, &names))).collect();
        assert!(!running.is_empty(), "there is no such plugin");
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn run_plugin(name: &str, all: &[String]) -> Vec<String> {
    let path = folder().join(format!("cases/{name}.toml"));
    let text = fs::read_to_string(&path).unwrap();
    let redis = text.contains("${redis}").then(RedisServer::start);
    let text = redis.iter().fold(text, |text, redis| text.replace("${redis}", &redis.port.to_string()));
    let mut file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.settings.insert("plugins".to_owned(), format!("bundled,{}", all.join(",")));
    file.settings.insert("lua_package_path".to_owned(), format!("{}/?.lua", folder().display()));
    run::run(name, &file).into_iter().map(|fault| format!("{name}: {fault}")).collect()
}
