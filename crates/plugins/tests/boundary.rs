//! What a plugin may know of the gateway: the contract, and of it nothing that is the engine's.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names in the tables of dependencies that begin so, but for what the tests alone use.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut is_dependencies = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_dependencies = line.contains("dependencies") && !line.contains("dev-dependencies");
        } else if is_dependencies && !line.starts_with('#') {
            names.extend(line.split(['.', ' ', '=']).next().filter(|name| name.starts_with("weir")));
        }
    }
    names
}

#[test]
fn plugins_depend_on_the_contract_and_on_no_other_crate_of_the_gateway() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let names = dependencies(&manifest);
    assert_eq!(names, ["weir-plugin"]);
}

#[test]
fn the_contract_depends_on_what_is_below_it() {
    let manifest = fs::read_to_string(root().join("../plugin/Cargo.toml")).unwrap();
    let below = ["weir-http1", "weir-model", "weir-model-derive", "weir-net", "weir-router"];
    assert_eq!(dependencies(&manifest), below);
}

#[test]
fn plugins_name_nothing_that_is_the_engines() {
    let mut found = Vec::new();
    for file in sources(&root().join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with("//"));
        let named = lines.filter(|(line, _)| {
            line.contains("weir_plugin::engine")
                || line.contains("exchange.engine")
                || line.contains("session.engine")
                || line.contains("use weir_plugin::{engine")
        });
        found.extend(named.map(|(line, number)| format!("{}:{number}: {line}", file.display())));
    }
    assert!(
        found.is_empty(),
        "what is in weir_plugin::engine is for the engine alone:\n{}",
        found.join("\n")
    );
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
