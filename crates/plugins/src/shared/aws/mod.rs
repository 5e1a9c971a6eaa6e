//! Amazon Web Services: the credentials of a caller, and the signatures of its requests.

pub(crate) mod sigv4;

use weir_plugin::Secret;

/// What a request is signed with.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: Secret,
    /// Temporary credentials have one.
    pub(crate) session_token: Option<Secret>,
}
