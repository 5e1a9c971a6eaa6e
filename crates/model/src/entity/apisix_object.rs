//! An object of APISIX's Admin API.
use crate::schema::Record;
use uuid::Uuid;

/// What a client of APISIX's Admin API wrote, kept so that it can be read back as it was; other entities follow from it.
/// Its `Debug` leaves out the value, which may hold secrets.
#[derive(Clone, PartialEq, Record)]
pub struct ApisixObject {
    #[field(auto)]
    pub id: Uuid,
    /// Its kind and its id, as in `routes/1`.
    #[field(unique)]
    pub key: String,
    /// The object.
    pub value: serde_json::Value,
    /// When it was created, on the scale of `modified_index`.
    #[field(default = 0)]
    pub created_index: i64,
    /// Grows with each change.
    #[field(default = 0)]
    pub modified_index: i64,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

impl std::fmt::Debug for ApisixObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ApisixObject({})", self.key)
    }
}
