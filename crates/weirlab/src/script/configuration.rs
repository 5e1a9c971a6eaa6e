//! What a gateway is configured with: entities as a script inserts them, or a declarative file.
use super::ScriptError;
use crate::scenario::Document;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A gateway's configuration in Kong's declarative format.
///
/// ```
/// use serde_json::json;
/// use weirlab::script::Configuration;
///
/// let mut configuration = Configuration::new();
/// let service = configuration.insert("services", json!({ "url": "http://127.0.0.1:9000" }));
/// configuration.insert("routes", json!({ "paths": ["/orders"], "service": service }));
/// assert!(configuration.text().contains("\"service-1\""));
/// ```
#[derive(Clone, Debug)]
pub struct Configuration {
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Entities(Map<String, Value>),
    File(PathBuf, String),
}

impl Default for Configuration {
    fn default() -> Self {
        let version = ("_format_version".to_owned(), json!("3.0"));
        Configuration { content: Content::Entities(Map::from_iter([version])) }
    }
}

impl Configuration {
    /// One without entities.
    #[must_use]
    pub fn new() -> Configuration {
        Configuration::default()
    }

    /// A declarative file, in YAML or JSON. What it points to must be of this machine.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Configuration, ScriptError> {
        let path = path.as_ref();
        let text =
            std::fs::read_to_string(path).map_err(|error| ScriptError::File(path.to_owned(), error))?;
        Ok(Configuration { content: Content::File(path.to_owned(), text) })
    }

    /// Adds an entity to a collection, such as `routes`, and returns the name that others refer to it by. A service, a route
    /// or an upstream without a name gets one. After [`Configuration::from_file`] nothing can be added, and nothing is.
    pub fn insert(&mut self, collection: &str, mut entity: Value) -> String {
        let Content::Entities(entities) = &mut self.content else { return String::new() };
        let list = entities.entry(collection).or_insert_with(|| json!([]));
        let Value::Array(list) = list else { return String::new() };
        let key = if collection == "consumers" { "username" } else { "name" };
        let singular = collection.strip_suffix('s').unwrap_or(collection);
        if let (Value::Object(fields), "services" | "routes" | "upstreams") = (&mut entity, collection) {
            fields.entry(key).or_insert_with(|| json!(format!("{singular}-{}", list.len() + 1)));
        }
        let name = entity[key].as_str().unwrap_or_default().to_owned();
        list.push(entity);
        name
    }

    /// The declarative file.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.content {
            Content::Entities(entities) => format!("{:#}", Value::Object(entities.clone())),
            Content::File(_, text) => text.clone(),
        }
    }

    /// As targets' templates need it.
    pub(super) fn document(&self, upstreams: &[SocketAddr]) -> Result<Document, ScriptError> {
        let place = match &self.content {
            Content::Entities(_) => Path::new("the configuration"),
            Content::File(path, _) => path,
        };
        Document::read(place, self.text(), upstreams)
            .map_err(|error| ScriptError::Configuration(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_refer_to_each_other_by_name() {
        let mut configuration = Configuration::new();
        let service = configuration.insert("services", json!({ "url": "http://127.0.0.1:9000/test" }));
        let named =
            configuration.insert("routes", json!({ "name": "own", "paths": ["/a"], "service": service }));
        let consumer = configuration.insert("consumers", json!({ "username": "anna" }));
        assert_eq!((service.as_str(), named.as_str(), consumer.as_str()), ("service-1", "own", "anna"));
        let document = configuration.document(&[]).unwrap();
        assert_eq!((document.routes.len(), document.routes[0].service_path.as_str()), (1, "/test"));
    }

    #[test]
    fn a_stranger_is_no_upstream() {
        let mut configuration = Configuration::new();
        configuration.insert("services", json!({ "url": "http://192.0.2.1:80" }));
        let error = configuration.document(&[]).unwrap_err().to_string();
        assert!(error.contains("192.0.2.1:80 is not of the laboratory"), "{error}");
    }
}
