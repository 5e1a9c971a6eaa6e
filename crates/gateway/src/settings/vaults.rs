//! The vaults that the settings configure, and references to secrets in settings.
use super::source::{Given, Problem};
use super::table::Settings;
use super::trusted_certificates::trusted_certificate_files;
use super::value::Password;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_rustls::rustls::ClientConfig;
use weir_model::is_reference;
use weir_net::tls::{self, Verify, ca_certificates};
use weir_plugin::{FileVault, HcvVault, TokenFiles, Vaults};

/// Configures vaults as the settings say, for references by the vaults' names.
pub(crate) fn configure(vaults: &Vaults, settings: &Settings) {
    vaults.add("file", Arc::new(FileVault::new(settings.vault_file_directory.clone())));
    let named = [&settings.vault_hcv_kube_api_token_file, &settings.vault_hcv_approle_secret_id_file];
    let named = named.into_iter().flatten().map(PathBuf::from).collect();
    let files = Arc::new(TokenFiles { directory: settings.vault_file_directory.clone(), named });
    vaults.set_token_files(files.clone());
    vaults.add("hcv", Arc::new(HcvVault::new(verifying(settings), files)));
    vaults.retain(|name| settings.vaults.contains(name));
    let text = |name: &str, value: &Option<String>| value.clone().map(|value| (name.to_owned(), value));
    let secret = |name: &str, value: &Option<Password>| value.clone().map(|value| (name.to_owned(), value.0));
    let number = |name: &str, value: Option<u32>| value.map(|value| (name.to_owned(), value.to_string()));
    let s = settings;
    vaults.configure("env", text("prefix", &s.vault_env_prefix).into_iter().collect());
    let hcv = [
        text("protocol", &Some(s.vault_hcv_protocol.to_string())),
        text("host", &Some(s.vault_hcv_host.clone())),
        number("port", Some(s.vault_hcv_port.into())),
        text("namespace", &s.vault_hcv_namespace),
        text("mount", &Some(s.vault_hcv_mount.clone())),
        text("kv", &Some(s.vault_hcv_kv.to_string())),
        text("auth_method", &Some(s.vault_hcv_auth_method.to_string())),
        secret("token", &s.vault_hcv_token),
        text("kube_role", &s.vault_hcv_kube_role),
        text("kube_auth_path", &s.vault_hcv_kube_auth_path),
        text("kube_api_token_file", &s.vault_hcv_kube_api_token_file),
        text("approle_auth_path", &s.vault_hcv_approle_auth_path),
        text("approle_role_id", &s.vault_hcv_approle_role_id),
        secret("approle_secret_id", &s.vault_hcv_approle_secret_id),
        text("approle_secret_id_file", &s.vault_hcv_approle_secret_id_file),
        number("ttl", s.vault_hcv_ttl),
        number("neg_ttl", s.vault_hcv_neg_ttl),
        number("resurrect_ttl", s.vault_hcv_resurrect_ttl),
    ];
    vaults.configure("hcv", hcv.into_iter().flatten().collect());
}

/// TLS that verifies servers against the authorities of the settings.
fn verifying(settings: &Settings) -> Result<Arc<ClientConfig>, String> {
    let mut roots = Vec::new();
    for path in trusted_certificate_files(&settings.lua_ssl_trusted_certificate) {
        let pem = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        roots.extend(ca_certificates(&pem).map_err(|error| error.to_string())?);
    }
    if roots.is_empty() {
        return Err("lua_ssl_trusted_certificate names no authority".to_owned());
    }
    tls::client_config(Some(Verify { roots, depth: None }), None).map_err(|error| error.to_string())
}

/// Puts secrets in the place of references to them. Those in settings of vaults come first, because the others need these.
pub(super) fn resolve(given: &mut Given, problems: &mut Vec<Problem>) {
    if !given.texts().any(|(_, text)| is_reference(text)) {
        return;
    }
    let of_vaults =
        |name: &str| name.starts_with("vault_") || ["vaults", "lua_ssl_trusted_certificate"].contains(&name);
    for only_vaults in [true, false] {
        let known = given.only(|name, text| of_vaults(name) && !is_reference(text));
        // What is wrong with these is reported when all are read.
        let Some(settings) = Settings::read(&known, &mut Vec::new()) else { return };
        let vaults = Vaults::default();
        configure(&vaults, &settings);
        let secret_of =
            |reference: &str| vaults.get(reference, &[]).map_err(|error| error.reason().to_owned());
        given.resolve(|name| !only_vaults || of_vaults(name), secret_of, problems);
    }
}
