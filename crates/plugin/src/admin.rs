//! Routes that plugins add to the Admin API.

use super::retained::Retained;
use std::future::Future;
use std::pin::Pin;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::{Json, JsonMap};
use weir_model::{Entities, Uuid};

/// A route of the Admin API. The node's `/endpoints` and `/openapi.json` list it.
pub struct AdminRoute {
    /// The method.
    pub method: AdminMethod,
    /// Its path, with parameters in braces: `/name-of-the-plugin/{key}`. `{*rest}` at its end is the rest of a path, whose
    /// parameter is called `rest`. It must begin with the name of the plugin.
    pub path: &'static str,
    /// Its operation id in OpenAPI, which must be unique.
    pub operation: &'static str,
    /// Its summary in OpenAPI.
    pub summary: &'static str,
    /// Serves a request.
    pub handle: AdminHandler,
}

impl AdminRoute {
    /// One whose responses come later.
    pub const fn later(
        method: AdminMethod,
        path: &'static str,
        operation: &'static str,
        summary: &'static str,
        handle: fn(&AdminRequest<'_>) -> PendingResponse,
    ) -> Self {
        Self { method, path, operation, summary, handle: AdminHandler::Later(handle) }
    }
}

/// A response that is still to come.
pub type PendingResponse = Pin<Box<dyn Future<Output = AdminResponse> + Send>>;

/// What serves a request.
#[derive(Clone, Copy)]
pub enum AdminHandler {
    /// Responds at once. It must not wait, because the API serves no other request meanwhile.
    Now(fn(&AdminRequest<'_>) -> AdminResponse),
    /// Takes what it needs out of the request, and responds later, such as when a database has answered.
    Later(fn(&AdminRequest<'_>) -> PendingResponse),
}

/// The HTTP methods of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminMethod {
    /// For something.
    Get,
    /// To make or do something.
    Post,
    /// To replace something.
    Put,
    /// To change something.
    Patch,
    /// To remove something.
    Delete,
}

impl AdminMethod {
    /// `get`, as OpenAPI writes it.
    pub fn name(self) -> &'static str {
        match self {
            AdminMethod::Get => "get",
            AdminMethod::Post => "post",
            AdminMethod::Put => "put",
            AdminMethod::Patch => "patch",
            AdminMethod::Delete => "delete",
        }
    }
}

/// Names and values.
type Pairs<'a> = &'a [(String, String)];

/// A request to a plugin's route. The client has been let in by the Admin API.
pub struct AdminRequest<'a> {
    /// What outlives configurations.
    pub retained: &'a Retained,
    /// The members of its body, where it has one.
    pub body: &'a JsonMap,
    entities: &'a Entities,
    /// The parameters of the path, by name.
    parameters: Pairs<'a>,
    query: Pairs<'a>,
}

impl<'a> AdminRequest<'a> {
    /// For the gateway, or a test, that has a request.
    pub fn new(
        (retained, entities): (&'a Retained, &'a Entities),
        (parameters, query): (Pairs<'a>, Pairs<'a>),
        body: &'a JsonMap,
    ) -> Self {
        Self { retained, body, entities, parameters, query }
    }

    /// A parameter of the path; empty, where the path has none of this name.
    pub fn parameter(&self, name: &str) -> &'a str {
        value(self.parameters, name).unwrap_or_default()
    }

    /// An argument of the query.
    pub fn argument(&self, name: &str) -> Option<&'a str> {
        value(self.query, name)
    }

    /// The names of the arguments of the query.
    pub fn arguments(&self) -> impl Iterator<Item = &'a str> {
        self.query.iter().map(|(name, _)| name.as_str())
    }

    /// Whether there is an entity of this kind and id.
    pub fn has(&self, kind: EntityKind, id: Uuid) -> bool {
        self.entities.get(kind, id).is_some()
    }

    /// Whether a plugin entity configures the plugin of this name.
    pub fn has_plugin(&self, name: &str) -> bool {
        let named = |entity: &Entity| matches!(entity, Entity::Plugins(plugin) if plugin.name == name && plugin.enabled);
        self.entities.after(EntityKind::Plugins, None).any(named)
    }

    /// The id of the plugin entity of this id or instance name, where it configures the plugin of this name.
    pub fn plugin(&self, name: &str, id_or_instance_name: &str) -> Option<Uuid> {
        match self.entities.find(EntityKind::Plugins, id_or_instance_name)? {
            Entity::Plugins(plugin) if plugin.name == name => Some(plugin.id),
            _ => None,
        }
    }
}

fn value<'a>(pairs: Pairs<'a>, name: &str) -> Option<&'a str> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// What the client of the Admin API gets.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminResponse {
    /// The status.
    pub status: u16,
    /// The body. A 404 without one says `Not found`.
    pub body: Option<Json>,
}

impl AdminResponse {
    /// JSON.
    pub fn json(status: u16, body: Json) -> Self {
        Self { status, body: Some(body) }
    }

    /// `{"message":"…"}`.
    pub fn message(status: u16, message: &str) -> Self {
        Self::json(status, serde_json::json!({ "message": message }))
    }

    /// 204: it is done, and there is nothing to say.
    pub fn no_content() -> Self {
        Self { status: 204, body: None }
    }

    /// 404.
    pub fn not_found() -> Self {
        Self::message(404, "Not found")
    }
}

/// The routes, if the path of each begins with the plugin's name, which `/` or `_` may follow: then no plugin takes a path that is another's, or the
/// gateway's own.
pub(crate) const fn checked(routes: &'static [AdminRoute], name: &str) -> &'static [AdminRoute] {
    let mut at = 0;
    while at < routes.len() {
        assert!(
            begins_with(routes[at].path, name),
            "the path of an Admin API route begins with `/` and the plugin's name"
        );
        at += 1;
    }
    routes
}

const fn begins_with(path: &str, name: &str) -> bool {
    let (path, name) = (path.as_bytes(), name.as_bytes());
    if path.len() <= name.len() || path[0] != b'/' {
        return false;
    }
    let mut at = 0;
    while at < name.len() {
        if path[at + 1] != name[at] {
            return false;
        }
        at += 1;
    }
    path.len() == name.len() + 1 || matches!(path[name.len() + 1], b'/' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_with_the_name_of_their_plugin() {
        for path in ["/a-b", "/a-b/", "/a-b/{key}", "/a-b_c/{key}"] {
            assert!(begins_with(path, "a-b"), "{path}");
        }
        for path in ["", "/", "a-b", "/a-", "/a-bc", "/routes/a-b"] {
            assert!(!begins_with(path, "a-b"), "{path}");
        }
    }

    #[test]
    fn a_request_has_parameters_and_arguments() {
        let (retained, entities, body) = (Retained::default(), Entities::default(), JsonMap::new());
        let pairs = |name: &str| [(name.to_owned(), "1".to_owned())];
        let (parameters, query) = (pairs("key"), pairs("all"));
        let request = AdminRequest::new((&retained, &entities), (&parameters, &query), &body);
        assert_eq!((request.parameter("key"), request.parameter("all")), ("1", ""));
        assert_eq!((request.argument("all"), request.argument("key")), (Some("1"), None));
        assert_eq!(request.plugin("acl", "1"), None);
    }
}
