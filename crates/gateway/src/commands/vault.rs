//! `weir vault`: secrets, as configurations that refer to them get them.
use super::Context;
use super::database::wait_for;
use crate::configuration::{self, Source, process_environment};
use crate::node::origin;
use crate::plugins::NodePlugins;
use crate::settings::{Settings, configure_vaults};
use crate::store;
use std::sync::Arc;
use weir_model::entity::{Entity, EntityKind, VAULTS, Vault, find_vault};
use weir_model::{Entities, SecretReference, is_reference};
use weir_plugin::Vaults;

/// What is said where no reference is given.
pub(crate) const NO_REFERENCE: &str =
    "Error: the 'get' command needs a <reference> argument\nweir vault get <reference>";

/// The secret of a reference, in a line.
pub(super) fn get(reference: &str, settings: &Settings, context: &Context) -> Result<String, String> {
    let failed = |reason: &str| format!("Error: {reason}");
    let reference = match is_reference(reference) {
        true => reference.to_owned(),
        false if reference.starts_with(['{', '"']) || reference.starts_with("vault:") => {
            return Err(failed("not a reference: write {vault://VAULT/NAME}"));
        }
        false => format!("{{vault://{reference}}}"),
    };
    let vault = SecretReference::parse(&reference).map_err(|reason| failed(&reason))?.vault;
    let entities = match find_vault(&vault) {
        Some(_) => Vec::new(),
        None => entities(settings, context).map_err(|reason| {
            let kinds: Vec<_> = VAULTS.iter().map(|kind| kind.name).collect();
            failed(&format!(
                "no vault `{vault}`: {}; for a vault entity give --config FILE or --prefix\n\
                 vault entities could not be read: {reason}",
                kinds.join(", ")
            ))
        })?,
    };
    let vaults = Vaults::default();
    configure_vaults(&vaults, settings);
    let secret = vaults.get(&reference, &entities).map_err(|error| failed(error.reason()))?;
    Ok(format!("{secret}\n"))
}

/// The vaults of the declarative file, or of the database.
fn entities(settings: &Settings, context: &Context) -> Result<Vec<Arc<Vault>>, String> {
    let NodePlugins { definitions, schemas: plugins, lua, .. } = context.plugins(settings)?;
    let stored = wait_for(async {
        let opened = store::open_to_read(settings, plugins.clone()).await;
        match opened.map_err(|error| error.to_string())? {
            Some(store) => store.load().await.map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        }
    })??;
    let Some(stored) = stored else {
        let (origin, environment) = (origin(settings), process_environment());
        let source = Source { origin, environment, definitions, plugins, lua };
        return configuration::read(&source)
            .map(|read| read.document.vaults)
            .map_err(|invalid| invalid.errors.join("\n"));
    };
    let entities = Entities::from_iter(stored.entities);
    let vaults = entities.after(EntityKind::Vaults, None).filter_map(|entity| match entity {
        Entity::Vaults(vault) => Some(vault.clone()),
        _ => None,
    });
    Ok(vaults.collect())
}
