//! `regex_uri` of APISIX's plugins: pairs of a regex and what replaces a path that it matches.

use super::variables::Template;
use regex::Regex;
use weir_plugin::{Exchange, FieldError};

/// The pairs, of which the first that matches counts.
#[derive(Debug, Default)]
pub(crate) struct RegexUri(Vec<(Regex, Template)>);

/// A path that was matched.
pub(crate) struct Rewritten {
    pub(crate) uri: String,
    /// What the groups of the regex have matched, the whole match first.
    pub(crate) groups: Vec<String>,
}

/// The violations of the field.
pub(crate) fn violations(written: Option<&Vec<String>>) -> Vec<FieldError> {
    let error = RegexUri::read(written).err();
    error.map(|message| FieldError::new("regex_uri", message)).into_iter().collect()
}

impl RegexUri {
    /// Reads the field.
    pub(crate) fn read(written: Option<&Vec<String>>) -> Result<Self, String> {
        let written = written.map(Vec::as_slice).unwrap_or_default();
        if written.len() % 2 == 1 {
            return Err("its length is odd; write a regex and what replaces its match, by turns".to_owned());
        }
        let pair = |pair: &[String]| {
            let regex = Regex::new(&pair[0]).map_err(|error| format!("invalid regex_uri: {error}"))?;
            Ok((regex, Template::parse(&pair[1])))
        };
        written.chunks(2).map(pair).collect::<Result<_, String>>().map(Self)
    }

    /// The path with its match replaced, if a regex matches.
    pub(crate) fn rewrite(&self, path: &str, exchange: &Exchange) -> Option<Rewritten> {
        self.0.iter().find_map(|(regex, by)| {
            let found = regex.captures(path)?;
            let whole = found.get(0)?;
            let text = |group: Option<regex::Match<'_>>| group.map_or("", |group| group.as_str()).to_owned();
            let groups: Vec<_> = found.iter().map(text).collect();
            let by = by.render_with(exchange, &groups);
            let by = String::from_utf8_lossy(&by);
            Some(Rewritten { uri: format!("{}{by}{}", &path[..whole.start()], &path[whole.end()..]), groups })
        })
    }
}
