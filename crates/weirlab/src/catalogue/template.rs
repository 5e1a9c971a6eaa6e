//! Templates of scenarios and targets.
use super::CatalogueError;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// Fills a template. An undefined variable is an error.
pub(crate) fn render(file: &Path, text: &str, context: impl Serialize) -> Result<String, CatalogueError> {
    let rendered =
        environment().and_then(|env| env.render_named_str(&file.to_string_lossy(), text, Serde(context)));
    rendered.map_err(|error| invalid(file, &error))
}

fn invalid(file: &Path, error: &Error) -> CatalogueError {
    let kind = error.kind();
    let what = error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}"));
    let message = format!("{what} (docs/laboratory names what templates may use)");
    CatalogueError::Invalid { file: file.to_owned(), line: error.line().unwrap_or(1), column: 0, message }
}

/// What templates may use, made once for many of them.
pub(crate) fn context(context: impl Serialize) -> minijinja::Value {
    minijinja::Value::from(Serde(context))
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // Indentation of blocks means nothing to YAML then.
    let syntax =
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?;
    environment.set_syntax(syntax);
    // Credentials of basic authentication.
    environment.add_filter("base64", |text: String| BASE64_STANDARD.encode(text));
    Ok(environment)
}

/// The names that a template leaves to its context.
pub(crate) fn mentioned(file: &Path, text: &str) -> Result<BTreeSet<String>, CatalogueError> {
    let names = environment().and_then(|env| {
        Ok(env.template_from_named_str(&file.to_string_lossy(), text)?.undeclared_variables(false))
    });
    names.map(|names| names.into_iter().collect()).map_err(|error| invalid(file, &error))
}
