//! Kong's rules across the fields of entities and plugins, as data: what `/schemas` shows of them, and what Kong says of an
//! entity that breaks one.
use super::checks::listed;
use super::{REQUIRED, Violation, WrittenEntity, expected_one_of};
use serde_json::json;
use std::sync::LazyLock;
use weir_model::entity::EntityKind;
use weir_model::schema::{FieldError, Json, JsonMap};

/// The rules by the name of the kind of entities, or by `plugins/NAME`; those of a record in it have its path behind a colon.
/// Several that have the same rules are named together.
static ENTITY_CHECKS: LazyLock<JsonMap> =
    LazyLock::new(|| serde_json::from_str(include_str!("entity_checks.json")).unwrap_or_default());

/// Puts those of a kind of entities into what `/schemas/KIND` shows.
pub(crate) fn add_of_entity(kind: EntityKind, schema: &mut Json) {
    add(kind.as_str(), schema);
}

/// Puts those of a plugin into what `/schemas/plugins/NAME` shows.
pub(crate) fn add_of_plugin(name: &str, schema: &mut Json) {
    add(&format!("plugins/{name}"), schema);
}

fn add(owner: &str, schema: &mut Json) {
    if schema.get("entity_checks").is_none() {
        schema["entity_checks"] = json!([]);
    }
    for (path, checks) in of_owner(owner) {
        if let Some(record) = record_at(schema, path) {
            record["entity_checks"] = checks.clone();
        }
    }
}

/// The rules, each with the path of the record that they are for: empty for the entity itself.
fn of_owner(owner: &str) -> impl Iterator<Item = (&'static str, &'static Json)> {
    let named = ENTITY_CHECKS.iter().flat_map(|(names, checks)| owners(names).map(move |it| (it, checks)));
    named.filter_map(move |((of, path), checks)| (of == owner).then_some((path, checks)))
}

/// Who has rules of this name, and the paths of the records.
fn owners(names: &str) -> impl Iterator<Item = (&str, &str)> {
    names.split(' ').map(|name| name.split_once(':').unwrap_or((name, "")))
}

/// The names on a path; `elements` and `values` lead into lists and maps.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|name| !name.is_empty())
}

/// The record at a path of a schema.
fn record_at<'s>(schema: &'s mut Json, path: &str) -> Option<&'s mut Json> {
    names(path).try_fold(schema, |record, name| match name {
        "elements" | "values" => record.get_mut(name),
        name => record["fields"].as_array_mut()?.iter_mut().find_map(|field| field.get_mut(name)),
    })
}

/// A rule that an entity breaks.
pub(super) struct BrokenCheck {
    /// The path of the record that the rule is for.
    record: String,
    /// Our own errors on these fields say the same.
    fields: Vec<String>,
    /// Our own error may be about the whole record.
    is_of_many: bool,
    /// What Kong says.
    violations: Vec<Violation>,
}

impl BrokenCheck {
    /// Whether an error of ours is about the same.
    pub(super) fn covers(&self, error: &FieldError) -> bool {
        // A rule for an entity may be one for the whole configuration of a plugin here, and the reverse.
        let wholes = ["", CONFIG];
        let is_whole = error.path == self.record
            || wholes.contains(&self.record.as_str()) && wholes.contains(&error.path.as_str());
        self.is_of_many && is_whole || self.fields.contains(&error.path)
    }

    /// What Kong says. Ours is the hint.
    pub(super) fn violations(&self, ours: &FieldError) -> Vec<Violation> {
        let mut violations = self.violations.clone();
        if let Some(last) = violations.last_mut() {
            last.hint = Some(ours.message.clone());
        }
        violations
    }
}

/// What a plugin is configured by, which may have rules of its own.
const CONFIG: &str = "config";

/// The rules that an entity breaks.
pub(super) fn broken(written: &WrittenEntity<'_>) -> Vec<BrokenCheck> {
    let owner = match (written.kind, written.members.get("name").and_then(Json::as_str)) {
        (EntityKind::Plugins, Some(name)) => format!("plugins/{name}"),
        (kind, _) => kind.as_str().to_owned(),
    };
    let broken = |(path, checks): (&str, &'static Json)| {
        let records = CheckedRecord::all(written, path).into_iter();
        records.flat_map(move |record| {
            checks.as_array().into_iter().flatten().filter_map(move |check| record.broken(check))
        })
    };
    of_owner(&owner).flat_map(broken).collect()
}

/// An entity, or a record in it, that rules are for.
#[derive(Clone)]
struct CheckedRecord<'c, 'w> {
    written: &'c WrittenEntity<'w>,
    /// The path of the record; empty for the entity.
    path: String,
    /// The same as Kong has it, which leaves the keys of maps out.
    named: String,
    value: &'w Json,
}

impl<'c, 'w> CheckedRecord<'c, 'w> {
    /// Those that are written at a path of the schema.
    fn all(written: &'c WrittenEntity<'w>, path: &str) -> Vec<Self> {
        let entity = Self { written, path: String::new(), named: String::new(), value: written.members };
        names(path).fold(vec![entity], |records, name| records.iter().flat_map(|it| it.below(name)).collect())
    }

    fn below(&self, name: &str) -> Vec<Self> {
        match (name, self.value) {
            ("elements", Json::Array(elements)) => {
                let at = |(index, value)| {
                    let [path, named] = [&self.path, &self.named].map(|path| format!("{path}[{index}]"));
                    Self { path, named, value, ..self.clone() }
                };
                elements.iter().enumerate().map(at).collect()
            }
            ("values", Json::Object(members)) => {
                let at = |(key, value): (&String, _)| Self {
                    path: joined(&self.path, key),
                    value,
                    ..self.clone()
                };
                members.iter().map(at).collect()
            }
            ("elements" | "values", _) => Vec::new(),
            (name, value) => {
                let [path, named] = [&self.path, &self.named].map(|path| joined(path, name));
                vec![Self { path, named, value: value.get(name).unwrap_or(&Json::Null), ..self.clone() }]
            }
        }
    }

    fn broken(&self, check: &Json) -> Option<BrokenCheck> {
        let (rule, of) = check.as_object()?.iter().next()?;
        match rule.as_str() {
            "conditional" => self.conditional(of),
            "conditional_at_least_one_of" => self.conditional_at_least_one_of(of),
            rule => self.of_fields(rule, &texts(of)),
        }
    }

    fn value(&self, field: &str) -> Json {
        self.written.value_or_default(&joined(&self.path, field))
    }

    /// What Kong says of the entity, or of the record.
    fn of_whole(&self, message: String) -> Violation {
        Violation { path: self.named.clone(), message, hint: None, is_entity: true }
    }

    /// A rule for some fields alike.
    fn of_fields(&self, rule: &str, fields: &[&str]) -> Option<BrokenCheck> {
        let values: Vec<Json> = fields.iter().map(|field| self.value(field)).collect();
        let set = values.iter().filter(|value| is_set(value)).count();
        let (is_met, words) = match rule {
            "at_least_one_of" => (set > 0, "at least one of these fields must be non-empty"),
            "only_one_of" => (set == 1, "exactly one of these fields must be non-empty"),
            "mutually_required" => {
                ([0, fields.len()].contains(&set), "all or none of these fields must be set")
            }
            "mutually_exclusive" => (set <= 1, "only one or none of these fields must be set"),
            "distinct" => (are_distinct(&values), "values of these fields must be distinct"),
            _ => return None,
        };
        let violations = vec![self.of_whole(format!("{words}: {}", listed(fields)))];
        // A field that is given, and is wrong by itself, is not what is missing.
        let is_concerned = |value: &Json| rule != "at_least_one_of" || value.is_null();
        let concerned = fields.iter().zip(&values).filter(|(_, value)| is_concerned(value));
        let fields = concerned.map(|(field, _)| *field);
        (!is_met).then(|| self.check(fields, true, violations))
    }

    /// A rule for one field that holds if another has a certain value.
    fn conditional(&self, of: &Json) -> Option<BrokenCheck> {
        let (decider, field) = (of["if_field"].as_str()?, of["then_field"].as_str()?);
        if !holds(&of["if_match"], &self.value(decider)) {
            return None;
        }
        let at_field = failure(&of["then_match"], &self.value(field))?;
        let at_entity = match of["then_err"].as_str() {
            Some(words) => words.to_owned(),
            None => format!("failed conditional validation given value of field '{decider}'"),
        };
        let path = joined(&self.named, field);
        let at_field = Violation { path, message: at_field, hint: None, is_entity: false };
        Some(self.check([field], false, vec![self.of_whole(at_entity), at_field]))
    }

    fn conditional_at_least_one_of(&self, of: &Json) -> Option<BrokenCheck> {
        let fields = texts(&of["then_at_least_one_of"]);
        let is_needed = holds(&of["if_match"], &self.value(of["if_field"].as_str()?));
        if !is_needed || fields.iter().any(|field| is_set(&self.value(field))) {
            return None;
        }
        let violations = vec![self.of_whole(of["then_err"].as_str()?.replace("%s", &listed(&fields)))];
        Some(self.check(fields, false, violations))
    }

    /// A broken rule, for our errors on these fields.
    fn check<'f>(
        &self,
        fields: impl IntoIterator<Item = &'f str>,
        is_of_many: bool,
        violations: Vec<Violation>,
    ) -> BrokenCheck {
        let fields = fields.into_iter().map(|field| joined(&self.path, field)).collect();
        BrokenCheck { record: self.path.clone(), fields, is_of_many, violations }
    }
}

/// The path of a field in the record at a path.
fn joined(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Whether a value is one that a conditional rule is for.
fn holds(condition: &Json, value: &Json) -> bool {
    let Some((rule, of)) = condition.as_object().and_then(|members| members.iter().next()) else {
        return false;
    };
    let is_listed = |list: &Json| list.as_array().is_some_and(|list| list.contains(value));
    match rule.as_str() {
        "eq" => value == of,
        "gt" => value.as_f64() > of.as_f64(),
        "one_of" => is_listed(of),
        "not_one_of" => !is_listed(of),
        "match" => is_whole_match(of, value),
        "match_any" => of["patterns"]
            .as_array()
            .is_some_and(|patterns| patterns.iter().any(|it| is_whole_match(it, value))),
        "elements" => {
            let others = of["not_one_of"].as_array();
            let is_other = |element: &Json| !others.is_some_and(|others| others.contains(element));
            value.as_array().is_some_and(|elements| elements.iter().all(is_other))
        }
        _ => false,
    }
}

/// Whether a value is the one that a pattern of Lua is for: Kong's patterns here are whole values.
fn is_whole_match(pattern: &Json, value: &Json) -> bool {
    value.as_str().is_some_and(|text| pattern == &format!("^{text}$"))
}

/// What Kong says of a value that breaks a conditional rule.
fn failure(condition: &Json, value: &Json) -> Option<String> {
    let (rule, of) = condition.as_object()?.iter().next()?;
    let (is_met, message) = match rule.as_str() {
        "required" => (!value.is_null(), REQUIRED.to_owned()),
        "eq" => {
            let shown = of.as_str().map_or_else(|| of.to_string(), str::to_owned);
            (value == of, format!("value must be {shown}"))
        }
        "one_of" => (of.as_array()?.contains(value), expected_one_of(texts(of).into_iter())),
        "contains" => {
            let is_in = value.as_array().is_some_and(|elements| elements.contains(of));
            (is_in, format!("expected to contain: {}", of.as_str()?))
        }
        "len_eq" => {
            let length = value.as_array().map_or(0, Vec::len);
            (of.as_u64() == Some(length as u64), format!("length must be {of}"))
        }
        _ => return None,
    };
    (!is_met).then_some(message)
}

fn texts(list: &Json) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Json::as_str).collect()
}

fn is_set(value: &Json) -> bool {
    match value {
        Json::Null => false,
        Json::String(text) => !text.is_empty(),
        Json::Array(elements) => !elements.is_empty(),
        Json::Object(members) => !members.is_empty(),
        _ => true,
    }
}

fn are_distinct(values: &[Json]) -> bool {
    let mut set = values.iter().filter(|value| !value.is_null());
    let Some(first) = set.next() else { return true };
    set.all(|value| value != first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::ReadOptions;
    use weir_model::entity::Entity;

    #[derive(serde::Deserialize)]
    struct Case {
        of: String,
        members: Json,
        /// What Kong says: of which field, and how.
        says: Vec<(String, String)>,
    }

    fn cases() -> Vec<Case> {
        serde_json::from_str(include_str!("entity_check_cases.json")).unwrap()
    }

    /// Calls a function with what a case writes.
    fn with<T>(case: &Case, call: impl FnOnce(&WrittenEntity<'_>) -> T) -> T {
        let plugins = crate::plugins::bundled();
        let plugin = case.of.strip_prefix("plugins/");
        let members = match plugin {
            Some(name) => json!({ "name": name, "config": case.members }),
            None => case.members.clone(),
        };
        let kind =
            plugin.map_or_else(|| weir_model::find_kind(&plugins, &case.of), |_| Some(EntityKind::Plugins));
        call(&WrittenEntity { kind: kind.unwrap(), members: &members, plugins: &plugins })
    }

    #[test]
    fn what_breaks_a_rule_is_refused_in_the_words_of_kong() {
        for case in cases() {
            let found = with(&case, |written| {
                let reading =
                    ReadOptions { plugins: written.plugins, references: &(), hash_passwords: false };
                let errors = Entity::read(written.kind, written.members, &[], reading).err();
                written.violations(&errors.unwrap_or_default())
            });
            let found: Vec<_> = found.into_iter().map(|it| (it.path, it.message)).collect();
            assert_eq!(found, case.says, "{} {}", case.of, case.members);
        }
    }

    #[test]
    fn every_rule_that_is_shown_is_broken_by_a_case() {
        // Weir's own defaults are in their place.
        const ALWAYS_SET: [&str; 3] = ["redis.port", "config.redis.timeout", "azure_api_version"];
        let all = ENTITY_CHECKS.iter().flat_map(|(names, checks)| owners(names).map(move |it| (it, checks)));
        for ((owner, path), checks) in all {
            // Those of functions are elsewhere.
            let checks = checks.as_array().unwrap().iter();
            for check in checks.filter(|check| check.get("custom_entity_check").is_none()) {
                let breaks = |case: &Case| {
                    with(case, |written| {
                        CheckedRecord::all(written, path).iter().any(|record| record.broken(check).is_some())
                    })
                };
                let is_broken = cases().iter().any(|case| case.of == owner && breaks(case));
                let cannot_be = ALWAYS_SET.iter().any(|field| check.to_string().contains(field));
                assert_eq!(is_broken, !cannot_be, "{owner}:{path}: {check}");
            }
        }
    }
}
