//! What is accepted without effect, or is probably a mistake, told to whoever wrote it.
use axum::http::HeaderValue;
use axum::response::Response;
use weir_model::check::doubtful_alone;
use weir_model::entity::Entity;
use weir_model::schema::Choice;
use weir_model::{Document, PluginSchema};

/// The header that tells it.
pub(crate) const WARNING: &str = "x-weir-warning";

/// Some clients refuse heads that are long.
const LONGEST: usize = 1024;

/// What of these entities has no effect, and what is doubtful.
pub(crate) fn of<'e>(entities: impl Iterator<Item = &'e Entity>, plugins: &[PluginSchema]) -> Option<String> {
    let mut document = Document::default();
    entities.cloned().for_each(|entity| document.push(entity));
    let not_in_force = crate::configuration::not_in_force(&document.not_in_force(plugins));
    let doubts = doubtful_alone(&document, plugins).into_iter();
    let doubts =
        doubts.map(|doubt| format!("{}[].{}: {}", doubt.entity.0.as_str(), doubt.path, doubt.message));
    let warnings: Vec<String> = not_in_force.into_iter().chain(doubts).collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
}

/// The answer with the warning, if there is one.
pub(crate) fn warned(mut answer: Response, warning: Option<&str>) -> Response {
    if let Some(warning) = warning.and_then(header) {
        answer.headers_mut().insert(WARNING, warning);
    }
    answer
}

/// In ASCII, and shortened where it is long.
pub(crate) fn header(warning: &str) -> Option<HeaderValue> {
    let shown = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let mut text: String = warning.chars().take(LONGEST).map(shown).collect();
    if warning.chars().count() > LONGEST {
        text.push_str("...");
    }
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_warning_fits_into_a_header() {
        assert_eq!(header("not yet: a, b").unwrap(), "not yet: a, b");
        assert_eq!(header("config.ü\r\nx").unwrap(), "config.???x");
        assert_eq!(header(&"é".repeat(5000)).unwrap().len(), LONGEST + 3);
    }
}
