//! `weir check --against kong`: what of a configuration works the same as there, and what differs.
//!
//! ```text
//! file or Admin API ─► items, each with its path ─ differences.toml ─► verdicts ─► lines
//! ```
mod differences;
mod items;
mod live;

pub(super) use differences::Catalogue;
pub(super) use items::Availability;
pub(super) use live::fetched;

use crate::configuration::{Origin, located};
use crate::settings;
use differences::{Difference, Verdict};
use items::Item;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::io::{self, Write};
use weir_model::ConfigError;
use weir_model::declarative::parse;
use weir_model::node::Position;
use weir_model::schema::printable;

/// Plugins that Kong does not have, and whose names are those of others in its Enterprise edition.
const OF_ENTERPRISE: [&str; 3] = ["mocking", "mtls-auth", "openid-connect"];

/// A setting of Kong's that is given, and where.
pub(super) struct GivenSetting {
    /// The name in kong.conf.
    pub(super) name: String,
    pub(super) value: String,
    /// Such as `kong.conf:3` or `KONG_ROLE`.
    pub(super) place: String,
}

/// How often a difference occurs in what has one path, and where first.
struct Found<'c> {
    difference: &'c Difference,
    place: Option<String>,
    count: usize,
}

/// What a configuration consists of, by verdict.
#[derive(Default)]
pub(super) struct Report<'c> {
    same: usize,
    /// By the row of the catalogue and the path.
    found: BTreeMap<(usize, String), Found<'c>>,
    /// Where something stands that the catalogue explains.
    explained: HashSet<Position>,
    /// Plugins that are here alone: where each stands first, and how often it occurs.
    only_here: BTreeMap<String, (Option<String>, usize)>,
    /// What else has no effect here: a line each.
    without_effect: Vec<String>,
}

impl<'c> Report<'c> {
    /// Judges what the text of a configuration says. `availability` says which gateways have a plugin.
    pub(super) fn of(
        catalogue: &'c Catalogue,
        origin: &Origin,
        text: &str,
        availability: &dyn Fn(&str) -> Availability,
    ) -> Self {
        let mut report = Self::default();
        let Ok(root) = parse(text, origin.format()) else { return report };
        for item in items::of(&root, availability) {
            let place = item.at.filter(|_| origin.has_places());
            let place = place.map(|at| format!("{origin}:{}:{}", at.line, at.column));
            let place = place.or_else(|| item.entity.clone());
            report.judge(catalogue, &item, place);
        }
        report
    }

    /// Judges settings.
    pub(super) fn add_settings(&mut self, catalogue: &'c Catalogue, settings: &[GivenSetting]) {
        for GivenSetting { name, value, place } in settings {
            let item = items::of_setting(name, value);
            match settings::why_ignored(name, value) {
                Some(reason) if catalogue.find(&item).is_none() => {
                    self.without_effect.push(format!("{place}: {} {reason}", item.path));
                }
                _ => self.judge(catalogue, &item, Some(place.clone())),
            }
        }
    }

    /// Adds the fields and settings that are accepted here and have no effect.
    pub(super) fn add_without_effect(&mut self, origin: &Origin, fields: &[ConfigError]) {
        let fields = fields.iter().filter(|field| !self.explained.contains(&field.at)).cloned();
        self.without_effect.extend(located(origin, &fields.collect::<Vec<_>>()));
    }

    fn judge(&mut self, catalogue: &'c Catalogue, item: &Item, place: Option<String>) {
        if item.is_only_here {
            self.only_here.entry(item.path.clone()).or_insert((place, 0)).1 += 1;
            return;
        }
        let Some((index, difference)) = catalogue.find(item) else {
            self.same += 1;
            return;
        };
        self.explained.extend(item.at);
        let first = || Found { difference, place, count: 0 };
        self.found.entry((index, item.path.clone())).or_insert_with(first).count += 1;
    }

    /// Whether everything works here.
    pub(super) fn is_complete(&self) -> bool {
        self.without_effect.is_empty() && self.count(Verdict::NotYet) == 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        let of = self.found.values().filter(|found| found.difference.verdict == verdict);
        of.map(|found| found.count).sum::<usize>()
            + if verdict == Verdict::NotYet { self.without_effect.len() } else { 0 }
    }

    /// Writes the counts, and a line for each difference.
    pub(super) fn write(&self, origin: &Origin, output: &mut dyn Write) -> io::Result<()> {
        writeln!(output, "{origin}:")?;
        writeln!(output, "{:>7}  same", self.same)?;
        for verdict in [Verdict::OtherWords, Verdict::OnPurpose, Verdict::NotYet] {
            writeln!(output, "{:>7}  {verdict}", self.count(verdict))?;
        }
        writeln!(
            output,
            "{:>7}  only in Weir",
            self.only_here.values().map(|(_, count)| count).sum::<usize>()
        )?;
        for ((_, path), Found { difference, place, count }) in &self.found {
            let at = Occurrence(path, place.as_deref(), *count);
            writeln!(output, "{}: {}", at.line(difference.verdict), difference.text())?;
        }
        for (path, (place, count)) in &self.only_here {
            let of_enterprise =
                path.strip_prefix("plugins.").is_some_and(|name| OF_ENTERPRISE.contains(&name));
            let more = if of_enterprise {
                "; Kong Enterprise has a plugin of this name with other fields"
            } else {
                ""
            };
            writeln!(output, "{}{more}", Occurrence(path, place.as_deref(), *count).line("only in Weir"))?;
        }
        self.without_effect.iter().try_for_each(|line| writeln!(output, "without effect: {line}"))
    }
}

/// What a line is about: a path, where it occurs first, and how often.
struct Occurrence<'r>(&'r str, Option<&'r str>, usize);

impl Occurrence<'_> {
    fn line(&self, verdict: impl Display) -> String {
        let Occurrence(path, place, count) = self;
        let place = place.map(|place| format!("{place}: ")).unwrap_or_default();
        let more = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        format!("{place}{verdict}: {}{more}", printable(path))
    }
}
