//! A provider that requests are sent to, in the place of the service.

use super::call::{TOKEN_LIMITS, remove_token_limits};
use super::config::Llm;
use super::{Backend, Call, LlmError, Object, Prompts, Route, Target, aws};
use crate::shared::aws::Credentials;
use weir_plugin::{Exchange, Json, Method, Secret};

/// A configured provider.
pub(crate) struct Provider {
    pub(crate) backend: Backend,
    /// Of AWS, if that is asked.
    credentials: Option<Credentials>,
    /// Requests and responses are in the provider's own form.
    pub(crate) is_native: bool,
    /// More headers that the provider alone gets.
    headers: Vec<(String, Secret)>,
    /// More members of the body.
    members: Object,
}

impl Provider {
    /// The headers of a request that [`Provider::send`] changes, beside its secrets.
    pub(crate) const CHANGED_HEADERS: [&str; 6] = [
        "Accept-Encoding",
        "anthropic-version",
        "Authorization",
        "Content-Encoding",
        "Content-Type",
        "Cookie",
    ];

    pub(crate) fn new(config: Llm, is_native: bool) -> Self {
        let is_signed = config.model.provider == "bedrock";
        let credentials = if is_signed { aws::credentials(config.auth.as_ref()) } else { None };
        let (headers, members) = (Vec::new(), Object::new());
        Self { backend: Backend::new(config), credentials, is_native, headers, members }
    }

    /// The same, with more headers and members of the body.
    pub(crate) fn with(self, headers: Vec<(String, Secret)>, members: Object) -> Self {
        Self { headers, members, ..self }
    }

    /// The same, where requests are signed as these of AWS.
    pub(crate) fn signed_by(self, credentials: Option<Credentials>) -> Self {
        Self { credentials, ..self }
    }

    /// Whether requests and responses pass in the form that they have.
    pub(crate) fn keeps_form(&self, call: &Call) -> bool {
        call.route == Route::Preserve || self.is_native
    }

    /// Replaces body, target and headers by what the provider expects.
    pub(crate) fn send(
        &self,
        exchange: &mut Exchange,
        mut prompts: Prompts,
        call: &Call,
    ) -> Result<(), LlmError> {
        if call.route != Route::Preserve && exchange.request.method == Method::Head {
            return Err(LlmError::Head);
        }
        let mut target = self.backend.target(call, exchange.path())?;
        let auth = self.backend.auth();
        let key = auth.and_then(|auth| auth.param_name.as_ref().zip(auth.param_value.as_ref()));
        let allows_own = auth.is_some_and(|auth| auth.allow_override);
        let key_in_body =
            key.filter(|_| auth.is_some_and(|auth| auth.param_location.as_deref() == Some("body")));
        let key_in_body = key_in_body.filter(|(name, _)| !(allows_own && prompts.0.contains_key(*name)));
        let is_unchanged = self.keeps_form(call);
        if self.is_native {
            target.query = None;
        }
        if !is_unchanged || key_in_body.is_some() {
            if TOKEN_LIMITS.iter().any(|name| self.members.contains_key(*name)) {
                remove_token_limits(&mut prompts.0);
            }
            prompts.0.extend(self.members.clone());
            let mut body = match is_unchanged {
                true => Json::Object(std::mem::take(&mut prompts.0)),
                false => self.backend.body(prompts, call)?,
            };
            if let Some((name, value)) = key_in_body {
                body[name] = value.expose().into();
            }
            let body = serde_json::to_vec(&body).map_err(|error| LlmError::Provider(error.to_string()))?;
            exchange.set_body(body);
            exchange.request.headers.set("Content-Type", b"application/json");
            exchange.request.headers.remove("Content-Encoding");
        }
        self.lead(exchange, &target, call).map_err(LlmError::Provider)?;
        self.sign(exchange, &target, call)
    }

    /// Signs the request, if the provider is AWS.
    fn sign(&self, exchange: &mut Exchange, target: &Target, call: &Call) -> Result<(), LlmError> {
        let Some(region) = self.backend.dialect.region(call) else { return Ok(()) };
        let body = exchange.body().unwrap_or_default();
        // The client may have a query of its own.
        let target = Target { query: exchange.query().map(str::to_owned), ..target.clone() };
        for (name, value) in aws::signature(self.credentials.as_ref(), &region, (&target, body))? {
            let set = exchange.set_secret_header(&name, value.expose().as_bytes());
            set.map_err(|error| LlmError::Provider(error.to_string()))?;
        }
        Ok(())
    }

    /// Leads the request to its target, with the headers and the key that it needs there.
    fn lead(&self, exchange: &mut Exchange, target: &Target, call: &Call) -> Result<(), String> {
        target.apply(exchange)?;
        if call.route != Route::Preserve {
            exchange.set_method("POST");
        }
        exchange.request.headers.set("Accept-Encoding", b"identity");
        for (name, value) in self.backend.dialect.headers(call) {
            exchange.request.headers.set(name, value.as_bytes());
        }
        let Some(auth) = self.backend.auth() else { return Ok(()) };
        if !auth.allow_override {
            // They are of the gateway, not of the provider.
            exchange.request.headers.remove("Authorization");
            exchange.request.headers.remove("Cookie");
        }
        let own = auth.header_name.as_ref().zip(auth.header_value.as_ref());
        let own = own.filter(|(name, _)| {
            !(auth.allow_override && exchange.request.headers.get(name.as_str()).is_some())
        });
        for (name, value) in own.into_iter().chain(self.headers.iter().map(|(name, value)| (name, value))) {
            exchange.set_secret_header(name, value.expose().as_bytes()).map_err(|error| error.to_string())?;
        }
        if let Some((name, value)) = auth.param_name.as_ref().zip(auth.param_value.as_ref())
            && auth.param_location.as_deref() == Some("query")
            && !(auth.allow_override && exchange.query_arg(name).is_some())
        {
            exchange.set_secret_query_arg(name, value.expose());
        }
        Ok(())
    }
}
