//! How to fix a mistake in an expression, and what is probably one though it is accepted.
use super::ast::{Literal, Operator, Predicate};
use super::field::{FAMILIES, FIELDS, Field, FieldType};
use super::{ExpressionError, Layer, ast, parser};
use weir_model::entity::Route;
use weir_model::schema::closest;

/// The field that was probably meant.
pub(super) fn unknown_field(name: &str) -> String {
    match meant(name) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None => String::new(),
    }
}

fn meant(name: &str) -> Option<String> {
    let (scope, rest) = name.split_once('.')?;
    let scope = closest(scope, ["http", "net", "tls"])?;
    let (first, own) = rest.split_once('.').unwrap_or((rest, ""));
    let in_scope =
        |name: &&'static str| name.split_once('.').filter(|(of, _)| *of == scope).map(|(_, rest)| rest);
    let family = closest(first, FAMILIES.iter().filter_map(in_scope)).filter(|_| !own.is_empty());
    let whole = || closest(rest, FIELDS.iter().filter_map(in_scope)).map(|field| format!("{scope}.{field}"));
    family.map(|family| format!("{scope}.{family}.{own}")).or_else(whole)
}

/// How to write the value of a field whose type is another one.
pub(super) fn of_type(field: FieldType, predicate: &Predicate<'_>, text: &str) -> String {
    let name = predicate.field;
    let written = text.get(predicate.value_at..predicate.end).unwrap_or_default();
    match (field, &predicate.value) {
        (FieldType::Text, _) => format!("`{name}` is a text; write \"{written}\""),
        (FieldType::Address, Literal::Network(_)) => {
            format!("`{name}` is an address; write `in` for a network")
        }
        (FieldType::Integer, _) => format!("`{name}` is a number; write one without quotes"),
        (FieldType::Address, _) => format!("`{name}` is an address; write one without quotes"),
    }
}

/// What to write instead of what stands where an operator is expected, behind a field.
pub(super) fn of_operator(field: &str, found: &str) -> String {
    let hint = match found.as_bytes() {
        _ if field == "not" => "; write `!(…)` around what is negated",
        [b'=', b'~', ..] => "; write `~` to match a regular expression",
        [b'=', ..] => "; write `==` to compare",
        _ => return of_header(field, found).unwrap_or_default(),
    };
    hint.to_owned()
}

/// How to write the name of a header whose beginning is the last part of a field, and whose rest begins with a dash.
pub(super) fn of_header(field: &str, rest: &str) -> Option<String> {
    let start = field.strip_prefix("http.headers.").filter(|_| rest.starts_with('-'))?;
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let end = rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len());
    let name = format!("{start}{}", &rest[..end]).to_ascii_lowercase().replace('-', "_");
    Some(format!("; write `_` for `-`: `http.headers.{name}`"))
}

/// What to write instead of what stands where predicates are joined.
pub(super) fn of_joint(found: &str) -> &'static str {
    let end = found.bytes().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(found.len());
    let word = &found[..end];
    if word.eq_ignore_ascii_case("and") || found.starts_with('&') {
        "; write `&&` for and"
    } else if word.eq_ignore_ascii_case("or") || found.starts_with('|') {
        "; write `||` for or"
    } else {
        ""
    }
}

/// What to write instead of an unknown function.
pub(super) fn of_function(name: &str) -> &'static str {
    if name == "not" { "write `!(…)` around what is negated" } else { "there are `lower` and `any`" }
}

/// What is probably a mistake in the expression of a route, though it is accepted.
pub fn warnings(route: &Route) -> Vec<ExpressionError> {
    let Some(text) = &route.expression else { return Vec::new() };
    let (layer, mut found) = (Layer::of(route), Vec::new());
    if let Ok(root) = parser::parse(text) {
        visit(&root, &mut |predicate| {
            found
                .extend(doubt(predicate, layer).map(|reason| ExpressionError::at(text, predicate.at, reason)))
        });
    }
    found
}

fn visit(node: &ast::Node<'_>, visitor: &mut impl FnMut(&Predicate<'_>)) {
    match node {
        ast::Node::Predicate(predicate) => visitor(predicate),
        ast::Node::Not(inner) => visit(inner, visitor),
        ast::Node::All(nodes) | ast::Node::Any(nodes) => nodes.iter().for_each(|node| visit(node, visitor)),
    }
}

fn doubt(predicate: &Predicate<'_>, layer: Layer) -> Option<String> {
    let Predicate { field, lower, any, operator, value, .. } = predicate;
    let compares = matches!(
        operator,
        Operator::Equals | Operator::NotEquals | Operator::Prefix | Operator::Suffix | Operator::Contains
    );
    match value {
        Literal::Text(text) if *lower && compares && text.to_lowercase() != **text => {
            let outcome = if *operator == Operator::NotEquals { "matches always" } else { "never matches" };
            return Some(format!(
                "`lower({field})` {outcome}, because the text beside it has capital letters; write \"{}\"",
                text.to_lowercase()
            ));
        }
        _ => {}
    }
    let is_single = !matches!(Field::named(field, layer), Ok(Field::Header(_) | Field::Query(_)) | Err(_));
    (*any && is_single)
        .then(|| format!("`any({field})` has no effect, because the field has one value; leave `any()` out"))
}
