//! The response of the service, apart from the one that the client gets.

use super::{Exchange, Source};
use weir_http1::Headers;

/// Where the response comes from: what Kong's `kong.response.get_source` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseSource {
    /// The service has answered.
    Service,
    /// A plugin or the gateway has answered in its place.
    Exit,
    /// Something failed, so that the gateway answered.
    Error,
}

impl ResponseSource {
    /// Kong's name: `service`, `exit` or `error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Exit => "exit",
            Self::Error => "error",
        }
    }
}

impl Exchange {
    /// Where the response comes from.
    pub fn response_source(&self) -> ResponseSource {
        match self.source {
            Source::Service => ResponseSource::Service,
            Source::Kong if self.is_failure() => ResponseSource::Error,
            Source::Kong => ResponseSource::Exit,
        }
    }

    /// The status of the service's response, whatever plugins have made of it; none where it has not answered.
    pub fn service_status(&self) -> Option<u16> {
        self.engine.service_status
    }

    /// Keeps the headers of the service's response as they come, for [`Exchange::service_headers`]. For access hooks; a
    /// response hook keeps what the plugins before it have left.
    pub fn keep_service_headers(&mut self) {
        let is_here = self.engine.service_status.is_some();
        let now = is_here.then(|| self.response.headers.clone());
        let kept = &mut self.engine.extras().service_headers;
        if kept.is_none() {
            *kept = Some(now);
        }
    }

    /// The headers of the service's response, if they were kept and it has answered.
    pub fn service_headers(&self) -> Option<&Headers> {
        self.engine.extras.as_ref()?.service_headers.as_ref()?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::ResponseSource;
    use crate::engine;
    use crate::testing::{Gateway, failed};
    use crate::{ErrorTemplates, Exchange, LocalResponse, Source};

    fn answered(exchange: &mut Exchange) {
        exchange.engine.service_status = Some(exchange.response.status);
        engine::upstream_answers(exchange);
    }

    #[test]
    fn the_services_response_is_kept_apart() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        exchange.keep_service_headers();
        assert!(exchange.service_headers().is_none() && exchange.service_status().is_none());
        (exchange.response.status, exchange.source) = (201, Source::Service);
        exchange.response.headers.set("X-A", b"1");
        answered(&mut exchange);
        exchange.response.headers.set("X-A", b"2");
        exchange.response.status = 500;
        exchange.keep_service_headers();
        assert_eq!(exchange.service_headers().unwrap().get("X-A"), Some(&b"1"[..]));
        assert_eq!(exchange.service_status(), Some(201));
        assert_eq!(exchange.response_source().as_str(), "service");
    }

    #[test]
    fn a_response_hook_can_still_keep_what_there_is() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        answered(&mut exchange);
        exchange.response.headers.set("X-A", b"1");
        exchange.keep_service_headers();
        exchange.response.headers.clear();
        assert_eq!(exchange.service_headers().unwrap().get("X-A"), Some(&b"1"[..]));
    }

    #[test]
    fn a_response_of_the_gateways_own_is_an_exit_or_an_error() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        LocalResponse::message(403, "no").write(&mut exchange, &ErrorTemplates::default());
        assert_eq!(exchange.response_source(), ResponseSource::Exit);
        failed(&mut exchange);
        assert_eq!(exchange.response_source(), ResponseSource::Error);
    }
}
