//! Consumer groups and their members.

use super::last::same;
use std::collections::HashMap;
use std::sync::Arc;
use weir_model::entity::{ConsumerGroup, ConsumerGroupConsumer};
use weir_model::{Document, Uuid};
use weir_plugin::engine::GroupIndex;

/// The groups of a document, and what they were compiled from.
#[derive(Default)]
pub(super) struct Groups {
    index: HashMap<Uuid, GroupIndex>,
    of: (Vec<Arc<ConsumerGroup>>, Vec<Arc<ConsumerGroupConsumer>>),
}

impl Groups {
    pub(super) fn of(document: &Document) -> Self {
        // Of several groups that a consumer is in, the first by name comes first: a place in the order is what stands
        // for a group from here on.
        let mut by_name: Vec<_> = document.consumer_groups.iter().collect();
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        let index = by_name.iter().zip(0u32..).map(|(group, at)| (group.id, GroupIndex(at))).collect();
        Self { index, of: (document.consumer_groups.clone(), document.consumer_group_consumers.clone()) }
    }

    pub(super) fn index(&self, id: Uuid) -> Option<GroupIndex> {
        self.index.get(&id).copied()
    }

    /// The groups of each consumer that is in any, in their order.
    pub(super) fn by_consumer(&self) -> HashMap<Uuid, Vec<GroupIndex>> {
        let mut groups: HashMap<Uuid, Vec<GroupIndex>> = HashMap::new();
        for member in &self.of.1 {
            groups.entry(member.consumer).or_default().extend(self.index(member.consumer_group));
        }
        groups.values_mut().for_each(|groups| groups.sort_unstable());
        groups
    }

    /// Whether they are those of this document.
    pub(super) fn are_of(&self, document: &Document) -> bool {
        let (groups, members) = &self.of;
        same(groups, &document.consumer_groups) && same(members, &document.consumer_group_consumers)
    }
}
