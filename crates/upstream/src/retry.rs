//! Retry policy: decides whether a request may be sent again once a connection to its target was made. A target that could
//! not be connected to is retried always, by the caller, which also counts attempts against `retries` and the budget.

use super::retry_budget::RetryReason;
use super::{Progress, UpstreamError};
use std::io;
use weir_http1::Method;

/// A failed attempt.
pub struct FailedAttempt<'f> {
    /// What went wrong.
    pub error: &'f UpstreamError,
    /// How much of the request was sent.
    pub progress: Progress,
    /// The connection was reused, and only it has ended.
    pub lost_idle_connection: bool,
    /// All that was sent of the body can be sent again.
    pub has_body: bool,
    /// Its method.
    pub method: Method,
}

impl FailedAttempt<'_> {
    /// Why the request may be sent again, if it may. Nothing of a response was passed on: this is asked before that.
    pub fn retry(&self) -> Option<RetryReason> {
        let is_safe = self.progress != Progress::Unknown || is_idempotent(self.method);
        if !self.has_body || !is_safe {
            return None;
        }
        match self.error {
            UpstreamError::Timeout => Some(RetryReason::Timeout),
            UpstreamError::Closed(error) if is_invalid(error) => None,
            UpstreamError::Closed(_) if self.lost_idle_connection => Some(RetryReason::IdleClosed),
            UpstreamError::Closed(_) | UpstreamError::Reset(_) => Some(match self.progress {
                Progress::Refused => RetryReason::Refused,
                Progress::Unsent | Progress::Unknown => RetryReason::Reset,
            }),
            _ => None,
        }
    }
}

/// Whether one side sent an invalid message. A retry would fail in the same way.
fn is_invalid(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

/// Whether the method is idempotent (RFC 9110 9.2.2).
fn is_idempotent(method: Method) -> bool {
    matches!(
        method,
        Method::Get | Method::Head | Method::Options | Method::Put | Method::Delete | Method::Trace
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_http1::ParseError;

    fn closed() -> UpstreamError {
        UpstreamError::Closed(io::ErrorKind::ConnectionReset.into())
    }

    fn retry(error: &UpstreamError, progress: Progress, method: Method) -> Option<RetryReason> {
        FailedAttempt { error, progress, lost_idle_connection: false, has_body: true, method }.retry()
    }

    #[test]
    fn idempotent_requests_are_sent_again_whatever_became_of_them() {
        for method in [Method::Get, Method::Head, Method::Options, Method::Put, Method::Delete, Method::Trace]
        {
            assert_eq!(retry(&closed(), Progress::Unknown, method), Some(RetryReason::Reset));
            assert_eq!(retry(&UpstreamError::Timeout, Progress::Unknown, method), Some(RetryReason::Timeout));
            let reset = UpstreamError::Reset(h2::Reason::INTERNAL_ERROR);
            assert_eq!(retry(&reset, Progress::Unknown, method), Some(RetryReason::Reset));
        }
    }

    #[test]
    fn others_are_sent_again_only_if_no_upstream_can_have_acted_on_them() {
        for method in [Method::Post, Method::Patch, Method::Other] {
            assert_eq!(retry(&closed(), Progress::Unknown, method), None);
            assert_eq!(retry(&UpstreamError::Timeout, Progress::Unknown, method), None);
            assert_eq!(retry(&closed(), Progress::Unsent, method), Some(RetryReason::Reset));
            assert_eq!(retry(&closed(), Progress::Refused, method), Some(RetryReason::Refused));
        }
    }

    #[test]
    fn what_is_no_response_is_not_asked_for_again() {
        let garbage = UpstreamError::InvalidResponse(ParseError::BodyLength);
        let invalid = UpstreamError::Closed(io::ErrorKind::InvalidData.into());
        for error in [garbage, invalid, UpstreamError::NoTarget] {
            assert_eq!(retry(&error, Progress::Unsent, Method::Get), None, "{error}");
        }
    }

    #[test]
    fn a_body_that_is_gone_cannot_be_sent_again() {
        let attempt = FailedAttempt {
            error: &closed(),
            progress: Progress::Refused,
            lost_idle_connection: true,
            has_body: false,
            method: Method::Put,
        };
        assert_eq!(attempt.retry(), None);
        assert_eq!(FailedAttempt { has_body: true, ..attempt }.retry(), Some(RetryReason::IdleClosed));
    }
}
