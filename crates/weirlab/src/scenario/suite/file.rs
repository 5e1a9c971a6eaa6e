//! A suite as it is written, and its runs as entries.
use super::parameters::{Combination, Listed, Parameters};
use super::template::Source;
use super::{Change, SuiteEntry};
use crate::catalogue::Span;
use crate::duration;
use crate::scenario::ScenarioError;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::NonZero;
use toml::Spanned;

/// All of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteFile {
    pub(super) title: String,
    pub(super) rounds: Option<NonZero<u32>>,
    pub(super) duration: Option<Span>,
    #[serde(default)]
    pub(super) parameters: Listed,
    #[serde(rename = "run")]
    pub(super) runs: Vec<RunFile>,
}

/// A run. Every text in it may be a template.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunFile {
    scenario: Spanned<String>,
    scheme: Option<Spanned<String>>,
    targets: Vec<Spanned<String>>,
    workers: Option<Spanned<Value>>,
    connections: Option<Spanned<Value>>,
    threads: Option<Spanned<Value>>,
    rate: Option<Spanned<Value>>,
    flame: Option<Spanned<String>>,
    #[serde(default)]
    parameters: Listed,
    #[serde(default)]
    variables: BTreeMap<Spanned<String>, Spanned<Value>>,
}

impl RunFile {
    /// An entry for each combination of values of the parameters that it mentions.
    pub(super) fn entries(
        &self,
        suite: &Parameters,
        source: &Source<'_>,
    ) -> Result<Vec<SuiteEntry>, ScenarioError> {
        let parameters = suite.with(&self.parameters);
        for target in &self.targets {
            parameters.mentioned(target, source)?;
        }
        let mut loops = parameters.mentioned(&self.scenario, source)?;
        for text in self.scheme.iter().chain(&self.flame) {
            loops.extend(parameters.mentioned(text, source)?);
        }
        for value in self.numbers().into_iter().flatten().chain(self.variables.values()) {
            if let Value::String(text) = value.get_ref() {
                loops.extend(parameters.mentioned(&Spanned::new(value.span(), text.clone()), source)?);
            }
        }
        parameters.all_mentioned_of(&self.parameters, source)?;
        parameters.combinations(&loops).iter().map(|values| self.entry(values, source)).collect()
    }

    fn numbers(&self) -> [Option<&Spanned<Value>>; 4] {
        [self.workers.as_ref(), self.connections.as_ref(), self.threads.as_ref(), self.rate.as_ref()]
    }

    fn entry(&self, values: &Combination<'_>, source: &Source<'_>) -> Result<SuiteEntry, ScenarioError> {
        let scheme = |text: &Spanned<String>| {
            source.fill(text, values)?.parse().map_err(|message| source.invalid(text.span(), message))
        };
        let flame = |text: &Spanned<String>| {
            duration::parse(&source.fill(text, values)?)
                .map_err(|message| source.invalid(text.span(), message))
        };
        let mut targets = Vec::new();
        for target in &self.targets {
            for values in values.and_of(target, source)? {
                targets.push(source.fill(target, &values)?);
            }
        }
        Ok(SuiteEntry {
            scenario: source.fill(&self.scenario, values)?,
            scheme: self.scheme.as_ref().map(scheme).transpose()?,
            targets,
            change: self.change(values, source)?,
            flame: self.flame.as_ref().map(flame).transpose()?.filter(|duration| !duration.is_zero()),
        })
    }

    fn change(&self, values: &Combination<'_>, source: &Source<'_>) -> Result<Change, ScenarioError> {
        let [workers, connections, threads, rate] = self.numbers();
        let number =
            |value: Option<&Spanned<Value>>| value.map(|value| source.number(value, values)).transpose();
        let whole =
            |value: Option<&Spanned<Value>>| value.map(|value| source.count(value, values)).transpose();
        let variable = |(name, value): (&Spanned<String>, &Spanned<Value>)| {
            Ok((name.get_ref().clone(), (source.value(value, values)?, source.place(name.span()))))
        };
        Ok(Change {
            at: values.looped(),
            workers: whole(workers)?,
            connections: whole(connections)?,
            threads: whole(threads)?,
            rate: number(rate)?,
            variables: self.variables.iter().map(variable).collect::<Result<_, ScenarioError>>()?,
        })
    }
}
