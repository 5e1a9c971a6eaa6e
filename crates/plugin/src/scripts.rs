//! Code in Lua that configurations of plugins contain beside other values: templates, and functions that return fields.
//!
//! A plugin loads it as a [`Script`] when it is built, and evaluates that for each request. What runs Lua is not known here:
//! the program installs it by `<dyn Scripts>::install` before it reads configurations.

use super::build::BuildContext;
use super::exchange::Exchange;
use std::sync::{Arc, OnceLock};
use weir_model::schema::Json;

/// What a program that runs no Lua says of code.
const NO_LUA: &str = "this program does not run Lua";

static INSTALLED: OnceLock<&'static dyn Scripts> = OnceLock::new();

/// What code may see, and in which of Kong's phases it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptKind {
    /// Expressions of templates. They see the request by `headers`, `query_params`, `uri_captures`, `shared` and `consumer`,
    /// and run in `access`.
    Templates,
    /// Bodies of functions. They see `kong` and `ngx`, and run in `log`.
    LogFields,
}

/// A piece of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptCode {
    /// What errors call it, before the line.
    pub name: String,
    /// An expression of a template, or a function's body.
    pub text: String,
}

/// What a piece of code is worth for one request.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptValue {
    /// `nil`, or it was not asked for.
    Nil,
    /// A string.
    Text(Vec<u8>),
    /// Anything else.
    Json(Json),
}

/// The code was not run to its end. Why is in the node's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScriptError;

/// Code that was loaded for one plugin entity.
pub trait Script: Send + Sync {
    /// The values of the pieces that are wanted, in the order of all of them.
    fn evaluate(
        &self,
        exchange: &mut Exchange,
        is_wanted: &dyn Fn(usize) -> bool,
    ) -> Vec<Result<ScriptValue, ScriptError>>;
}

/// What runs code of configurations.
pub trait Scripts: Send + Sync {
    /// What is wrong with the syntax of a function's body, with the line.
    fn syntax_error(&self, code: &str) -> Option<String>;

    /// Loads the code of a plugin entity. The error says why the node does not run it.
    fn load(
        &self,
        plugin: &'static str,
        kind: ScriptKind,
        code: Vec<ScriptCode>,
        build: &BuildContext<'_>,
    ) -> Result<Arc<dyn Script>, String>;
}

impl dyn Scripts {
    /// Has this run the code of all plugins of the process. The first one stays.
    pub fn install(scripts: &'static dyn Scripts) {
        // A second one is as good as the first.
        let _ = INSTALLED.set(scripts);
    }

    /// Whether the syntax of a function's body is right. The error is in Kong's words, with the line.
    pub fn check(code: &str) -> Result<(), String> {
        let Some(scripts) = INSTALLED.get() else { return Err(NO_LUA.to_owned()) };
        match scripts.syntax_error(code) {
            Some(error) => Err(format!("Error parsing function: {error}")),
            None => Ok(()),
        }
    }

    /// Loads the code of a plugin entity, if there is any.
    pub fn load_all(
        plugin: &'static str,
        kind: ScriptKind,
        code: Vec<ScriptCode>,
        build: &BuildContext<'_>,
    ) -> Result<Option<Arc<dyn Script>>, String> {
        if code.is_empty() {
            return Ok(None);
        }
        let scripts = INSTALLED.get().ok_or(NO_LUA)?;
        scripts.load(plugin, kind, code, build).map(Some)
    }
}
