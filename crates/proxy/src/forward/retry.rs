//! Whether a request that got no response may be sent again. This is the one place that decides.

use crate::answer::Failure;
use crate::upstream::Progress;
use crate::upstream::retry_budget::Reason;
use std::io;
use weir_http1::Method;

/// What is known of an attempt that failed.
pub(super) struct Attempt<'f> {
    pub(super) failure: &'f Failure,
    pub(super) progress: Progress,
    /// The connection was a kept one, and only it has ended.
    pub(super) lost_kept_connection: bool,
    /// All that was sent of the body can be sent again.
    pub(super) has_body: bool,
    pub(super) method: Method,
}

impl Attempt<'_> {
    /// Why the request may be sent again, if it may. Nothing of a response was passed on: this is asked before that.
    pub(super) fn retry(&self) -> Option<Reason> {
        let is_safe = self.progress != Progress::Unknown || is_idempotent(self.method);
        if !self.has_body || !is_safe {
            return None;
        }
        match self.failure {
            Failure::UpstreamTimeout => Some(Reason::Timeout),
            Failure::UpstreamClosed(error) if is_invalid(error) => None,
            Failure::UpstreamClosed(_) if self.lost_kept_connection => Some(Reason::Kept),
            Failure::UpstreamClosed(_) | Failure::UpstreamReset(_) => Some(match self.progress {
                Progress::Refused => Reason::Refused,
                Progress::Unsent | Progress::Unknown => Reason::Reset,
            }),
            _ => None,
        }
    }
}

/// Whether one side sent what is no valid message. Another attempt would end in the same way.
fn is_invalid(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
}

/// Whether two requests have the same effect as one (RFC 9110 9.2.2).
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

    fn closed() -> Failure {
        Failure::UpstreamClosed(io::ErrorKind::ConnectionReset.into())
    }

    fn retry(failure: &Failure, progress: Progress, method: Method) -> Option<Reason> {
        Attempt { failure, progress, lost_kept_connection: false, has_body: true, method }.retry()
    }

    #[test]
    fn idempotent_requests_are_sent_again_whatever_became_of_them() {
        for method in [Method::Get, Method::Head, Method::Options, Method::Put, Method::Delete, Method::Trace]
        {
            assert_eq!(retry(&closed(), Progress::Unknown, method), Some(Reason::Reset));
            assert_eq!(retry(&Failure::UpstreamTimeout, Progress::Unknown, method), Some(Reason::Timeout));
            let reset = Failure::UpstreamReset(h2::Reason::INTERNAL_ERROR);
            assert_eq!(retry(&reset, Progress::Unknown, method), Some(Reason::Reset));
        }
    }

    #[test]
    fn others_are_sent_again_only_if_no_upstream_can_have_acted_on_them() {
        for method in [Method::Post, Method::Patch, Method::Other] {
            assert_eq!(retry(&closed(), Progress::Unknown, method), None);
            assert_eq!(retry(&Failure::UpstreamTimeout, Progress::Unknown, method), None);
            assert_eq!(retry(&closed(), Progress::Unsent, method), Some(Reason::Reset));
            assert_eq!(retry(&closed(), Progress::Refused, method), Some(Reason::Refused));
        }
    }

    #[test]
    fn what_is_no_response_is_not_asked_for_again() {
        let garbage = Failure::UpstreamGarbage(ParseError::BodyLength);
        let invalid = Failure::UpstreamClosed(io::ErrorKind::InvalidData.into());
        for failure in [garbage, invalid, Failure::ClientGone, Failure::DeadlineExceeded] {
            assert_eq!(retry(&failure, Progress::Unsent, Method::Get), None, "{failure}");
        }
    }

    #[test]
    fn a_body_that_is_gone_cannot_be_sent_again() {
        let attempt = Attempt {
            failure: &closed(),
            progress: Progress::Refused,
            lost_kept_connection: true,
            has_body: false,
            method: Method::Put,
        };
        assert_eq!(attempt.retry(), None);
        assert_eq!(Attempt { has_body: true, ..attempt }.retry(), Some(Reason::Kept));
    }
}
