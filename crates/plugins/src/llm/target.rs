//! Where a provider is.

use http::Uri;
use weir_plugin::{Exchange, form, normalize_path};

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The path, decoded.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let wrong = || "the URL of the provider is invalid".to_owned();
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let tls = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or_else(wrong)?.to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let query = uri.query().map(str::to_owned);
        Ok(Self { tls, host, port, path: normalize_path(uri.path()).into_owned(), query })
    }

    pub(crate) fn set_path(&mut self, path: &str) {
        let path = path.trim_start_matches('/');
        self.path = normalize_path(&format!("/{path}")).into_owned();
    }

    /// Sends the request there, in the place of the service.
    pub(crate) fn apply(&self, exchange: &mut Exchange) -> Result<(), String> {
        exchange.set_target(&self.host, self.port).map_err(|error| error.to_string())?;
        exchange.set_upstream_host(&self.authority());
        exchange.set_upstream_tls(self.tls);
        exchange.set_upstream_path(self.path.clone());
        if let Some(own) = &self.query {
            let mut query = exchange.query().unwrap_or_default().to_owned();
            for pair in form::pairs(own) {
                query = form::without(&query, &String::from_utf8_lossy(&pair.name));
                let separator = if query.is_empty() { "" } else { "&" };
                query = format!("{query}{separator}{}", pair.raw);
            }
            exchange.set_query(query);
        }
        Ok(())
    }

    /// The host, and the port where it is not the scheme's.
    fn authority(&self) -> String {
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => self.host.clone(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }

    /// The whole URL.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{scheme}://{}{}{query}", self.authority(), self.path)
    }
}
