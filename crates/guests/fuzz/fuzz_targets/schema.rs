//! No schema of a plugin on disk and no configuration of it make their reading panic: a configuration that is accepted, with
//! its defaults, is accepted again and stays as it is.
//!
//! The input is the table that a schema's file returns, as JSON, and behind a line break a configuration. The text
//! `typedefs.NAME` stands for that of Kong's definitions, so that no code is run but ours.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tempfile::TempDir;
use weir_guests::{LuaSettings, PluginFiles, definitions};

const HANDLER: &str = "return { PRIORITY = 1, VERSION = '1.0.0' }";

static FOLDER: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let plugin = folder.path().join("kong/plugins/fuzzed");
    fs::create_dir_all(&plugin).expect("a folder");
    fs::write(plugin.join("handler.lua"), HANDLER).expect("there is room");
    (folder, plugin.join("schema.lua"))
});

/// Writes a value as Lua.
fn write(out: &mut String, json: &Json) {
    let done = match json {
        Json::Null => write!(out, "ngx.null"),
        Json::Bool(value) => write!(out, "{value}"),
        Json::Number(number) => write!(out, "{number}"),
        Json::String(text) => match text.strip_prefix("typedefs.") {
            Some(name) => write!(out, "typedefs[{}]", quoted(name)),
            None => write!(out, "{}", quoted(text)),
        },
        Json::Array(items) => {
            out.push('{');
            items.iter().for_each(|item| {
                write(out, item);
                out.push(',');
            });
            write!(out, "}}")
        }
        Json::Object(members) => {
            out.push('{');
            for (name, value) in members {
                out.push_str(&format!("[{}]=", quoted(name)));
                write(out, value);
                out.push(',');
            }
            write!(out, "}}")
        }
    };
    done.expect("a string takes all");
}

fn quoted(text: &str) -> String {
    let escaped: String = text.bytes().map(|byte| format!("\\{byte:03}")).collect();
    format!("\"{escaped}\"")
}

fuzz_target!(|input: &str| {
    let (schema, config) = input.split_once('\n').unwrap_or((input, "{}"));
    let (Ok(schema), Ok(config)) = (serde_json::from_str(schema), serde_json::from_str(config)) else {
        return;
    };
    let mut code = "local typedefs = require 'kong.db.schema.typedefs' return ".to_owned();
    write(&mut code, &schema);
    let (folder, file) = &*FOLDER;
    fs::write(file, code).expect("there is room");
    let path = format!("{}/?.lua", folder.path().display());
    let files = Arc::new(PluginFiles::new(&path, ""));
    let settings = LuaSettings { files, timeout: Duration::from_secs(5), ..LuaSettings::default() };
    match definitions(&Arc::new(settings), &["fuzzed"]) {
        Err(errors) => assert!(!errors.is_empty() && errors.iter().all(|error| !error.is_empty())),
        Ok(definitions) => {
            let schema = definitions[0].schema;
            let Ok(read) = schema.check(&config) else { return };
            assert_eq!(schema.check(&read).as_ref(), Ok(&read));
        }
    }
});
