//! Kong's words for what is wrong with an entity, because programs compare them. They follow from the declaration of the
//! field and from the value that is written; our own message becomes the hint.
mod checks;
mod configuration;
pub(crate) mod entity_checks;
mod rules;

pub(super) use checks::of_certificate;

use super::violations::{ENTITY, REQUIRED, Violation, steps};
use crate::admin::tree::Step;
use weir_model::entity::EntityKind;
use weir_model::schema::{FieldError, FieldSchema, Json, Kind, Literal, RecordSchema, quoted};
use weir_model::{PluginSchema, config_schema, find_plugin};

/// An entity as it is written.
#[derive(Clone, Copy)]
pub(crate) struct WrittenEntity<'w> {
    pub(crate) kind: EntityKind,
    pub(crate) members: &'w Json,
    pub(crate) plugins: &'w [PluginSchema],
}

/// A field, the type of the value at the path, and that value.
struct Located<'w> {
    field: &'static FieldSchema,
    kind: Kind,
    value: &'w Json,
}

/// Words for a value that breaks a rule, and whether Kong says them of the whole entity.
type Words = (String, bool);

impl<'w> WrittenEntity<'w> {
    /// The errors in Kong's words.
    pub(crate) fn violations(&self, errors: &[FieldError]) -> Vec<Violation> {
        if self.says_kongs_words() {
            return errors.iter().flat_map(|error| self.as_said(error)).collect();
        }
        let broken = entity_checks::broken(self);
        let (across, others): (Vec<_>, Vec<_>) =
            errors.iter().partition(|error| broken.iter().any(|check| check.covers(error)));
        let across_fields = broken.iter().flat_map(|check| {
            let error = across.iter().find(|error| check.covers(error));
            error.map(|error| check.violations(error)).unwrap_or_default()
        });
        across_fields.chain(others.into_iter().flat_map(|error| self.reworded(error))).collect()
    }

    /// Whether a schema of Kong's describes the plugin, so that what is wrong with its configuration is said in Kong's
    /// words already.
    fn says_kongs_words(&self) -> bool {
        let name =
            self.members.get("name").and_then(Json::as_str).filter(|_| self.kind == EntityKind::Plugins);
        let plugin = name.and_then(|name| find_plugin(self.plugins, name));
        plugin.is_some_and(|plugin| plugin.described.is_some())
    }

    fn as_said(&self, error: &FieldError) -> Vec<Violation> {
        // The name that may be meant is not Kong's.
        let hint = error.message.strip_prefix("unknown field; ");
        let said = |path: &str, is_entity| {
            let message = if hint.is_some() { "unknown field" } else { &error.message };
            let (path, message) = (path.to_owned(), message.to_owned());
            vec![Violation { path, message, hint: hint.map(str::to_owned), is_entity }]
        };
        let record = error.path.strip_suffix(ENTITY).map(|path| path.trim_end_matches('.'));
        match record {
            Some(path) => said(path, true),
            None if error.path.starts_with("config") => said(&error.path, false),
            None => self.reworded(error),
        }
    }

    fn reworded(&self, error: &FieldError) -> Vec<Violation> {
        let plain = Violation::of(error);
        if let Some(words) = self.uniqueness(error) {
            return vec![Violation { message: words, is_entity: true, path: String::new(), ..plain }];
        }
        let across_fields =
            checks::violations(self, error).or_else(|| configuration::violations(self, error));
        if let Some(violations) = across_fields {
            return violations;
        }
        let Some(located) = self.locate(&error.path).filter(|_| !plain.is_fixed()) else {
            return vec![plain];
        };
        let hint = Some(error.message.clone());
        if let Some((message, is_entity)) = located.words(&error.message) {
            let path = if is_entity { String::new() } else { error.path.clone() };
            return vec![Violation { path, message, hint, is_entity }];
        }
        match located.field.depends_on {
            Some(decider) => conditional(decider, &located, plain, hint),
            None => vec![plain],
        }
    }

    /// For a value that another entity of a file has too.
    fn uniqueness(&self, error: &FieldError) -> Option<String> {
        let is_twice = error.message.contains(" is here twice; ");
        let Located { field, value, .. } = self.locate(&error.path).filter(|_| is_twice)?;
        let shown = value.as_str().filter(|_| !field.is_confidential()).map(quoted)?;
        let (kind, name) = (self.kind.as_str(), field.name);
        Some(format!("uniqueness violation: '{kind}' entity with {name} set to '{shown}' already declared"))
    }

    /// The value at a path such as `config.redis.host`, or its default.
    fn value_or_default(&self, path: &str) -> Json {
        let Some(Located { field, value, .. }) = self.locate(path) else { return Json::Null };
        match (value, field.default) {
            (Json::Null, Some(default)) => default.to_json(),
            (value, _) => value.clone(),
        }
    }

    /// The field at a path, and its value.
    fn locate(&self, path: &str) -> Option<Located<'w>> {
        let (mut schema, mut value) = (self.kind.schema(), self.members);
        let mut steps = steps(path).into_iter().peekable();
        let name = self.members.get("name").and_then(Json::as_str);
        let config = name.and_then(|name| config_schema(self.plugins, self.kind, name));
        if let Some(config) = config.filter(|_| steps.next_if_eq(&Step::Name("config")).is_some()) {
            (schema, value) = (config, value.get("config")?);
        }
        let mut located: Option<Located<'w>> = None;
        for step in steps {
            let next = match (step, located.as_ref().map(|it| it.kind)) {
                (Step::Name(name), None) => at_field(schema, name, value)?,
                (Step::Name(name), Some(Kind::Record(record))) => at_field(record, name, value)?,
                (Step::Name(key), Some(Kind::Map(kind))) => {
                    Located { field: located?.field, kind: *kind, value: value.get(key)? }
                }
                (Step::Element(Some(index)), Some(Kind::Array(kind))) => {
                    Located { field: located?.field, kind: *kind, value: value.get(index)? }
                }
                _ => return None,
            };
            value = next.value;
            located = Some(next);
        }
        located
    }
}

fn at_field<'w>(schema: &'static RecordSchema, name: &str, value: &'w Json) -> Option<Located<'w>> {
    let field = schema.field(name)?;
    Some(Located { field, kind: field.kind, value: value.get(name).unwrap_or(&Json::Null) })
}

/// What Kong says if another field decides whether this one may, or must, have a value.
fn conditional(decider: &str, at: &Located<'_>, plain: Violation, hint: Option<String>) -> Vec<Violation> {
    let message = if at.value.is_null() { REQUIRED } else { "value must be null" };
    let entity = format!("failed conditional validation given value of field '{decider}'");
    vec![
        Violation { path: String::new(), message: entity, hint: None, is_entity: true },
        Violation { message: message.to_owned(), hint, ..plain },
    ]
}

impl Located<'_> {
    /// Kong's words, if the value breaks a declared rule. `ours` is what we say.
    fn words(&self, ours: &str) -> Option<Words> {
        let at_field = |words: Option<String>| words.map(|words| (words, false));
        match (self.kind, self.value) {
            (_, Json::Null) => None,
            (_, value) if !has_type(self.kind, value) => Some((self.expected_type().to_owned(), false)),
            (Kind::Integer(low, high), value) => at_field(self.number(value.as_f64()?, (low, high))),
            (Kind::Number, value) => at_field(self.number(value.as_f64()?, (i64::MIN, i64::MAX))),
            (Kind::Array(_), Json::Array(items)) => at_field(self.length(items.len(), 0)),
            (Kind::Choice(names), Json::String(text)) if !names.contains(&text.as_str()) => {
                Some((expected_one_of(names.iter().copied()), false))
            }
            (Kind::Uuid, Json::String(text)) if self.field.foreign.is_none() => {
                at_field(weir_model::rule::id(text).is_none().then(|| "expected a valid UUID".to_owned()))
            }
            (Kind::String, Json::String(text)) => self.text(text, ours),
            _ => None,
        }
    }

    fn expected_type(&self) -> &'static str {
        match self.kind {
            Kind::Boolean => "expected a boolean",
            Kind::Integer(..) => "expected an integer",
            Kind::Number => "expected a number",
            Kind::String | Kind::Choice(_) | Kind::Uuid => "expected a string",
            Kind::Array(_) if self.field.set => "expected a set",
            Kind::Array(_) => "expected an array",
            Kind::Map(_) => "expected a map",
            Kind::Record(_) | Kind::Any => "expected a record",
        }
    }

    fn number(&self, value: f64, (low, high): (i64, i64)) -> Option<String> {
        let FieldSchema { one_of, gt, between, .. } = *self.field;
        let is_allowed = |literal: &Literal| literal.to_json().as_f64() == Some(value);
        if !one_of.is_empty() {
            let words = || expected_one_of(one_of.iter().map(|literal| literal.to_json().to_string()));
            return (!one_of.iter().any(is_allowed)).then(words);
        }
        if let Some(least) = gt.filter(|least| value <= *least) {
            return Some(format!("value must be greater than {least}"));
        }
        let (low, high) = between.unwrap_or((low as f64, high as f64));
        (value < low || value > high).then(|| format!("value should be between {low} and {high}"))
    }

    fn length(&self, length: usize, usual: usize) -> Option<String> {
        let least = self.field.len_min.unwrap_or(usual);
        if length < least {
            return Some(format!("length must be at least {least}"));
        }
        let most = self.field.len_max.filter(|most| length > *most);
        most.map(|most| format!("length must be at most {most}"))
    }

    fn text(&self, text: &str, ours: &str) -> Option<Words> {
        let field = self.field;
        let is_element = matches!(field.kind, Kind::Array(_) | Kind::Map(_));
        let length =
            if is_element { text.is_empty().then(|| too_short(1)) } else { self.length(text.len(), 1) };
        let names =
            || field.one_of.iter().filter_map(|literal| literal.to_json().as_str().map(str::to_owned));
        let is_allowed = field.one_of.is_empty() || names().any(|name| name == text);
        let of_kong = || names().filter(|name| !field.extension_values.contains(&name.as_str()));
        let words = length.or_else(|| (!is_allowed).then(|| expected_one_of(of_kong()))).or_else(|| {
            Some(format!("should start with: {}", field.starts_with.filter(|it| !text.starts_with(it))?))
        });
        match words {
            Some(words) => Some((words, false)),
            None if field.is_confidential() => None,
            None => field.check?(text).err().and_then(|_| rules::of_rule(field.rule?, text, ours)),
        }
    }
}

fn too_short(least: usize) -> String {
    format!("length must be at least {least}")
}

fn has_type(kind: Kind, value: &Json) -> bool {
    match kind {
        Kind::Boolean => value.is_boolean(),
        Kind::Integer(..) => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Kind::Number => value.is_number(),
        Kind::String | Kind::Choice(_) => value.is_string(),
        Kind::Array(_) => value.is_array(),
        Kind::Map(_) | Kind::Record(_) => value.is_object(),
        Kind::Uuid | Kind::Any => true,
    }
}

fn expected_one_of<T: AsRef<str>>(names: impl Iterator<Item = T>) -> String {
    let names: Vec<T> = names.collect();
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    format!("expected one of: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_model::ReadOptions;
    use weir_model::entity::Entity;

    fn words(kind: EntityKind, members: &Json, path: &str, ours: &str) -> Vec<(String, String)> {
        let plugins = crate::plugins::bundled();
        let written = WrittenEntity { kind, members, plugins: &plugins };
        let violations = written.violations(&[FieldError::new(path, ours)]);
        violations.into_iter().map(|violation| (violation.path, violation.message)).collect()
    }

    #[test]
    fn words_follow_from_the_declaration_and_the_value() {
        use EntityKind::*;
        for (kind, members, path, expected) in [
            (Services, json!({ "port": 70000 }), "port", "value should be between 0 and 65535"),
            (Services, json!({ "port": "80" }), "port", "expected an integer"),
            (Services, json!({ "host": 5 }), "host", "expected a string"),
            (Services, json!({ "host": "" }), "host", "length must be at least 1"),
            (Services, json!({ "host": "a:80" }), "host", "must not have a port"),
            (Services, json!({ "path": "x" }), "path", "should start with: /"),
            (Services, json!({ "tags": "x" }), "tags", "expected a set"),
            (
                Services,
                json!({ "protocol": "x" }),
                "protocol",
                "expected one of: grpc, grpcs, http, https, tcp, tls, tls_passthrough, udp",
            ),
            (
                Routes,
                json!({ "paths": ["/", "x"] }),
                "paths[1]",
                "should start with: / (fixed path) or ~/ (regex path)",
            ),
            (Routes, json!({ "methods": ["get"] }), "methods[0]", "invalid value: get"),
            (
                Routes,
                json!({ "https_redirect_status_code": 1 }),
                "https_redirect_status_code",
                "expected one of: 426, 301, 302, 307, 308",
            ),
            (Upstreams, json!({ "name": "1.2.3.4" }), "name", "Invalid name; no ip addresses allowed"),
            (
                Upstreams,
                json!({ "healthchecks": { "active": { "timeout": "x" } } }),
                "healthchecks.active.timeout",
                "expected a number",
            ),
            (
                Plugins,
                json!({ "name": "cors", "config": { "max_age": "x" } }),
                "config.max_age",
                "expected a number",
            ),
        ] {
            let found = words(kind, &members, path, "ours");
            assert_eq!(found, [(path.to_owned(), expected.to_owned())], "{members}");
        }
    }

    #[test]
    fn a_field_that_depends_on_another_is_told_twice() {
        let members = json!({ "protocol": "tcp", "path": "/x" });
        let found = words(EntityKind::Services, &members, "path", "has no meaning with protocol tcp");
        let entity = "failed conditional validation given value of field 'protocol'";
        assert_eq!(found, [("", entity), ("path", "value must be null")].map(|(a, b)| (a.into(), b.into())));
    }

    #[test]
    fn rules_across_fields_are_told_of_the_entity() {
        let plugins = crate::plugins::bundled();
        for (kind, members, expected) in [
            (
                EntityKind::Routes,
                json!({ "protocols": ["http"] }),
                "must set one of 'methods', 'hosts', 'headers', 'paths' when 'protocols' is 'http'",
            ),
            (
                EntityKind::Consumers,
                json!({}),
                "at least one of these fields must be non-empty: 'custom_id', 'username'",
            ),
            (
                EntityKind::Plugins,
                json!({ "name": "ip-restriction" }),
                "at least one of these fields must be non-empty: 'config.allow', 'config.deny'",
            ),
        ] {
            let reading = ReadOptions { plugins: &plugins, references: &(), hash_passwords: false };
            let errors = Entity::read(kind, &members, &[], reading).unwrap_err();
            let written = WrittenEntity { kind, members: &members, plugins: &plugins };
            let found = written.violations(&errors);
            let found: Vec<_> =
                found.iter().map(|it| (it.is_entity, it.path.as_str(), it.message.as_str())).collect();
            assert_eq!(found, [(true, "", expected)], "{members}");
        }
    }

    #[test]
    fn a_regex_is_repeated_with_the_reason() {
        let members = json!({ "paths": ["~/a)"] });
        let ours = "the regex does not compile: unopened group, at character 3 `)`; leave it out";
        let found = words(EntityKind::Routes, &members, "paths[0]", ours);
        let expected = "invalid regex: '/a)' (PCRE returned: unopened group, at character 3 `)`)";
        assert_eq!(found, [("paths[0]".to_owned(), expected.to_owned())]);
    }
}
