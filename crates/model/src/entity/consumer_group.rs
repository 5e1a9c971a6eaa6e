//! Consumer groups: consumers that plugins treat alike.
use crate::schema::Record;
use uuid::Uuid;

/// Consumers that plugins can be configured for together.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct ConsumerGroup {
    #[field(auto)]
    pub id: Uuid,
    /// The name. Of several groups that a consumer is in, the first by name comes first.
    #[field(unique)]
    pub name: String,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

/// That a consumer is in a group. In files, `groups` of a consumer and `consumers` of a group say the same.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct ConsumerGroupConsumer {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "consumer_groups")]
    pub consumer_group: Uuid,
    #[field(foreign = "consumers")]
    pub consumer: Uuid,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}
