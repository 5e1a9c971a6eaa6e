//! Kong's rules across the fields of entities and plugins, as data: what `/schemas` shows of them, and what Kong says of an
//! entity that breaks one.
use super::checks::listed;
use super::{REQUIRED, Violation, WrittenEntity, expected_one_of};
use serde_json::json;
use std::sync::LazyLock;
use weir_model::entity::EntityKind;
use weir_model::schema::{FieldError, Json, JsonMap};

/// The rules by the name of the kind of entities, or by `plugins/NAME`.
static ENTITY_CHECKS: LazyLock<JsonMap> =
    LazyLock::new(|| serde_json::from_str(include_str!("entity_checks.json")).unwrap_or_default());

/// Puts those of a kind of entities into what `/schemas/KIND` shows.
pub(crate) fn add_of_entity(kind: EntityKind, schema: &mut Json) {
    schema["entity_checks"] = named(kind.as_str()).cloned().unwrap_or_else(|| json!([]));
}

/// Puts those of a plugin into what `/schemas/plugins/NAME` shows.
pub(crate) fn add_of_plugin(name: &str, schema: &mut Json) {
    schema["entity_checks"] = named(&format!("plugins/{name}")).cloned().unwrap_or_else(|| json!([]));
    let Some(of_config) = named(&format!("plugins/{name}/config")) else { return };
    let fields = schema["fields"].as_array_mut().into_iter().flatten();
    let mut configs = fields.filter_map(|field| field.get_mut("config"));
    configs.by_ref().for_each(|config| config["entity_checks"] = of_config.clone());
}

fn named(name: &str) -> Option<&'static Json> {
    ENTITY_CHECKS.get(name)
}

/// A rule that an entity breaks.
pub(super) struct BrokenCheck {
    /// Our own errors on these fields say the same.
    fields: Vec<String>,
    /// Our own error may be about the whole entity, or about the whole configuration of a plugin.
    is_of_many: bool,
    /// What Kong says.
    violations: Vec<Violation>,
}

impl BrokenCheck {
    /// Whether an error of ours is about the same.
    pub(super) fn covers(&self, error: &FieldError) -> bool {
        let is_whole = ["", CONFIG].contains(&error.path.as_str());
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
    let names = match (written.kind, written.members.get("name").and_then(Json::as_str)) {
        (EntityKind::Plugins, Some(name)) => {
            vec![(format!("plugins/{name}"), ""), (format!("plugins/{name}/config"), CONFIG)]
        }
        (kind, _) => vec![(kind.as_str().to_owned(), "")],
    };
    let broken = |(name, within): &(String, &'static str)| {
        let entity = Checked { written, within };
        let checks = named(name).and_then(Json::as_array).into_iter().flatten();
        checks.filter_map(|check| entity.broken(check)).collect::<Vec<_>>()
    };
    names.iter().flat_map(broken).collect()
}

/// The entity, or the record in it, that rules are for.
struct Checked<'c, 'w> {
    written: &'c WrittenEntity<'w>,
    /// The path of the record; empty for the entity.
    within: &'static str,
}

impl Checked<'_, '_> {
    fn broken(&self, check: &Json) -> Option<BrokenCheck> {
        let (rule, of) = check.as_object()?.iter().next()?;
        match rule.as_str() {
            "conditional" => self.conditional(of),
            "conditional_at_least_one_of" => self.conditional_at_least_one_of(of),
            rule => self.of_fields(rule, &texts(of)),
        }
    }

    fn path(&self, field: &str) -> String {
        if self.within.is_empty() { field.to_owned() } else { format!("{}.{field}", self.within) }
    }

    fn value(&self, field: &str) -> Json {
        self.written.value_or_default(&self.path(field))
    }

    /// What Kong says of the entity, or of the record.
    fn of_whole(&self, message: String) -> Violation {
        Violation { path: self.within.to_owned(), message, hint: None, is_entity: true }
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
        let fields = concerned.map(|(field, _)| self.path(field)).collect();
        (!is_met).then_some(BrokenCheck { fields, is_of_many: true, violations })
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
        let path = self.path(field);
        let at_field = Violation { path: path.clone(), message: at_field, hint: None, is_entity: false };
        let violations = vec![self.of_whole(at_entity), at_field];
        Some(BrokenCheck { fields: vec![path], is_of_many: false, violations })
    }

    fn conditional_at_least_one_of(&self, of: &Json) -> Option<BrokenCheck> {
        let fields = texts(&of["then_at_least_one_of"]);
        let is_needed = holds(&of["if_match"], &self.value(of["if_field"].as_str()?));
        if !is_needed || fields.iter().any(|field| is_set(&self.value(field))) {
            return None;
        }
        let violations = vec![self.of_whole(of["then_err"].as_str()?.replace("%s", &listed(&fields)))];
        let fields = fields.into_iter().map(|field| self.path(field)).collect();
        Some(BrokenCheck { fields, is_of_many: false, violations })
    }
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
        "eq" => (value == of, format!("value must be {of}")),
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
        const ALWAYS_SET: [&str; 2] = ["config.redis.port", "config.redis.timeout"];
        for (name, checks) in &*ENTITY_CHECKS {
            let within = if name.ends_with("/config") { CONFIG } else { "" };
            for check in checks.as_array().unwrap() {
                let breaks =
                    |case: &Case| with(case, |written| Checked { written, within }.broken(check).is_some());
                let is_of = |case: &Case| name.trim_end_matches("/config") == case.of;
                let is_broken = cases().iter().any(|case| is_of(case) && breaks(case));
                let cannot_be = ALWAYS_SET.iter().any(|field| check.to_string().contains(field));
                assert_eq!(is_broken, !cannot_be, "{name}: {check}");
            }
        }
    }
}
