//! What a run of a suite changes of its scenario, and the cases that it makes.
use crate::catalogue::nearest;
use crate::result::Axis;
use crate::scenario::expand::words;
use crate::scenario::file::{Amount, Scheme};
use crate::scenario::{CasePlan, Scenario, ScenarioError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a run changes of its scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The parameters that the run is repeated over, with their values here.
    pub at: BTreeMap<String, Value>,
    /// Workers of each gateway.
    pub workers: Option<usize>,
    /// Connections of the load.
    pub connections: Option<usize>,
    /// Its threads.
    pub threads: Option<usize>,
    /// Its rate.
    pub rate: Option<f64>,
    /// Variables of the scenario, and where the suite names them.
    pub variables: BTreeMap<String, (Value, Place)>,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1 on.
    pub line: usize,
    /// The column, from 1 on.
    pub column: usize,
}

impl Place {
    /// The error for what stands there.
    pub(super) fn invalid(&self, message: String) -> ScenarioError {
        ScenarioError::Invalid { file: self.file.clone(), line: self.line, column: self.column, message }
    }
}

impl Scenario {
    /// A case for each point of its sweeps, with what a run of a suite changes; named after what the run is repeated over.
    ///
    /// # Errors
    /// When the scenario has no such variable, is not made for the scheme, or does not fit together.
    pub fn changed_cases(
        mut self,
        scheme: Option<Scheme>,
        change: &Change,
    ) -> Result<Vec<CasePlan>, ScenarioError> {
        for (name, (value, place)) in &change.variables {
            self.set_variable(name, value, place)?;
        }
        let file = &mut self.file;
        let amount = |count: usize| Amount::Number(count as f64);
        file.gateway.workers = change.workers.map(amount).or(file.gateway.workers.take());
        if let Some(connections) = change.connections {
            file.load.connections = amount(connections);
        }
        if let Some(threads) = change.threads {
            file.load.threads = amount(threads);
        }
        file.load.rate = change.rate.map(Amount::Number).or(file.load.rate.take());
        let mut cases = self.cases(scheme)?;
        cases.iter_mut().for_each(|case| change.mark(case));
        Ok(cases)
    }

    /// Sets a variable; a sweep of it is left out.
    fn set_variable(&mut self, name: &str, value: &Value, place: &Place) -> Result<(), ScenarioError> {
        let swept = self.file.sweep.iter().flat_map(|sweep| sweep.with.keys().chain([&sweep.variable]));
        let known: Vec<&str> = self.file.variables.keys().chain(swept).map(String::as_str).collect();
        if !known.contains(&name) {
            let nearest = nearest(name, known.iter().copied());
            let hint = match nearest.first() {
                Some(nearest) => format!("; did you mean `{nearest}`?"),
                None if known.is_empty() => "; it has none".to_owned(),
                None => format!("; it has {}", known.join(", ")),
            };
            return Err(place.invalid(format!("{} has no variable `{name}`{hint}", self.name)));
        }
        self.file.sweep.retain(|sweep| sweep.variable != name);
        self.file.variables.insert(name.to_owned(), value.clone());
        Ok(())
    }
}

impl Change {
    /// Names a case after what the run is repeated over, and puts it onto the axis of the first number among that.
    fn mark(&self, case: &mut CasePlan) {
        let scheme = format!(" {}", case.case.scheme);
        for (name, value) in &self.at {
            let stem = case.case.name.strip_suffix(&scheme).unwrap_or(&case.case.name);
            case.case.name = format!("{stem}[{name}={}]{scheme}", words(value));
            case.case.variables.insert(name.clone(), words(value));
        }
        let mut numbers = self.at.iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
        if let Some((name, value)) = numbers.next() {
            case.case.axis.get_or_insert(Axis { name: name.clone(), value });
        }
    }
}
