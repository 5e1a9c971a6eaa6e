//! Rules of what is compared.
use regex::Regex;
use serde::Deserialize;
use std::path::Path;

/// The rules that always apply.
pub(super) const BUILT_IN: &str = include_str!("rules.toml");

/// How something is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Compare {
    Value,
    Presence,
    Ignore,
}

/// A rule of headers or of members of JSON bodies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(alias = "path")]
    pub(super) name: String,
    pub(super) compare: Compare,
    #[serde(default)]
    pub(super) why: String,
}

/// What is replaced in bodies of text before they are compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replacement {
    #[serde(deserialize_with = "compiled")]
    regex: Regex,
    replacement: String,
    #[serde(default)]
    #[expect(dead_code, reason = "it is for readers of the file")]
    why: String,
}

/// What is compared how.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    #[serde(default)]
    pub(super) header: Vec<Rule>,
    #[serde(default)]
    pub(super) json: Vec<Rule>,
    #[serde(default)]
    text: Vec<Replacement>,
}

fn compiled<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Regex, D::Error> {
    let text = String::deserialize(deserializer)?;
    Regex::new(&text).map_err(serde::de::Error::custom)
}

impl Rules {
    /// The rules of a file, if one is named, and behind them the built-in ones.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, String> {
        let mut rules = match file {
            Some(file) => {
                let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
                let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
                Self::parse(&text).map_err(|error| named(&error))?
            }
            None => Self::default(),
        };
        let built_in = Self::parse(BUILT_IN)?;
        rules.header.extend(built_in.header);
        rules.json.extend(built_in.json);
        rules.text.extend(built_in.text);
        Ok(rules)
    }

    fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.to_string())
    }

    /// How a header is compared.
    pub(super) fn of_header(&self, name: &str) -> Compare {
        first(&self.header, |pattern| matches(&pattern.to_ascii_lowercase(), &name.to_ascii_lowercase()))
    }

    /// How a member of a JSON body is compared, and what is below it.
    pub(super) fn of_json(&self, path: &[String]) -> Compare {
        first(&self.json, |pattern| {
            let mut parts = path.iter();
            pattern.split('.').all(|wanted| parts.next().is_some_and(|part| wanted == "*" || wanted == part))
        })
    }

    /// A body of text, as it is compared.
    pub(super) fn normalised(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for Replacement { regex, replacement, .. } in &self.text {
            text = regex.replace_all(&text, replacement.as_str()).into_owned();
        }
        text
    }
}

fn first(rules: &[Rule], applies: impl Fn(&str) -> bool) -> Compare {
    rules.iter().find(|rule| applies(&rule.name)).map_or(Compare::Value, |rule| rule.compare)
}

/// Whether a text matches a pattern in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    (0..=text.len()).filter_map(|at| text.get(at..)).any(|text| matches(rest, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn the_built_in_rules_cover_what_differs_by_itself() {
        let rules = Rules::read(None).expect("the built-in rules");
        for name in ["date", "x-kong-upstream-latency", "ratelimit-remaining", "X-RateLimit-Remaining-Minute"]
        {
            assert_eq!(rules.of_header(name), Compare::Presence, "{name}");
        }
        assert_eq!(rules.of_header("RateLimit-Limit"), Compare::Value);
        assert_eq!(rules.of_header("transfer-encoding"), Compare::Ignore);
        assert_eq!(rules.of_json(&path("request_id")), Compare::Presence);
        assert_eq!(rules.normalised("no\nrequest_id: 0a1b"), "no\nrequest_id: ...");
    }

    #[test]
    fn the_first_rule_decides() {
        let own = "[[header]]\nname = 'Date'\ncompare = 'value'\n[[json]]\npath = 'items.*.at'\ncompare = 'ignore'\n";
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), own).expect("written");
        let rules = Rules::read(Some(file.path())).expect("rules");
        assert_eq!(rules.of_header("Date"), Compare::Value);
        assert_eq!(rules.of_json(&path("items.3.at.second")), Compare::Ignore);
        assert_eq!(rules.of_json(&path("items.3.by")), Compare::Value);
        assert_eq!(rules.of_json(&path("items")), Compare::Value);
    }

    #[test]
    fn an_error_says_where_it_is() {
        for wrong in ["[[header]]\nname = 'a'\n", "[[text]]\nregex = '('\nreplacement = ''", "[[heder]]\n"] {
            let error = Rules::parse(wrong).expect_err("wrong rules");
            assert!(error.contains("line "), "{error}");
        }
    }
}
