//! Kong's words for what is wrong with an entity, because programs compare them. They follow from the declaration of the
//! field and from the value that is written; our own message becomes the hint.
use super::violations::{Violation, steps};
use crate::admin::tree::Step;
use weir_model::entity::EntityKind;
use weir_model::schema::{FieldError, FieldSchema, Json, Kind, Literal, RecordSchema, quoted};
use weir_model::{PluginSchema, find_plugin};

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
        errors.iter().flat_map(|error| self.reworded(error)).collect()
    }

    fn reworded(&self, error: &FieldError) -> Vec<Violation> {
        let plain = Violation::of(error);
        if let Some(words) = self.uniqueness(error) {
            return vec![Violation { message: words, is_entity: true, path: String::new(), ..plain }];
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

    /// The field at a path, and its value.
    fn locate(&self, path: &str) -> Option<Located<'w>> {
        let (mut schema, mut value) = (self.kind.schema(), self.members);
        let mut steps = steps(path).into_iter().peekable();
        if self.kind == EntityKind::Plugins && steps.next_if_eq(&Step::Name("config")).is_some() {
            let name = self.members.get("name")?.as_str()?;
            (schema, value) = (find_plugin(self.plugins, name)?.config, value.get("config")?);
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
    let message = if at.value.is_null() { super::violations::REQUIRED } else { "value must be null" };
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
            None => field.check?(text).err().and_then(|_| of_rule(field.rule?, text, ours)),
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

/// What Kong says of a text that breaks a rule of this name.
fn of_rule(rule: &str, text: &str, ours: &str) -> Option<Words> {
    let shown = quoted(text);
    let words = match rule {
        "name" => format!(
            "invalid value '{shown}': the only accepted ascii characters are alphanumerics or ., -, _, and ~"
        ),
        "tag" => format!(
            "invalid tag '{shown}': expected printable ascii (except `,` and `/`) or valid utf-8 sequences"
        ),
        "path" => path(text),
        "route_path" => route_path(text, ours)?,
        "regex" => format!("not a valid regex: {shown}"),
        "header_name" => {
            format!("bad header name '{shown}', allowed characters are A-Z, a-z, 0-9, '_', and '-'")
        }
        "host" | "host_or_socket" | "hostname" => host(text),
        "wildcard_host" | "server_name" => wildcard_host(text),
        "wildcard_host_and_port" => route_host(text),
        "ip_or_cidr" => format!("invalid ip or cidr range: '{shown}'"),
        "method" => format!("invalid value: {shown}"),
        "uuid" => "expected a valid UUID".to_owned(),
        "target" => format!("Invalid target ('{shown}'); not a valid hostname or ip address"),
        "virtual_host" => upstream_name(text),
        "certificates" => format!("invalid certificate: {ours}"),
        "private_key" => format!("invalid key: {ours}"),
        "ca_certificate" => return Some(authority(text, ours)),
        "url" if !text.contains("://") => "missing scheme in url".to_owned(),
        "url" => "missing host in url".to_owned(),
        _ => return None,
    };
    Some((words, false))
}

fn path(text: &str) -> String {
    if !text.starts_with('/') {
        "should start with: /".to_owned()
    } else if text.contains("//") {
        "must not have empty segments".to_owned()
    } else if let Some(escape) = wrong_escape(text) {
        format!("invalid url-encoded value: '{escape}'")
    } else {
        format!(
            "invalid path: '{}' (characters outside of the reserved list of RFC 3986 found)",
            quoted(text)
        )
    }
}

/// The first `%` without two digits, and what follows it.
fn wrong_escape(text: &str) -> Option<&str> {
    let is_wrong = |at: usize| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let at = text.match_indices('%').map(|(at, _)| at).find(|at| is_wrong(*at))?;
    Some(&text[at..text.floor_char_boundary(at + 3)])
}

fn route_path(text: &str, ours: &str) -> Option<String> {
    if !text.starts_with('/') && !text.starts_with("~/") {
        return Some("should start with: / (fixed path) or ~/ (regex path)".to_owned());
    }
    if text.contains("//") {
        return Some("must not have empty segments".to_owned());
    }
    match text.strip_prefix('~') {
        Some(regex) => {
            let why = ours.strip_prefix("the regex does not compile: ").unwrap_or(ours);
            let why = why.split_once("; ").map_or(why, |(why, _)| why);
            Some(format!("invalid regex: '{}' (PCRE returned: {why})", quoted(regex)))
        }
        None => wrong_escape(text).map(|escape| format!("invalid url-encoded value: '{escape}'")),
    }
}

fn has_port(text: &str) -> bool {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    port.is_some_and(|(host, port)| {
        !host.is_empty() && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
    })
}

fn host(text: &str) -> String {
    if has_port(text) {
        "must not have a port".to_owned()
    } else {
        format!("invalid value: {}", quoted(text))
    }
}

fn wildcard_host(text: &str) -> String {
    match text.matches('*').count() {
        0 if text.parse::<std::net::IpAddr>().is_ok() => "must not be an IP".to_owned(),
        0 => host(text),
        _ if !text.starts_with('*') && !text.ends_with('*') => {
            "wildcard must be leftmost or rightmost character".to_owned()
        }
        1 => host(text),
        _ => "only one wildcard must be specified".to_owned(),
    }
}

fn route_host(text: &str) -> String {
    let is_placed = text.starts_with("*.") || text.ends_with(".*") || !text.contains('*');
    match text.matches('*').count() {
        0 | 1 if is_placed => format!("invalid hostname: {}", quoted(text)),
        0 | 1 => "invalid wildcard: must be placed at leftmost or rightmost label".to_owned(),
        _ => "invalid wildcard: must have at most one wildcard".to_owned(),
    }
}

fn upstream_name(text: &str) -> String {
    if text.parse::<std::net::IpAddr>().is_ok() {
        "Invalid name; no ip addresses allowed".to_owned()
    } else if has_port(text) {
        "Invalid name; no port allowed".to_owned()
    } else {
        "Invalid name; must be a valid hostname".to_owned()
    }
}

/// Kong says most of an authority's certificate of the whole entity.
fn authority(text: &str, ours: &str) -> Words {
    if text.matches("-----BEGIN CERTIFICATE-----").count() > 1 {
        ("please submit only one certificate at a time".to_owned(), true)
    } else if ours.contains("CA:TRUE") {
        let words =
            "certificate does not appear to be a CA because it is missing the \"CA\" basic constraint";
        (words.to_owned(), true)
    } else {
        (format!("invalid certificate: {ours}"), false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn a_regex_is_repeated_with_the_reason() {
        let members = json!({ "paths": ["~/a)"] });
        let ours = "the regex does not compile: unopened group, at character 3 `)`; leave it out";
        let found = words(EntityKind::Routes, &members, "paths[0]", ours);
        let expected = "invalid regex: '/a)' (PCRE returned: unopened group, at character 3 `)`)";
        assert_eq!(found, [("paths[0]".to_owned(), expected.to_owned())]);
    }
}
