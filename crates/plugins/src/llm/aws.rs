//! Requests to Amazon Bedrock are signed.

use super::config::Auth;
use super::{LlmError, Target};
use crate::shared::aws::{Credentials, sigv4};
use http::Request;
use std::time::SystemTime;
use weir_plugin::{Bytes, Secret};

/// Whose requests they are: what is configured, or else what the environment says.
pub(crate) fn credentials(auth: Option<&Auth>) -> Option<Credentials> {
    let configured =
        auth.and_then(|auth| auth.aws_access_key_id.as_ref().zip(auth.aws_secret_access_key.as_ref()));
    if let Some((id, key)) = configured {
        let access_key_id = id.expose().to_owned();
        return Some(Credentials { access_key_id, secret_access_key: key.clone(), session_token: None });
    }
    let secret = |name| std::env::var(name).ok().map(Secret::from);
    Some(Credentials {
        access_key_id: std::env::var("AWS_ACCESS_KEY_ID").ok()?,
        secret_access_key: secret("AWS_SECRET_ACCESS_KEY")?,
        session_token: secret("AWS_SESSION_TOKEN"),
    })
}

/// The headers that sign a request with this body.
pub(crate) fn signature(
    credentials: Option<&Credentials>,
    region: &str,
    (target, body): (&Target, &[u8]),
) -> Result<Vec<(String, Secret)>, LlmError> {
    let failed = || LlmError::Provider("LLM request failed before proxying".to_owned());
    let credentials = credentials.ok_or_else(failed)?;
    let request = Request::post(target.url()).body(Bytes::copy_from_slice(body));
    let mut request = request.map_err(|_| failed())?;
    let scope = sigv4::Scope { region, service: "bedrock" };
    sigv4::sign(&mut request, credentials, scope, SystemTime::now()).map_err(|_| failed())?;
    let headers = request.headers().iter().filter(|(name, _)| **name != http::header::HOST);
    let text =
        |value: &http::HeaderValue| Secret::from(String::from_utf8_lossy(value.as_bytes()).into_owned());
    Ok(headers.map(|(name, value)| (name.to_string(), text(value))).collect())
}
