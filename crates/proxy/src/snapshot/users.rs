//! Consumers, and the entities of plugins such as credentials, for plugins to look up while they are built.

use super::groups::Groups;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use weir_model::entity::{self, CustomEntities};
use weir_model::{Document, Uuid};
use weir_plugin::Consumer;
use weir_plugin::ConsumerIndex;

/// The consumers of a document, and what they were compiled from.
#[derive(Default)]
pub(super) struct Users {
    pub(super) consumers: Arc<[Consumer]>,
    pub(super) index: HashMap<Uuid, ConsumerIndex>,
    pub(super) groups: Groups,
    /// What plugins may look up, such as credentials.
    custom: CustomEntities,
    /// Made once a plugin asks for a consumer by its name.
    by_username: OnceLock<HashMap<Box<str>, ConsumerIndex>>,
}

impl Users {
    pub(super) fn new(document: &Document) -> Users {
        let groups = Groups::of(document);
        let mut members = groups.by_consumer();
        let mut consumer = |it: &Arc<entity::Consumer>| {
            Consumer::new(it.clone(), members.remove(&it.id).unwrap_or_default().into())
        };
        let index = document.consumers.iter().zip(0u32..).map(|(c, i)| (c.id, ConsumerIndex(i)));
        Users {
            consumers: document.consumers.iter().map(&mut consumer).collect(),
            index: index.collect(),
            groups,
            custom: document.custom.clone(),
            by_username: OnceLock::new(),
        }
    }

    /// Where the consumer of this username stands.
    pub(super) fn by_username(&self, username: &str) -> Option<ConsumerIndex> {
        let index = || {
            let consumers = self.consumers.iter().zip(0u32..);
            let named = consumers
                .filter_map(|(it, at)| Some((it.entity.username.as_deref()?.into(), ConsumerIndex(at))));
            named.collect()
        };
        self.by_username.get_or_init(index).get(username).copied()
    }

    /// Whether they are those of this document.
    pub(super) fn are_of(&self, document: &Document) -> bool {
        let consumers = self.consumers.iter().map(|consumer| &consumer.entity);
        self.consumers.len() == document.consumers.len()
            && consumers.zip(&document.consumers).all(|(a, b)| Arc::ptr_eq(a, b))
            && self.groups.are_of(document)
            && self.custom.are_same(&document.custom)
    }
}
