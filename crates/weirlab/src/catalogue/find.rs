//! Names: which folders a word on the command line stands for.
use super::CatalogueError;
use std::path::{Path, PathBuf};

/// A folder of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its path below `scenarios/` or `targets/`; the last part of its path elsewhere.
    pub name: String,
    /// Where it is.
    pub folder: PathBuf,
}

/// The folder that holds `scenarios/` and `targets/`: the given one, or the nearest ancestor of the working directory,
/// or of the executable, that has both; the executable's own folder, as in an archive of a release, is one of these.
///
/// # Errors
/// When there is none.
pub fn root(given: Option<&Path>) -> Result<PathBuf, CatalogueError> {
    let holds = |folder: &Path| folder.join("scenarios").is_dir() && folder.join("targets").is_dir();
    if let Some(folder) = given {
        if holds(folder) {
            return Ok(folder.to_owned());
        }
        let text =
            format!("{} has no scenarios/ and targets/; name a folder that has both", folder.display());
        return Err(CatalogueError::NoCatalogue(text));
    }
    let starts = [std::env::current_dir(), std::env::current_exe()];
    let found = starts.iter().flatten().flat_map(|start| start.ancestors()).find(|folder| holds(folder));
    found.map(Path::to_owned).ok_or_else(|| {
        let text = "no folder with scenarios/ and targets/ here, beside weirlab, or above either; run this inside a checkout or \
                    an unpacked archive of a release, or name one with --catalogue DIR";
        CatalogueError::NoCatalogue(text.to_owned())
    })
}

/// What is looked for.
pub(crate) struct Kind {
    /// `scenario` or `target`.
    pub(crate) what: &'static str,
    /// The folder below the root.
    pub(crate) below: &'static str,
    /// The file that makes a folder one of them.
    pub(crate) marker: &'static str,
}

/// The folders that the names stand for, each once, in the order of the names; all of them for no names.
pub(crate) fn select(kind: &Kind, names: &[String], root: &Path) -> Result<Vec<Entry>, CatalogueError> {
    let place = root.join(kind.below);
    let mut all = Vec::new();
    walk(&place, &place, kind.marker, &mut all)
        .map_err(|error| CatalogueError::Unreadable(place.clone(), error))?;
    all.sort_by_key(|entry| natural(&entry.name));
    if names.is_empty() {
        return Ok(all);
    }
    let mut chosen: Vec<Entry> = Vec::new();
    for name in names {
        for entry in matching(kind, name, &place, &all)? {
            if !chosen.contains(&entry) {
                chosen.push(entry);
            }
        }
    }
    Ok(chosen)
}

fn matching(kind: &Kind, name: &str, place: &Path, all: &[Entry]) -> Result<Vec<Entry>, CatalogueError> {
    let trimmed = name.trim_end_matches('/');
    let looks_like_path = trimmed.contains('/') || trimmed.starts_with('.');
    if looks_like_path && Path::new(trimmed).join(kind.marker).is_file() {
        return Ok(vec![at_path(Path::new(trimmed), all)]);
    }
    if trimmed.starts_with(['.', '/']) {
        let text = format!("no {} is there: a folder with {} is one", kind.what, kind.marker);
        return Err(CatalogueError::Unfit(PathBuf::from(name), text));
    }
    let bare = trimmed.strip_prefix(&format!("{}/", kind.below)).unwrap_or(trimmed);
    let below = format!("{bare}/");
    let found: Vec<Entry> = all
        .iter()
        .filter(|e| e.name == bare || e.name.starts_with(&below) || globs(bare, &e.name))
        .cloned()
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names = all.iter().map(|entry| entry.name.as_str());
    Err(CatalogueError::Unknown {
        what: kind.what,
        name: name.to_owned(),
        nearest: nearest(bare, names),
        place: place.to_owned(),
    })
}

fn at_path(folder: &Path, all: &[Entry]) -> Entry {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let known = all.iter().find(|entry| entry.folder.canonicalize().is_ok_and(|other| other == real));
    known.cloned().unwrap_or_else(|| {
        let name = real.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Entry { name, folder: real }
    })
}

/// A folder with the marker is an entry, and nothing below it is looked at.
fn walk(place: &Path, folder: &Path, marker: &str, into: &mut Vec<Entry>) -> std::io::Result<()> {
    if folder.join(marker).is_file() {
        let name = folder.strip_prefix(place).unwrap_or(folder).to_string_lossy().into_owned();
        into.push(Entry { name, folder: folder.to_owned() });
        return Ok(());
    }
    for child in std::fs::read_dir(folder)? {
        let path = child?.path();
        if path.is_dir() {
            walk(place, &path, marker, into)?;
        }
    }
    Ok(())
}

/// Whether `*`, for any characters, and everything else, for itself, make the name.
fn globs(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| globs(tail, &rest[at..]))
        }),
    }
}

/// At most three names that resemble the wanted one, best first.
pub(crate) fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let last = |name: &'a str| name.rsplit('/').next().unwrap_or(name);
    let score = |name: &'a str| {
        let of_last = if wanted.contains('/') { 0.0 } else { strsim::jaro_winkler(wanted, last(name)) };
        strsim::jaro_winkler(wanted, name).max(of_last)
    };
    let mut scored: Vec<(f64, &str)> = names.map(|name| (score(name), name)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().filter(|(score, _)| *score > 0.75).take(3).map(|(_, name)| name.to_owned()).collect()
}

/// So that `-2` comes before `-10`.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (text, after) = rest.split_at(word);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        parts.push((text.to_owned(), after[..digits].parse().unwrap_or(0)));
        rest = &after[digits..];
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        assert!(globs("kong/*-1", "kong/plain-1"));
        assert!(globs("*", "kong/plain-1"));
        assert!(!globs("kong/*-1", "kong/plain-100"));
        assert!(!globs("plain", "kong/plain-1"));
    }

    #[test]
    fn the_last_part_of_a_name_is_near_it_too() {
        let names = ["upstream/stalls", "upstream/resets"];
        assert_eq!(nearest("restes", names.into_iter()), ["upstream/resets"]);
        assert_eq!(nearest("quite different", names.into_iter()), [""; 0]);
    }

    #[test]
    fn a_path_that_is_not_there_is_not_looked_for_by_name() {
        let kind = Kind { what: "scenario", below: "scenarios", marker: "scenario.toml" };
        let error = matching(&kind, "./nosuch", Path::new("/all/scenarios"), &[]).unwrap_err().to_string();
        assert_eq!(error, "./nosuch: no scenario is there: a folder with scenario.toml is one");
    }

    #[test]
    fn numbers_in_names_sort_as_numbers() {
        assert!(natural("balancer-2") < natural("balancer-10"));
    }
}
