//! The plugins' pages under `docs/plugins`: each is the documentation of its file and the table of its fields.
//!
//! `WEIR_BLESS=1 cargo test -p weir-plugins plugins_docs` writes them anew.

use super::PLUGINS;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use weir_plugin::Definition;
use weir_plugin::schema::{Kind, RecordSchema, markdown};

#[test]
fn plugins_docs() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = crate_root.join("../../docs/plugins");
    let mut index = String::from(
        "# Plugins\n\nFrom the first to run to the last.\n\n| plugin | priority | |\n|---|---|---|\n",
    );
    for definition in PLUGINS {
        let (name, priority) = (definition.schema.name, definition.priority);
        let text = documentation(crate_root, name);
        let summary = text.split("\n\n").next().unwrap().replace('\n', " ");
        writeln!(index, "| [{name}]({name}.md) | {priority} | {summary} |").unwrap();
        check(&folder.join(format!("{name}.md")), &page(definition, &text));
    }
    check(&folder.join("README.md"), &index);
}

#[test]
fn plugins_are_listed_from_the_first_to_run_to_the_last() {
    assert!(PLUGINS.is_sorted_by_key(|definition| -definition.priority));
}

/// Compares a file with what it should be, or writes it when asked to.
fn check(file: &PathBuf, expected: &str) {
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, expected).unwrap();
    }
    let found = std::fs::read_to_string(file).unwrap_or_default();
    assert!(found == expected, "{} is out of date; run this test with WEIR_BLESS=1", file.display());
}

/// The `//!` lines of a plugin's file.
fn documentation(crate_root: &Path, name: &str) -> String {
    let stem = crate_root.join("src").join(name.replace('-', "_"));
    let files = [stem.with_extension("rs"), stem.join("mod.rs")];
    let source = files.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let text = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n");
    assert!(text.contains("```yaml"), "{name}: an example is missing");
    text
}

fn page(definition: &Definition, text: &str) -> String {
    let schema = &definition.schema;
    assert_documented(schema.config, "");
    format!("# {}\n\n{text}\n\n## Configuration\n\n{}", schema.name, markdown::table(schema.config))
}

fn assert_documented(record: &RecordSchema, prefix: &str) {
    for field in record.fields {
        let name = format!("{prefix}{}", field.name);
        match field.kind {
            Kind::Record(inner) => assert_documented(inner, &format!("{name}.")),
            _ => assert!(!field.doc.is_empty(), "{name}: documentation is missing"),
        }
    }
}
