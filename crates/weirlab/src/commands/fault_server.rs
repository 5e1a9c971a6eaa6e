//! `weirlab fault-server`: the upstream server of `weirlab faults`, which starts it.
use crate::faults::{Plan, serve};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where to listen; may be given several times.
    #[arg(long, value_name = "ADDRESS", required = true)]
    listen: Vec<SocketAddr>,
    /// Its certificate, in PEM, if it speaks TLS.
    #[arg(long, requires = "key")]
    certificate: Option<PathBuf>,
    /// The key of the certificate.
    #[arg(long, requires = "certificate")]
    key: Option<PathBuf>,
    /// The length of response bodies.
    #[arg(long, default_value_t = 1024)]
    body_bytes: usize,
}

/// Does it.
///
/// # Errors
/// When it cannot listen, or does not understand its input.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let plan = Plan { listen: args.listen, tls: args.certificate.zip(args.key), body_bytes: args.body_bytes };
    serve(&plan).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}
