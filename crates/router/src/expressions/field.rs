//! The fields that expressions match on, and their types.
use super::Layer;
use crate::entry::header_name;

/// The fields that have a name of their own, for hints.
pub(super) const FIELDS: &[&str] = &[
    "net.protocol",
    "net.src.ip",
    "net.src.port",
    "net.dst.ip",
    "net.dst.port",
    "tls.sni",
    "http.method",
    "http.host",
    "http.path",
    "http.path.segments.len",
];

/// The beginnings of the other fields, behind which a dot and a name follow.
pub(super) const FAMILIES: &[&str] = &["http.headers", "http.queries"];

/// The type of a field's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldType {
    Text,
    Integer,
    Address,
}

/// A part of a request or of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Protocol,
    Sni,
    Method,
    Host,
    Path,
    /// The segments of the path from the first of these positions to the last, counted from 0.
    Segments(u32, u32),
    SegmentCount,
    /// The header of this name, in lower case and with dashes.
    Header(Box<str>),
    /// The argument of the query of this name.
    Query(Box<str>),
    SourceAddress,
    SourcePort,
    DestinationAddress,
    DestinationPort,
}

/// Why there is no such field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoField {
    Unknown,
    /// What follows `http.path.segments.` is no position.
    Segments,
}

impl Field {
    /// The field of this name.
    pub(super) fn named(name: &str, layer: Layer) -> Result<Field, NoField> {
        let field = match name {
            "net.protocol" => Field::Protocol,
            "tls.sni" => Field::Sni,
            "net.src.ip" => Field::SourceAddress,
            "net.src.port" => Field::SourcePort,
            "net.dst.ip" => Field::DestinationAddress,
            "net.dst.port" => Field::DestinationPort,
            _ if layer == Layer::Stream => return Err(NoField::Unknown),
            "http.method" => Field::Method,
            "http.host" => Field::Host,
            "http.path" => Field::Path,
            "http.path.segments.len" => Field::SegmentCount,
            _ => return Field::of_family(name),
        };
        Ok(field)
    }

    /// A field whose name ends in one of the user's.
    fn of_family(name: &str) -> Result<Field, NoField> {
        let (family, own) = name.rsplit_once('.').ok_or(NoField::Unknown)?;
        match family {
            "http.headers" => Ok(Field::Header(header_name(own).into())),
            "http.queries" => Ok(Field::Query(own.into())),
            "http.path.segments" => segments(own).ok_or(NoField::Segments),
            _ => Err(NoField::Unknown),
        }
    }

    pub(super) fn kind(&self) -> FieldType {
        match self {
            Field::SegmentCount | Field::SourcePort | Field::DestinationPort => FieldType::Integer,
            Field::SourceAddress | Field::DestinationAddress => FieldType::Address,
            _ => FieldType::Text,
        }
    }
}

/// `0`, or `0_2`: the second position is the greater one.
fn segments(text: &str) -> Option<Field> {
    let position = |text: &str| {
        let canonical =
            text == "0" || !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        (canonical && !text.is_empty()).then(|| text.parse().unwrap_or(u32::MAX))
    };
    let Some((first, last)) = text.split_once('_') else {
        let only = position(text)?;
        return Some(Field::Segments(only, only));
    };
    let (first, last) = (position(first)?, position(last)?);
    (first < last).then_some(Field::Segments(first, last))
}
