//! The vault `env`: environment variables of the node.
use super::Vault;
use std::borrow::Cow;
use weir_model::SecretReference;

/// `redis-password` is `REDIS_PASSWORD`, after the option `prefix`.
pub(super) struct EnvVault;

impl Vault for EnvVault {
    fn get(&self, reference: &SecretReference) -> Result<String, Cow<'static, str>> {
        let name = variable(reference);
        std::env::var(&name).map_err(|_| Cow::Owned(format!("the environment has no {name}")))
    }
}

/// Version 2 is the secret before the current one.
pub(super) fn variable(reference: &SecretReference) -> String {
    let prefix = reference.option("prefix").unwrap_or_default();
    let previous = if reference.version == Some(2) { "_PREVIOUS" } else { "" };
    format!("{prefix}{}{previous}", reference.resource).replace('-', "_").to_ascii_uppercase()
}
