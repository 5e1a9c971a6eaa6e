//! Every entity of a tree, nested or flat, with its id and its parent; and who can be named by what.
use super::ids::Ids;
use crate::entity::EntityKind::{self, Certificates, ConsumerGroupConsumers};
use crate::node::{Node, Value};
use crate::plugin_schema::EntityKinds;
use crate::schema::{Reader, References, Step};
use std::collections::HashMap;
use uuid::Uuid;

/// One entity, not read yet.
pub(super) struct Item<'n, 'a> {
    pub(super) kind: EntityKind,
    pub(super) node: &'n Node<'a>,
    pub(super) id: Uuid,
    /// The item this is nested in, and the field that names it, if one does.
    parent: Option<(usize, Option<&'static str>)>,
    /// The collection, as it is written, and the place in it; or the field that holds this one entity.
    collection: &'static str,
    index: Option<usize>,
}

/// A collection of entities, not read yet.
#[derive(Clone, Copy)]
struct Collection<'n, 'a> {
    kind: EntityKind,
    /// The name that it is written under.
    name: &'static str,
    within: &'n Node<'a>,
    parent: Option<(usize, &'static str)>,
    /// The field that each of its elements must name, where it is no list of entities but of names.
    names: Option<&'static str>,
}

/// All entities of a tree, parents before children.
pub(super) struct Items<'n, 'a> {
    kinds: &'n EntityKinds,
    list: Vec<Item<'n, 'a>>,
    by_id: HashMap<(EntityKind, Uuid), usize>,
    by_name: HashMap<(EntityKind, &'n str), usize>,
}

impl<'n, 'a> Items<'n, 'a> {
    /// Finds all entities below the root of a configuration.
    pub(super) fn collect(root: &'n Node<'a>, kinds: &'n EntityKinds, reader: &mut Reader<'_>) -> Self {
        let (by_id, by_name) = (HashMap::new(), HashMap::new());
        let mut items = Items { kinds, list: Vec::new(), by_id, by_name };
        let mut ids = Ids::new(kinds);
        for kind in kinds.iter() {
            let name = kind.as_str();
            let collection = Collection { kind, name, within: root, parent: None, names: None };
            items.collection(collection, &mut ids, reader);
        }
        items
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Item<'n, 'a>> {
        self.list.iter()
    }

    /// The steps from the root to an item.
    pub(super) fn path(&self, item: &Item<'_, '_>) -> Vec<Step> {
        let parent = item.parent.and_then(|(parent, _)| self.list.get(parent));
        let mut path = parent.map(|parent| self.path(parent)).unwrap_or_default();
        path.push(Step::Field(item.collection));
        path.extend(item.index.map(Step::Index));
        path
    }

    /// The values that follow from an item's place.
    pub(super) fn given(&self, item: &Item<'_, '_>) -> Vec<(&'static str, Uuid)> {
        let parent = item.parent.and_then(|(parent, field)| Some((field?, self.list.get(parent)?.id)));
        std::iter::once(("id", item.id)).chain(parent).collect()
    }

    fn collection(&mut self, from: Collection<'n, 'a>, ids: &mut Ids<'_>, reader: &mut Reader<'_>) {
        let Collection { kind, name, within, parent, names } = from;
        let Some(collection) = within.get(name) else { return };
        let around = parent.and_then(|(parent, _)| self.list.get(parent));
        let around = around.map(|parent| self.path(parent)).unwrap_or_default();
        let Value::List(nodes) = &collection.value else {
            reader.start_at(around);
            let message = format!("expected a list, got {}; start each entry with `- `", collection.kind());
            reader.within(Step::Field(name), |reader| reader.report(collection.at, message));
            return;
        };
        for (index, node) in nodes.iter().enumerate() {
            match names.filter(|field| node.get(field).is_none()) {
                None => {
                    let parent = parent.map(|(parent, field)| (parent, Some(field)));
                    let (id, index) = (Uuid::nil(), Some(index));
                    let item = Item { kind, node, id, parent, collection: name, index };
                    self.item(item, ids, reader);
                }
                Some(field) => {
                    reader.start_at([&around[..], &[Step::Field(name), Step::Index(index)]].concat());
                    reader.report(node.at, not_named(field, node));
                }
            }
        }
    }

    fn item(&mut self, mut item: Item<'n, 'a>, ids: &mut Ids<'_>, reader: &mut Reader<'_>) {
        let (kind, node) = (item.kind, item.node);
        item.id = match written_id(node) {
            Some(id) => id,
            None => {
                let parent = item.parent.and_then(|(parent, field)| Some((field?, self.list[parent].id)));
                ids.derive(kind, node, parent)
            }
        };
        let place = self.list.len();
        self.by_id.entry((kind, item.id)).or_insert(place);
        if let Some(name) = kind.key().and_then(|key| node.get(key)).and_then(Node::as_str) {
            self.by_name.entry((kind, name)).or_insert(place);
        }
        self.list.push(item);
        self.client_certificate((kind, node), place, ids, reader);
        for (child, field) in self.kinds.children(kind) {
            let (parent, name) = (Some((place, *field)), child.as_str());
            let collection = Collection { kind: *child, name, within: node, parent, names: None };
            self.collection(collection, ids, reader);
            if let Some((name, names)) = kind.members().filter(|_| *child == ConsumerGroupConsumers) {
                self.collection(Collection { name, names: Some(names), ..collection }, ids, reader);
            }
        }
    }
}

impl<'n, 'a> Items<'n, 'a> {
    /// A certificate that is written in the place of a reference to it. Several entities may write the same.
    fn client_certificate(
        &mut self,
        (kind, of): (EntityKind, &'n Node<'a>),
        place: usize,
        ids: &mut Ids<'_>,
        reader: &mut Reader<'_>,
    ) {
        const FIELD: &str = "client_certificate";
        let takes_one = matches!(kind, EntityKind::Services | EntityKind::Upstreams);
        let Some(node) = of.get(FIELD).filter(|node| takes_one && node.get("cert").is_some()) else { return };
        let is_known = written_id(node).is_some_and(|id| self.by_id.contains_key(&(Certificates, id)));
        if !is_known {
            let (id, parent) = (Uuid::nil(), Some((place, None)));
            let item = Item { kind: Certificates, node, id, parent, collection: FIELD, index: None };
            self.item(item, ids, reader);
        }
    }
}

/// The message for an element without a name.
fn not_named(field: &str, node: &Node<'_>) -> String {
    let got = node.kind();
    match field {
        "consumer" => format!("expected the username of a consumer, as in `- username: ann`, got {got}"),
        _ => format!("expected the name of a consumer group, as in `- name: gold`, got {got}"),
    }
}

/// The id that is written, if it is one; if it is not, reading the entity will say so.
fn written_id(node: &Node<'_>) -> Option<Uuid> {
    node.get("id").and_then(Node::as_str).and_then(crate::rule::id)
}

impl References for Items<'_, '_> {
    fn resolve(&self, kind: &str, name: &str) -> Option<Uuid> {
        let kind = self.kinds.find(kind)?;
        let by_id = || self.by_id.get(&(kind, crate::rule::id(name)?));
        let place = self.by_name.get(&(kind, name)).or_else(by_id)?;
        self.list.get(*place).map(|item| item.id)
    }

    fn names(&self, kind: &str) -> Vec<&str> {
        let kind = self.kinds.find(kind);
        self.by_name.keys().filter(|(of, _)| Some(*of) == kind).map(|(_, name)| *name).collect()
    }
}
