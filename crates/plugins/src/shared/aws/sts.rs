//! AWS's Security Token Service, which gives temporary credentials of a role.

use super::provider::Temporary;
use super::{Credentials, CredentialsError, date, domain, sigv4, variable};
use http::{Request, Uri};
use std::time::{Duration, SystemTime};
use weir_plugin::{Bytes, HttpClient, Secret, form};

const TIMEOUT: Duration = Duration::from_secs(10);

const STS: &str = "AWS STS";

/// The service of a region, or another that was named.
#[derive(Clone)]
pub(super) struct Sts {
    pub(super) client: HttpClient,
    url: Uri,
    region: String,
}

impl Sts {
    /// `endpoint` is a URL in the place of AWS's own.
    pub(super) fn new(
        client: HttpClient,
        endpoint: Option<&str>,
        region: &str,
    ) -> Result<Self, CredentialsError> {
        let of_environment = || variable("AWS_ENDPOINT_URL_STS");
        let is_global = variable("AWS_STS_REGIONAL_ENDPOINTS").as_deref() == Some("legacy");
        let (named, region) = match endpoint.map(str::to_owned).or_else(of_environment) {
            Some(named) => (named, region),
            None if is_global => ("https://sts.amazonaws.com".to_owned(), "us-east-1"),
            None => (format!("https://sts.{region}.{}", domain(region)), region),
        };
        let wrong = |_| CredentialsError::Setting { name: "the URL of STS", why: "it is no URL".to_owned() };
        Ok(Self { client, url: named.parse().map_err(wrong)?, region: region.to_owned() })
    }

    /// Credentials of a role, for who has these credentials.
    pub(super) async fn assume_role(
        &self,
        credentials: &Credentials,
        (role, session): (&str, &str),
    ) -> Result<Temporary, CredentialsError> {
        let fields = [("RoleArn", role), ("RoleSessionName", session)];
        let mut request = self.request("AssumeRole", &fields)?;
        let scope = sigv4::Scope { region: &self.region, service: "sts" };
        sigv4::sign(&mut request, credentials, scope, SystemTime::now()).map_err(unsendable)?;
        self.send(request).await
    }

    /// Credentials of a role, for who has a token of an identity provider that the role trusts.
    pub(super) async fn assume_role_with_web_identity(
        &self,
        (role, session): (&str, &str),
        token: &Secret,
    ) -> Result<Temporary, CredentialsError> {
        let fields = [("RoleArn", role), ("RoleSessionName", session), ("WebIdentityToken", token.expose())];
        self.send(self.request("AssumeRoleWithWebIdentity", &fields)?).await
    }

    fn request(&self, action: &str, fields: &[(&str, &str)]) -> Result<Request<Bytes>, CredentialsError> {
        let mut body = format!("Action={action}&Version=2011-06-15");
        for (name, value) in fields {
            body.extend(["&", name, "="]);
            form::encode(value.as_bytes(), &mut body);
        }
        let request = Request::post(self.url.clone());
        let request = request.header("Content-Type", "application/x-www-form-urlencoded; charset=utf-8");
        request.body(body.into()).map_err(unsendable)
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Temporary, CredentialsError> {
        let answer = self.client.send(request, TIMEOUT).await.map_err(CredentialsError::no_response(STS))?;
        let status = answer.status();
        let text = String::from_utf8_lossy(answer.body());
        if !status.is_success() {
            let message = element(&text, "Message").or_else(|| element(&text, "Code")).unwrap_or_default();
            let message = message.chars().take(200).collect();
            return Err(CredentialsError::Status { server: STS, status: status.as_u16(), message });
        }
        read(&text).ok_or(CredentialsError::Malformed { server: STS })
    }
}

fn unsendable(error: impl std::fmt::Display) -> CredentialsError {
    CredentialsError::NoResponse { server: STS, why: error.to_string() }
}

/// The credentials in a response.
pub(super) fn read(xml: &str) -> Option<Temporary> {
    let credentials = Credentials {
        access_key_id: element(xml, "AccessKeyId")?.to_owned(),
        secret_access_key: element(xml, "SecretAccessKey")?.to_owned().into(),
        session_token: Some(element(xml, "SessionToken")?.to_owned().into()),
    };
    let expires = Some(date::parse(element(xml, "Expiration")?)?);
    Some(Temporary { credentials, expires, server: STS })
}

/// The text of the first element of this name. What is read of STS's responses has no escapes.
fn element<'x>(xml: &'x str, name: &str) -> Option<&'x str> {
    let (_, behind) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = behind.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_credentials() {
        let xml = "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>\
                   <Credentials><AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>s/+=</SecretAccessKey>\
                   <SessionToken>\n  tok/en==\n </SessionToken><Expiration>2026-11-28T07:00:05Z</Expiration>\
                   </Credentials></AssumeRoleResult></AssumeRoleResponse>";
        let found = read(xml).unwrap();
        assert_eq!(found.credentials.access_key_id, "ASIA1");
        assert_eq!(found.credentials.secret_access_key.expose(), "s/+=");
        assert_eq!(found.credentials.session_token.unwrap().expose(), "tok/en==");
        assert!(found.expires.is_some());
        for missing in ["AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"] {
            assert!(read(&xml.replace(missing, "Other")).is_none(), "{missing}");
        }
        assert!(read("").is_none() && read("<AccessKeyId>").is_none());
    }
}
