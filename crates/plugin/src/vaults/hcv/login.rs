//! How the node gets a token of a HashiCorp Vault.
use super::{Client, Failure};
use crate::vaults::file::unreadable;
use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_model::entity::HcvAuthMethod;
use weir_model::schema::Json;

/// Where the node logs in, and as whom.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Login {
    namespace: Option<String>,
    path: String,
    role: String,
}

/// A token, and until when it is used.
#[derive(Clone)]
pub(super) struct Token {
    text: String,
    until: Option<Instant>,
}

impl Client<'_> {
    /// Where the node logs in; none where its configuration has a token.
    pub(super) fn login(&self) -> Option<Login> {
        let config = &self.config;
        let (path, role) = match config.auth_method {
            HcvAuthMethod::Token => return None,
            HcvAuthMethod::Kubernetes => (&config.kube_auth_path, &config.kube_role),
            HcvAuthMethod::AppRole => (&config.approle_auth_path, &config.approle_role_id),
        };
        let (path, role) = (path.trim_matches('/').to_owned(), role.clone().unwrap_or_default());
        Some(Login { namespace: config.namespace.clone(), path, role })
    }

    /// The token that is there already.
    pub(super) fn known_token(&self) -> Result<Option<String>, Failure> {
        let Some(login) = self.login() else {
            let token = self.config.token.clone().filter(|token| !token.is_empty());
            return token.map(Some).ok_or("it has no token; set `token`, or another `auth_method`".into());
        };
        let known = self.vault.server(&self.url, |server| server.tokens.get(&login).cloned());
        let is_valid = |token: &Token| token.until.is_none_or(|until| Instant::now() < until);
        Ok(known.filter(is_valid).map(|token| token.text))
    }

    /// Logs in, and keeps the token.
    pub(super) async fn log_in(&self) -> Result<String, Failure> {
        let login = self.login().ok_or("its configuration has a token")?;
        let body = self.credentials(&login.role)?;
        let request = Request::post(format!("{}auth/{}/login", self.url, login.path));
        let request = request.header("content-type", "application/json");
        let response = self.send(request, Bytes::from(body.to_string())).await?;
        if response.status() != StatusCode::OK {
            let status = response.status().as_u16();
            return Err(format!("the login at auth/{} was refused with status {status}", login.path).into());
        }
        let answer: Json = serde_json::from_slice(response.body()).unwrap_or_default();
        let text = answer["auth"]["client_token"].as_str().ok_or("the answer to the login has no token")?;
        // Some time before the token ends, so that it does not end on its way.
        let lasts = answer["auth"]["lease_duration"].as_u64().filter(|seconds| *seconds > 0);
        let until = lasts.map(|seconds| Instant::now() + Duration::from_secs(seconds) * 3 / 4);
        let token = Token { text: text.to_owned(), until };
        self.vault.server(&self.url, |server| server.tokens.insert(login, token));
        Ok(text.to_owned())
    }

    fn credentials(&self, role: &str) -> Result<Json, Failure> {
        let config = &self.config;
        if config.auth_method == HcvAuthMethod::Kubernetes {
            return Ok(
                json!({ "role": role, "jwt": text_of(&config.kube_api_token_file, "kube_api_token_file")? }),
            );
        }
        let secret_id = match (&config.approle_secret_id, &config.approle_secret_id_file) {
            (Some(secret), _) => secret.clone(),
            (None, Some(file)) => text_of(file, "approle_secret_id_file")?,
            (None, None) => return Err("it has no approle_secret_id".into()),
        };
        Ok(json!({ "role_id": role, "secret_id": secret_id }))
    }
}

/// The text of the file that a field of the configuration names.
fn text_of(file: &str, field: &str) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| unreadable(Path::new(file), &error, &format!("put it there, or set {field}")))?;
    Ok(text.trim().to_owned())
}
