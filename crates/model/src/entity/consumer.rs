//! A consumer: who calls.
use crate::schema::{FieldError, Record};
use uuid::Uuid;

/// Who calls.
#[derive(Debug, Clone, PartialEq, Record)]
#[record(check = named)]
#[record(hint("name", "user", "write `username`"))]
#[record(hint("group", "write `groups: [{name: …}]`"))]
pub struct Consumer {
    #[field(auto)]
    pub id: Uuid,
    /// The name, by which plugins and credentials refer to the consumer.
    #[field(unique)]
    pub username: Option<String>,
    /// The consumer's id in another system.
    #[field(unique)]
    pub custom_id: Option<String>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

fn named(consumer: &Consumer) -> Vec<FieldError> {
    match (&consumer.username, &consumer.custom_id) {
        (None, None) => vec![FieldError::new("", "a consumer needs a `username` or a `custom_id`")],
        _ => Vec::new(),
    }
}
