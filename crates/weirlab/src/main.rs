//! The laboratory's command line.
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;
use weirlab::{compare, report};

/// Measures gateways side by side, with intervals.
#[derive(Parser)]
#[command(name = "weirlab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Put two runs beside each other.
    Compare(compare::command::Args),
    /// Write the report of a run again from its data.
    Report(report::command::Args),
}

fn main() -> ExitCode {
    match perform(Cli::parse().command) {
        Ok(code) => code,
        Err(message) => {
            // Nothing is left to do when even this cannot be written.
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::from(3)
        }
    }
}

fn perform(command: Command) -> Result<ExitCode, String> {
    match command {
        Command::Compare(args) => compare::command::run(args),
        Command::Report(args) => report::command::run(args),
    }
}
