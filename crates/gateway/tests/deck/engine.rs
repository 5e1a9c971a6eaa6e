//! What decK computes and in which order it writes: dump, defaults, difference, levels.
use super::client::{Client, Types, undecodable};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

/// How many requests are under way at a time, within one level.
const PARALLEL: usize = 10;

/// One collection as decK knows it.
pub(crate) struct Collection {
    pub(crate) name: &'static str,
    /// Where it is listed; `{upstream}` stands for each upstream.
    list: &'static str,
    /// Where one entity is written.
    item: &'static str,
    level: usize,
}

const fn collection(name: &'static str, list: &'static str, item: &'static str, level: usize) -> Collection {
    Collection { name, list, item, level }
}

impl Collection {
    /// Where it is listed.
    pub(crate) fn list_path(&self) -> &'static str {
        self.list
    }
}

/// In order of level: what others refer to comes first.
pub(crate) const COLLECTIONS: &[Collection] = &[
    collection("certificates", "/certificates", "/certificates/{id}", 0),
    collection("ca_certificates", "/ca_certificates", "/ca_certificates/{id}", 0),
    collection("consumers", "/consumers", "/consumers/{id}", 0),
    collection("snis", "/snis", "/snis/{id}", 1),
    collection("services", "/services", "/services/{id}", 1),
    collection("upstreams", "/upstreams", "/upstreams/{id}", 1),
    collection("consumer_groups", "/consumer_groups", "/consumer_groups/{id}", 1),
    collection("keyauth_credentials", "/key-auths", "/consumers/{consumer}/key-auth/{id}", 1),
    collection("basicauth_credentials", "/basic-auths", "/consumers/{consumer}/basic-auth/{id}", 1),
    collection("hmacauth_credentials", "/hmac-auths", "/consumers/{consumer}/hmac-auth/{id}", 1),
    collection("oauth2_credentials", "/oauth2", "/consumers/{consumer}/oauth2/{id}", 1),
    collection("jwt_secrets", "/jwts", "/consumers/{consumer}/jwt/{id}", 1),
    collection("acls", "/acls", "/consumers/{consumer}/acls/{id}", 1),
    collection("routes", "/routes", "/routes/{id}", 2),
    collection("targets", "/upstreams/{upstream}/targets", "/upstreams/{upstream}/targets/{id}", 2),
    collection(MEMBERS, "/consumer_groups/{group}", "/consumer_groups/{consumer_group}/consumers", 2),
    collection("vaults", "/vaults", "/vaults/{id}", 0),
    collection("key_sets", "/key-sets", "/key-sets/{id}", 0),
    collection("keys", "/keys", "/keys/{id}", 1),
    collection("plugins", "/plugins", "/plugins/{id}", 3),
];
const LEVELS: usize = 4;

/// Who is in which group: told with each group, and written without ids.
const MEMBERS: &str = "consumer_group_consumers";

/// Whose defaults decK fills in before it compares.
const DEFAULTED: [&str; 4] = ["services", "routes", "upstreams", "targets"];

/// What decK does not compare: times, and what the gateway computes.
const IGNORED: [&str; 3] = ["created_at", "updated_at", "cert_digest"];
/// What it leaves out of one collection: server names are entities of their own, of a password it only ever gets the
/// hash, and of a `ttl` what is left: there it finds a difference with Kong, too.
const LEFT_OUT: [(&str, &str); 3] =
    [("certificates", "snis"), ("basicauth_credentials", "password"), ("keyauth_credentials", "ttl")];

/// Entities by collection and id.
pub(crate) type State = BTreeMap<&'static str, BTreeMap<String, Json>>;

/// One write.
#[derive(Debug)]
pub(crate) struct Step {
    method: &'static str,
    path: String,
    body: Option<Json>,
    level: usize,
    collection: &'static str,
    creates: bool,
}

/// Reads entities from a file: an object of lists.
pub(crate) fn read(text: &str) -> State {
    let document: Map<String, Json> = serde_json::from_str(text).expect("the document is JSON");
    let known = |name: &String| COLLECTIONS.iter().any(|collection| collection.name == name);
    assert!(document.keys().all(known), "every list is a collection");
    let by_id = |entity: &Json| (entity["id"].as_str().expect("an id").to_owned(), entity.clone());
    let entities = |name| document.get(name).and_then(Json::as_array).into_iter().flatten().map(by_id);
    COLLECTIONS.iter().map(|collection| (collection.name, entities(collection.name).collect())).collect()
}

/// Everything that a gateway has, each entity decoded.
#[track_caller]
pub(crate) fn dump(client: Client, types: &Types, size: usize) -> State {
    let upstreams = client.list("/upstreams", size);
    let entities = |collection: &Collection| -> Vec<Json> {
        if collection.name == MEMBERS {
            return client
                .list("/consumer_groups", size)
                .iter()
                .flat_map(|group| members(client, group))
                .collect();
        }
        if !collection.list.contains("{upstream}") {
            return client.list(collection.list, size);
        }
        let ids = upstreams.iter().map(|upstream| upstream["id"].as_str().expect("an id"));
        ids.flat_map(|id| client.list(&collection.list.replace("{upstream}", id), size)).collect()
    };
    let decoded = |collection: &Collection, entity: Json| {
        assert_eq!(undecodable(&types[collection.name], &entity), None, "{}: {entity}", collection.name);
        (entity["id"].as_str().expect("an id").to_owned(), entity)
    };
    let all = |collection: &'static Collection| {
        let listed = entities(collection);
        let count = listed.len();
        let by_id: BTreeMap<_, _> = listed.into_iter().map(|entity| decoded(collection, entity)).collect();
        assert_eq!(by_id.len(), count, "{}: none is listed twice", collection.name);
        (collection.name, by_id)
    };
    COLLECTIONS.iter().map(all).collect()
}

/// The consumers of a group, each as an entity that says so.
fn members(client: Client, group: &Json) -> Vec<Json> {
    let told = client.get(&format!("/consumer_groups/{}", group["name"].as_str().expect("a name")));
    assert_eq!(&told["consumer_group"], group);
    let member = |consumer: &Json| {
        let [group, consumer_id] = [group, consumer].map(|it| id(it, "id"));
        json!({
            "id": format!("{group}/{consumer_id}"),
            "consumer_group": { "id": group },
            "consumer": { "id": consumer_id, "username": consumer["username"] },
        })
    };
    told["consumers"].as_array().expect("consumers are a list").iter().map(member).collect()
}

/// Fills in the defaults that the gateway's schemas tell.
#[track_caller]
pub(crate) fn with_defaults(client: Client, mut state: State) -> State {
    for name in DEFAULTED {
        let schema = client.get(&format!("/schemas/{name}"));
        let entities = state.entry(name).or_default().values_mut();
        entities.for_each(|entity| fill(entity, &schema["fields"], false));
    }
    for plugin in state.entry("plugins").or_default().values_mut() {
        let name = plugin["name"].as_str().expect("a name").to_owned();
        let schema = client.get(&format!("/schemas/plugins/{name}"));
        let config = field(&schema["fields"], "config").expect("a plugin has a config");
        let entity = plugin.as_object_mut().expect("an object");
        fill(entity.entry("config").or_insert_with(|| json!({})), &config["fields"], true);
        let protocols = field(&schema["fields"], "protocols").map(|protocols| protocols["default"].clone());
        entity.entry("protocols").or_insert(protocols.unwrap_or_default());
        entity.entry("enabled").or_insert(true.into());
    }
    state
}

/// Leaves out what plugins tell under old names that the target does not use.
pub(crate) fn without_old_names(client: Client, mut state: State, target: &State) -> State {
    for (id, plugin) in state.entry("plugins").or_default() {
        let name = plugin["name"].as_str().expect("a name");
        let schema = client.get(&format!("/schemas/plugins/{name}"));
        let config = field(&schema["fields"], "config").expect("a plugin has a config");
        leave_old_names_out(&mut plugin["config"], target["plugins"].get(id).map(|it| &it["config"]), config);
    }
    state
}

/// The same of a record, and of those within it.
pub(crate) fn leave_old_names_out(shown: &mut Json, target: Option<&Json>, schema: &Json) {
    let Some(members) = shown.as_object_mut() else { return };
    let wanted = |name: &str| target.and_then(|target| target.get(name));
    let old = schema["shorthand_fields"].as_array().into_iter().flatten();
    let old = old.flat_map(|field| field.as_object().expect("a field is an object").keys());
    old.filter(|name| wanted(name).is_none()).for_each(|name| drop(members.remove(name)));
    for (name, schema) in
        schema["fields"].as_array().into_iter().flatten().filter_map(Json::as_object).flatten()
    {
        if let Some(shown) = members.get_mut(name) {
            leave_old_names_out(shown, wanted(name), schema);
        }
    }
}

pub(crate) fn field<'f>(fields: &'f Json, name: &str) -> Option<&'f Json> {
    fields.as_array().expect("fields are a list").iter().find_map(|field| field.get(name))
}

/// Sets what is absent to its default; in a configuration, what has none to null.
fn fill(value: &mut Json, fields: &Json, explicit_nulls: bool) {
    let object = value.as_object_mut().expect("a record is an object");
    for (name, schema) in fields
        .as_array()
        .expect("fields are a list")
        .iter()
        .flat_map(|field| field.as_object().expect("a field is an object").iter())
    {
        let default = schema.get("default");
        let record = schema["type"] == "record" && (schema["required"] == true || default.is_some());
        match object.get_mut(name) {
            Some(Json::Null) | None if record => {
                let mut record = default.cloned().unwrap_or_else(|| json!({}));
                fill(&mut record, &schema["fields"], explicit_nulls);
                object.insert(name.clone(), record);
            }
            Some(given) if schema["type"] == "record" && !given.is_null() => {
                fill(given, &schema["fields"], explicit_nulls)
            }
            Some(_) => {}
            None => match default {
                Some(default) => drop(object.insert(name.clone(), default.clone())),
                None if explicit_nulls => drop(object.insert(name.clone(), Json::Null)),
                None => {}
            },
        }
    }
}

/// The writes that lead from one state to the other.
pub(crate) fn difference(current: &State, target: &State) -> Vec<Step> {
    let mut steps = Vec::new();
    for collection in COLLECTIONS {
        let (current, target) = (&current[collection.name], &target[collection.name]);
        let written = target.iter().filter_map(|(id, entity)| put(collection, current.get(id), entity));
        steps.extend(written);
        let gone = current.iter().filter(|(id, _)| !target.contains_key(*id));
        steps.extend(gone.map(|(_, entity)| step("DELETE", collection, entity, None)));
    }
    steps
}

/// The write that makes an entity what it is to be, unless it is that.
fn put(collection: &'static Collection, known: Option<&Json>, entity: &Json) -> Option<Step> {
    let mut body = sent(entity);
    if let Some(known) = known {
        if comparable(collection.name, known) == comparable(collection.name, entity) {
            return None;
        }
        // Without them, a certificate that is written anew would lose its server names.
        if collection.name == "certificates" {
            body["snis"] = known["snis"].clone();
        }
    }
    let (method, body) = match (collection.name, known) {
        (MEMBERS, _) => ("POST", json!({ "consumer": entity["consumer"]["username"] })),
        ("consumer_groups", Some(_)) => ("PATCH", body),
        _ => ("PUT", body),
    };
    let step = step(method, collection, entity, Some(body));
    Some(Step { creates: known.is_none(), ..step })
}

fn step(method: &'static str, collection: &'static Collection, entity: &Json, body: Option<Json>) -> Step {
    let names = ["id", "consumer", "upstream", "consumer_group"];
    let mut path = names.iter().fold(collection.item.to_owned(), |path, name| {
        let place = format!("{{{name}}}");
        if path.contains(&place) { path.replace(&place, id(entity, name)) } else { path }
    });
    if collection.name == MEMBERS && method == "DELETE" {
        path.push('/');
        path.push_str(entity["consumer"]["username"].as_str().expect("a username"));
    }
    Step { method, path, body, level: collection.level, collection: collection.name, creates: false }
}

fn id<'e>(entity: &'e Json, name: &str) -> &'e str {
    let value = if name == "id" { &entity["id"] } else { &entity[name]["id"] };
    value.as_str().expect("an id")
}

/// What has no value is left out, but for configurations, which are sent whole.
fn sent(entity: &Json) -> Json {
    let mut sent = without_nulls(entity);
    if let Some(config) = entity.get("config") {
        sent["config"] = config.clone();
    }
    sent
}

fn without_nulls(value: &Json) -> Json {
    match value {
        Json::Object(object) => {
            let members = object.iter().filter(|(_, value)| !value.is_null());
            members.map(|(name, value)| (name.clone(), without_nulls(value))).collect::<Map<_, _>>().into()
        }
        Json::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// As decK compares: fields in the shape of its structures, sets in any order, references by id alone.
fn comparable(collection: &str, entity: &Json) -> Json {
    let mut entity = sent(entity);
    let members = entity.as_object_mut().expect("an entity is an object");
    members.retain(|name, _| {
        !IGNORED.contains(&name.as_str()) && !LEFT_OUT.contains(&(collection, name.as_str()))
    });
    for (name, value) in members.iter_mut().filter(|(name, _)| *name != "config") {
        if let Some(values) = value.as_array_mut().filter(|_| name != "paths" && name != "hosts") {
            values.sort_by_key(Json::to_string);
        }
        if matches!(
            name.as_str(),
            "service" | "route" | "consumer" | "consumer_group" | "upstream" | "certificate"
        ) {
            *value = json!({ "id": value["id"] });
        }
    }
    entity
}

/// Makes the writes, ten at a time within a level: creations and changes first, then deletions from the last level on.
#[track_caller]
pub(crate) fn apply(client: Client, types: &Types, steps: Vec<Step>) {
    let order = |step: &Step| match step.method {
        "DELETE" => 2 * LEVELS - step.level,
        _ => step.level,
    };
    let mut levels: BTreeMap<usize, Vec<Step>> = BTreeMap::new();
    steps.into_iter().for_each(|step| levels.entry(order(&step)).or_default().push(step));
    for level in levels.into_values() {
        let waiting = Mutex::new(level);
        let take = || waiting.lock().unwrap().pop();
        thread::scope(|scope| {
            for _ in 0..PARALLEL {
                scope.spawn(|| {
                    while let Some(step) = take() {
                        write(client, types, &step);
                    }
                });
            }
        });
    }
}

fn write(client: Client, types: &Types, step: &Step) {
    if step.creates && step.collection == "certificates" {
        assert_eq!(client.call("GET", &step.path, None).0, 404, "{} is new", step.path);
    }
    let (status, answer) = client.call(step.method, &step.path, step.body.as_ref());
    if step.method == "DELETE" {
        return assert_eq!(status, 204, "DELETE {}: {answer}", step.path);
    }
    let (method, path) = (step.method, &step.path);
    assert_eq!(status, if method == "POST" { 201 } else { 200 }, "{method} {path}: {answer}");
    assert_eq!(undecodable(&types[step.collection], &answer), None, "{method} {path}: {answer}");
}
