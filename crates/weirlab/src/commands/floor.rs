//! `weirlab floor`.
use crate::event_loop::{Announcement, ServiceArgs, ServiceError};
use crate::floor::start;
use std::net::SocketAddr;
use std::process::ExitCode;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    /// The upstream.
    #[arg(long, value_name = "ADDRESS")]
    to: SocketAddr,
}

/// Does it.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    serve(args).map_err(|error| error.to_string())
}

fn serve(Args { service, to }: Args) -> Result<ExitCode, ServiceError> {
    service.settle()?;
    let floor = start(&service.listeners(), to)?;
    service.serve(&floor.running, &Announcement::new(floor.listen.clone()))
}
