//! The message that brings a configuration.
use super::MessageError;
use crate::wire::compat::Rules;
use crate::wire::hash::{ConfigHash, Hashes};
use crate::wire::payload::ConfigTable;
use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::io::Read;
use weir_model::node::{Node, Value};
use weir_model::{Format, declarative};

/// A configuration that is sent.
pub struct Reconfigure<'r, 'd> {
    /// When, in seconds since 1970.
    pub timestamp: f64,
    /// What.
    pub table: &'r ConfigTable<'d>,
    /// Its hashes. They are the same for all versions of data planes.
    pub hashes: &'r Hashes,
}

#[derive(Serialize)]
struct Message<'r, T> {
    r#type: &'static str,
    timestamp: f64,
    config_table: T,
    config_hash: ConfigHash,
    hashes: &'r Hashes,
}

impl Reconfigure<'_, '_> {
    /// As a binary frame for data planes with these rules.
    ///
    /// # Errors
    /// If it cannot be compressed, which memory has no reason for.
    pub fn encode(&self, rules: &Rules) -> Result<Bytes, MessageError> {
        let message = Message {
            r#type: "reconfigure",
            timestamp: self.timestamp,
            config_table: self.table.for_version(rules),
            config_hash: self.hashes.config,
            hashes: self.hashes,
        };
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        serde_json::to_writer(&mut gzip, &message).map_err(|error| MessageError::json(&error))?;
        gzip.finish().map(Bytes::from).map_err(MessageError::Compression)
    }
}

/// Whether the other side takes a frame.
///
/// # Errors
/// If it is too long.
pub fn check_size(frame: &[u8], limit: usize) -> Result<(), MessageError> {
    let size = frame.len();
    if size > limit { Err(MessageError::TooLarge { size, limit }) } else { Ok(()) }
}

/// Decompresses a frame, to at most `limit` bytes.
///
/// # Errors
/// If it is longer, or not compressed with gzip, or no text.
pub fn inflate(frame: &[u8], limit: usize) -> Result<String, MessageError> {
    let mut text = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    GzDecoder::new(frame).take(most).read_to_end(&mut text).map_err(MessageError::Compression)?;
    if text.len() > limit {
        return Err(MessageError::Inflated { limit });
    }
    String::from_utf8(text).map_err(|error| {
        MessageError::Form(format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to()))
    })
}

/// A message from a control plane.
#[derive(Debug)]
pub enum Received<'t> {
    /// A configuration.
    Reconfigure {
        /// Its hash, as the control plane calls it.
        hash: ConfigHash,
        /// The configuration.
        table: Node<'t>,
    },
    /// Of another type, which is ignored.
    Other(String),
}

impl<'t> Received<'t> {
    /// Reads the text of a message.
    ///
    /// # Errors
    /// If it is not of this form.
    pub fn parse(text: &'t str) -> Result<Received<'t>, MessageError> {
        let root = declarative::parse(text, Format::Json).map_err(|errors| {
            MessageError::Form(errors.first().map_or_else(String::new, |error| error.to_string()))
        })?;
        let form = |what: &str| MessageError::Form(what.to_owned());
        match root.get("type").and_then(Node::as_str) {
            Some("reconfigure") => {}
            Some(other) => return Ok(Received::Other(other.to_owned())),
            None => return Err(form("it has no `type`")),
        }
        let hash = root.get("config_hash").and_then(Node::as_str);
        let hash = hash.and_then(|hash| ConfigHash::read(hash.as_bytes()));
        let hash = hash.ok_or_else(|| form("`config_hash` is not of 32 characters"))?;
        let Value::Map(members) = root.value else { return Err(form("it is no object")) };
        let table = members.into_iter().find(|member| member.key == "config_table");
        let table = table.map(|member| member.node).filter(|table| matches!(table.value, Value::Map(_)));
        Ok(Received::Reconfigure { hash, table: table.ok_or_else(|| form("`config_table` is no object"))? })
    }
}
