//! Writes one after another, on entities in memory.
use super::*;
use crate::plugins;

/// All entities, and how many writes there were.
struct Node {
    entities: Entities,
    index: i64,
}

impl Node {
    fn new() -> Node {
        Node { entities: Entities::default(), index: 0 }
    }

    fn write(&mut self, write: Write) -> Result<(), ObjectWriteError> {
        self.index += 1;
        let plugins = plugins::bundled();
        let context = WriteContext { now: 1_700_000_000 + self.index, index: self.index, plugins };
        for op in decide(&self.entities, write, &context)? {
            match op {
                Op::Put(entity) => drop(self.entities.put(entity).unwrap()),
                Op::Delete(kind, id) => assert!(!self.entities.delete(kind, id).unwrap().is_empty()),
            }
        }
        Ok(())
    }

    fn put(&mut self, at: &str, value: Json) -> Result<(), ObjectWriteError> {
        self.write(Write::Put(key(at), value))
    }

    fn patch(&mut self, at: &str, path: &str, value: Json) -> Result<(), ObjectWriteError> {
        let path = path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        self.write(Write::Patch(key(at), path, value))
    }

    fn delete(&mut self, at: &str) -> Result<(), ObjectWriteError> {
        self.write(Write::Delete(key(at)))
    }

    fn value(&self, at: &str) -> Json {
        stored(&self.entities, &key(at)).unwrap().value.clone()
    }

    fn of(&self, kind: EntityKind) -> Vec<Json> {
        self.entities.after(kind, None).map(Entity::to_value).collect()
    }
}

fn key(text: &str) -> Key {
    let (kind, id) = text.split_once('/').unwrap();
    Key::new(Kind::from_name(kind).unwrap(), id).unwrap()
}

fn refusal(refused: Result<(), ObjectWriteError>) -> String {
    match refused {
        Err(ObjectWriteError::Invalid(Invalid(message))) => message,
        other => panic!("{other:?}"),
    }
}

fn upstream(pass_host: &str) -> Json {
    json!({ "nodes": { "a.test:80": 1 }, "pass_host": pass_host })
}

#[test]
fn what_follows_goes_when_its_object_does() {
    let mut node = Node::new();
    let plugins = json!({ "limit-count": { "count": 1, "time_window": 60 } });
    let route = json!({ "uris": ["/a", "/b/*"], "upstream": upstream("pass"), "plugins": plugins });
    node.put("routes/1", route).unwrap();
    node.put("consumers/jack", json!({ "username": "jack", "plugins": { "key-auth": { "key": "k" } } }))
        .unwrap();
    assert_eq!(node.of(EntityKind::Plugins).len(), 2);
    node.delete("routes/1").unwrap();
    node.delete("consumers/jack").unwrap();
    assert!(node.entities.is_empty());
    assert_eq!(node.delete("routes/1"), Err(ObjectWriteError::NotFound));
}

#[test]
fn an_object_that_changes_leaves_nothing_behind() {
    let mut node = Node::new();
    let key_auth = json!({ "key-auth": {} });
    node.put("routes/1", json!({ "uri": "/a", "upstream": upstream("pass"), "plugins": key_auth })).unwrap();
    node.put("upstreams/1", upstream("pass")).unwrap();
    let before = node
        .entities
        .get(EntityKind::Routes, node.entities.after(EntityKind::Routes, None).next().unwrap().id());
    let id = before.unwrap().id();
    node.put("routes/1", json!({ "uri": "/a", "upstream_id": "1" })).unwrap();
    assert_eq!(node.of(EntityKind::Plugins).len(), 0);
    assert_eq!(node.of(EntityKind::Upstreams).len(), 1);
    assert_eq!(node.of(EntityKind::Services).len(), 1);
    assert!(node.entities.get(EntityKind::Routes, id).is_some(), "it is the same route");
    node.put("routes/1", json!({ "uri": "/a", "upstream_id": "1", "priority": 9 })).unwrap();
    assert_eq!(node.of(EntityKind::Routes).len(), 1);
}

#[test]
fn what_depends_on_an_object_changes_with_it() {
    let mut node = Node::new();
    node.put("upstreams/1", upstream("pass")).unwrap();
    node.put("services/1", json!({ "upstream_id": "1" })).unwrap();
    node.put("plugin_configs/1", json!({ "plugins": { "prometheus": {} } })).unwrap();
    node.put("routes/1", json!({ "uri": "/a", "service_id": 1, "plugin_config_id": "1" })).unwrap();
    let preserve_host = |node: &Node| node.of(EntityKind::Routes)[0]["preserve_host"].clone();
    assert_eq!(preserve_host(&node), true);
    node.put("upstreams/1", upstream("node")).unwrap();
    assert_eq!(preserve_host(&node), false);
    assert_eq!(node.of(EntityKind::Plugins)[0]["name"], "prometheus");
    node.put("plugin_configs/1", json!({ "plugins": { "key-auth": {} } })).unwrap();
    assert_eq!(
        node.of(EntityKind::Plugins).iter().map(|p| p["name"].clone()).collect::<Vec<_>>(),
        ["key-auth"]
    );
}

#[test]
fn what_is_named_stays() {
    let mut node = Node::new();
    node.put("upstreams/1", upstream("pass")).unwrap();
    node.put("services/s", json!({ "upstream_id": 1 })).unwrap();
    node.put("routes/r", json!({ "uri": "/a", "service_id": "s" })).unwrap();
    let refused = refusal(node.delete("upstreams/1"));
    assert_eq!(refused, "can not delete this upstream, service [s] is still using it now");
    let refused = refusal(node.delete("services/s"));
    assert_eq!(refused, "can not delete this service directly, route [r] is still using it now");
    let gone =
        refusal(node.patch("services/s", "", json!({ "upstream_id": null, "upstream": { "nodes": 1 } })));
    assert!(gone.contains("nodes"), "{gone}");
    for at in ["routes/r", "services/s", "upstreams/1"] {
        node.delete(at).unwrap();
    }
    assert!(node.entities.is_empty());
}

#[test]
fn patches_merge_and_take_away() {
    let mut node = Node::new();
    node.put(
        "routes/1",
        json!({ "uri": "/a", "desc": "d", "upstream": { "nodes": { "a:80": 1, "b:80": 1 } } }),
    )
    .unwrap();
    let upstream = json!({ "nodes": { "a:80": null, "c:80": 2 } });
    node.patch("routes/1", "", json!({ "desc": null, "methods": ["GET"], "upstream": upstream })).unwrap();
    let value = node.value("routes/1");
    assert_eq!((&value["methods"], &value["desc"]), (&json!(["GET"]), &Json::Null));
    assert_eq!(value["upstream"]["nodes"], json!({ "b:80": 1, "c:80": 2 }));
    node.patch("routes/1", "methods", json!(["POST"])).unwrap();
    node.patch("routes/1", "upstream/nodes", json!({ "d:80": 1 })).unwrap();
    let value = node.value("routes/1");
    assert_eq!((&value["methods"], &value["upstream"]["nodes"]), (&json!(["POST"]), &json!({ "d:80": 1 })));
    assert!(refusal(node.patch("routes/1", "no/where", json!(1))).contains("sub-path"));
    assert!(refusal(node.patch("routes/1", "", json!({ "uri": null }))).contains("uri"));
    assert_eq!(node.value("routes/1")["uri"], "/a", "what is refused changes nothing");
}

#[test]
fn times_and_ids_are_filled_in() {
    let mut node = Node::new();
    node.put("routes/1", json!({ "uri": "/a" })).unwrap();
    node.put("routes/1", json!({ "uri": "/b" })).unwrap();
    let value = node.value("routes/1");
    assert_eq!(
        (&value["create_time"], &value["update_time"]),
        (&json!(1_700_000_001), &json!(1_700_000_002))
    );
    assert_eq!(value["id"], "1");
    node.write(Write::Post(Kind::Routes, json!({ "uri": "/c" }))).unwrap();
    assert_eq!(node.value("routes/00000000000000000003")["uri"], "/c");
    assert!(refusal(node.put("routes/1", json!({ "id": 2, "uri": "/a" }))).contains("wrong route id"));
    let posted = Write::Post(Kind::Routes, json!({ "id": 2, "uri": "/a" }));
    assert!(refusal(node.write(posted)).contains("do not need it"));
    let object = stored(&node.entities, &key("routes/1")).unwrap();
    assert_eq!((object.created_index, object.modified_index), (1, 2));
}

/// Lists in one another.
fn nested(depth: usize) -> Json {
    (1..depth).fold(json!([]), |inner, _| json!([inner]))
}

#[test]
fn what_is_nested_too_deeply_is_refused() {
    let mut node = Node::new();
    // The object itself is a level, and so are its nodes and the one that has the metadata.
    let upstream =
        |depth| json!({ "nodes": [{ "host": "a", "port": 1, "weight": 1, "metadata": nested(depth) }] });
    node.put("upstreams/x", upstream(MAX_OBJECT_DEPTH - 3)).unwrap();
    let refused = refusal(node.put("upstreams/x", upstream(MAX_OBJECT_DEPTH - 2)));
    assert!(refused.contains("nested deeper"), "{refused}");
    let merged = refusal(node.patch("upstreams/x", "", upstream(120)));
    assert!(merged.contains("nested deeper"), "{merged}");
    let below = refusal(node.patch("upstreams/x", "nodes/0/metadata/0", nested(MAX_OBJECT_DEPTH)));
    assert!(below.contains("nested deeper"), "{below}");
    let path = |steps: usize| format!("nodes/0/metadata{}", "/0".repeat(steps - 3));
    node.patch("upstreams/x", &path(MAX_PATH_STEPS), json!([])).unwrap();
    node.put("upstreams/x", upstream(MAX_OBJECT_DEPTH - 3)).unwrap();
    let long = refusal(node.patch("upstreams/x", &path(MAX_PATH_STEPS + 1), json!([])));
    assert!(long.contains("more than 16 steps"), "{long}");
}
