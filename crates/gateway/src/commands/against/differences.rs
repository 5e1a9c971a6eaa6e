//! The catalogue of differences, as data.
use super::items::Item;
use crate::cli::Rival;
use regex::Regex;
use serde::Deserialize;
use std::fmt;

/// How something here relates to the same thing there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    OtherWords,
    OnPurpose,
    NotYet,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherWords => "same, in other words",
            Self::OnPurpose => "different on purpose",
            Self::NotYet => "not yet",
        })
    }
}

/// A row of the catalogue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Difference {
    /// Paths; `*` stands for one part.
    #[serde(default)]
    of: Vec<String>,
    /// The values that it is about; all, if empty.
    #[serde(default)]
    values: Vec<String>,
    /// A regex that the value must match, if there is one.
    matching: Option<String>,
    /// Whether it is about all plugins that are not here, rather than about paths.
    #[serde(default)]
    missing: bool,
    pub(super) verdict: Verdict,
    /// What happens there.
    #[serde(default)]
    there: String,
    /// What happens here.
    here: String,
    #[serde(default)]
    why: String,
}

impl Difference {
    /// The difference as a sentence.
    pub(super) fn text(&self) -> String {
        let there = if self.there.is_empty() { String::new() } else { format!("; there: {}", self.there) };
        let why = if self.why.is_empty() { String::new() } else { format!(", because {}", self.why) };
        format!("{}{there}{why}", self.here)
    }

    fn applies(&self, item: &Item) -> bool {
        if self.missing {
            return item.is_missing;
        }
        let value = item.value.as_deref().unwrap_or_default();
        let matching =
            self.matching.as_ref().map(|regex| Regex::new(regex).is_ok_and(|it| it.is_match(value)));
        (self.values.is_empty() || self.values.iter().any(|wanted| wanted == value))
            && matching.unwrap_or(true)
            && self.of.iter().any(|pattern| matches(pattern, &item.path))
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut parts) = (pattern.split('.'), path.split('.'));
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return true,
            (Some(wanted), Some(part)) if wanted == "*" || wanted == part => {}
            _ => return false,
        }
    }
}

/// All that is known to differ from a gateway.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands) struct Catalogue {
    difference: Vec<Difference>,
}

impl Catalogue {
    /// What is known of a gateway.
    pub(in crate::commands) fn of(rival: Rival) -> Result<Self, String> {
        let text = match rival {
            Rival::Kong => include_str!("kong.toml"),
            Rival::Apisix => include_str!("apisix.toml"),
        };
        toml::from_str(text).map_err(|error: toml::de::Error| error.to_string())
    }

    /// The row that an item meets, and its number.
    pub(super) fn find(&self, item: &Item) -> Option<(usize, &Difference)> {
        self.difference.iter().enumerate().find(|(_, difference)| difference.applies(item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(path: &str, value: &str) -> Item {
        Item {
            path: path.to_owned(),
            value: Some(value.to_owned()),
            entity: None,
            at: None,
            is_missing: false,
            is_only_here: false,
        }
    }

    #[test]
    fn both_catalogues_can_be_read() {
        for rival in [Rival::Kong, Rival::Apisix] {
            assert!(!Catalogue::of(rival).expect("a catalogue").difference.is_empty());
        }
    }

    #[test]
    fn a_row_is_about_paths_and_values() {
        let catalogue = Catalogue::of(Rival::Kong).expect("a catalogue");
        let active = "upstreams.healthchecks.active.type";
        assert!(catalogue.find(&item(active, "grpc")).is_some());
        assert!(catalogue.find(&item(active, "http")).is_none());
        assert!(matches("plugins.*.ordering", "plugins.cors.ordering"));
        assert!(!matches("plugins.*", "plugins.cors.ordering"));
    }

    #[test]
    fn both_catalogues_know_that_a_plugin_is_missing() {
        for rival in [Rival::Kong, Rival::Apisix] {
            let catalogue = Catalogue::of(rival).expect("a catalogue");
            let missing = Item { is_missing: true, ..item("plugins.my.own", "") };
            let (_, row) = catalogue.find(&missing).expect("a row");
            assert_eq!(row.verdict, Verdict::NotYet);
            assert!(catalogue.find(&item("plugins.my.own", "")).is_none());
        }
    }
}
