//! Schemas as tables of Markdown, for the documentation.
use super::{FieldSchema, Kind, Literal, RecordSchema};

/// The fields of a record, one row each; those of nested records by their path.
pub fn table(record: &RecordSchema) -> String {
    let mut table = "| field | type | default | |\n|---|---|---|---|\n".to_owned();
    rows(&mut table, record, "");
    table
}

fn rows(table: &mut String, record: &RecordSchema, prefix: &str) {
    for field in record.fields {
        let name = format!("{prefix}{}", field.name);
        match field.kind {
            Kind::Record(inner) => rows(table, inner, &format!("{name}.")),
            _ => table.push_str(&format!(
                "| `{name}` | {} | {} | {} |\n",
                kind(field, &field.kind),
                default(field),
                field.doc
            )),
        }
    }
}

fn default(field: &FieldSchema) -> String {
    match (&field.default, field.required) {
        // A list of records is too long for a table; the description of the field says what it holds.
        (Some(Literal::List([Literal::Map(_), ..])), _) => "`[…]`".to_owned(),
        (Some(default), _) => format!("`{}`", shown(default)),
        (None, _) if field.auto => "filled in".to_owned(),
        (None, true) => "required".to_owned(),
        (None, false) => String::new(),
    }
}

fn kind(field: &FieldSchema, of: &Kind) -> String {
    let number = |least: String, most: String| format!("number, {least} to {most}");
    match of {
        Kind::Array(Kind::Record(inner)) => format!("list of {}", members(inner)),
        Kind::Array(Kind::Uuid) => format!("list of {}", field.foreign.unwrap_or("UUIDs")),
        Kind::Array(element) => format!("list of {}", plural(&kind(field, element))),
        Kind::Map(value) => format!("for each name: {}", kind(field, value)),
        Kind::Record(inner) => members(inner),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Choice(names) => choice(names.iter().copied()),
        Kind::Integer(..) | Kind::String if !field.one_of.is_empty() => {
            choice(field.one_of.iter().map(shown).collect::<Vec<_>>().iter().map(String::as_str))
        }
        Kind::String => "string".to_owned(),
        Kind::Uuid => field.foreign.map_or("UUID".to_owned(), |kind| format!("one of the {kind}")),
        Kind::Number => match (field.gt, field.between) {
            (Some(bound), _) => format!("number above {bound}"),
            (None, Some((least, most))) => number(least.to_string(), most.to_string()),
            (None, None) => "number".to_owned(),
        },
        Kind::Integer(least, most) => match field.between {
            Some((least, most)) => number(least.to_string(), most.to_string()),
            None if *most == i64::MAX => "number".to_owned(),
            None => number(least.to_string(), most.to_string()),
        },
        Kind::Any => "fields of the plugin".to_owned(),
    }
}

fn plural(kind: &str) -> String {
    let single = ["string", "UUID", "boolean"].contains(&kind) || kind.starts_with("list ");
    if single { format!("{kind}s") } else { kind.to_owned() }
}

fn members(record: &RecordSchema) -> String {
    let names: Vec<_> = record.fields.iter().map(|field| format!("`{}`", field.name)).collect();
    names.join(" and ")
}

fn choice<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A value as it is written in YAML.
fn shown(literal: &Literal) -> String {
    match literal {
        Literal::Bool(value) => value.to_string(),
        Literal::Int(value) => value.to_string(),
        Literal::Float(value) => value.to_string(),
        Literal::Str(text) => (*text).to_owned(),
        Literal::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Literal::Map(members) => {
            let member = |(name, value): &(&str, Literal)| format!("{name}: {}", shown(value));
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}
