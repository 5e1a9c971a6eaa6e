//! `weirlab front`.
use crate::event_loop::{Announcement, ServiceArgs, ServiceError};
use crate::front::{Balance, start};
use std::net::SocketAddr;
use std::process::ExitCode;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    service: ServiceArgs,
    /// The targets, separated by commas.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', required = true)]
    to: Vec<SocketAddr>,
    /// Which target a connection goes to.
    #[arg(long, value_enum, default_value_t)]
    balance: Balance,
}

/// Does it.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    serve(args).map_err(|error| error.to_string())
}

fn serve(Args { service, to, balance }: Args) -> Result<ExitCode, ServiceError> {
    service.settle()?;
    let front = start(&service.listeners(), to, balance)?;
    service.serve(&front.running, &Announcement::new(front.listen.clone()))
}
