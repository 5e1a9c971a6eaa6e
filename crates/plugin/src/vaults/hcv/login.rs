//! How the node gets a token of a HashiCorp Vault.
use super::{Client, Failure, TokenFiles};
use crate::vaults::file::unreadable;
use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::json;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_model::entity::HcvAuthMethod;
use weir_model::schema::Json;

/// The largest file with a token.
const MAX_TOKEN_LEN: u64 = 8 * 1024;

/// Where Kubernetes puts the token of a service account, by both names of the folder.
const KUBERNETES_FILES: [&str; 2] = [
    "/run/secrets/kubernetes.io/serviceaccount/token",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
];

/// Where the node logs in, and as whom.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Login {
    namespace: Option<String>,
    path: String,
    role: String,
    /// What proves it, or the file that does: a token is for those alone who have it.
    proof: Option<String>,
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
        let (path, role, proof) = match config.auth_method {
            HcvAuthMethod::Token => return None,
            HcvAuthMethod::Kubernetes => {
                (&config.kube_auth_path, &config.kube_role, Some(&config.kube_api_token_file))
            }
            HcvAuthMethod::AppRole => {
                let proof = config.approle_secret_id.as_ref().or(config.approle_secret_id_file.as_ref());
                (&config.approle_auth_path, &config.approle_role_id, proof)
            }
        };
        let (path, role) = (path.trim_matches('/').to_owned(), role.clone().unwrap_or_default());
        Some(Login { namespace: config.namespace.clone(), path, role, proof: proof.cloned() })
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
        let lasts = lasts.map(|seconds| seconds.min(u32::MAX.into()));
        let until = lasts.map(|seconds| Instant::now() + Duration::from_secs(seconds) * 3 / 4);
        let token = Token { text: text.to_owned(), until };
        self.vault.server(&self.url, |server| server.tokens.insert(login, token));
        Ok(text.to_owned())
    }

    fn credentials(&self, role: &str) -> Result<Json, Failure> {
        let (config, files) = (&self.config, &self.vault.files);
        if config.auth_method == HcvAuthMethod::Kubernetes {
            let jwt = files.read(&config.kube_api_token_file, "kube_api_token_file")?;
            return Ok(json!({ "role": role, "jwt": jwt }));
        }
        let secret_id = match (&config.approle_secret_id, &config.approle_secret_id_file) {
            (Some(secret), _) => secret.clone(),
            (None, Some(file)) => files.read(file, "approle_secret_id_file")?,
            (None, None) => return Err("it has no approle_secret_id".into()),
        };
        Ok(json!({ "role_id": role, "secret_id": secret_id }))
    }
}

impl TokenFiles {
    /// The text of the file that a field of a configuration names.
    pub(crate) fn read(&self, file: &str, field: &str) -> Result<String, Failure> {
        let path = Path::new(file);
        let failed = |error| unreadable(path, &error, &format!("put it there, or set {field}"));
        let found = path.canonicalize().map_err(failed)?;
        if !self.allow(path, &found) {
            let folder = self.directory.display();
            return Err(format!(
                "{file}: put it below {folder} (vault_file_directory){}",
                if field.contains('.') {
                    String::new()
                } else {
                    format!(", or name it in the setting vault_hcv_{field}")
                }
            )
            .into());
        }
        let too_long = || format!("{file}: is no file of at most {MAX_TOKEN_LEN} bytes");
        if !fs::metadata(&found).map_err(failed)?.is_file() {
            return Err(too_long().into());
        }
        let mut text = String::new();
        let length =
            File::open(&found).and_then(|file| file.take(MAX_TOKEN_LEN + 1).read_to_string(&mut text));
        match length.map_err(failed)? as u64 <= MAX_TOKEN_LEN {
            true => Ok(text.trim().to_owned()),
            false => Err(too_long().into()),
        }
    }

    /// Whether this may be sent to a server, which is in truth that file.
    fn allow(&self, path: &Path, found: &Path) -> bool {
        let named = self.named.iter().map(PathBuf::as_path).chain(KUBERNETES_FILES.map(Path::new));
        let is_named = named.into_iter().any(|named| named == path);
        is_named || self.directory.canonicalize().is_ok_and(|folder| found.starts_with(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_TOKEN_LEN, TokenFiles};
    use std::fs;

    #[test]
    fn files_are_sent_that_are_meant_for_it() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |path: std::path::PathBuf, text: &str| {
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let named = write(elsewhere.path().join("named"), " a ");
        let other = write(elsewhere.path().join("other"), "b");
        let below = write(folder.path().join("token"), "c\n");
        let long = write(folder.path().join("long"), &"x".repeat(MAX_TOKEN_LEN as usize + 1));
        std::os::unix::fs::symlink(&other, folder.path().join("link")).unwrap();
        let link = folder.path().join("link").display().to_string();
        let files = TokenFiles { directory: folder.path().to_owned(), named: vec![named.clone().into()] };
        for (file, expected) in [
            (&named, Ok("a")),
            (&below, Ok("c")),
            (&other, Err("name it in the setting vault_hcv_field")),
            (&link, Err("name it in the setting vault_hcv_field")),
            (&long, Err("is no file of at most 8192 bytes")),
            (&folder.path().display().to_string(), Err("is no file of at most 8192 bytes")),
            (&"/no/such/file".to_owned(), Err("no such file")),
        ] {
            match (files.read(file, "field"), expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text, expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (found, _) => panic!("{file}: {found:?}"),
            }
        }
    }
}
