//! Hosts and their ports.

/// An authority without its port; IPv6 addresses keep their brackets.
pub fn without_port(authority: &str) -> &str {
    &authority[..host_end(authority.as_bytes())]
}

/// Where an authority's port begins, or its end.
pub fn host_end(authority: &[u8]) -> usize {
    match authority.iter().rposition(|byte| matches!(byte, b':' | b']')) {
        Some(at) if authority[at] == b':' => at,
        _ => authority.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::without_port;

    #[test]
    fn ports_are_cut_and_brackets_kept() {
        let cases = [("a:80", "a"), ("a", "a"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("", "")];
        for (authority, host) in cases {
            assert_eq!(without_port(authority), host);
        }
    }
}
