//! `weir check --against kong`: what of a configuration works the same as there, and what differs.
//!
//! ```text
//! file or Admin API ─► items, each with its path ─ differences.toml ─► verdicts ─► lines
//! ```
mod differences;
mod items;
mod live;

pub(super) use differences::Catalogue;
pub(crate) use differences::Rival;
pub(super) use live::fetched;

use crate::configuration::{Origin, located};
use crate::settings::is_setting;
use differences::{Difference, Verdict};
use items::Item;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use weir_model::declarative::parse;
use weir_model::node::Position;
use weir_model::{ConfigError, Format};

/// How often a difference is met, and where first.
struct Met<'c> {
    difference: &'c Difference,
    path: String,
    at: Option<Position>,
    count: usize,
}

/// What a configuration consists of, by verdict.
#[derive(Default)]
pub(super) struct Report<'c> {
    same: usize,
    met: BTreeMap<usize, Met<'c>>,
    /// Where something stands that the catalogue explains.
    explained: HashSet<Position>,
    /// What else has no effect here: a line each.
    without_effect: Vec<String>,
}

impl<'c> Report<'c> {
    /// Judges what a configuration's text says, and the settings of the environment.
    pub(super) fn of(
        catalogue: &'c Catalogue,
        text: &str,
        format: Format,
        settings: &[(String, String)],
    ) -> Self {
        let mut report = Self::default();
        if let Ok(root) = parse(text, format) {
            items::of(&root).iter().for_each(|item| report.judge(catalogue, item));
        }
        report.judge_settings(catalogue, settings);
        report
    }

    /// Judges settings alone, by their names in kong.conf.
    pub(super) fn of_settings(catalogue: &'c Catalogue, settings: &[(String, String)]) -> Self {
        let mut report = Self::default();
        report.judge_settings(catalogue, settings);
        report
    }

    fn judge_settings(&mut self, catalogue: &'c Catalogue, settings: &[(String, String)]) {
        for (name, value) in settings {
            let item = items::of_setting(name, value);
            if is_setting(name) || catalogue.find(&item).is_some() {
                self.judge(catalogue, &item);
            } else {
                self.without_effect.push(format!("{}: is no setting here and has no effect", item.path));
            }
        }
    }

    /// Adds the fields and settings that are accepted here and have no effect.
    pub(super) fn add_without_effect(&mut self, origin: &Origin, fields: &[ConfigError]) {
        let fields = fields.iter().filter(|field| !self.explained.contains(&field.at)).cloned();
        self.without_effect.extend(located(origin, &fields.collect::<Vec<_>>()));
    }

    fn judge(&mut self, catalogue: &'c Catalogue, item: &Item) {
        let Some((index, difference)) = catalogue.find(item) else {
            self.same += 1;
            return;
        };
        self.explained.extend(item.at);
        let first = || Met { difference, path: item.path.clone(), at: item.at, count: 0 };
        self.met.entry(index).or_insert_with(first).count += 1;
    }

    /// Whether everything works here.
    pub(super) fn is_complete(&self) -> bool {
        self.without_effect.is_empty() && self.count(Verdict::NotYet) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        let of = self.met.values().filter(|met| met.difference.verdict == verdict);
        of.map(|met| met.count).sum::<usize>()
            + if verdict == Verdict::NotYet { self.without_effect.len() } else { 0 }
    }

    /// Writes the counts, and a line for each difference.
    pub(super) fn write(&self, origin: &Origin, output: &mut dyn Write) -> io::Result<()> {
        writeln!(output, "{origin}:")?;
        writeln!(output, "{:>7}  same", self.same)?;
        for verdict in [Verdict::OtherWords, Verdict::OnPurpose, Verdict::NotYet] {
            writeln!(output, "{:>7}  {verdict}", self.count(verdict))?;
        }
        for met in self.met.values() {
            let place = met.at.filter(|_| origin.has_places());
            let place = place.map(|at| format!("{origin}:{}:{}: ", at.line, at.column)).unwrap_or_default();
            let more = if met.count > 1 { format!(" ({} times)", met.count) } else { String::new() };
            writeln!(
                output,
                "{place}{}: {}{more}: {}",
                met.difference.verdict,
                met.path,
                met.difference.text()
            )?;
        }
        self.without_effect.iter().try_for_each(|line| writeln!(output, "{}: {line}", Verdict::NotYet))
    }
}
