//! kong.conf: lines of `name = value`, where `#` begins a comment and `\#` is a `#`.
use std::path::{Path, PathBuf};

/// Where Kong looks for its file if none is named.
const DEFAULT_FILES: [&str; 2] = ["/etc/kong/kong.conf", "/etc/kong.conf"];

/// The file that is read if none is named.
pub(crate) fn default_file() -> Option<PathBuf> {
    DEFAULT_FILES.iter().map(PathBuf::from).find(|path| path.exists())
}

/// Whether a text is of this format or of settings in TOML, rather than a declarative configuration.
pub(crate) fn is_kong_conf(path: &Path, text: &str) -> bool {
    let significant =
        text.lines().find_map(|line| Some(without_comment(line)).filter(|line| !line.is_empty()));
    match significant {
        Some(line) => setting(&line).is_some(),
        None => path.extension().is_some_and(|extension| extension == "conf" || extension == "toml"),
    }
}

/// One line that sets something, or that cannot be read.
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: usize,
    /// The name and the value.
    pub(super) setting: Option<(String, String)>,
}

/// The lines of a file that are neither empty nor comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line> {
    (1..).zip(text.lines()).filter_map(|(number, line)| {
        let line = without_comment(line);
        let read = setting(&line).map(|(name, value)| (name.to_owned(), value.to_owned()));
        (!line.is_empty()).then_some(Line { number, setting: read })
    })
}

/// What a file sets: the number of each line, the name and the value.
pub(crate) fn of_kong_conf(text: &str) -> Vec<(usize, String, String)> {
    let set = lines(text).filter_map(|line| Some((line.number, line.setting?)));
    set.map(|(number, (name, value))| (number, name, value)).collect()
}

fn setting(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim_end();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then(|| (name, value.trim_start()))
}

/// The trimmed line up to its comment.
fn without_comment(line: &str) -> String {
    let mut kept = String::new();
    let mut characters = line.trim().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if characters.peek() == Some(&'#') => kept.extend(characters.next()),
            '#' => break,
            other => kept.push(other),
        }
    }
    kept.truncate(kept.trim_end().len());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_kong_reads_them() {
        let text = "# a comment\n\n log_level = debug # why\npg_password=a\\#b#c\nempty =\nnonsense\n";
        let read: Vec<_> = lines(text).map(|line| (line.number, line.setting)).collect();
        let setting = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(
            read,
            [
                (3, setting("log_level", "debug")),
                (4, setting("pg_password", "a#b")),
                (5, setting("empty", "")),
                (6, None)
            ]
        );
    }

    #[test]
    fn the_format_is_recognised_by_content() {
        let is = |name: &str, text| is_kong_conf(Path::new(name), text);
        assert!(is("a", "# comment\ndatabase = off\n"));
        assert!(is("kong.conf", "# comments\n# alone\n"));
        assert!(is("weir.toml", "# comments\n# alone\n"));
        assert!(!is("kong.yml", "_format_version: '3.0' # a = b\n"));
        assert!(!is("kong.conf", "_format_version: '3.0'\n"));
        assert!(!is("kong.json", "{\"a\": \"b=c\"}"));
        assert!(!is("kong.yml", ""));
    }
}
