//! Files of nginx directives that a setting `nginx_BLOCK_include` names: what they hold counts as if settings injected it.
use super::directives::in_block;
use super::nginx_syntax::{self, Statement};
use super::source::{Given, Origin, Problem, declaration, ignored, is_left_out};
use std::fs;
use std::path::{Path, PathBuf};

/// The largest file that is read.
const MAX_LEN: u64 = 256 * 1024;
/// How many files are read for one setting.
const MAX_FILES: usize = 100;
/// How deep files may include others.
const MAX_DEPTH: usize = 10;

/// Gives the values of the directives that a setting includes. Those without an equivalent are warned of, or are problems.
pub(super) fn add(
    given: &mut Given,
    setting: &str,
    path: &str,
    origin: &Origin,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) {
    let included = match directives(path.trim().trim_matches(['"', '\''])) {
        Ok(included) => included,
        Err(error) => {
            let message = format!("{setting}: {error}");
            return problems.push(Problem { origin: origin.clone(), message });
        }
    };
    let block = in_block(setting).map_or("", |(block, _)| block);
    for Included { path, statement } in included {
        let Statement { line, directive, value, is_in_block } = statement;
        let (name, at) = (format!("nginx_{block}_{directive}"), Origin::File(path, line));
        if is_in_block && declaration(&name).is_some() {
            warnings.push(format!("{at}: {directive} has no effect in a block: write it outside, or {name}"));
        } else if !is_in_block && (is_left_out(&name, &value) || given.give(&name, &value, at.clone())) {
            continue;
        } else {
            match ignored(&name, &value) {
                // In a block, what is no known directive may be no directive at all.
                Ok(_) if is_in_block => {}
                Ok(reason) => warnings.push(format!("{at}: {directive} {reason}")),
                Err(message) => problems.push(Problem { origin: at, message }),
            }
        }
    }
}

/// A directive, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Included {
    pub(super) path: PathBuf,
    pub(super) statement: Statement,
}

/// The directives of the files that a path or a mask names, and of those that they include; an error if one of them cannot
/// be read.
pub(super) fn directives(path: &str) -> Result<Vec<Included>, String> {
    let mut reading = Reading::default();
    reading.include(Path::new(path), 0)?;
    Ok(reading.found)
}

#[derive(Default)]
struct Reading {
    found: Vec<Included>,
    files: usize,
}

impl Reading {
    fn include(&mut self, mask: &Path, depth: usize) -> Result<(), String> {
        if depth == MAX_DEPTH {
            return Err(format!("{}: files include others at most {MAX_DEPTH} deep", mask.display()));
        }
        matching(mask).into_iter().try_for_each(|path| self.file(path, depth))
    }

    fn file(&mut self, path: PathBuf, depth: usize) -> Result<(), String> {
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(format!("{}: at most {MAX_FILES} files are included", path.display()));
        }
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = text(&path).map_err(|error| wrong(&error))?;
        for statement in nginx_syntax::statements(&text).map_err(|error| wrong(&error))? {
            if statement.directive == "include" {
                let folder = path.parent().unwrap_or(Path::new(""));
                self.include(&folder.join(&statement.value), depth + 1)?;
            } else {
                self.found.push(Included { path: path.clone(), statement });
            }
        }
        Ok(())
    }
}

fn text(path: &Path) -> Result<String, String> {
    let unreadable = |error| format!("{error}; correct the path, or leave it out");
    if fs::metadata(path).map_err(unreadable)?.len() > MAX_LEN {
        return Err(format!("is longer than {MAX_LEN} bytes"));
    }
    fs::read_to_string(path).map_err(unreadable)
}

/// The files that a mask is for, in the order of their names; the path itself if it is not a mask.
fn matching(mask: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in mask.components() {
        let name = component.as_os_str().to_string_lossy();
        if !name.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        found = found.iter().flat_map(|folder| in_folder(folder, &name)).collect();
    }
    found
}

fn in_folder(folder: &Path, mask: &str) -> Vec<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_meant = |name: &str| !name.starts_with('.') && fits(mask.as_bytes(), name.as_bytes());
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_meant))
        .map(|entry| entry.path())
        .collect();
    paths.sort_unstable();
    paths
}

/// Whether a name fits a mask of `*` and `?`.
fn fits(mask: &[u8], name: &[u8]) -> bool {
    match (mask, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|taken| fits(rest, &name[taken..])),
        ([b'?', mask @ ..], [_, name @ ..]) => fits(mask, name),
        ([expected, mask @ ..], [byte, name @ ..]) => expected == byte && fits(mask, name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &Path) -> Result<Vec<String>, String> {
        let shown = |it: Included| format!("{} {}", it.statement.directive, it.statement.value);
        Ok(directives(path.to_str().unwrap())?.into_iter().map(shown).collect())
    }

    #[test]
    fn masks_and_files_in_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("b.conf", "keepalive_timeout '5s';");
        write("a.conf", "client_max_body_size 1m; include more/*.inc;");
        write("c.txt", "deny all;");
        fs::create_dir(folder.path().join("more")).unwrap();
        write("more/one.inc", "gzip on;");
        let all = found(&folder.path().join("*.conf")).unwrap();
        assert_eq!(all, ["client_max_body_size 1m", "gzip on", "keepalive_timeout 5s"]);
        assert_eq!(found(&folder.path().join("?.txt")).unwrap(), ["deny all"]);
        assert_eq!(found(&folder.path().join("*.none")).unwrap(), [""; 0]);
    }

    #[test]
    fn directives_count_as_if_settings_injected_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.conf");
        let text = "client_max_body_size 3m;\ngzip on;\ndeny all;\nserver {\n send_timeout 5s;\n allow 10.0.0.1;\n}\n";
        fs::write(&path, text).unwrap();
        let (mut given, mut problems, mut warnings) = (Given::default(), Vec::new(), Vec::new());
        let origin = Origin::Environment("KONG_NGINX_HTTP_INCLUDE".to_owned());
        let written = format!("'{}'", path.display());
        add(&mut given, "nginx_http_include", &written, &origin, &mut problems, &mut warnings);
        assert_eq!(given.texts().collect::<Vec<_>>(), [("client_max_body_size", "3m")]);
        assert_eq!(given.origin("client_max_body_size"), Origin::File(path.clone(), 1));
        let beginnings = |lines: &[usize]| -> Vec<String> {
            lines.iter().map(|line| format!("{}:{line}: ", path.display())).collect()
        };
        let starts = |messages: &[String], lines: &[usize]| {
            assert_eq!(messages.len(), lines.len(), "{messages:?}");
            assert!(
                messages.iter().zip(beginnings(lines)).all(|(it, start)| it.starts_with(&start)),
                "{messages:?}"
            );
        };
        starts(&warnings, &[2, 4, 5]);
        starts(&problems.iter().map(ToString::to_string).collect::<Vec<_>>(), &[3, 6]);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.conf");
        assert!(found(&path).unwrap_err().contains("correct the path"));
        for (text, expected) in [
            ("include own.conf;", "10 deep"),
            ("include own.conf; include own.conf;", "10 deep"),
            ("deny 'all;", "line 1: a quote is not closed"),
            ("include missing.conf;", "missing.conf: "),
        ] {
            fs::write(&path, text).unwrap();
            let message = found(&path).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
        fs::write(&path, " ".repeat(MAX_LEN as usize + 1)).unwrap();
        assert!(found(&path).unwrap_err().contains("is longer than"));
        for number in 0..=MAX_FILES {
            fs::write(folder.path().join(format!("{number}.inc")), "").unwrap();
        }
        assert!(found(&folder.path().join("*.inc")).unwrap_err().contains("at most 100 files"));
    }
}
