//! Templates of scenarios and targets.
use super::{CatalogueError, nearest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

/// Fills a template. An undefined variable is an error.
pub(crate) fn render(file: &Path, text: &str, context: impl Serialize) -> Result<String, CatalogueError> {
    let context = Value::from(Serde(context));
    let rendered =
        environment().and_then(|env| env.render_named_str(&file.to_string_lossy(), text, context.clone()));
    rendered.map_err(|error| match missing(file, text, &context, &error) {
        Some(what) => said(file, &error, &what),
        None => invalid(file, &error),
    })
}

/// Which name of a template the context does not have, and the nearest that it has.
fn missing(file: &Path, text: &str, context: &Value, error: &Error) -> Option<String> {
    let is_known = |name: &str| context.get_attr(name).is_ok_and(|value| !value.is_undefined());
    let names = mentioned(file, text).ok().filter(|_| error.kind() == ErrorKind::UndefinedError)?;
    let name = names.into_iter().find(|name| !is_known(name))?;
    let known: Vec<String> = context.try_iter().ok()?.map(|key| key.to_string()).collect();
    let nearest = nearest(&name, known.iter().map(String::as_str));
    let hint = nearest.first().map_or_else(String::new, |known| format!("; did you mean `{known}`?"));
    Some(format!("there is no `{name}`{hint}"))
}

fn invalid(file: &Path, error: &Error) -> CatalogueError {
    let kind = error.kind();
    let what = error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}"));
    said(file, error, &what)
}

fn said(file: &Path, error: &Error, what: &str) -> CatalogueError {
    let message = format!("{what} (docs/laboratory names what templates may use)");
    CatalogueError::Invalid { file: file.to_owned(), line: error.line().unwrap_or(1), column: 0, message }
}

/// What templates may use, made once for many of them.
pub(crate) fn context(context: impl Serialize) -> Value {
    Value::from(Serde(context))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_name_that_is_not_there_is_said_with_its_line_and_the_nearest() {
        let context = BTreeMap::from([("upstream", "127.0.0.1:1"), ("bytes", "7")]);
        let text = "services:\n- url: http://{{ upstraem }}\n";
        let error = render(Path::new("kong.yml"), text, &context).unwrap_err().to_string();
        assert!(error.starts_with("kong.yml:2: there is no `upstraem`; did you mean `upstream`?"), "{error}");
    }
}
