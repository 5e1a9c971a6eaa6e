//! What the repository holds its files to, beyond what the compiler and clippy check.
#![allow(clippy::unwrap_used)]
mod cycles;
mod examples;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// A source file that has grown past this many lines is more than one thing.
const MAX_SOURCE_LINES: usize = 600;
/// Nine of ten source files have at most so many lines.
const MAX_SOURCE_LINES_P90: usize = 400;
const MAX_README_LINES: usize = 120;

/// Every file below the workspace, but for what is built, fetched or generated.
fn files() -> Vec<PathBuf> {
    fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            let skipped = ["target", ".git", "output", "corpus"].iter().any(|skipped| name == *skipped);
            match entry.file_type().unwrap() {
                _ if skipped => {}
                kind if kind.is_dir() => walk(&path, files),
                kind if kind.is_file() => files.push(path),
                _ => {}
            }
        }
    }
    let mut files = Vec::new();
    walk(root(), &mut files);
    assert!(files.len() > 20, "the workspace was not found");
    files
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn texts(extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let wanted = |path: &PathBuf| match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) => extensions.contains(&extension),
        None => path.ends_with("Makefile") && extensions.contains(&"mk"),
    };
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path.strip_prefix(root()).map_or(path.clone(), Path::to_owned), text))
    };
    files().into_iter().filter(wanted).filter_map(read).collect()
}

/// The lines of texts that a closure finds fault with.
fn faults(texts: &[(PathBuf, String)], mut fault: impl FnMut(&str) -> bool) -> Vec<String> {
    let numbered =
        texts.iter().flat_map(|(path, text)| text.lines().enumerate().map(move |line| (path, line)));
    let faulty = numbered.filter(|(_, (_, line))| fault(line));
    faulty.map(|(path, (index, line))| format!("{}:{}: {}", path.display(), index + 1, line.trim())).collect()
}

#[track_caller]
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn no_source_is_too_long() {
    let sources = texts(&["rs"]);
    let mut lengths: Vec<_> = sources.iter().map(|(path, text)| (text.lines().count(), path)).collect();
    lengths.sort();
    let long = lengths.iter().filter(|(lines, _)| *lines > MAX_SOURCE_LINES);
    none(&long.map(|(lines, path)| format!("{}: {lines} lines", path.display())).collect::<Vec<_>>());
    let (p90, _) = lengths[lengths.len() * 9 / 10];
    assert!(p90 <= MAX_SOURCE_LINES_P90, "one in ten source files has {p90} lines or more");
}

#[test]
fn each_fuzz_target_is_documented() {
    let documented = fs::read_to_string(root().join("docs/testing.md")).unwrap();
    let manifests = texts(&["toml"]).into_iter().filter(|(path, _)| path.ends_with("fuzz/Cargo.toml"));
    let mut targets = 0;
    for (_, text) in manifests {
        for target in text.split("[[bin]]\nname = \"").skip(1).filter_map(|rest| rest.split('"').next()) {
            targets += 1;
            assert!(documented.contains(&format!("`{target}`")), "docs/testing.md does not have {target}");
        }
    }
    assert!(targets > 20, "the targets were not found");
}

#[test]
fn the_readme_is_short() {
    let lines = fs::read_to_string(root().join("README.md")).unwrap().lines().count();
    assert!(lines <= MAX_README_LINES, "README.md has {lines} lines: move details to docs/");
}

#[test]
fn nothing_is_left_for_later() {
    // In halves, so that this file does not name them.
    let words =
        [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!("), concat!("unimpl", "emented!(")];
    none(&faults(&texts(&["rs", "sh", "py", "toml", "md", "yml", "mk"]), |line| {
        words.iter().any(|word| line.contains(word))
    }));
}

#[test]
fn nothing_depends_on_one_machine() {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    none(&faults(&texts(&["rs", "sh", "py", "toml", "md", "yml", "json", "mk"]), |line| {
        folders.iter().any(|folder| line.contains(folder))
    }));
}

#[test]
fn links_between_documents_resolve() {
    let documents = texts(&["md"]);
    let mut broken = Vec::new();
    let mut links = 0;
    for (path, text) in &documents {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            links += 1;
            if !root().join(path).parent().is_some_and(|folder| folder.join(file).exists()) {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(links > 0, "no link was looked at");
    none(&broken);
}

#[test]
fn paths_in_documents_exist() {
    const FOLDERS: &[&str] = &[
        "crates/",
        "docs/",
        "examples/",
        "scenarios/",
        "targets/",
        "suites/",
        "bench/",
        "deploy/",
        "packaging/",
    ];
    let mut missing = Vec::new();
    for (path, text) in &texts(&["md"]) {
        // The odd ones of the pieces between backticks are the quoted ones.
        let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
        let paths = quoted.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
        let plain = paths.filter(|word| !word.contains(['*', ' ', '<', '…']) && !word.contains("NAME"));
        missing.extend(
            plain
                .filter(|word| !root().join(word).exists())
                .map(|word| format!("{}: there is no {word}", path.display())),
        );
    }
    none(&missing);
}

#[test]
fn there_is_a_changelog() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    assert!(text.contains("## Unreleased"), "the changelog says what is new since the last version");
}
