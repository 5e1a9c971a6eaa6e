//! Vaults: where secrets are kept that other entities refer to.
mod configs;

pub use configs::{EnvConfig, FileConfig, HcvAuthMethod, HcvConfig, HcvProtocol, KvVersion};

use crate::node::{Node, Position, Value};
use crate::schema::{Json, Reader, Record, RecordContext, RecordSchema, json, quoted, read_record};
use uuid::Uuid;

/// A vault with a configuration of its own: `{vault://PREFIX/…}` asks it.
#[derive(Clone, PartialEq, Record)]
pub struct Vault {
    #[field(auto)]
    pub id: Uuid,
    /// The name by which references call it.
    #[field(unique, check = prefix)]
    pub prefix: String,
    /// The kind of vault: `env`, `file` or `hcv`.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// Validated against the schema of the kind, defaults filled in.
    #[field(nullable, default = {})]
    pub config: serde_json::Value,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
}

/// Leaves out the configuration, which may hold secrets.
impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vault({} {})", self.prefix, self.id)
    }
}

/// Two characters at least, because it is a part of a URL.
fn prefix(text: &str) -> Result<(), String> {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = text.starts_with(|first: char| first.is_ascii_lowercase());
    if text.len() < 2 || !begins || text.ends_with('-') || !text.bytes().all(is_known) {
        return Err(format!(
            "invalid value: {}; write at least two of a-z, 0-9 and -, with a letter first and no - last",
            quoted(text)
        ));
    }
    match find_vault(text) {
        Some(_) => {
            let names = VAULTS.iter().map(|vault| vault.name).collect::<Vec<_>>().join(", ");
            Err(format!("must not be one of: {names}; these are the names of vaults without an entity"))
        }
        None => Ok(()),
    }
}

/// A kind of vault: its name, and the schema of its configuration.
#[derive(Debug)]
pub struct VaultSchema {
    /// What the `name` of an entity says.
    pub name: &'static str,
    /// The schema of its configuration.
    pub config: &'static RecordSchema,
    read: fn(&Node<'_>, &mut Reader<'_>) -> Option<Json>,
}

/// The kinds of vaults.
pub const VAULTS: &[VaultSchema] = &[
    VaultSchema::of::<EnvConfig>("env"),
    VaultSchema::of::<FileConfig>("file"),
    VaultSchema::of::<HcvConfig>("hcv"),
];

/// The kind of vault of this name.
pub fn find_vault(name: &str) -> Option<&'static VaultSchema> {
    VAULTS.iter().find(|vault| vault.name == name)
}

impl VaultSchema {
    const fn of<C: Record>(name: &'static str) -> Self {
        VaultSchema { name, config: C::SCHEMA, read: read::<C> }
    }

    /// Reads the `config` of a vault entity, or the defaults when there is none.
    pub(crate) fn read(
        &self,
        node: Option<&Node<'_>>,
        at: Position,
        reader: &mut Reader<'_>,
    ) -> Option<Json> {
        let empty = Node::new(Value::Map(Vec::new()), at);
        (self.read)(node.filter(|node| node.value != Value::Null).unwrap_or(&empty), reader)
    }

    /// What `/schemas/vaults/NAME` answers.
    pub fn to_json(&self) -> Json {
        let mut config = json::kind(&crate::schema::Kind::Record(self.config));
        config["required"] = true.into();
        serde_json::json!({ "fields": [{ "config": config }] })
    }
}

fn read<C: Record>(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Json> {
    read_record::<C>(node, &RecordContext::NONE, reader).map(|config| config.to_value())
}

/// The message for a vault that there is not.
pub(crate) fn no_such_vault(written: &str) -> String {
    let names = VAULTS.iter().map(|vault| vault.name).collect::<Vec<_>>().join(", ");
    format!("vault '{}' is not installed; there are: {names}", quoted(written))
}
