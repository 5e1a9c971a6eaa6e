//! `docs/configuration.md`, written from the table of settings.
use super::declaration::Declaration;
use super::table::TABLE;
use std::fmt::Write;

const OPENING: &str = "\
# Settings

A node's settings are kong.conf's, with the same keys and values. They come from five places; where several give the
same setting, the first of these counts:

1. flags: `--set key=value` (as often as needed), `--config FILE` for `declarative_config`, `--prefix DIR`;
2. environment variables that start with `WEIR_`: `WEIR_LOG_LEVEL=debug`;
3. environment variables that start with `KONG_`, so that the environment of a Kong container works as it is. One that
   means nothing here is named in a warning and otherwise ignored. What Kubernetes sets for a Service named `kong` or `weir`,
   such as `KONG_SERVICE_HOST`, is no setting;
4. the file named by `--settings`, in TOML: `log_level = \"debug\"`;
5. the file named by `--conf`, in the format of kong.conf: `log_level = debug`. Without either flag, that is
   `/etc/kong/kong.conf` or `/etc/kong.conf`, if there is one. A line that means nothing here is named in a warning.

A variable that ends in `_FILE` [names a file](commands.md#where-settings-come-from) that holds the value. What happens to
[directives of nginx](deployment.md#directives-of-nginx) depends on the directive.

Lists are written with commas, `\"10.0.0.0/8, fd00::/8\"`, or in the file also as arrays. An empty environment variable
counts as absent. A misspelt key or value, wherever it is given, stops the start with a message that says where it
stands and how to fix it. Relative paths start at the working directory, those of logs at `prefix`. `weir reload` reads the declarative file
again; the settings are read at the start alone.

This page is what `weir settings` prints.

";

/// The manual of all settings, in Markdown.
pub(crate) fn manual() -> String {
    let mut text = OPENING.to_owned();
    TABLE.iter().for_each(|declaration| describe(declaration, &mut text));
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn describe(declaration: &Declaration, text: &mut String) {
    let Declaration { name, kind, default, doc, aliases, .. } = declaration;
    let default = if default.is_empty() { "none".to_owned() } else { format!("`{default}`") };
    let doc = doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
    // Writing to a String cannot fail.
    let _ = write!(text, "## {name}\n\n{doc}\n\n- Value: {kind}\n- Default: {default}\n");
    if !aliases.is_empty() {
        let aliases: Vec<_> = aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let _ = writeln!(text, "- Also: {}", aliases.join(", "));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_in_docs_is_current() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(page).unwrap_or_default();
        assert!(
            page == super::manual(),
            "run `cargo run -p weir-gateway -- settings > docs/configuration.md`"
        );
    }
}
