//! Why a pattern cannot be matched.

use std::fmt;

use crate::steps::OutOfSteps;

/// An error in a pattern, or a pattern that costs too much. The texts are LuaJIT's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatternError {
    EndsWithPercent,
    MissingBracket,
    Unbalanced,
    MissingSet,
    TooComplex,
    CaptureIndex,
    TooManyCaptures,
    UnfinishedCapture,
    InvalidCapture,
    OutOfSteps(OutOfSteps),
}

impl From<OutOfSteps> for PatternError {
    fn from(error: OutOfSteps) -> Self {
        Self::OutOfSteps(error)
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EndsWithPercent => "malformed pattern (ends with '%')",
            Self::MissingBracket => "malformed pattern (missing ']')",
            Self::Unbalanced => "unbalanced pattern",
            Self::MissingSet => "missing '[' after '%f' in pattern",
            Self::TooComplex => "pattern too complex",
            Self::CaptureIndex => "invalid capture index",
            Self::TooManyCaptures => "too many captures",
            Self::UnfinishedCapture => "unfinished capture",
            Self::InvalidCapture => "invalid pattern capture",
            Self::OutOfSteps(error) => return error.fmt(f),
        })
    }
}
