//! The form of a pattern, without a subject to match it with: matching finds only what it comes to.

use super::error::PatternError;

/// `Err` if a part of the pattern is wrong whatever the subject.
pub(super) fn check(pattern: &[u8]) -> Result<(), PatternError> {
    let end = pattern.iter().position(|byte| *byte == 0).unwrap_or(pattern.len());
    let mut rest = &pattern[..end];
    let mut open = 0_usize;
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'(', after) => {
                open += 1;
                after
            }
            (b')', after) => {
                open = open.checked_sub(1).ok_or(PatternError::InvalidCapture)?;
                after
            }
            (b'%', []) => return Err(PatternError::EndsWithPercent),
            (b'%', [b'b', _, _, after @ ..]) => after,
            (b'%', [b'b', ..]) => return Err(PatternError::Unbalanced),
            (b'%', [b'f', b'[', after @ ..]) => after_set(after)?,
            (b'%', [b'f', ..]) => return Err(PatternError::MissingSet),
            (b'%', [_, after @ ..]) => after,
            (b'[', after) => after_set(after)?,
            (_, after) => after,
        };
    }
    if open == 0 { Ok(()) } else { Err(PatternError::UnfinishedCapture) }
}

/// What follows a set whose `[` has been read. A `]` that comes first belongs to it.
fn after_set(set: &[u8]) -> Result<&[u8], PatternError> {
    let mut rest = set.strip_prefix(b"^").unwrap_or(set);
    let mut is_first = true;
    loop {
        rest = match rest {
            [b']', after @ ..] if !is_first => return Ok(after),
            [b'%', _, after @ ..] | [_, after @ ..] => after,
            [] => return Err(PatternError::MissingBracket),
        };
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_no_subject_can_be_matched_with_is_wrong() {
        for (pattern, expected) in [
            ("[", "malformed pattern (missing ']')"),
            ("a[^]", "malformed pattern (missing ']')"),
            ("a[b%]", "malformed pattern (missing ']')"),
            ("x%", "malformed pattern (ends with '%')"),
            ("^(a", "unfinished capture"),
            ("a)", "invalid pattern capture"),
            ("%bx", "unbalanced pattern"),
            ("%fa", "missing '[' after '%f' in pattern"),
        ] {
            let found = check(pattern.as_bytes()).map_err(|error| error.to_string());
            assert_eq!(found, Err(expected.to_owned()), "{pattern}");
        }
        for good in
            ["", "^%d+$", "[]]", "[^]a]", "[%]]", "(a)(b)", "%bxy", "%f[%w]a", "a%[", "[a%-z]*-?", "()", "%1"]
        {
            assert_eq!(check(good.as_bytes()), Ok(()), "{good}");
        }
    }
}
