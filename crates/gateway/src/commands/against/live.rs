//! Reads the configuration of a running Kong from its Admin API.
use crate::commands::client::client;
use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::{Map, Value, json};
use std::time::Duration;
use weir_plugin::HttpClient;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The lists of the Admin API, and the members of a file that they become.
const LISTS: [(&str, &str); 18] = [
    ("services", "services"),
    ("routes", "routes"),
    ("consumers", "consumers"),
    ("consumer_groups", "consumer_groups"),
    ("plugins", "plugins"),
    ("upstreams", "upstreams"),
    ("certificates", "certificates"),
    ("snis", "snis"),
    ("ca_certificates", "ca_certificates"),
    ("vaults", "vaults"),
    ("key_sets", "key-sets"),
    ("keys", "keys"),
    ("keyauth_credentials", "key-auths"),
    ("basicauth_credentials", "basic-auths"),
    ("hmacauth_credentials", "hmac-auths"),
    ("jwt_secrets", "jwts"),
    ("acls", "acls"),
    ("oauth2_credentials", "oauth2"),
];

/// The configuration behind an Admin API, as the text of a declarative file in JSON.
pub(crate) fn fetched(url: &str) -> Result<String, String> {
    let api = Api { client: client(false)?, base: url.trim_end_matches('/').to_owned() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let document = runtime.map_err(|error| error.to_string())?.block_on(api.document())?;
    serde_json::to_string_pretty(&document).map_err(|error| error.to_string())
}

struct Api {
    client: HttpClient,
    base: String,
}

impl Api {
    async fn document(&self) -> Result<Value, String> {
        let node = self.get("/").await?;
        if node.as_ref().is_none_or(|node| node["version"].is_null()) {
            let base = &self.base;
            return Err(format!(
                "{base}: no Admin API answers here (GET / has no `version`): name that of a running Kong, such as \
                 http://kong:8001"
            ));
        }
        let mut document = Map::new();
        document.insert("_format_version".to_owned(), json!("3.0"));
        for (member, path) in LISTS {
            let entities = self.list(&format!("/{path}?size=1000")).await?;
            if !entities.is_empty() {
                document.insert(member.to_owned(), entities.into());
            }
        }
        let ids: Vec<_> = ids(document.get("upstreams"));
        let mut targets = Vec::new();
        for id in ids {
            targets.extend(self.list(&format!("/upstreams/{id}/targets?size=1000")).await?);
        }
        if !targets.is_empty() {
            document.insert("targets".to_owned(), targets.into());
        }
        Ok(document.into())
    }

    /// All pages of a list; nothing where Kong does not have it.
    async fn list(&self, path: &str) -> Result<Vec<Value>, String> {
        let (mut all, mut next) = (Vec::new(), Some(path.to_owned()));
        while let Some(path) = next {
            let Some(mut page) = self.get(&path).await? else { break };
            if let Some(Value::Array(entities)) = page.get_mut("data").map(Value::take) {
                all.extend(entities.into_iter().map(as_in_a_file));
            }
            next = page.get("next").and_then(Value::as_str).map(str::to_owned);
        }
        Ok(all)
    }

    async fn get(&self, path: &str) -> Result<Option<Value>, String> {
        let url = format!("{}{path}", self.base);
        let failed =
            |why: &dyn std::fmt::Display| format!("{url}: {why}: name the Admin API of a running Kong");
        let request = Request::get(&url).body(Bytes::new()).map_err(|error| failed(&error))?;
        let response = self.client.send(request, TIMEOUT).await.map_err(|error| failed(&error))?;
        match response.status() {
            StatusCode::OK => {
                serde_json::from_slice(response.body()).map(Some).map_err(|error| failed(&error))
            }
            StatusCode::NOT_FOUND => Ok(None),
            status => Err(failed(&format!("status {status}"))),
        }
    }
}

fn ids(entities: Option<&Value>) -> Vec<String> {
    let entities = entities.and_then(Value::as_array).into_iter().flatten();
    entities.filter_map(|entity| entity["id"].as_str().map(str::to_owned)).collect()
}

/// An entity as a file has it: without what is null, and references as ids.
fn as_in_a_file(entity: Value) -> Value {
    let Value::Object(members) = entity else { return entity };
    let members = members.into_iter().filter(|(_, value)| !value.is_null());
    members.map(|(name, value)| (name, referenced(value))).collect::<Map<_, _>>().into()
}

fn referenced(value: Value) -> Value {
    match value.as_object() {
        Some(members) if members.len() == 1 => members.get("id").cloned().unwrap_or(value),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_become_ids_and_nulls_go() {
        let entity = json!({"name": "r", "service": {"id": "1"}, "hosts": null, "config": {"a": null}});
        assert_eq!(as_in_a_file(entity), json!({"name": "r", "service": "1", "config": {"a": null}}));
    }
}
