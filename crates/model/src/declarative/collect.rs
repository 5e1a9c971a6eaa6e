//! Every entity of a tree, nested or flat, with its id and its parent; and who can be named by what.
use super::ids::Ids;
use crate::entity::EntityKind;
use crate::node::{Node, Value};
use crate::schema::{Choice, Reader, References, Step};
use std::collections::HashMap;
use uuid::Uuid;

/// One entity, not read yet.
pub(super) struct Item<'n, 'a> {
    pub(super) kind: EntityKind,
    pub(super) node: &'n Node<'a>,
    pub(super) id: Uuid,
    /// The item this is nested in, and the field that names it.
    parent: Option<(usize, &'static str)>,
    index: usize,
}

/// All entities of a tree, parents before children.
#[derive(Default)]
pub(super) struct Items<'n, 'a> {
    list: Vec<Item<'n, 'a>>,
    by_id: HashMap<(EntityKind, Uuid), usize>,
    by_name: HashMap<(EntityKind, &'n str), usize>,
}

impl<'n, 'a> Items<'n, 'a> {
    /// Finds all entities below the root of a configuration.
    pub(super) fn collect(root: &'n Node<'a>, reader: &mut Reader<'_>) -> Self {
        let mut items = Self::default();
        let mut ids = Ids::new();
        for kind in EntityKind::ALL {
            items.collection(*kind, root, None, &mut ids, reader);
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
        path.extend([Step::Field(item.kind.as_str()), Step::Index(item.index)]);
        path
    }

    /// The values that follow from an item's place.
    pub(super) fn given(&self, item: &Item<'_, '_>) -> Vec<(&'static str, Uuid)> {
        let parent = item.parent.and_then(|(parent, field)| Some((field, self.list.get(parent)?.id)));
        std::iter::once(("id", item.id)).chain(parent).collect()
    }

    fn collection(
        &mut self,
        kind: EntityKind,
        within: &'n Node<'a>,
        parent: Option<(usize, &'static str)>,
        ids: &mut Ids,
        reader: &mut Reader<'_>,
    ) {
        let Some(collection) = within.get(kind.as_str()) else { return };
        let Value::List(nodes) = &collection.value else {
            let parent = parent.and_then(|(parent, _)| self.list.get(parent));
            reader.start_at(parent.map(|parent| self.path(parent)).unwrap_or_default());
            let message = format!("expected a list, got {}; start each entry with `- `", collection.kind());
            reader.within(Step::Field(kind.as_str()), |reader| reader.report(collection.at, message));
            return;
        };
        for (index, node) in nodes.iter().enumerate() {
            self.item(Item { kind, node, id: Uuid::nil(), parent, index }, ids, reader);
        }
    }

    fn item(&mut self, mut item: Item<'n, 'a>, ids: &mut Ids, reader: &mut Reader<'_>) {
        let (kind, node) = (item.kind, item.node);
        item.id = match written_id(node) {
            Some(id) => id,
            None => {
                let parent = item.parent.map(|(parent, field)| (field, self.list[parent].id));
                ids.derive(kind, node, parent)
            }
        };
        let place = self.list.len();
        self.by_id.entry((kind, item.id)).or_insert(place);
        if let Some(name) = kind.key().and_then(|key| node.get(key)).and_then(Node::as_str) {
            self.by_name.entry((kind, name)).or_insert(place);
        }
        self.list.push(item);
        for (child, field) in kind.children() {
            self.collection(*child, node, Some((place, field)), ids, reader);
        }
    }
}

/// The id that is written, if it is one; if it is not, reading the entity will say so.
fn written_id(node: &Node<'_>) -> Option<Uuid> {
    node.get("id").and_then(Node::as_str).and_then(crate::rule::id)
}

impl References for Items<'_, '_> {
    fn resolve(&self, kind: &str, name: &str) -> Option<Uuid> {
        let kind = EntityKind::from_name(kind)?;
        let by_id = || self.by_id.get(&(kind, crate::rule::id(name)?));
        let place = self.by_name.get(&(kind, name)).or_else(by_id)?;
        self.list.get(*place).map(|item| item.id)
    }

    fn names(&self, kind: &str) -> Vec<&str> {
        let kind = EntityKind::from_name(kind);
        self.by_name.keys().filter(|(of, _)| Some(*of) == kind).map(|(_, name)| *name).collect()
    }
}
