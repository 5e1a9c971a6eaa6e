//! Credentials that the machine gives to what runs on it: a container's (ECS, EKS Pod Identity) and an EC2 instance's.

use super::provider::Temporary;
use super::source::ImdsVersion;
use super::{Credentials, CredentialsError, date, variable};
use http::{Request, Uri};
use serde::Deserialize;
use std::time::Duration;
use weir_plugin::{Bytes, HttpClient};

const TIMEOUT: Duration = Duration::from_secs(5);

const CONTAINER: &str = "the container's credentials endpoint";
const EC2: &str = "the EC2 metadata service";
const EC2_ENDPOINT: &str = "http://169.254.169.254";
const EC2_ROLES: &str = "/latest/meta-data/iam/security-credentials/";

/// The hosts that AWS serves a container's credentials at in clear.
const CONTAINER_HOSTS: [&str; 6] =
    ["localhost", "127.0.0.1", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];

/// What both endpoints answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

/// The URL of the container's credentials, if the environment names one.
pub(super) fn container_url() -> Option<Result<Uri, CredentialsError>> {
    if let Some(path) = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        let name = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
        return Some(parse(name, &format!("http://169.254.170.2{path}")));
    }
    let url = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")?;
    Some(parse("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url))
}

fn parse(name: &'static str, url: &str) -> Result<Uri, CredentialsError> {
    let wrong = |why: &str| CredentialsError::Setting { name, why: why.to_owned() };
    let url: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
    match url.scheme_str() {
        Some("https") => Ok(url),
        Some("http") if url.host().is_some_and(|host| CONTAINER_HOSTS.contains(&host)) => Ok(url),
        Some("http") => Err(wrong("its host is not this machine; write an https:// URL")),
        _ => Err(wrong("its scheme is neither http nor https")),
    }
}

/// The credentials of the container.
pub(super) async fn of_container(client: &HttpClient, url: Uri) -> Result<Temporary, CredentialsError> {
    let mut request = Request::get(url);
    if let Some(token) = container_token().await? {
        request = request.header("Authorization", token);
    }
    read(CONTAINER, &ask(client, CONTAINER, request).await?)
}

/// What the container's endpoint is to be shown.
async fn container_token() -> Result<Option<String>, CredentialsError> {
    let Some(path) = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") else {
        return Ok(variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"));
    };
    match std::fs::read_to_string(&path) {
        Ok(token) => Ok(Some(token.trim().to_owned())),
        Err(error) => Err(CredentialsError::File { path, why: error.to_string() }),
    }
}

/// The credentials of the role of the EC2 instance.
pub(super) async fn of_ec2(client: &HttpClient, version: ImdsVersion) -> Result<Temporary, CredentialsError> {
    let endpoint = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| EC2_ENDPOINT.to_owned());
    let endpoint = endpoint.trim_end_matches('/');
    let token = match version {
        ImdsVersion::V1 => None,
        ImdsVersion::V2 => {
            let request = Request::put(format!("{endpoint}/latest/api/token"));
            let request = request.header("X-aws-ec2-metadata-token-ttl-seconds", "300");
            Some(text(&ask(client, EC2, request).await?))
        }
    };
    let get = |url: String| match &token {
        None => Request::get(url),
        Some(token) => Request::get(url).header("X-aws-ec2-metadata-token", token),
    };
    let roles = text(&ask(client, EC2, get(format!("{endpoint}{EC2_ROLES}"))).await?);
    let role = roles.lines().next().unwrap_or_default();
    read(EC2, &ask(client, EC2, get(format!("{endpoint}{EC2_ROLES}{role}"))).await?)
}

async fn ask(
    client: &HttpClient,
    server: &'static str,
    request: http::request::Builder,
) -> Result<Bytes, CredentialsError> {
    let request = request.body(Bytes::new());
    let request = request.map_err(|error| CredentialsError::NoResponse { server, why: error.to_string() })?;
    let answer = client.send(request, TIMEOUT).await.map_err(CredentialsError::no_response(server))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer.into_body());
    }
    let message = match status.as_u16() {
        401 if server == EC2 => "set config.aws_imds_protocol_version to v2".to_owned(),
        404 if server == EC2 => "the instance has no role".to_owned(),
        _ => text(answer.body()).chars().take(200).collect(),
    };
    Err(CredentialsError::Status { server, status: status.as_u16(), message })
}

fn text(body: &Bytes) -> String {
    String::from_utf8_lossy(body).trim().to_owned()
}

fn read(server: &'static str, body: &[u8]) -> Result<Temporary, CredentialsError> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| CredentialsError::Malformed { server })?;
    let credentials = Credentials {
        access_key_id: answer.access_key_id,
        secret_access_key: answer.secret_access_key.into(),
        session_token: answer.token.map(Into::into),
    };
    let expires =
        answer.expiration.map(|text| date::parse(&text).ok_or(CredentialsError::Malformed { server }));
    Ok(Temporary { credentials, expires: expires.transpose()?, server })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn credentials_of_a_container_come_from_this_machine_or_over_tls() {
        for right in ["https://a.test/x", "http://127.0.0.1:1/x", "http://169.254.170.23/v1/credentials"] {
            assert!(parse("X", right).is_ok(), "{right}");
        }
        for wrong in ["http://a.test/x", "http://127.0.0.1.a.test", "ftp://localhost", "/x", "::"] {
            assert!(parse("X", wrong).is_err(), "{wrong}");
        }
    }
}
