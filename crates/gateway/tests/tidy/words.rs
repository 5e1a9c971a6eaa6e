//! The words that the repository avoids: `words.toml` says which, what to say instead, and which files are held to it.
use crate::{none, texts};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    clean: Vec<String>,
    word: Vec<Word>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Word {
    find: String,
    say: String,
    #[serde(default)]
    only: Vec<String>,
    #[serde(default)]
    except: Vec<String>,
}

impl Word {
    fn regex(&self) -> Regex {
        RegexBuilder::new(&format!(r"\b(?:{})\b", self.find)).case_insensitive(true).build().unwrap()
    }

    fn concerns(&self, path: &Path) -> bool {
        let has_ending = |ending: &String| path.extension().is_some_and(|found| found == ending.as_str());
        (self.only.is_empty() || self.only.iter().any(has_ending))
            && !self.except.iter().any(|except| path.starts_with(except))
    }
}

fn list() -> List {
    toml::from_str(include_str!("words.toml")).unwrap()
}

/// Where a file uses a word of the list, and what to say instead.
fn uses(words: &[(Word, Regex)], path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, regex) in words.iter().filter(|(word, _)| word.concerns(path)) {
        found.extend(text.lines().enumerate().filter_map(|(index, line)| {
            let used = regex.find(line)?.as_str();
            Some(format!("{}:{}: `{used}`: write: {}", path.display(), index + 1, word.say))
        }));
    }
    found
}

/// What is clean, the list, and every file with its text that could be held against it.
type WordsAndTexts = (Vec<String>, Vec<(Word, Regex)>, Vec<(PathBuf, String)>);

fn words_and_texts() -> WordsAndTexts {
    let List { clean, word } = list();
    let words = word
        .into_iter()
        .map(|word| {
            let regex = word.regex();
            (word, regex)
        })
        .collect();
    let mut texts = texts(&["rs", "sh", "py", "toml", "md", "yml", "mk"]);
    texts.retain(|(path, _)| !path.ends_with("tidy/words.toml"));
    (clean, words, texts)
}

#[test]
fn clean_files_avoid_the_words() {
    let (clean, words, texts) = words_and_texts();
    let clean = texts.iter().filter(|(path, _)| clean.iter().any(|clean| path.starts_with(clean)));
    none(&clean.flat_map(|(path, text)| uses(&words, path, text)).collect::<Vec<_>>());
}

#[test]
#[ignore = "prints how often each folder that is not clean yet uses a word: run it with --ignored --nocapture"]
#[allow(clippy::print_stdout)]
fn what_is_left_to_clean() {
    let (clean, words, texts) = words_and_texts();
    let mut counts = BTreeMap::<_, usize>::new();
    for (path, text) in texts.iter().filter(|(path, _)| !clean.iter().any(|clean| path.starts_with(clean))) {
        let found = uses(&words, path, text);
        *counts.entry(path.parent()).or_default() += found.len();
        println!("{}", found.join("\n"));
    }
    for (folder, count) in counts {
        println!("{count:>6} {}", folder.unwrap_or(Path::new("")).display());
    }
}

#[test]
fn what_the_list_names_exists() {
    let list = list();
    let named = list.clean.iter().chain(list.word.iter().flat_map(|word| &word.except));
    let missing = named.filter(|path| !crate::root().join(path).exists());
    none(&missing.map(|path| format!("words.toml: no such file: {path}")).collect::<Vec<_>>());
}
