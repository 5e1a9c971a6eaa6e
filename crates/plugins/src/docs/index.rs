//! `docs/plugins/README.md`: one table of all plugins, grouped as Kong's documentation groups its own.

use super::differences::Differences;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use weir_plugin::Definition;

/// What the table has beside what plugins declare.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    groups: Vec<Group>,
    counterparts: Vec<Counterpart>,
}

/// Plugins by what they are for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    plugins: Vec<String>,
}

/// A program or a library of others that the tests of plugins use, rather than a stand-in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Counterpart {
    name: String,
    plugins: Vec<String>,
    /// Those tests: a file or a folder in `crates`.
    tests: PathBuf,
    /// How they use it, in their words.
    says: String,
}

fn data() -> Data {
    serde_json::from_str(include_str!("index.json")).unwrap()
}

/// The plugins that are in a group.
pub(super) fn names() -> BTreeSet<String> {
    data().groups.into_iter().flat_map(|group| group.plugins).collect()
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The row of a plugin whose page has this text.
pub(super) fn row(definition: &Definition, text: &str, differences: &Differences) -> String {
    let (name, priority) = (definition.schema.name, definition.priority);
    let summary = text.split("\n\n").next().unwrap().replace('\n', " ");
    let in_kong = if definition.schema.extension { "" } else { "yes" };
    let (cases, counterparts) = (cases(name), counterparts(name));
    let Differences { anchor, label, .. } = differences;
    format!(
        "| [{name}]({name}.md) | {summary} | {priority} | {in_kong} | {cases} | {counterparts} | \
         [{label}]({name}.md#{anchor}) |\n"
    )
}

/// How many cases a plugin has, as a link to them.
fn cases(name: &str) -> String {
    let path = format!("gateway/tests/cases/plugins/{name}.toml");
    let Ok(text) = std::fs::read_to_string(crates().join(&path)) else { return String::new() };
    let is_case = |line: &&str| ["[[case]]", "[[refused]]", "[[warned]]"].contains(line);
    format!("[{}](../../crates/{path})", text.lines().filter(is_case).count())
}

fn counterparts(name: &str) -> String {
    let data = data();
    let of_plugin = data.counterparts.iter().filter(|it| it.plugins.iter().any(|plugin| plugin == name));
    let mut names: Vec<_> = of_plugin.map(|it| it.name.as_str()).collect();
    names.dedup();
    names.join(", ")
}

/// The index of the plugins, of their rows by their names.
pub(super) fn index(mut rows: BTreeMap<&str, String>) -> String {
    let mut index = INDEX.to_owned();
    for Group { name, plugins } in data().groups {
        writeln!(index, "| **{name}** | | | | | | |").unwrap();
        // One that was removed has no row.
        index.extend(plugins.iter().filter_map(|plugin| rows.remove(plugin.as_str())));
    }
    assert!(rows.is_empty(), "in no group: {:?}", rows.keys());
    index
}

const INDEX: &str = "\
# Plugins

All plugins, grouped as Kong's documentation groups its own. Each page has an example, the fields, and where the plugin differs
from Kong's or APISIX's on purpose. Plugins with a higher priority run earlier. Those that Kong 3.9 lacks are left out by
`weir config db_export --for kong`. [Your own](../writing-a-plugin.md) are in Rust or [in Lua](../lua.md). How much time plugins add is
in [performance](../performance.md#what-plugins-add); your node shows [what they cost](../costs.md) there.

A plugin's cases are requests with what is expected of them, and configurations that are refused or warned of. They run over HTTP/1.1 and
HTTP/2. Where tests also use programs or libraries of others rather than stand-ins, these are named.

| plugin | | priority | in Kong | cases | tested with | differences |
|---|---|---|---|---|---|---|
";

#[test]
fn counterparts_are_in_the_tests_of_their_plugins() {
    let known = names();
    for Counterpart { name, plugins, tests, says } in data().counterparts {
        let mut text = String::new();
        read_all(&crates().join(&tests), &mut text);
        assert!(text.contains(&says), "{name}: nothing in {} says {says:?}", tests.display());
        for plugin in plugins {
            assert!(known.contains(&plugin), "{name}: no group has {plugin}");
            assert!(text.contains(&plugin), "{name}: nothing in {} names {plugin}", tests.display());
        }
    }
}

/// The texts of a file, or of all files in a folder.
fn read_all(path: &Path, text: &mut String) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        return entries.for_each(|entry| read_all(&entry.unwrap().path(), text));
    }
    text.push_str(&String::from_utf8_lossy(&std::fs::read(path).unwrap()));
}
