//! The laboratory's command line.
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;
use weirlab::{catalogue, compare, floor, front, load, report, upstream};

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
    /// Generate load on a URL.
    Load(load::command::Args),
    /// Serve as an upstream that costs next to nothing.
    Upstream(upstream::command::Args),
    /// Relay to an upstream as barely as is correct.
    Floor(floor::command::Args),
    /// Spread connections over several gateways.
    Front(front::command::Args),
    /// List scenarios and targets.
    List(catalogue::command::Args),
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
        Command::Load(args) => load::command::run(args),
        Command::Upstream(args) => upstream::command::run(args),
        Command::Floor(args) => floor::command::run(args),
        Command::Front(args) => front::command::run(args),
        Command::List(args) => catalogue::command::run(args),
    }
}
