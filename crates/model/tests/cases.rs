//! Conformance: each case of `tests/cases/*.cases` is a configuration and what is said of it.
//!
//! A case is `=== name`, the configuration (YAML, or JSON when it starts with `{`), `---- expect`, and lines:
//! the problems, or `ok` with the number of entities, warnings, fields without effect, and any values asked
//! for as `/json/pointer = value`. `UPDATE_CASES=1 cargo test -p weir-model` rewrites the expectations.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use serde_json::Value as Json;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use weir_model::schema::Record;
use weir_model::{Document, Format};

struct Case {
    name: String,
    text: String,
    expected: String,
}

fn environment(name: &str) -> Option<String> {
    let value = match name {
        "HOST" => "example.com",
        "PORT" => "8080",
        "FLAG" => "off",
        "SECRET" => "hunter2 hunter2",
        "EMPTY" => "",
        _ => return None,
    };
    Some(value.to_owned())
}

#[test]
fn every_case_says_what_is_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let (mut count, mut failures) = (0, String::new());
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    for path in files {
        let mut rewritten = String::new();
        for case in cases(&std::fs::read_to_string(&path).unwrap()) {
            let actual = outcome(&case);
            count += 1;
            if actual != case.expected && !update {
                write!(failures, "\n{} / {}\n{}", path.display(), case.name, difference(&case, &actual))
                    .unwrap();
            }
            write!(rewritten, "=== {}\n{}---- expect\n{actual}\n", case.name, case.text).unwrap();
        }
        if update {
            std::fs::write(&path, rewritten.trim_end().to_owned() + "\n").unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(count >= 80, "only {count} cases found");
}

fn difference(case: &Case, actual: &str) -> String {
    format!("{}\nexpected:\n{}\nactual:\n{actual}", case.text, case.expected)
}

fn cases(file: &str) -> Vec<Case> {
    let sections = format!("\n{file}");
    let mut found = Vec::new();
    for section in sections.split("\n=== ").skip(1) {
        let (name, rest) = section.split_once('\n').unwrap();
        let (text, expected) = rest.split_once("---- expect\n").unwrap();
        found.push(Case {
            name: name.to_owned(),
            text: text.to_owned(),
            expected: expected.trim_end().to_owned() + "\n",
        });
    }
    found
}

fn outcome(case: &Case) -> String {
    let format = if case.text.starts_with('{') { Format::Json } else { Format::Yaml };
    let mut out = String::new();
    match Document::read(&case.text, format, crate::sample::PLUGINS, &environment) {
        Err(problems) => problems.iter().for_each(|problem| writeln!(out, "{problem}").unwrap()),
        Ok(read) => {
            let document = json(&read.document);
            let sizes = document
                .as_object()
                .unwrap()
                .iter()
                .map(|(kind, list)| (kind, list.as_array().unwrap().len()));
            let sizes: Vec<_> =
                sizes.filter(|(_, size)| *size > 0).map(|(kind, size)| format!(" {kind}={size}")).collect();
            writeln!(out, "ok{}", sizes.concat()).unwrap();
            read.warnings.iter().for_each(|warning| writeln!(out, "warning {warning}").unwrap());
            read.ignored_fields.iter().for_each(|field| writeln!(out, "{field}").unwrap());
            for pointer in case.expected.lines().filter(|line| line.starts_with('/')) {
                let pointer = pointer.split(" =").next().unwrap();
                let value = document.pointer(pointer).map_or("absent".to_owned(), Json::to_string);
                writeln!(out, "{pointer} = {value}").unwrap();
            }
        }
    }
    out
}

fn json(document: &Document) -> Json {
    macro_rules! collections {
        ($($collection:ident),*) => {
            serde_json::json!({ $(stringify!($collection): values(&document.$collection)),* })
        };
    }
    let mut all = collections!(
        services,
        routes,
        consumers,
        consumer_groups,
        consumer_group_consumers,
        plugins,
        upstreams,
        targets,
        certificates,
        snis,
        ca_certificates,
        vaults,
        key_sets,
        keys
    );
    for (kind, list) in document.custom.iter() {
        all[kind.schema().name] = list.iter().map(|entity| entity.to_value()).collect();
    }
    all
}

fn values<T: Record>(entities: &[Arc<T>]) -> Vec<Json> {
    entities.iter().map(|entity| entity.to_value()).collect()
}
