//! Parameters of suites: names with one value, or with several, over which the runs that mention them are repeated.
use super::template::{Source, read_word};
use crate::catalogue::nearest;
use crate::scenario::ScenarioError;
use serde::Deserialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::str::FromStr;
use toml::Spanned;

/// Parameters as a file lists them.
pub(super) type Listed = BTreeMap<Spanned<String>, Values>;

/// The values of a parameter.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a value, or a list of values to repeat runs over")]
pub(super) enum Values {
    Several(Vec<Value>),
    One(Value),
}

/// A parameter of the command line, `NAME=VALUE` or `NAME=VALUE,VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    name: String,
    values: Vec<Value>,
}

impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Given, String> {
        let (name, values) =
            text.split_once('=').ok_or_else(|| format!("{text}: write NAME=VALUE, or NAME=VALUE,VALUE"))?;
        Ok(Given { name: name.trim().to_owned(), values: values.split(',').map(read_word).collect() })
    }
}

/// The parameters that a run sees.
pub(super) struct Parameters {
    values: BTreeMap<String, Values>,
    /// Names that some run has mentioned.
    used: Rc<RefCell<BTreeSet<String>>>,
    /// Those of the suite, with their places.
    own: Vec<Spanned<String>>,
}

impl Parameters {
    /// The suite's own, with what is given in their places.
    pub(super) fn of_suite(
        listed: &Listed,
        given: &[Given],
        source: &Source<'_>,
    ) -> Result<Parameters, ScenarioError> {
        let mut values = by_name(listed);
        for Given { name, values: given } in given {
            let Some(value) = values.get_mut(name) else {
                let nearest = nearest(name, values.keys().map(String::as_str));
                let hint =
                    nearest.first().map_or(String::new(), |known| format!("; did you mean `{known}`?"));
                let message = format!("there is no parameter `{name}` in [parameters]{hint}");
                return Err(ScenarioError::Unfit(source.path.to_owned(), message));
            };
            *value = match (given.as_slice(), &*value) {
                ([one], Values::One(_)) => Values::One(one.clone()),
                (several, _) => Values::Several(several.to_vec()),
            };
        }
        Ok(Parameters { values, used: Rc::default(), own: listed.keys().cloned().collect() })
    }

    /// These, and a run's own in their places.
    pub(super) fn with(&self, listed: &Listed) -> Parameters {
        let mut values = self.values.clone();
        values.extend(by_name(listed));
        Parameters { values, used: Rc::clone(&self.used), own: Vec::new() }
    }

    /// The names of those with several values that a text mentions.
    pub(super) fn mentioned(
        &self,
        text: &Spanned<String>,
        source: &Source<'_>,
    ) -> Result<BTreeSet<String>, ScenarioError> {
        let mut several = BTreeSet::new();
        for name in source.names(text)? {
            let Some(values) = self.values.get(&name) else {
                let nearest = nearest(&name, self.values.keys().map(String::as_str));
                let hint =
                    nearest.first().map_or(String::new(), |known| format!("; did you mean `{known}`?"));
                return Err(source.invalid(text.span(), format!("there is no parameter `{name}`{hint}")));
            };
            self.used.borrow_mut().insert(name.clone());
            if matches!(values, Values::Several(_)) {
                several.insert(name);
            }
        }
        Ok(several)
    }

    /// Refuses a parameter of the suite that no run mentions: one of the two names is misspelt.
    pub(super) fn all_mentioned(&self, source: &Source<'_>) -> Result<(), ScenarioError> {
        self.check_mentioned(self.own.iter(), source)
    }

    /// The same for parameters of a run.
    pub(super) fn all_mentioned_of(&self, listed: &Listed, source: &Source<'_>) -> Result<(), ScenarioError> {
        self.check_mentioned(listed.keys(), source)
    }

    fn check_mentioned<'a>(
        &self,
        mut names: impl Iterator<Item = &'a Spanned<String>>,
        source: &Source<'_>,
    ) -> Result<(), ScenarioError> {
        let used = self.used.borrow();
        match names.find(|name| !used.contains(name.get_ref())) {
            None => Ok(()),
            Some(name) => {
                let message = format!(
                    "no run mentions the parameter `{0}`: write {{{{ {0} }}}} where it belongs",
                    name.get_ref()
                );
                Err(source.invalid(name.span(), message))
            }
        }
    }

    /// Every combination of the values of these; a single empty one of none.
    pub(super) fn combinations(&self, names: &BTreeSet<String>) -> Vec<Combination<'_>> {
        Combination { parameters: self, chosen: BTreeMap::new() }.and(names)
    }
}

fn by_name(listed: &Listed) -> BTreeMap<String, Values> {
    listed.iter().map(|(name, values)| (name.get_ref().clone(), values.clone())).collect()
}

/// One value for each parameter of several that a run mentions.
#[derive(Clone)]
pub(super) struct Combination<'a> {
    parameters: &'a Parameters,
    chosen: BTreeMap<String, Value>,
}

impl<'a> Combination<'a> {
    /// This with each combination of the values of these.
    fn and(&self, names: &BTreeSet<String>) -> Vec<Combination<'a>> {
        let mut all = vec![self.clone()];
        for name in names.iter().filter(|name| !self.chosen.contains_key(*name)) {
            let Some(Values::Several(values)) = self.parameters.values.get(name) else { continue };
            let with = |before: &Combination<'a>, value: &Value| {
                let mut after = before.clone();
                after.chosen.insert(name.clone(), value.clone());
                after
            };
            all = all.iter().flat_map(|before| values.iter().map(move |value| with(before, value))).collect();
        }
        all
    }

    /// This with each combination of what a text mentions beyond it.
    pub(super) fn and_of(
        &self,
        text: &Spanned<String>,
        source: &Source<'_>,
    ) -> Result<Vec<Combination<'a>>, ScenarioError> {
        Ok(self.and(&source.names(text)?))
    }

    /// What the run is repeated over, and where in that it is.
    pub(super) fn looped(&self) -> BTreeMap<String, Value> {
        self.chosen.clone()
    }

    /// For templates.
    pub(super) fn context(&self) -> BTreeMap<&str, &Value> {
        let one = self.parameters.values.iter().filter_map(|(name, values)| match values {
            Values::One(value) => Some((name.as_str(), value)),
            Values::Several(_) => None,
        });
        one.chain(self.chosen.iter().map(|(name, value)| (name.as_str(), value))).collect()
    }
}
