//! Conditions that a client puts on a request: `If-Match` and `If-None-Match`.
use super::representation::Representation;
use super::response::ApiError;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use weir_model::Entities;
use weir_model::entity::Entity;

/// Which versions of an entity a client knows.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

#[derive(Debug)]
enum Tags {
    /// Any entity at all.
    Any,
    These(Vec<String>),
}

impl Conditions {
    /// The conditions of a request.
    pub(super) fn of(headers: &HeaderMap) -> Conditions {
        let tags = |name: HeaderName| headers.contains_key(&name).then(|| Tags::of(headers, &name));
        Conditions { if_match: tags(header::IF_MATCH), if_none_match: tags(header::IF_NONE_MATCH) }
    }

    /// Whether the conditions allow a write of an entity, which may not exist yet.
    pub(super) fn allow(&self, entity: Option<&Entity>, entities: &Entities) -> Result<(), ApiError> {
        if self.if_match.is_none() && self.if_none_match.is_none() {
            return Ok(());
        }
        let tag = entity.map(|entity| Representation::of(entity, entities).etag());
        let known = |tags: &Tags| tag.as_deref().is_some_and(|tag| tags.have(tag));
        let goes_ahead =
            self.if_match.as_ref().is_none_or(known) && !self.if_none_match.as_ref().is_some_and(known);
        if goes_ahead { Ok(()) } else { Err(ApiError::Precondition) }
    }

    /// Whether the client already has the current version.
    pub(super) fn is_known(&self, tag: &str) -> bool {
        self.if_none_match.as_ref().is_some_and(|tags| tags.have(tag))
    }
}

impl Tags {
    /// The tags of all headers of this name; a header that cannot be read matches nothing.
    fn of(headers: &HeaderMap, name: &HeaderName) -> Tags {
        let read = |value: &HeaderValue| value.to_str().ok().map(Tags::read);
        headers.get_all(name).iter().filter_map(read).fold(Tags::These(Vec::new()), Tags::or)
    }

    fn or(self, other: Tags) -> Tags {
        match (self, other) {
            (Tags::These(some), Tags::These(more)) => Tags::These(some.into_iter().chain(more).collect()),
            _ => Tags::Any,
        }
    }

    fn read(written: &str) -> Tags {
        if written.trim() == "*" {
            return Tags::Any;
        }
        // A proxy that compresses responses weakens tags.
        let tags = written.split(',').map(|tag| tag.trim().trim_start_matches("W/").to_owned());
        Tags::These(tags.collect())
    }

    fn have(&self, tag: &str) -> bool {
        match self {
            Tags::Any => true,
            Tags::These(tags) => tags.iter().any(|known| known == tag),
        }
    }
}
