//! The operations on entities: the same for every kind, at every place where they are found.
use super::{answer, name_of, operation, path_parameters, response_ref, schema_ref};
use crate::admin::collection::{EntityPath, Membership, entity_paths};
use crate::admin::node::endpoints::kongs;
use crate::admin::representation::EXPRESSION_FIELDS;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_model::PluginSchema;
use weir_model::entity::EntityKind;
use weir_model::schema::{Direction, JsonMap};

/// An entity of a kind: its declared fields, and members that are written with them.
pub(super) fn schema(kind: EntityKind, side: Direction) -> Value {
    let mut schema = kind.schema().to_json_schema(side);
    match kind {
        EntityKind::Services if side == Direction::Request => {
            schema["properties"]["url"] =
                json!({ "type": "string", "description": "Protocol, host, port and path at once." });
            // A URL names the host as well.
            schema["required"] = json!([]);
        }
        EntityKind::Certificates => {
            schema["properties"]["snis"] = json!({
                "type": "array", "items": { "type": "string" }, "description": "The server names it is presented for.",
            });
        }
        // They are shown with `router_flavor = expressions` alone.
        EntityKind::Routes if side == Direction::Response => {
            let is_always = |name: &Value| !EXPRESSION_FIELDS.iter().any(|field| name == field);
            schema["required"].as_array_mut().into_iter().for_each(|required| required.retain(is_always));
        }
        _ => {}
    }
    schema
}

/// Every path of entities.
pub(super) fn paths(plugins: &[PluginSchema]) -> JsonMap {
    let mut paths = BTreeMap::new();
    for (path, entity_path) in entity_paths(plugins) {
        let path = kongs(&path, entity_path);
        let described = describe(&path, entity_path);
        paths.insert(path, described);
    }
    paths.into_iter().collect()
}

fn describe(path: &str, entity_path: EntityPath) -> Value {
    let on = Operations { path, kind: entity_path.kind() };
    let mut described = json!({ "parameters": path_parameters(path) });
    if let EntityPath::Members(membership) = entity_path {
        described["get"] = on.list();
        described["post"] = on.add(membership);
        described["delete"] = on.remove("all", "Remove all");
        return described;
    }
    if let EntityPath::Member(_) = entity_path {
        described["get"] = on.get();
        described["delete"] = on.remove("one", "Remove one");
        return described;
    }
    if entity_path.is_collection() {
        described["get"] = on.list();
        described["post"] = on.write("post", "Create", "201");
        return described;
    }
    described["get"] = match entity_path {
        EntityPath::Entity(EntityKind::ConsumerGroups) => on.get_group(),
        _ => on.get(),
    };
    described["put"] = on.write("put", "Create or replace", "200");
    described["patch"] = on.write("patch", "Change fields of", "200");
    if !matches!(entity_path, EntityPath::Named(_)) {
        described["delete"] = on.delete();
    }
    described
}

/// The operations on one path.
struct Operations<'p> {
    path: &'p str,
    kind: EntityKind,
}

impl Operations<'_> {
    fn operation(&self, verb: &str, summary: &str, responses: Value) -> Value {
        let name: Vec<_> = self
            .path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(|part| part.trim_matches(['{', '}']))
            .collect();
        let single = if self.path.ends_with('}') { "one-" } else { "" };
        operation(&format!("{verb}-{single}{}", name.join("-")), summary, responses)
    }

    fn entity(&self, side: Direction) -> Value {
        schema_ref(&name_of(self.kind, side))
    }

    fn list(&self) -> Value {
        let page = json!({
            "type": "object",
            "properties": {
                "data": { "type": "array", "items": self.entity(Direction::Response) },
                "offset": { "type": ["string", "null"] },
                "next": { "type": ["string", "null"] },
            },
            "required": ["data", "next"],
        });
        let responses = json!({
            "200": answer("A page of them", page),
            "400": response_ref("Invalid"),
            "404": response_ref("NotFound"),
        });
        let mut list = self.operation("list", &format!("List {}", self.kind.as_str()), responses);
        list["parameters"] = parameters(&["size", "offset", "tags"]);
        list
    }

    /// A group comes with its consumers.
    fn get_group(&self) -> Value {
        let consumers = schema_ref(&name_of(EntityKind::Consumers, Direction::Response));
        let group = json!({ "type": "object", "properties": {
            "consumer_group": self.entity(Direction::Response),
            "consumers": { "type": "array", "items": consumers },
        }, "required": ["consumer_group"] });
        let mut get = self.get();
        get["responses"]["200"] = answer("The group and its consumers", group);
        get["parameters"] = json!([{
            "name": "list_consumers", "in": "query", "schema": { "type": "boolean", "default": true },
            "description": "Whether its consumers are listed.",
        }]);
        get
    }

    fn get(&self) -> Value {
        let responses = json!({
            "200": answer("The entity", self.entity(Direction::Response)),
            "304": { "description": "The entity is the one that If-None-Match names" },
            "400": response_ref("Invalid"),
            "404": response_ref("NotFound"),
        });
        self.operation("get", &format!("Show one of the {}", self.kind.as_str()), responses)
    }

    /// Adds consumers to a group, or groups to a consumer.
    fn add(&self, membership: Membership) -> Value {
        let mut responses = refusals();
        let owner = membership.owner.as_str().trim_end_matches('s');
        let added = json!({ "type": "object", "properties": {
            owner: schema_ref(&name_of(membership.owner, Direction::Response)),
            membership.kind.as_str(): { "type": "array", "items": self.entity(Direction::Response) },
        } });
        responses["201"] = answer("Those that were added", added);
        let mut add = self.operation("post", &format!("Add {}", self.kind.as_str()), responses);
        add["parameters"] = parameters(&["wait"]);
        let named = json!({ "type": ["string", "array"], "items": { "type": "string" } });
        let schema = json!({ "type": "object", "properties": { membership.argument: named }, "required": [membership.argument] });
        add["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        add
    }

    fn remove(&self, which: &str, does: &str) -> Value {
        let mut responses = refusals();
        responses["204"] = json!({ "description": "They belong together no more" });
        let does = format!("{does} of the {}", self.kind.as_str());
        let mut remove = self.operation(&format!("remove-{which}"), &does, responses);
        remove["parameters"] = parameters(&["wait"]);
        remove
    }

    fn delete(&self) -> Value {
        let mut responses = refusals();
        responses["204"] = json!({ "description": "There is no such entity any more" });
        let mut delete =
            self.operation("delete", &format!("Delete one of the {}", self.kind.as_str()), responses);
        delete["parameters"] = parameters(&["wait", "if_match"]);
        delete
    }

    fn write(&self, verb: &str, does: &str, status: &str) -> Value {
        let mut responses = refusals();
        responses[status] = answer("The entity as it is now", self.entity(Direction::Response));
        let mut write = self.operation(verb, &format!("{does} one of the {}", self.kind.as_str()), responses);
        let names: &[_] = if verb == "post" { &["wait"] } else { &["wait", "if_match"] };
        write["parameters"] = parameters(names);
        let schema = match verb {
            // Members that are not sent stay as they are.
            "patch" => {
                json!({ "type": "object", "properties": schema(self.kind, Direction::Request)["properties"] })
            }
            _ => self.entity(Direction::Request),
        };
        write["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        write
    }
}

fn parameters(names: &[&str]) -> Value {
    names.iter().map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect()
}

/// The errors that a write may have.
fn refusals() -> Value {
    let refusals = [
        ("400", "Invalid"),
        ("404", "NotFound"),
        ("408", "TooSlow"),
        ("409", "Taken"),
        ("412", "Changed"),
        ("413", "TooLarge"),
        ("415", "MediaType"),
        ("500", "NotInForce"),
        ("503", "Unavailable"),
    ];
    refusals.into_iter().map(|(status, name)| (status.to_owned(), response_ref(name))).collect()
}
