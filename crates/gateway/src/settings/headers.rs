//! Which headers the gateway adds.
use super::value::Value;

/// One switch for each header the gateway adds to responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Headers {
    /// `Server`, on responses of the gateway itself.
    pub(crate) server: bool,
    /// `Via`, on responses of upstreams.
    pub(crate) via: bool,
    /// `X-Kong-Proxy-Latency`.
    pub(crate) proxy_latency: bool,
    /// `X-Kong-Upstream-Latency`.
    pub(crate) upstream_latency: bool,
    /// `X-Kong-Response-Latency`.
    pub(crate) response_latency: bool,
    /// `X-Kong-Admin-Latency`.
    pub(crate) admin_latency: bool,
    /// `X-Kong-Upstream-Status`.
    pub(crate) upstream_status: bool,
    /// `X-Kong-Request-Id`.
    pub(crate) request_id: bool,
}

impl Value for Headers {
    const KIND: &'static str = "names of headers, `server_tokens`, `latency_tokens`, or `off`";
    fn parse(text: &str) -> Result<Self, String> {
        let mut headers = Headers::default();
        // As in Kong, `off` beside other names has no effect.
        let names = Vec::<String>::parse(text)?;
        names.iter().filter(|name| *name != "off").try_for_each(|name| headers.enable(name))?;
        Ok(headers)
    }
    fn shown(text: &str) -> serde_json::Value {
        Vec::<String>::shown(text)
    }
}

impl Headers {
    fn enable(&mut self, name: &str) -> Result<(), String> {
        match name.to_ascii_lowercase().as_str() {
            "server_tokens" => (self.server, self.via) = (true, true),
            "latency_tokens" => {
                (self.proxy_latency, self.upstream_latency) = (true, true);
                (self.response_latency, self.admin_latency) = (true, true);
            }
            "server" => self.server = true,
            "via" => self.via = true,
            "x-kong-proxy-latency" => self.proxy_latency = true,
            "x-kong-upstream-latency" => self.upstream_latency = true,
            "x-kong-response-latency" => self.response_latency = true,
            "x-kong-admin-latency" => self.admin_latency = true,
            "x-kong-upstream-status" => self.upstream_status = true,
            "x-kong-request-id" => self.request_id = true,
            _ => {
                return Err(format!(
                    "`{name}` is not a header of the gateway: use server_tokens, latency_tokens, Server, Via, \
                     X-Kong-Proxy-Latency, X-Kong-Upstream-Latency, X-Kong-Response-Latency, X-Kong-Admin-Latency, \
                     X-Kong-Upstream-Status, X-Kong-Request-Id, or `off`"
                ));
            }
        }
        Ok(())
    }
}

/// One switch for each header the gateway adds to requests for upstreams, beside those that every proxy adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UpstreamHeaders {
    /// `X-Kong-Request-Id`.
    pub(crate) request_id: bool,
}

impl Value for UpstreamHeaders {
    const KIND: &'static str = "`X-Kong-Request-Id` or `off`";
    fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "off" => Ok(UpstreamHeaders { request_id: false }),
            "x-kong-request-id" => Ok(UpstreamHeaders { request_id: true }),
            _ => Err(format!("`{text}` is neither `X-Kong-Request-Id` nor `off`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_stand_for_several_headers() {
        let headers = Headers::parse("server_tokens, x-kong-request-id").unwrap();
        assert_eq!(headers, Headers { server: true, via: true, request_id: true, ..Headers::default() });
    }

    #[test]
    fn off_is_none_and_has_no_effect_beside_others() {
        assert_eq!(Headers::parse("off"), Ok(Headers::default()));
        assert_eq!(Headers::parse("off, via"), Ok(Headers { via: true, ..Headers::default() }));
        assert!(Headers::parse("X-Powered-By").is_err());
    }
}
