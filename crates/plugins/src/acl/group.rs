//! The entity `acls`: which consumer is in which group.
use std::fmt;
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, Record, Uuid};

/// A group that a consumer is in, for acl.
#[derive(Clone, PartialEq, Record)]
#[record(hint("name", "group_name", "write `group`"))]
pub(super) struct Membership {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    pub group: String,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
}

impl CustomEntity for Membership {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("acls")
        .with_endpoint_key("group")
        .with_unique_together(&["consumer", "group"])
        .with_derived_id(DerivedId::CacheKey(&["consumer", "group"]))
        .with_parent_hints(&[(
            &["group"],
            "write `acls: [{group: …}]` for the plugin acl, or `groups: [{name: …}]`",
        )]);
}

impl fmt::Debug for Membership {
    /// The id alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Membership({})", self.id)
    }
}
