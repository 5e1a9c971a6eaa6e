//! The laboratory's command line.
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;
use weirlab::{
    capacity, catalogue, compare, flame, floor, front, gate, load, power, report, session, upstream,
    waterfall,
};

/// Measures gateways side by side, with intervals.
#[derive(Parser)]
#[command(name = "weirlab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure scenarios before targets, side by side.
    Run(session::command::Args),
    /// Put two runs beside each other.
    Compare(compare::command::Args),
    /// Say whether a version is slower than another: exit 0 pass, 1 regression, 2 cannot tell.
    Gate(gate::command::Args),
    /// Say how many pairs of blocks an effect takes to show, by the noise that runs recorded.
    Power(power::command::Args),
    /// Search the highest rate that holds a service level.
    Capacity(capacity::command::Args),
    /// Draw flame graphs of targets under load.
    Flame(flame::command::Args),
    /// Show what each plugin of a chain costs, as the gateway itself measures it.
    Waterfall(waterfall::command::Args),
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
    /// End what a session leaves that is killed.
    #[command(hide = true)]
    Guard(session::guard::Args),
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
        Command::Run(args) => session::command::run(args),
        Command::Compare(args) => compare::command::run(args),
        Command::Gate(args) => gate::command::run(args),
        Command::Power(args) => power::command::run(args),
        Command::Capacity(args) => capacity::command::run(args),
        Command::Flame(args) => flame::command::run(args),
        Command::Waterfall(args) => waterfall::command::run(args),
        Command::Report(args) => report::command::run(args),
        Command::Load(args) => load::command::run(args),
        Command::Upstream(args) => upstream::command::run(args),
        Command::Floor(args) => floor::command::run(args),
        Command::Front(args) => front::command::run(args),
        Command::List(args) => catalogue::command::run(args),
        Command::Guard(args) => session::guard::run(args),
    }
}
