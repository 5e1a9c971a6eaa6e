//! Why an expression is refused, and where.

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// The reason and, behind a semicolon, how to fix it.
    pub reason: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The character of the line, counted from 1.
    pub column: usize,
}

impl ExpressionError {
    /// An error at a byte of the text.
    pub(super) fn at(text: &str, at: usize, reason: impl Into<String>) -> ExpressionError {
        let before = text.get(..at).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ExpressionError {
            reason: reason.into(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl std::fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (wrong, hint) = self.reason.split_at(self.reason.find("; ").unwrap_or(self.reason.len()));
        write!(f, "{wrong} (line {}, column {}){hint}", self.line, self.column)
    }
}

impl std::error::Error for ExpressionError {}
