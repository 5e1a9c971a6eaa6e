//! What ssh says when it fails, as what is wrong in the hosts file and how to fix it.
use super::file::HostEntry;
use crate::host::HostError;

/// A sign in ssh's message: the sign, the field it is about, what is wrong, and the fix.
const SIGNS: [(&str, &str, &str, &str); 12] = [
    (
        "identification has changed",
        "address",
        "its host key is another than the known one",
        "if the machine was set up anew, remove the old key with ssh-keygen -R; if not, something is in its place",
    ),
    (
        "host key verification failed",
        "address",
        "its host key is not known",
        "compare its fingerprint with that of the machine, and accept it by calling ssh once",
    ),
    (
        "permission denied (",
        "identity_file",
        "the host accepts no key of this user",
        "name the private key whose public half is in the authorized_keys of the user there",
    ),
    (
        "too many authentication failures",
        "identity_file",
        "ssh offered too many keys",
        "name the one that the host accepts",
    ),
    (
        "unprotected private key file",
        "identity_file",
        "others can read the private key, so ssh does not use it",
        "chmod 600 the file",
    ),
    (
        "error in libcrypto",
        "identity_file",
        "the file is not a private key",
        "name the private key, not its public half",
    ),
    (
        "could not resolve hostname",
        "address",
        "the name cannot be resolved",
        "correct it, or write an address",
    ),
    ("connection refused", "port", "no sshd listens there", "start it, or correct address and port"),
    (
        "connection timed out",
        "address",
        "the host does not answer",
        "check that it runs and that its firewall lets this machine in",
    ),
    (
        "operation timed out",
        "address",
        "the host does not answer",
        "check that it runs and that its firewall lets this machine in",
    ),
    ("no route to host", "address", "there is no route to it", "correct the address, or connect the network"),
    (
        "network is unreachable",
        "address",
        "there is no route to it",
        "correct the address, or connect the network",
    ),
];

/// The error for what ssh has said before it gave up.
pub(super) fn unreachable(host: &HostEntry, said: &str) -> HostError {
    let lower = said.to_lowercase();
    match SIGNS.iter().find(|(sign, ..)| lower.contains(sign)) {
        Some((_, field, what, fix)) => {
            let what = format!("{what} ({})", last_line(said));
            host.unusable(field, &what, fix)
        }
        None => {
            let what = format!("ssh does not connect ({})", last_line(said));
            host.unusable("address", &what, "make `ssh` to it work without a password first")
        }
    }
}

/// The error for a command of the shell there that failed.
pub(super) fn not_done(host: &HostEntry, doing: &str, said: &str) -> HostError {
    let lower = said.to_lowercase();
    let reason = last_line(said);
    let (what, fix) = if lower.contains("no space left") || lower.contains("quota exceeded") {
        (format!("its disk is full ({reason})"), "make room there")
    } else if ["connection closed", "connection reset", "broken pipe"].iter().any(|sign| lower.contains(sign))
    {
        (format!("the connection was lost ({reason})"), "check the host and the network, and run again")
    } else if lower.contains("read-only file system") || lower.contains("permission denied") {
        (format!("its user cannot write there ({reason})"), "name another user")
    } else if lower.contains("glibc") || lower.contains("not found") && lower.contains("version") {
        (
            format!("its C library is older than this program needs ({reason})"),
            "build weirlab there, or for musl, and name it as `weirlab`",
        )
    } else if lower.contains("exec format error") || lower.contains("cannot execute") {
        (format!("it cannot run this program ({reason})"), "name a weirlab of its architecture as `weirlab`")
    } else {
        (format!("it failed ({reason})"), "log in and see why")
    };
    host.unusable("address", &format!("{doing}: {what}"), fix)
}

fn last_line(said: &str) -> &str {
    said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing")
}
