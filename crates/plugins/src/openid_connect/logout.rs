//! Ends sessions, here and at the provider (OpenID Connect RP-Initiated Logout 1.0).

use super::Instance;
use super::client::form;
use super::login::{here, redirect, set_cookies, with_query};
use super::metadata::Metadata;
use super::session::Session;
use std::sync::Arc;
use weir_plugin::{Exchange, Flow, LocalResponse, Resume};

impl Instance {
    pub(super) fn log_out(self: &Arc<Self>, exchange: &mut Exchange, session: Option<Session>) -> Flow {
        if let Some(metadata) = self.provider().metadata() {
            return self.logged_out(exchange, &metadata, session);
        }
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let metadata = instance.provider().fetched_metadata().await;
            let rest = move |exchange: &mut Exchange| match metadata {
                Ok(metadata) => instance.logged_out(exchange, &metadata, session),
                // The session ends here all the same.
                Err(error) => Flow::Respond(instance.forgotten(exchange, error.answer(exchange.id()))),
            };
            Box::new(rest) as Resume
        }))
    }

    fn logged_out(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        metadata: &Arc<Metadata>,
        session: Option<Session>,
    ) -> Flow {
        let answer = self.farewell(exchange, metadata, session.as_ref());
        let answer = self.forgotten(exchange, answer);
        if let Some(session) = session.filter(|_| self.config.revoke_tokens_on_logout) {
            self.revoke(metadata.clone(), session);
        }
        Flow::Respond(answer)
    }

    /// A response that has the browser forget the session.
    fn forgotten(&self, exchange: &Exchange, answer: LocalResponse) -> LocalResponse {
        let cookies = self.cookies.as_ref().map(|cookies| cookies.keeper.forget(exchange, 0));
        set_cookies(answer, &cookies.unwrap_or_default())
    }

    /// The response to a logout: to the provider, else to where the configuration says.
    fn farewell(&self, exchange: &Exchange, metadata: &Metadata, session: Option<&Session>) -> LocalResponse {
        let after = self.config.post_logout_redirect_uri.as_deref();
        let after = after.map(|uri| if uri.starts_with('/') { here(exchange, uri) } else { uri.to_owned() });
        let Some(endpoint) = &metadata.end_session_endpoint else {
            return match after {
                Some(uri) => redirect(&uri),
                None => LocalResponse::raw(200, Some("text/plain; charset=utf-8"), "Logged out\n")
                    .header("Cache-Control", "no-store"),
            };
        };
        let mut parameters = vec![("client_id", &*self.config.client_id)];
        let id_token = session.and_then(|session| session.id_token.as_deref());
        parameters.extend(id_token.map(|token| ("id_token_hint", token)));
        parameters.extend(after.as_deref().map(|uri| ("post_logout_redirect_uri", uri)));
        redirect(&with_query(endpoint, &form(parameters)))
    }

    /// Has the tokens of a session revoked, for which the browser does not wait.
    fn revoke(self: &Arc<Self>, metadata: Arc<Metadata>, session: Session) {
        let Session { refresh_token, access_token, .. } = session;
        let tokens = [("refresh_token", refresh_token), ("access_token", access_token)];
        let tokens: Vec<_> = tokens.into_iter().filter_map(|(hint, token)| Some((hint, token?))).collect();
        let instance = self.clone();
        self.provider().background().spawn(async move { instance.client.revoke(&metadata, &tokens).await });
    }
}

/// Whether a page of another site has the browser send this request. Older browsers, and those without HTTPS, say it less exactly.
pub(super) fn is_from_another_site(exchange: &Exchange) -> bool {
    let headers = &exchange.request.headers;
    if let Some(site) = headers.get("Sec-Fetch-Site") {
        return site == b"cross-site";
    }
    let page = headers.get("Origin").or_else(|| headers.get("Referer"));
    page.is_some_and(|page| {
        host_of(page).is_none_or(|host| !exchange.forwarded_host().eq_ignore_ascii_case(&host))
    })
}

/// The host of a page's URL.
fn host_of(page: &[u8]) -> Option<String> {
    let uri = http::Uri::try_from(page).ok()?;
    uri.host().filter(|_| uri.scheme().is_some()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plugin::testing::Gateway;

    #[test]
    fn another_site_is_recognised() {
        let gateway = Gateway::new(&[]);
        for (headers, expected) in [
            ("", false),
            ("Sec-Fetch-Site: none", false),
            ("Sec-Fetch-Site: same-origin", false),
            ("Sec-Fetch-Site: same-site\nReferer: https://evil.test/", false),
            ("Sec-Fetch-Site: cross-site", true),
            ("Sec-Fetch-Site: cross-site\nReferer: http://gateway.test/", true),
            ("Origin: http://gateway.test", false),
            ("Origin: http://GATEWAY.test:8000\nReferer: http://evil.test/", false),
            ("Origin: http://evil.test", true),
            ("Origin: null", true),
            ("Referer: http://gateway.test:8000/a?b", false),
            ("Referer: http://gateway.test.evil.test/", true),
            ("Referer: http://gateway.test@evil.test/", true),
            ("Referer: gateway.test", true),
        ] {
            let exchange = gateway.exchange(&format!("GET /logout\n{headers}"));
            assert_eq!(is_from_another_site(&exchange), expected, "{headers}");
        }
    }
}
