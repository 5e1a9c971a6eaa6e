//! Where the credentials of a node come from, in the order in which Kong looks for them.

use super::provider::Temporary;
use super::sts::Sts;
use super::{Credentials, CredentialsError, instance, profile, variable};
use std::time::{Duration, SystemTime};
use weir_plugin::{HttpClient, Secret};

/// How long the file of credentials is not read again.
const FILE_TTL: Duration = Duration::from_secs(300);

/// The versions of the EC2 metadata service: the second is asked for a token first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImdsVersion {
    V1,
    V2,
}

/// Gets credentials from the environment, the shared file, the container, a web identity or the EC2 instance: the first of
/// these that is there.
pub(super) async fn find(
    local: &HttpClient,
    sts: Result<&Sts, CredentialsError>,
    imds: ImdsVersion,
) -> Result<Temporary, CredentialsError> {
    if let Some(credentials) = of_environment("AWS").or_else(|| of_environment("AMAZON")) {
        return Ok(Temporary { credentials, expires: None, server: "the environment" });
    }
    if let Some(credentials) = profile::read()? {
        let expires = Some(SystemTime::now() + FILE_TTL);
        return Ok(Temporary { credentials, expires, server: "the file of credentials" });
    }
    if let Some(url) = instance::container_url() {
        return instance::of_container(local, url?).await;
    }
    if let (Some(path), Some(role)) = (variable("AWS_WEB_IDENTITY_TOKEN_FILE"), variable("AWS_ROLE_ARN")) {
        return of_web_identity(sts?, path, &role).await;
    }
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return Err(CredentialsError::NoSource);
    }
    instance::of_ec2(local, imds).await
}

fn of_environment(prefix: &str) -> Option<Credentials> {
    let value = |name: &str| variable(&format!("{prefix}_{name}"));
    Some(Credentials {
        access_key_id: value("ACCESS_KEY_ID")?,
        secret_access_key: value("SECRET_ACCESS_KEY")?.into(),
        session_token: value("SESSION_TOKEN").map(Secret::from),
    })
}

/// The token in the file changes, so it is read each time.
async fn of_web_identity(sts: &Sts, path: String, role: &str) -> Result<Temporary, CredentialsError> {
    let token = std::fs::read_to_string(&path);
    let token = token.map_err(|error| CredentialsError::File { path, why: error.to_string() })?;
    let session = variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "weir".to_owned());
    sts.assume_role_with_web_identity((role, &session), &token.trim().to_owned().into()).await
}
