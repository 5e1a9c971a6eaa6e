//! What 200,000 server names cost: nanoseconds of CPU to find a certificate by exact names, wildcards and unknown ones,
//! milliseconds to index them first and after one has changed, and MiB of the process, all entities included.
//! `cargo bench -p weir-net --bench sni [certificates]`.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

use rustls::SignatureScheme::ECDSA_NISTP256_SHA256;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use weir_model::entity::{Certificate, Sni};
use weir_model::{Document, Uuid};
use weir_net::tls::{Certificates, default_certificate};

const NAMES: usize = 200_000;
/// Several names share a certificate, or each has its own.
const CERTIFICATES: [usize; 3] = [1, 2_000, 200_000];
/// The quickest of these rounds counts: other processes can only slow one down.
const ROUNDS: usize = 7;
const FINDS: usize = 1_000_000;

/// Every third name is exact, has its wildcard first, has it last.
fn name(n: usize) -> String {
    match n % 3 {
        0 => format!("www.tenant-{n}.example.com"),
        1 => format!("*.tenant-{n}.example.com"),
        _ => format!("tenant-{n}.example.*"),
    }
}

fn asked(n: usize) -> String {
    if n % 3 == 2 { format!("tenant-{n}.example.org") } else { format!("www.tenant-{n}.example.com") }
}

fn certificate(n: usize) -> Arc<Certificate> {
    let issued =
        rcgen::generate_simple_self_signed([format!("tenant-{n}.example.com")]).expect("a certificate");
    Arc::new(Certificate {
        id: Uuid::from_u128(n as u128),
        cert: issued.cert.pem(),
        key: issued.signing_key.serialize_pem(),
        cert_alt: None,
        key_alt: None,
        tags: None,
        created_at: None,
        updated_at: None,
    })
}

fn sni(n: usize, certificates: usize, round: usize) -> Arc<Sni> {
    Arc::new(Sni {
        id: Uuid::from_u128(n as u128),
        name: name(n),
        certificate: Uuid::from_u128(((n + round) % certificates) as u128),
        tags: None,
        created_at: None,
        updated_at: None,
    })
}

/// Nanoseconds that this process has spent on a CPU, whatever else the machine does.
fn spent() -> f64 {
    let schedstat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

fn nanoseconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let before = spent();
    let done = work();
    (spent() - before, done)
}

fn quickest(round: impl FnMut(usize) -> f64) -> f64 {
    (1..=ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds to find the certificate of one of these names.
fn find(certificates: &Certificates, names: impl Iterator<Item = String>) -> f64 {
    let names: Vec<_> = names.collect();
    let all = || {
        for name in names.iter().cycle().take(FINDS) {
            black_box(certificates.find(Some(black_box(name)), &[ECDSA_NISTP256_SHA256]));
        }
    };
    quickest(|_| nanoseconds(all).0 / FINDS as f64)
}

/// A thousand names, of every third from this one on.
fn some(first: usize) -> impl Iterator<Item = String> {
    (0..1000).map(move |n| asked((first + n * 7919 * 3) % (NAMES - NAMES % 3)))
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    kib / 1024.0
}

fn measure(count: usize) {
    let mut document = Document {
        certificates: (0..count).map(certificate).collect(),
        snis: (0..NAMES).map(|n| sni(n, count, 0)).collect(),
        ..Document::default()
    };
    let default = default_certificate(None).expect("a certificate");
    let (first, built) = nanoseconds(|| Certificates::build(&document, default));
    let mut built = built.unwrap_or_else(|errors| panic!("{errors:?}"));
    let memory = resident_mib();
    let [exact, suffix, prefix] = [0, 1, 2].map(|kind| find(&built, some(kind)));
    let none = find(&built, (0..1000).map(|n| format!("www.unknown-{n}.example.net")));
    let again = quickest(|round| {
        document.snis[0] = sni(0, count, round);
        let (spent, rebuilt) = nanoseconds(|| built.rebuild(&document, |_| false));
        built = rebuilt.unwrap_or_else(|errors| panic!("{errors:?}"));
        spent
    });
    let [first, again] = [first, again].map(|ns| ns / 1e6);
    println!(
        "{count:>12} {exact:>8.0} {suffix:>7.0} {prefix:>7.0} {none:>8.0} {first:>9.0} {again:>9.0} {memory:>9.0}"
    );
}

/// Each in a process of its own, for the sake of its memory.
fn main() {
    if let Some(count) = std::env::args().skip(1).find_map(|argument| argument.parse().ok()) {
        return measure(count);
    }
    println!("certificates exact ns  *.x ns  x.* ns  none ns  first ms  again ms       MiB");
    for count in CERTIFICATES {
        let program = std::env::current_exe().expect("a path");
        let ended = Command::new(program).arg(count.to_string()).status();
        assert!(ended.expect("it runs").success());
    }
}
