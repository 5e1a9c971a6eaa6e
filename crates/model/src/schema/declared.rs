//! Records that are declared while the program runs, as by plugins in Lua: read by their declarations alone, into JSON.
use super::reader::{Fields, Step, literal_node};
use super::{FieldError, FieldSchema, FieldType, Json, JsonMap, Kind, Reader, RecordContext, RecordSchema};
use super::{reader, type_hints};
use crate::node::{Node, Value};
use uuid::Uuid;

/// What a declaration says beside the rules of its fields: what is wrong with a record as a whole.
pub type RecordCheck = dyn Fn(&Json) -> Vec<FieldError> + Send + Sync;

/// Reads a record: every field present, null when unset.
pub(crate) fn read_declared(
    (schema, check): (&'static RecordSchema, &RecordCheck),
    node: &Node<'_>,
    around: &RecordContext<'_>,
    reader: &mut Reader<'_>,
) -> Option<Json> {
    if !matches!(node.value, Value::Map(_)) {
        let (got, hint) = (node.kind(), type_hints::record(node, schema, around));
        reader.report(node.at, format!("expected a mapping of fields, got {got}{hint}"));
        return None;
    }
    let fields = Fields::of(schema, node, around, reader);
    let record = reader.inside(schema, |reader| read_fields(&fields, reader))?;
    reader::report_violations(check(&record), node, reader);
    Some(record)
}

fn read_fields(fields: &Fields<'_, '_>, reader: &mut Reader<'_>) -> Option<Json> {
    let mut record = JsonMap::new();
    for (index, field) in fields.schema.fields.iter().enumerate() {
        let value = reader.within(Step::Field(field.name), |reader| read_field(fields, index, reader));
        record.extend(value.map(|value| (field.name.to_owned(), value)));
    }
    (record.len() == fields.schema.fields.len()).then_some(record.into())
}

fn read_field(fields: &Fields<'_, '_>, index: usize, reader: &mut Reader<'_>) -> Option<Json> {
    let field = &fields.schema.fields[index];
    let written = fields.written[index].map(|entry| &entry.node);
    if let Some((_, id)) = fields.given.iter().find(|(name, _)| *name == field.name) {
        return fields.given_value::<Uuid>(*id, written, field, reader).map(|id| id.to_json());
    }
    match written {
        Some(node) if node.value != Value::Null => read_value(&field.kind, node, field, reader),
        Some(_) if !field.required => Some(Json::Null),
        Some(node) if field.default.is_some() => {
            let name = field.name;
            reader.report(node.at, format!("required: set `{name}`, or leave it out for the default"));
            None
        }
        _ => unwritten(fields, field, reader),
    }
}

fn unwritten(fields: &Fields<'_, '_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Json> {
    if let Some(default) = &field.default {
        return read_value(&field.kind, &literal_node(default, fields.at), field, reader);
    }
    let generated = match field.kind {
        Kind::Uuid if field.auto => <Uuid as FieldType>::generate().map(|id| id.to_json()),
        Kind::String if field.auto && field.uuid => <Uuid as FieldType>::generate().map(|id| id.to_json()),
        Kind::String if field.auto => <String as FieldType>::generate().map(Json::from),
        _ => None,
    };
    match field.kind {
        _ if generated.is_some() => generated,
        _ if !field.required => Some(Json::Null),
        Kind::Record(_) => {
            read_value(&field.kind, &Node::new(Value::Map(Vec::new()), fields.at), field, reader)
        }
        _ => {
            reader.report(fields.at, format!("required: set `{}`", field.name));
            None
        }
    }
}

fn read_value(kind: &Kind, node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Json> {
    match kind {
        Kind::Boolean => bool::read(node, field, reader).map(Json::from),
        Kind::Integer(low, high) => {
            let between = field.between.or(Some((*low as f64, *high as f64)));
            i64::read(node, &FieldSchema { between, ..*field }, reader).map(Json::from)
        }
        Kind::Number => f64::read(node, field, reader).map(|number| number.to_json()),
        Kind::String | Kind::Choice(_) => String::read(node, field, reader).map(Json::from),
        Kind::Uuid => Uuid::read(node, field, reader).map(|id| id.to_json()),
        Kind::Array(element) => {
            let items = Vec::<Json>::read(node, &FieldSchema { ..*field }, reader)?;
            let (count, rules) = (items.len(), field.element());
            let items = node.elements().iter().enumerate().filter_map(|(index, item)| {
                reader.within(Step::Index(index), |reader| read_value(element, item, &rules, reader))
            });
            let items: Vec<Json> = items.collect();
            (items.len() == count).then_some(items.into())
        }
        Kind::Map(inner) => {
            std::collections::BTreeMap::<String, Json>::read(node, field, reader)?;
            let rules = field.element();
            let members = node.entries().iter().filter_map(|entry| {
                let key = entry.key.to_string();
                let step = Step::Key(key.clone());
                let value = reader.within(step, |reader| read_value(inner, &entry.node, &rules, reader))?;
                Some((key, value))
            });
            let members: JsonMap = members.collect();
            (members.len() == node.entries().len()).then_some(members.into())
        }
        Kind::Record(schema) => read_declared((schema, &|_| Vec::new()), node, &RecordContext::NONE, reader),
        Kind::Any => Some(node.to_json()),
    }
}
