//! Warnings for the client of a write: fields without effect, and lints.
use crate::configuration::{MAX_LISTED_FIELDS, and_more};
use crate::registry::{CommittedWrite, Registry};
use axum::http::HeaderValue;
use axum::response::Response;
use weir_model::check::{entity_warnings, relation_warnings_of_change};
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Document, Entities, PluginSchema, Uuid, unknown_vaults};

/// The header that carries the warnings.
pub(crate) const WARNING: &str = "x-weir-warning";

/// The longest value, because some clients reject long heads.
const MAX_HEADER_LEN: usize = 1024;

/// Of how many entities those that do not fit together are looked for: each write goes through all of them.
const MAX_COMPARED: usize = 2_000;

/// The warnings about what a write has put: fields without effect, and lints. That an upstream is used by no service is
/// left out, because it is written before the service. `lost_targets` are upstreams of which targets were deleted.
pub(crate) fn of(
    written: &CommittedWrite,
    lost_targets: &[Uuid],
    registry: &Registry,
    plugins: &[PluginSchema],
) -> Vec<String> {
    let mut document = Document::default();
    written.entities().cloned().for_each(|entity| document.push(entity));
    if document.is_empty() && lost_targets.is_empty() {
        return Vec::new();
    }
    let (mut warnings, more) = document.ignored_fields(plugins, MAX_LISTED_FIELDS);
    warnings.extend(and_more(more, "`weir check` lists all those of a file"));
    let (prefixes, all) = {
        let entities = registry.entities();
        (prefixes(&entities), (entities.len() <= MAX_COMPARED).then(|| entities.document()))
    };
    let prefixes: Vec<_> = prefixes.iter().map(String::as_str).collect();
    warnings.extend(
        entity_warnings(&document, plugins)
            .into_iter()
            .chain(unknown_vaults(&document, &prefixes, plugins))
            .map(|lint| document.line(&lint)),
    );
    let put = document.entities().map(|entity| (entity.kind(), entity.id())).collect();
    warnings
        .extend(all.iter().flat_map(|all| relation_warnings_of_change(all, (&put, lost_targets), plugins)));
    warnings
}

/// The prefixes of the vault entities.
fn prefixes(all: &Entities) -> Vec<String> {
    let vaults = all.after(EntityKind::Vaults, None).filter_map(|entity| match entity {
        Entity::Vaults(vault) => Some(vault.prefix.clone()),
        _ => None,
    });
    vaults.collect()
}

/// Adds the warnings to a response, if there are any.
pub(crate) fn warned(mut answer: Response, warnings: &[String]) -> Response {
    if let Some(warning) = header(warnings) {
        answer.headers_mut().insert(WARNING, warning);
    }
    answer
}

/// In ASCII: the first warning, shortened if it is long, and as many of the others as fit.
pub(crate) fn header(warnings: &[String]) -> Option<HeaderValue> {
    let shown = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let mut text = String::new();
    for (index, warning) in warnings.iter().enumerate() {
        let warning: String = warning.chars().map(shown).collect();
        if index == 0 {
            let is_long = warning.len() > MAX_HEADER_LEN;
            text = if is_long { format!("{}...", &warning[..MAX_HEADER_LEN]) } else { warning };
        } else if text.len() + "; ".len() + warning.len() > MAX_HEADER_LEN {
            text.push_str(&format!("; and {} more", warnings.len() - index));
            break;
        } else {
            text.push_str("; ");
            text.push_str(&warning);
        }
    }
    if text.is_empty() { None } else { HeaderValue::try_from(text).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_warning_fits_into_a_header() {
        let header =
            |warnings: &[&str]| header(&warnings.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(header(&[]), None);
        assert_eq!(header(&["not yet: a", "b"]).unwrap(), "not yet: a; b");
        assert_eq!(header(&["config.ü\r\nx"]).unwrap(), "config.???x");
        assert_eq!(header(&[&"é".repeat(5000)]).unwrap().len(), MAX_HEADER_LEN + 3);
        let long = "x".repeat(MAX_HEADER_LEN - 10);
        assert_eq!(
            header(&[&long, "12345678", "b", "c"]).unwrap(),
            format!("{long}; 12345678; and 2 more").as_str()
        );
    }
}
