//! Pages of entities.
use super::collection::EntityPath;
use super::representation::Representation;
use super::request::ApiRequest;
use super::response::{ApiError, json_response};
use axum::http::StatusCode;
use axum::response::Response;
use form_urlencoded::Serializer;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::{Json, JsonMap};
use weir_model::{Entities, Uuid};

const USUAL_SIZE: usize = 100;
const LARGEST_SIZE: usize = 1000;

/// `GET` of a collection.
pub(super) async fn read(entity_path: EntityPath, call: ApiRequest) -> Result<Response, ApiError> {
    let page = Page::asked_for(entity_path, &call)?;
    let (data, next) = {
        let entities = call.control.registry().entities();
        match custom_id(entity_path, &call)? {
            Some(custom_id) => {
                let consumer = entities.by_value(EntityKind::Consumers, "custom_id", custom_id);
                (consumer.map(|consumer| Representation::of(consumer, &entities)).into_iter().collect(), None)
            }
            None => page.of(entity_path, &call.ids, &entities)?,
        }
    };
    let mut body = JsonMap::new();
    body.insert("data".to_owned(), data.iter().map(Representation::to_json).collect());
    body.insert("next".to_owned(), next.map_or(Json::Null, |next| page.next(&call, next).into()));
    if let Some(next) = next {
        body.insert("offset".to_owned(), offset(next).into());
    }
    Ok(json_response(StatusCode::OK, &Json::Object(body)))
}

/// `/consumers?custom_id=x` selects one.
fn custom_id(entity_path: EntityPath, call: &ApiRequest) -> Result<Option<&str>, ApiError> {
    match (entity_path, call.argument("custom_id")) {
        (EntityPath::Collection(EntityKind::Consumers), Some("")) => {
            Err(ApiError::UniqueValue("custom_id", "length must be at least 1"))
        }
        (EntityPath::Collection(EntityKind::Consumers), custom_id) => Ok(custom_id),
        _ => Ok(None),
    }
}

/// Which part of a list is asked for.
struct Page {
    size: usize,
    /// The last one of the page before.
    after: Option<Uuid>,
    tags: Tags,
}

impl Page {
    fn asked_for(entity_path: EntityPath, call: &ApiRequest) -> Result<Page, ApiError> {
        let after = call
            .argument("offset")
            .map(|offset| Uuid::try_parse(offset).map_err(|_| ApiError::Offset(offset.to_owned())));
        // Below a parent, Kong does not look at them.
        let tags = call.argument("tags").filter(|_| matches!(entity_path, EntityPath::Collection(_)));
        let tags = tags.map_or(Some(Tags::Any), Tags::read).ok_or(ApiError::Tags)?;
        Ok(Page { size: size(call.argument("size"))?, after: after.transpose()?, tags })
    }

    /// The entities of this page, and, where more follow, the last one.
    fn of(
        &self,
        entity_path: EntityPath,
        ids: &[String],
        entities: &Entities,
    ) -> Result<(Vec<Representation>, Option<Uuid>), ApiError> {
        let kind = entity_path.kind();
        let all: Box<dyn Iterator<Item = &Entity>> = match entity_path {
            EntityPath::Children(nesting) => {
                let id = ids.first().map(String::as_str).unwrap_or_default();
                let parent = nesting.parent(id, entities)?;
                Box::new(entities.referencing((nesting.parent, parent), kind, self.after))
            }
            EntityPath::Members(membership) => {
                let id = ids.first().map(String::as_str).unwrap_or_default();
                Box::new(membership.listed(membership.owner(id, entities)?, self.after, entities))
            }
            _ => Box::new(entities.after(kind, self.after)),
        };
        let mut wanted = all.filter(|entity| self.tags.select(entity.tags()));
        let page: Vec<&Entity> = wanted.by_ref().take(self.size).collect();
        let next = page.last().filter(|_| wanted.next().is_some()).map(|entity| entity.id());
        Ok((page.into_iter().map(|entity| Representation::of(entity, entities)).collect(), next))
    }

    /// The path of the page that follows.
    fn next(&self, call: &ApiRequest, last: Uuid) -> String {
        let mut query = Serializer::new(String::new());
        query.append_pair("offset", &offset(last));
        for name in ["tags", "size"] {
            if let Some(value) = call.argument(name) {
                query.append_pair(name, value);
            }
        }
        format!("{}?{}", call.path.trim_end_matches('/'), query.finish())
    }
}

fn offset(last: Uuid) -> String {
    last.simple().to_string()
}

fn size(written: Option<&str>) -> Result<usize, ApiError> {
    let Some(written) = written else { return Ok(USUAL_SIZE) };
    let size: f64 = written.parse().map_err(|_| ApiError::Size("size must be a number"))?;
    if size.fract() == 0.0 && (1.0..=LARGEST_SIZE as f64).contains(&size) {
        Ok(size as usize)
    } else {
        Err(ApiError::Size("size must be an integer between 1 and 1000"))
    }
}

/// Which tags entities must have.
#[derive(Debug, PartialEq, Eq)]
enum Tags {
    Any,
    /// All of these.
    All(Vec<String>),
    /// One of these.
    OneOf(Vec<String>),
}

impl Tags {
    /// `a,b` is all of them, `a/b` one of them.
    fn read(written: &str) -> Option<Tags> {
        let split = |separator| {
            let tags: Vec<String> = written.split(separator).map(str::to_owned).collect();
            tags.iter().all(|tag| !tag.is_empty() && !tag.chars().any(char::is_control)).then_some(tags)
        };
        match (written.contains(','), written.contains('/')) {
            (true, true) => None,
            (false, true) => split('/').map(Tags::OneOf),
            _ => split(',').map(Tags::All),
        }
    }

    fn select(&self, tags: &[String]) -> bool {
        match self {
            Tags::Any => true,
            Tags::All(all) => all.iter().all(|tag| tags.contains(tag)),
            Tags::OneOf(any) => any.iter().any(|tag| tags.contains(tag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_joined_by_one_kind_of_separator() {
        let list = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
        assert_eq!(Tags::read("a"), Some(Tags::All(list(&["a"]))));
        assert_eq!(Tags::read("a,b c"), Some(Tags::All(list(&["a", "b c"]))));
        assert_eq!(Tags::read("a/b"), Some(Tags::OneOf(list(&["a", "b"]))));
        for wrong in ["", "a,b/c", ",a", "a//b", "a\u{1}"] {
            assert_eq!(Tags::read(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_page_has_between_one_and_a_thousand() {
        assert_eq!(size(None).ok(), Some(100));
        assert_eq!(size(Some("1000")).ok(), Some(1000));
        for wrong in ["0", "1001", "-1", "1.5", "x", "", "NaN"] {
            assert!(size(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
