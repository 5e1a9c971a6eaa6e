//! The laboratory's command line.
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;
use weirlab::commands::{
    capacity, compare, fault_server, faults, flame, fleet, floor, front, gate, join, list, load, observe,
    power, report, reproduce, run, site, upstream, waterfall,
};
use weirlab::host;

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
    Run(run::Args),
    /// Put two runs beside each other.
    Compare(compare::Args),
    /// Put runs of several machines into one report: rate, latency, scale-out and cost.
    Join(join::Args),
    /// Say whether a version is slower than another: exit 0 pass, 1 regression, 2 cannot tell.
    Gate(gate::Args),
    /// Say how many pairs of blocks an effect takes to show, by the noise that runs recorded.
    Power(power::Args),
    /// Search the highest rate that holds a service level.
    Capacity(capacity::Args),
    /// Draw flame graphs of targets under load.
    Flame(flame::Args),
    /// Show what each plugin of a chain costs, as the gateway itself measures it.
    Waterfall(waterfall::Args),
    /// Write the report of a run again from its data.
    Report(report::Args),
    /// Open what Prometheus kept of a run, in Prometheus and Grafana.
    Observe(observe::Args),
    /// Make a run again from what its folder keeps.
    Reproduce(reproduce::Args),
    /// Write a static site of a series of runs: the trend of each case.
    Site(site::Args),
    /// Generate load on a URL.
    Load(load::Args),
    /// Measure a control plane with many simulated data planes.
    Fleet(fleet::Args),
    /// Break something under load before each gateway, and count what came of every request.
    Faults(faults::Args),
    /// Serve as an upstream that costs next to nothing.
    Upstream(upstream::Args),
    /// Relay to an upstream as barely as is correct.
    Floor(floor::Args),
    /// Spread connections over several gateways.
    Front(front::Args),
    /// List scenarios, targets, suites and fault scenarios.
    List(list::Args),
    /// End what a session leaves that is killed.
    #[command(hide = true)]
    Guard(host::guard::Args),
    /// Be the upstream server of a fault scenario.
    #[command(hide = true)]
    FaultServer(fault_server::Args),
    /// Do the part of another machine: what a session asks over ssh.
    #[command(hide = true)]
    Agent(host::agent::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to do when even this cannot be written.
            let _ = error.print();
            // Help is no error. 2, which is clap's for wrong arguments, is a verdict of the gate.
            return ExitCode::from(if error.use_stderr() { 3 } else { 0 });
        }
    };
    match perform(cli.command) {
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
        Command::Run(args) => run::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Join(args) => join::run(args),
        Command::Gate(args) => gate::run(args),
        Command::Power(args) => power::run(args),
        Command::Capacity(args) => capacity::run(args),
        Command::Flame(args) => flame::run(args),
        Command::Waterfall(args) => waterfall::run(args),
        Command::Report(args) => report::run(args),
        Command::Observe(args) => observe::run(args),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Site(args) => site::run(args),
        Command::Load(args) => load::run(args),
        Command::Fleet(args) => fleet::run(args),
        Command::Faults(args) => faults::run(args),
        Command::FaultServer(args) => fault_server::run(args),
        Command::Upstream(args) => upstream::run(args),
        Command::Floor(args) => floor::run(args),
        Command::Front(args) => front::run(args),
        Command::List(args) => list::run(args),
        Command::Guard(args) => host::guard::run(args),
        Command::Agent(args) => host::agent::run(args),
    }
}
