//! APISIX's azure-functions: the function is named by its URL.
use super::adapted::Adapted;
use crate::apisix::object::Invalid;
use http::Uri;
use serde_json::json;
use weir_model::schema::{FieldError, Json, Record, Secret};

/// Invokes a function in the place of an upstream.
#[derive(Clone, Record)]
#[record(check = names_a_function)]
pub(super) struct AzureFunctions {
    #[field(matches = url)]
    function_uri: String,
    authorization: Option<Authorization>,
    #[field(default = 3000, between = [100, 2147483646])]
    timeout: u32,
    #[field(default = true)]
    ssl_verify: bool,
    #[field(default = true)]
    keepalive: bool,
    #[field(default = 60000, between = [1000, 2147483646])]
    keepalive_timeout: u32,
    #[field(default = 5, between = [1, 2147483646])]
    keepalive_pool: u32,
}

/// What the function knows the caller by.
#[derive(Clone, Record)]
struct Authorization {
    #[field(secret)]
    apikey: Option<Secret>,
    #[field(secret)]
    clientid: Option<Secret>,
}

fn names_a_function(config: &AzureFunctions) -> Vec<FieldError> {
    let message = "expected the URL of a function without port and query, as in https://APP.azurewebsites.net/api/FUNCTION";
    match Function::of(&config.function_uri) {
        Some(_) => Vec::new(),
        None => vec![FieldError::new("function_uri", message)],
    }
}

/// A function by the parts of its URL.
struct Function {
    is_tls: bool,
    app: String,
    domain: String,
    prefix: String,
    name: String,
}

impl Function {
    fn of(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let (app, domain) = uri.host()?.split_once('.')?;
        let (prefix, name) = uri.path().trim_end_matches('/').rsplit_once('/')?;
        if uri.port().is_some() || uri.query().is_some() || name.is_empty() {
            return None;
        }
        let [app, domain, prefix, name] = [app, domain, prefix, name].map(str::to_owned);
        Some(Self { is_tls: uri.scheme_str() == Some("https"), app, domain, prefix, name })
    }
}

impl Adapted for AzureFunctions {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        let function = Function::of(&self.function_uri);
        let function = function.ok_or_else(|| Invalid::configuration("function_uri names no function"))?;
        let of = |get: fn(&Authorization) -> &Option<Secret>| {
            self.authorization.as_ref().and_then(|of| get(of).as_ref()).map(Secret::expose)
        };
        Ok(json!({
            "appname": function.app,
            "hostdomain": function.domain,
            "routeprefix": function.prefix,
            "functionname": function.name,
            "https": function.is_tls,
            "https_verify": self.ssl_verify,
            "apikey": of(|of| &of.apikey),
            "clientid": of(|of| &of.clientid),
            "timeout": self.timeout,
            "keepalive": if self.keepalive { self.keepalive_timeout } else { 0 },
        }))
    }
}
