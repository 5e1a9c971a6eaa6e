//! `weir completions` and `weir man`: what packages install beside the program, made from its command line.
use super::print_bytes;
use crate::cli::{Cli, Program};
use clap::CommandFactory;
use clap_complete::{Generator, Shell};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Prints a script that completes command lines of a shell.
pub(super) fn completions(shell: Shell, program: Program) -> Result<ExitCode, String> {
    let mut script = Vec::new();
    shell.try_generate(&command(program), &mut script).map_err(|error| error.to_string())?;
    print_bytes(&script)
}

/// Writes a manual page for each command: `weir.1`, `weir-run.1` and so on.
pub(super) fn manual_pages(folder: &Path, program: Program) -> Result<ExitCode, String> {
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command(program), folder));
    written.map(|()| ExitCode::SUCCESS).map_err(|error| {
        format!(
            "the manual pages cannot be written to {}: {error}: name a folder that is writable",
            folder.display()
        )
    })
}

/// The command line, with the names that nested commands have in full; `help` is left out, because `--help` says the same.
fn command(program: Program) -> clap::Command {
    let mut command = without_help(Cli::command().name(program.command()).bin_name(program.command()));
    command.build();
    command
}

fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}
