//! Requests that are sent again elsewhere, because the upstream failed, or answered what the client is not to get.

use super::Exchange;
use super::upstream_replacement::UpstreamOutcome;
use weir_http1::Framing;

/// What is here of the body of an upstream's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyBegin<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// There are no others, as far as it is known already.
    pub is_whole: bool,
}

/// Leads a request elsewhere after an attempt, and returns whether it has.
pub(crate) type FallBack = Box<dyn FnMut(&mut Exchange, UpstreamOutcome, BodyBegin<'_>) -> bool>;

impl Exchange {
    /// Has the function decide whether the request is sent elsewhere, as long as the client has got nothing of a response. It
    /// runs when the upstream has failed, and when it has answered: with the head in the exchange, and the bytes of the body
    /// that are here. Of a success it gets some, because one that ends before is a failure. To have the request sent again,
    /// the function leads it to another target, as access hooks do, and returns true; what the upstream alone was to get, such
    /// as the key of an API, is forgotten before. A response that is passed over is seen by no hook and no observer. For
    /// access hooks of plugins that want the request's body.
    pub fn fall_back(
        &mut self,
        decide: impl FnMut(&mut Exchange, UpstreamOutcome, BodyBegin<'_>) -> bool + 'static,
    ) {
        self.engine.extras().fall_back = Some(Box::new(decide));
    }
}

/// Whether a plugin may send the request elsewhere.
#[inline]
pub fn may_fall_back(exchange: &Exchange) -> bool {
    exchange.engine.extras.as_ref().is_some_and(|extras| extras.fall_back.is_some())
}

/// Has the plugin lead the request elsewhere, after this attempt, whose body begins so; whether it has.
pub fn falls_back(exchange: &mut Exchange, outcome: UpstreamOutcome, begin: BodyBegin<'_>) -> bool {
    // A body of which nothing is kept cannot be sent again.
    let is_here = exchange.engine.body_is_whole || exchange.request.framing == Framing::None;
    let extras = exchange.engine.extras();
    let Some(mut decide) = extras.fall_back.take().filter(|_| is_here) else { return false };
    let secrets = std::mem::take(&mut extras.secrets);
    let leads = decide(exchange, outcome, begin);
    let extras = exchange.engine.extras();
    if leads {
        extras.fall_back = Some(decide);
    } else {
        extras.secrets = secrets;
    }
    leads
}

#[cfg(test)]
mod tests {
    use super::{BodyBegin, UpstreamOutcome, falls_back, may_fall_back};
    use crate::engine::write_secret_headers;
    use crate::testing::Gateway;

    #[test]
    fn the_next_target_does_not_get_the_key_of_the_last() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        let begins = |bytes| BodyBegin { bytes, is_whole: false };
        assert!(
            !may_fall_back(&exchange) && !falls_back(&mut exchange, UpstreamOutcome::Failed, begins(b""))
        );
        exchange.set_secret_header("X-Key", b"first").unwrap();
        let mut left = 1;
        exchange.fall_back(move |exchange, _, begin| {
            assert_eq!(begin.bytes, b"{");
            left -= 1;
            exchange.set_secret_header("X-Other", b"second").unwrap();
            left >= 0
        });
        assert!(
            may_fall_back(&exchange) && falls_back(&mut exchange, UpstreamOutcome::Answered, begins(b"{"))
        );
        let sent = |exchange: &_| {
            let mut out = Vec::new();
            write_secret_headers(&mut out, exchange);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(sent(&exchange), "X-Other: second\r\n");
        assert!(
            !falls_back(&mut exchange, UpstreamOutcome::Failed, begins(b"{")) && !may_fall_back(&exchange)
        );
        assert_eq!(sent(&exchange), "X-Other: second\r\n");
    }
}
