//! Which vaults references may ask.

use super::Value;
use serde_json::Value as Json;
use weir_model::entity::{VAULTS, find_vault};

/// The kinds of vaults that are enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EnabledVaults(Vec<&'static str>);

impl EnabledVaults {
    /// Whether a kind is.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains(&name)
    }
}

impl Value for EnabledVaults {
    const KIND: &'static str = "list";
    /// As in Kong, `off` counts if it comes first.
    fn parse(text: &str) -> Result<Self, String> {
        let names = Vec::<String>::parse(text)?;
        if names.first().is_some_and(|first| first == "off") {
            return Ok(Self(Vec::new()));
        }
        let mut enabled = Vec::new();
        for name in &names {
            match find_vault(name) {
                Some(vault) => enabled.push(vault.name),
                None if name == "bundled" => enabled.extend(VAULTS.iter().map(|vault| vault.name)),
                None => {
                    let kinds: Vec<_> = VAULTS.iter().map(|vault| vault.name).collect();
                    return Err(format!("`{name}` is not one of bundled, off, {}", kinds.join(", ")));
                }
            }
        }
        Ok(Self(enabled))
    }
    fn shown(text: &str) -> Json {
        Vec::<String>::shown(text)
    }
}
