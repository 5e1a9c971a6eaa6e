//! A scenario of any declarative file: its chains as they are, before the laboratory's upstream.
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};
use tempfile::TempDir;

/// What is asked of the file's gateway.
pub(crate) struct RequestSpec<'a> {
    pub(crate) request: &'a str,
    pub(crate) headers: &'a [(String, String)],
    pub(crate) status: u16,
    pub(crate) connections: u32,
}

/// Stands for the upstream's address until all else is escaped.
const UPSTREAM: &str = "weirlab-upstream";

/// A scenario in a folder that is removed with it.
pub(crate) struct GeneratedScenario {
    _folder: TempDir,
    pub(crate) path: PathBuf,
}

/// Writes the scenario, called as the file is.
///
/// # Errors
/// When the file cannot be read, or is no declarative file.
pub(crate) fn scenario(file: &Path, asked: &RequestSpec<'_>) -> Result<GeneratedScenario, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut document: Value =
        serde_saphyr::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    if !document.is_object() {
        return Err(format!("{}: a declarative file has members such as services", file.display()));
    }
    for service in document["services"].as_array_mut().into_iter().flatten() {
        if let Value::Object(service) = service {
            lead_here(service);
        }
    }
    let written = tempfile::tempdir().and_then(|folder| {
        let path = folder.path().join(file.file_stem().unwrap_or(file.as_os_str()));
        fs::create_dir(&path)?;
        fs::write(path.join("kong.yml"), template(&document))?;
        fs::write(path.join("scenario.toml"), manifest(file, asked).map_err(io::Error::other)?)?;
        Ok(GeneratedScenario { _folder: folder, path })
    });
    written.map_err(|error| format!("a working folder: {error}"))
}

/// Has a service lead to the laboratory's upstream; its path is its own.
fn lead_here(service: &mut Map<String, Value>) {
    let url = service.remove("url");
    let path = url.as_ref().and_then(Value::as_str).and_then(|url| {
        let (_, rest) = url.split_once("://")?;
        rest.find('/').map(|at| rest[at..].to_owned())
    });
    let own = service.remove("path").and_then(|path| path.as_str().map(str::to_owned));
    for field in [
        "host",
        "port",
        "protocol",
        "tls_verify",
        "tls_verify_depth",
        "client_certificate",
        "ca_certificates",
    ] {
        service.remove(field);
    }
    let path = own.or(path).unwrap_or_default();
    service.insert("url".to_owned(), format!("http://{UPSTREAM}{path}").into());
}

/// JSON is YAML; what the templates would take for theirs is written as text.
fn template(document: &Value) -> String {
    let mut text = String::new();
    let json = document.to_string();
    let mut rest = json.as_str();
    while let Some(at) = ["{{", "{%", "{#"].into_iter().filter_map(|marker| rest.find(marker)).min() {
        let (before, after) = rest.split_at(at);
        let (marker, after) = after.split_at(2);
        text.push_str(before);
        text.push_str(&format!("{{{{ '{marker}' }}}}"));
        rest = after;
    }
    text.push_str(rest);
    text.replace(UPSTREAM, "{{ upstream }}")
}

fn manifest(file: &Path, asked: &RequestSpec<'_>) -> Result<String, String> {
    let (method, path) = asked.request.split_once(' ').unwrap_or(("GET", asked.request));
    let headers: BTreeMap<&str, &str> =
        asked.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let request =
        json!({ "method": method, "path": path.trim(), "headers": headers, "status": [asked.status] });
    let parity = json!({ "method": method, "path": path.trim(), "headers": headers, "status": asked.status });
    let manifest = json!({
        "title": format!("{} of {}", asked.request, file.display()),
        "source": file.display().to_string(),
        "schemes": ["http", "https", "h2", "h2c"],
        "load": { "connections": asked.connections, "threads": 1, "request": [request] },
        "parity": [parity],
    });
    toml::to_string(&manifest).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(service: Value) -> Value {
        let mut service = service.as_object().unwrap().clone();
        lead_here(&mut service);
        service.into()
    }

    #[test]
    fn services_lead_to_the_upstream_by_their_own_paths() {
        let here = |path: &str| json!({ "url": format!("http://{UPSTREAM}{path}") });
        assert_eq!(leads(json!({ "url": "https://example.com:8443/v1/x" })), here("/v1/x"));
        assert_eq!(leads(json!({ "url": "https://example.com" })), here(""));
        assert_eq!(
            leads(json!({ "host": "example.com", "port": 1, "path": "/a", "protocol": "https" })),
            here("/a")
        );
    }

    #[test]
    fn what_looks_like_a_template_stays_as_it_is() {
        let document = json!({ "a": "{{ x }} {% y %} {# z #}", "b": format!("http://{UPSTREAM}/") });
        let context = BTreeMap::from([("upstream", "127.0.0.1:9")]);
        let rendered =
            crate::catalogue::render(Path::new("kong.yml"), &template(&document), &context).unwrap();
        let rendered: Value = serde_json::from_str(&rendered).unwrap();
        assert_eq!(rendered, json!({ "a": "{{ x }} {% y %} {# z #}", "b": "http://127.0.0.1:9/" }));
    }
}
