//! The words that the repository avoids: `words.toml` says which, what to say instead, and which files are held to it.
use crate::{none, texts};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use std::path::Path;

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

#[test]
fn clean_files_avoid_the_words() {
    let list = list();
    let words: Vec<_> = list.word.iter().map(|word| (word, word.regex())).collect();
    let texts = texts(&["rs", "sh", "py", "toml", "md", "yml", "mk"]);
    let clean = texts.iter().filter(|(path, _)| list.clean.iter().any(|clean| path.starts_with(clean)));
    let mut found = Vec::new();
    for (path, text) in clean.filter(|(path, _)| !path.ends_with("tidy/words.toml")) {
        for (word, regex) in words.iter().filter(|(word, _)| word.concerns(path)) {
            found.extend(text.lines().enumerate().filter_map(|(index, line)| {
                let used = regex.find(line)?.as_str();
                Some(format!("{}:{}: `{used}`: write: {}", path.display(), index + 1, word.say))
            }));
        }
    }
    none(&found);
}

#[test]
fn what_the_list_names_exists() {
    let list = list();
    let named = list.clean.iter().chain(list.word.iter().flat_map(|word| &word.except));
    let missing = named.filter(|path| !crate::root().join(path).exists());
    none(&missing.map(|path| format!("words.toml: no such file: {path}")).collect::<Vec<_>>());
}
