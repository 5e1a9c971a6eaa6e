//! The YAML in pages: a configuration is accepted, without warnings, as a user would paste it, and anything else is YAML.

use super::{none, texts};
use std::fmt::Write;
use std::path::Path;
use weir_model::declarative::{Format, to_json};
use weir_model::schema::Json;
use weir_model::{Document, PluginSchema};

/// What is said of examples that leave something out, or are a template.
const EXPECTED: [&str; 3] =
    ["line; is it cut off?", "no consumer is in the group `partners`", "got \"{{ upstream }}\""];

/// Where an entity of a page may name others, which the page leaves out.
const NAMED: [(&str, &str, &str); 4] = [
    ("service", "services", "url: http://127.0.0.1:1, name"),
    ("route", "routes", "paths: [/example], name"),
    ("consumer", "consumers", "username"),
    ("consumer_group", "consumer_groups", "name"),
];

#[test]
fn yaml_in_documents_is_accepted() {
    let plugins = [weir_plugins::PLUGINS, weir_guests::PLUGINS].concat();
    let plugins: Vec<_> = plugins.iter().map(|plugin| plugin.schema).collect();
    let (mut found, mut blocks, mut configurations) = (Vec::new(), 0, 0);
    for (path, text) in &texts(&["md"]) {
        for block in yaml_blocks(text) {
            blocks += 1;
            let mut say = |what: String| found.push(format!("{}: {what}\n{block}", path.display()));
            match to_json(&block, Format::Yaml) {
                Err(problems) => problems.iter().for_each(|problem| say(problem.to_string())),
                Ok(json) if is_configuration(path, &json) => {
                    configurations += 1;
                    problems(&block, &json, &plugins).into_iter().for_each(say);
                }
                Ok(_) => {}
            }
        }
    }
    assert!(blocks > 90 && configurations > 70, "{blocks} examples, {configurations} configurations");
    none(&found);
}

/// The texts of a page's blocks of YAML, those of lists without their indentation.
fn yaml_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let start = line.trim_start();
        if !matches!(start, "```yaml" | "```yml") {
            continue;
        }
        let indentation = line.len() - start.len();
        let block = lines.by_ref().take_while(|line| line.trim() != "```");
        blocks.push(block.map(|line| format!("{}\n", line.get(indentation..).unwrap_or_default())).collect());
    }
    blocks
}

/// Pages of plugins leave out the first line of a configuration.
fn is_configuration(path: &Path, block: &Json) -> bool {
    let of_plugin =
        path.starts_with("docs/plugins") && ["plugins", "services"].iter().any(|key| has(block, key));
    has(block, "_format_version") || of_plugin
}

fn has(block: &Json, key: &str) -> bool {
    block.get(key).is_some()
}

/// What is wrong with an example, or probably a mistake.
fn problems(block: &str, json: &Json, plugins: &[PluginSchema]) -> Vec<String> {
    let version = if has(json, "_format_version") { "" } else { "_format_version: '3.0'\n" };
    let text = format!("{version}{block}{}", left_out(json));
    let found = match Document::read(&text, Format::Yaml, plugins, &|_| Some("a".to_owned())) {
        Ok(parsed) => parsed.warnings.iter().chain(&parsed.ignored_fields).map(ToString::to_string).collect(),
        Err(problems) => problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    };
    found.into_iter().filter(|found| !EXPECTED.iter().any(|expected| found.contains(expected))).collect()
}

/// The entities that an example names and does not have.
fn left_out(block: &Json) -> String {
    let mut out = String::new();
    for (field, list, fields) in NAMED.into_iter().filter(|(_, list, _)| !has(block, list)) {
        let entities = block.get("plugins").and_then(Json::as_array).into_iter().flatten();
        let mut names: Vec<_> = entities
            .filter_map(|it| it.get(field)?.as_str())
            .filter(|name| !is_nested(block, name))
            .collect();
        names.sort_unstable();
        names.dedup();
        if !names.is_empty() {
            let lines: String = names.iter().map(|name| format!("- {{{fields}: {name}}}\n")).collect();
            write!(out, "{list}:\n{lines}").unwrap();
        }
    }
    out
}

/// Whether a route of a service has this name.
fn is_nested(block: &Json, name: &str) -> bool {
    let services = block.get("services").and_then(Json::as_array).into_iter().flatten();
    let mut routes = services.filter_map(|service| service.get("routes")?.as_array()).flatten();
    routes.any(|route| route.get("name").is_some_and(|it| it == name))
}
