//! Teams, which may end by themselves, and the badges of a team.
use weir_plugin::{CustomEntity, CustomEntitySchema, DerivedId, Record, Uuid};

/// A team.
#[derive(Debug, Clone, PartialEq, Record)]
pub(crate) struct Team {
    #[field(auto)]
    id: Uuid,
    #[field(unique)]
    name: String,
    /// Seconds that it lasts.
    ttl: Option<i64>,
    #[field(auto)]
    created_at: Option<i64>,
}

impl CustomEntity for Team {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("teams")
        .with_endpoint_key("name")
        .with_derived_id(DerivedId::Field("name"))
        .with_ttl("ttl");
}

/// A badge of a team.
#[derive(Debug, Clone, PartialEq, Record)]
pub(crate) struct Badge {
    #[field(auto)]
    id: Uuid,
    #[field(foreign = "teams")]
    team: Uuid,
    #[field(unique)]
    number: i64,
    /// Opens doors; made up when not given.
    #[field(auto, unique)]
    code: String,
}

impl CustomEntity for Badge {
    // The collection's name comes before that of what it refers to.
    const ENTITY: &'static CustomEntitySchema =
        &CustomEntitySchema::of::<Self>("badges").with_endpoint_key("code").with_referenced(&[Team::ENTITY]);
}
