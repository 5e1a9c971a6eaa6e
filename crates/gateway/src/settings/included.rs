//! Files of nginx directives that a setting `nginx_BLOCK_include` names. They are read for the sake of the warning alone.

use super::directives::{self, Advice};
use super::source::declaration;
use std::fs;
use std::path::Path;

/// The largest file that is read.
const MAX_LEN: u64 = 256 * 1024;

/// Which of the file's directives would have an effect as settings, as the end of a warning; an error if the node must not
/// start without one of them. A file that cannot be read has none.
pub(super) fn advice(setting: &str, path: &str) -> Result<String, String> {
    let Some(text) = text(Path::new(path.trim())) else { return Ok(String::new()) };
    let block = setting.trim_end_matches("include");
    let mut effective = Vec::new();
    for (directive, value) in statements(&text) {
        let name = format!("{block}{directive}");
        if declaration(&name).is_some() {
            effective.push(name);
        } else if let Some(Advice::Protects(instead)) = directives::advice(&name, value) {
            return Err(format!(
                "{setting}: {}: the directive `{directive}` protects something and has no equivalent: {instead}",
                path.trim()
            ));
        }
    }
    effective.dedup();
    Ok(match effective.as_slice() {
        [] => String::new(),
        names => format!("; these of {} have an effect here: {}", path.trim(), names.join(", ")),
    })
}

fn text(path: &Path) -> Option<String> {
    let is_short = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= MAX_LEN);
    fs::read_to_string(path).ok().filter(|_| is_short)
}

/// The directives of a text and their values. Quoted texts with semicolons or braces are cut, which does not matter,
/// because only the names of directives that are known count.
fn statements(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.flat_map(|line| line.split([';', '{', '}'])).map(str::trim).filter(|part| !part.is_empty()).map(
        |statement| {
            statement
                .split_once(char::is_whitespace)
                .map_or((statement, ""), |(name, value)| (name, value.trim()))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::advice;
    use std::fs;

    #[test]
    fn directives_of_a_file_are_named_if_they_have_an_effect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.conf");
        for (text, expected) in [
            ("", Ok(None)),
            ("gzip on; # client_max_body_size 1m;\n", Ok(None)),
            (
                "client_max_body_size 1m;\nlocation / { keepalive_timeout 5s; }",
                Ok(Some("nginx_http_client_max_body_size, nginx_http_keepalive_timeout")),
            ),
            ("deny all;", Err("the directive `deny` protects something")),
        ] {
            fs::write(&path, text).unwrap();
            let found = advice("nginx_http_include", &path.display().to_string());
            match (found, expected) {
                (Ok(found), Ok(None)) => assert_eq!(found, ""),
                (Ok(found), Ok(Some(names))) => assert!(found.ends_with(names), "{found}"),
                (Err(found), Err(message)) => assert!(found.contains(message), "{found}"),
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        }
        assert_eq!(advice("nginx_http_include", "/no/such/file"), Ok(String::new()));
    }
}
