//! Every text is in a file of texts, and every text of these files is on a page.
use super::*;
use crate::kinds::KINDS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ENGLISH_FILE: &str = include_str!("en.toml");

/// What looks like a text and is not: commands, keys, names of headers and of products, selectors and classes.
const NO_TEXTS: [&str; 12] = [
    "Weir",
    "Accept-Encoding",
    "Enter",
    "Escape",
    "Name: value",
    "light dark",
    "heat h",
    "who ",
    "note error",
    "main tbody tr th a",
    "this node records no analytics",
    "weir start --set analytics=on",
];

/// Files whose literals are for other programs.
const NO_PAGES: [&str; 1] = ["src/export.rs"];

/// The sources without their tests.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    collect_sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut found);
    assert!(found.len() > 40, "{}", found.len());
    found
}

fn collect_sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs" || it == "js") && !path.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            found.push((path, code));
        }
    }
}

/// The literals of the lines of code, without comments.
fn literals(code: &str) -> Vec<String> {
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for line in lines {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once(['"', '`']) {
            let quote = rest[before.len()..].chars().next().unwrap_or('"');
            let end = after.replace("\\\"", "\u{1}\u{1}").find(quote).unwrap_or(after.len());
            found.push(after[..end].to_owned());
            rest = after.get(end + 1..).unwrap_or_default();
        }
    }
    found
}

/// Whether a literal reads like words for people: a capital letter and a small one, or two words.
fn is_prose(literal: &str) -> bool {
    let mut letters = literal.chars();
    let is_title =
        letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(char::is_lowercase);
    let is_word = |word: &&str| word.len() > 1 && word.chars().all(|letter| letter.is_lowercase());
    let words: Vec<_> = literal.split(' ').collect();
    is_title || words.windows(2).any(|pair| pair.iter().all(is_word))
}

#[test]
fn no_text_of_a_page_is_in_its_code() {
    let mut left = Vec::new();
    for (path, code) in sources() {
        if NO_PAGES.iter().any(|file| path.ends_with(file)) {
            continue;
        }
        let texts = literals(&code).into_iter().filter(|it| is_prose(it) && !NO_TEXTS.contains(&it.as_str()));
        left.extend(texts.map(|text| format!("{}: {text}", path.display())));
    }
    assert!(left.is_empty(), "move these to texts/en.toml:\n{}", left.join("\n"));
}

#[test]
fn every_key_has_a_text_and_every_text_is_shown() {
    let known: BTreeSet<String> = Texts::read(ENGLISH_FILE).by_key.into_keys().collect();
    let code: Vec<_> = sources().into_iter().map(|(_, code)| code).collect();
    let literals: BTreeSet<String> = code.iter().flat_map(|code| literals(code)).collect();
    let sections: BTreeSet<_> =
        known.iter().filter_map(|key| key.rsplit_once('.')).map(|(section, _)| section).collect();
    let looks_like_a_key =
        |literal: &&String| literal.rsplit_once('.').is_some_and(|(section, _)| sections.contains(section));
    let used: BTreeSet<_> = literals.iter().filter(looks_like_a_key).cloned().collect();
    let unknown: Vec<_> = used.difference(&known).filter(|key| !key.contains('{')).collect();
    assert!(unknown.is_empty(), "not in texts/en.toml: {unknown:?}");
    let is_shown = |key: &&String| match key.split_once('.') {
        Some((SCRIPT, name)) => code.iter().any(|code| code.contains(&format!("texts.{name}"))),
        Some(("kinds", _)) => true,
        _ => key.starts_with("page.theme.") || used.contains(*key),
    };
    let idle: Vec<_> = known.iter().filter(|key| !is_shown(key)).collect();
    assert!(idle.is_empty(), "on no page: {idle:?}");
    for kind in KINDS {
        assert!(![kind.one(), kind.many(), kind.about()].contains(&""), "{}", kind.collection);
    }
}

#[test]
fn values_take_their_places() {
    let error: &dyn Display = &"a {b}";
    assert_eq!(filled("messages.not_json", &[("error", error)]), "this is not JSON: a {b}");
    let page = marked_up("pages.no_page", &[("path", html! { code { "<a>" } })]).into_string();
    assert_eq!(page, "There is no page at <code>&lt;a&gt;</code>.");
    assert!(!of_script().contains('<') && of_script().contains("\"pause\":\"Pause\""), "{}", of_script());
}

#[test]
fn what_is_between_backticks_is_code() {
    assert_eq!(
        with_code("write `a<b>`, or `c`").into_string(),
        "write <code>a&lt;b&gt;</code>, or <code>c</code>"
    );
    assert_eq!(with_code("a ` alone").into_string(), "a ` alone");
}
