//! Warnings for the client of a write: fields without effect, and lints.
use crate::configuration::{MAX_LISTED_FIELDS, and_more};
use axum::http::HeaderValue;
use axum::response::Response;
use weir_model::check::entity_warnings;
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Document, Entities, PluginSchema, unknown_vaults};

/// The header that carries the warnings.
pub(crate) const WARNING: &str = "x-weir-warning";

/// The longest value, because some clients reject long heads.
const MAX_HEADER_LEN: usize = 1024;

/// The warnings about these entities, which are among all: fields without effect, and lints.
pub(crate) fn of<'e>(
    entities: impl Iterator<Item = &'e Entity>,
    all: &Entities,
    plugins: &[PluginSchema],
) -> Vec<String> {
    let mut document = Document::default();
    entities.cloned().for_each(|entity| document.push(entity));
    let (mut warnings, more) = document.ignored_fields(plugins, MAX_LISTED_FIELDS);
    warnings.extend(and_more(more, "`weir check` lists all those of a file"));
    warnings.extend(
        entity_warnings(&document, plugins)
            .into_iter()
            .chain(unknown_vaults(&document, &prefixes(all), plugins))
            .map(|lint| format!("{}[].{}: {}", lint.entity.0.as_str(), lint.path, lint.message)),
    );
    warnings
}

/// The prefixes of the vault entities.
fn prefixes(all: &Entities) -> Vec<&str> {
    let vaults = all.after(EntityKind::Vaults, None).filter_map(|entity| match entity {
        Entity::Vaults(vault) => Some(vault.prefix.as_str()),
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
